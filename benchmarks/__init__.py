"""Benchmarks: what performance claims rest on.

PYTEST_DONT_REWRITE: no assertion here is a test's. (The list of files that setuptools leaves in a clone has
it among the plugin's, and pytest would warn that it was imported too early.)
"""
