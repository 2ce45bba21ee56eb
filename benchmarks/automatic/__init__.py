"""Faults that nobody has thought of: one change at a time in the code of the references, made by a program.

``python -m benchmarks.automatic`` makes them, judges them and counts (docs/measured/automatic.md).
"""
