"""Delegate graphs with millions of elements."""

from __future__ import annotations

MILLIONS, MORE = (1 << 21) + 1, (1 << 24) + 1
"""Elements: more than 20 bits count, and (int8 MAXIMUM, the cheapest to compute) more than float32 does."""
