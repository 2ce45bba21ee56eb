"""What of a parameter's values the fast run takes. The others are marked ``full``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from pytest_qnn.core.rule import Subject
from pytest_qnn.rules import catalogue

LARGE = ("NUM-11",)
"""A case of it has tensors of up to 2^24 elements: five take half as long as all other rules together."""


def turn(*words: str) -> int:
    """A number that is the same in every process, to choose by."""
    return zlib.crc32(" ".join(words).encode())


def later(*values: Any, name: str | None = None) -> Any:
    """One parameter, or the values of several, for the full run only."""
    return pytest.param(*values, marks=pytest.mark.full, id=name)


def first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """The first values in the fast run."""
    return [value if place < count else later(value) for place, value in enumerate(values)]


def alternating(rows: Iterable[Any], columns: Sequence[Any]) -> list[Any]:
    """Pairs of rows and columns: in the fast run one for each row, with the columns in turn."""
    return [
        pytest.param(row, column, marks=() if (number + place) % len(columns) == 0 else (pytest.mark.full,))
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


def part(values: Iterable[str], number: int, parts: int = 2) -> list[Any]:
    """In the fast run those values whose checksum has this number: other tests take the other parts."""
    return [value if turn(value) % parts == number else later(value) for value in values]


def some_of(subject: Subject, *names: str) -> list[str]:
    """These rules, and one of each area of the subject, which a checksum chooses."""
    rules = [rule for rule in catalogue().values() if rule.subject == subject]
    by_name = sorted(rules, key=lambda rule: turn(rule.id))
    return sorted({*names, *{rule.area: rule.id for rule in by_name}.values()})


def expression(names: Iterable[str]) -> str:
    """What ``-k`` takes for rules, or areas."""
    return " or ".join(f"test_{name.lower().replace('-', '_')}" for name in names)


def slice_of(names: Iterable[str], number: int, parts: int) -> set[str]:
    """One part of the tests: of each function's, by name, each so many-th; a checksum says which is first."""
    functions: dict[str, list[str]] = {}
    for name in sorted(names):
        functions.setdefault(name.partition("[")[0], []).append(name)
    return {
        name
        for function, own in functions.items()
        for name in own[(number + turn(function)) % parts :: parts]
    }
