"""Commands for those who work on pytest-qnn.

PYTEST_DONT_REWRITE: as in `benchmarks`.
"""
