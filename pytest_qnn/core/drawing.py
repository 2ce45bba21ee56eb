"""How every case is drawn: one string of bytes, of fixed length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_LEAST = 51
"""Bytes of the shortest string.

In one draw of twenty Hypothesis takes a constant of a module that is loaded, where one fits; so the cases of
a seed would depend on what else a run has imported. It knows byte strings of up to 50 bytes.
"""


def decoded(size: int, decode: Callable[[bytes], T]) -> st.SearchStrategy[T]:
    """What ``decode`` makes of ``size`` drawn bytes. Zero bytes should mean the simplest of all."""
    drawn = max(size, _LEAST)
    return st.binary(min_size=drawn, max_size=drawn).map(lambda data: decode(data[:size]))
