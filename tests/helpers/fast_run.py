"""What of a parameter's values the fast run takes. The others are marked ``full``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import pytest


def turn(*words: str) -> int:
    """A number that is the same in every process, to choose by."""
    return zlib.crc32(" ".join(words).encode())


def later(*values: Any, name: str | None = None) -> Any:
    """One parameter, or the values of several, for the full run only."""
    return pytest.param(*values, marks=pytest.mark.full, id=name)


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """The first values in the fast run."""
    return [value if place < count else later(value) for place, value in enumerate(values)]


def part(values: Iterable[str], number: int, parts: int = 2) -> list[Any]:
    """In the fast run those values whose checksum has this number: other tests take the other parts."""
    return [value if turn(value) % parts == number else later(value) for value in values]
