"""Arguments of a live session's methods: what cannot be meant is told in one sentence, before any call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pytest_qnn.qnn.cases.case import Binding, Step

_MOST: Final = 2**32 - 1
"""Dimensions are uint32_t."""


def step(given: object) -> None:
    """Raise TypeError unless it is a step."""
    __tracebackhide__ = True
    if not isinstance(given, Step):
        raise TypeError(f"a step is an object of a class of pytest_qnn.memory_steps, not {given!r:.80}")


def size(given: object) -> None:
    """Raise TypeError unless it is a number of bytes."""
    __tracebackhide__ = True
    if not _is_number(given):
        raise TypeError(f"a size is a whole number of bytes, not {given!r:.80}")


def shape(given: object) -> tuple[int, ...]:
    """The dimensions of a tensor. Raises TypeError and ValueError."""
    __tracebackhide__ = True
    if not isinstance(given, (tuple, list)) or not all(map(_is_number, given)):
        raise TypeError(f"a shape is a tuple of whole numbers, not {given!r:.80}")
    if not all(0 <= one <= _MOST for one in given):
        raise ValueError(f"a dimension is 0 to {_MOST}, as a uint32_t is, in the shape {given!r:.80}")
    return tuple(given)


def one_of(noun: str, given: object, names: tuple[Any, ...]) -> None:
    """Raise ValueError unless it is one of the names."""
    __tracebackhide__ = True
    if given not in names:
        raise ValueError(f"{noun} is one of {', '.join(names)}, not {given!r:.80}")


def handles(given: Iterable[object]) -> None:
    """Raise TypeError unless all are names of memory handles."""
    __tracebackhide__ = True
    for one in given:
        if not isinstance(one, str):
            raise TypeError(f"a memory handle is a name from register(), and not {one!r:.80}")


def bindings(given: Iterable[object]) -> None:
    """Raise TypeError unless all are bindings."""
    __tracebackhide__ = True
    for one in given:
        if not isinstance(one, Binding):
            raise TypeError(
                f"the memory of a tensor is a Binding(seed=...) or Binding('handle', NAME), not {one!r:.80}"
            )


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)
