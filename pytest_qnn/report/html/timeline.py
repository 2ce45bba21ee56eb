"""The time line of a memory case: which contexts, buffers, handles, ... live when; which step failed.

What lives is what would live if each step did what it asks for (`pytest_qnn.qnn.cases.lives.Alive`): a report
keeps the case and the violation, and not what each call answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.qnn.cases import case as steps
from pytest_qnn.qnn.cases.lives import Alive, used_by
from pytest_qnn.qnn.cases.valid import check_memory

KINDS = {
    "contexts": "context",
    "graphs": "graph",
    "buffers": "buffer",
    "handles": "handle",
    "binaries": "binary",
    "sections": "section",
}
"""Attribute of `Alive` to what an object of it is called, in the order in which lanes are drawn."""
_STEP = re.compile(r"\bstep (\d+)\b")
GUTTER, COLUMN, LANE, TOP = 104, 40, 30, 30
"""Pixels: width of the names and of a step, heights of a lane and of the head."""
_NARROW, _MANY = 14, 40
"""Width of a step where there are more than so many."""
MOST_LANES = 40
_MOST_PARTS = 4
"""Descriptors or bindings of a step that are shown; the case itself is in the page as well."""


class StepText(NamedTuple):
    """A step in words."""

    number: int
    call: str
    text: str
    failed: bool


class Bar(NamedTuple):
    """An object's life, in pixels."""

    left: float
    width: float


class Mark(NamedTuple):
    """A step that uses an object."""

    middle: float
    kind: str
    """``executed``, ``used``, or ``dead``: the object was not alive."""
    title: str


class Lane(NamedTuple):
    """An object, with its lives and its uses."""

    name: str
    kind: str
    top: float
    bars: Sequence[Bar]
    marks: Sequence[Mark]


class Column(NamedTuple):
    """A step."""

    left: float
    number: int
    failed: bool
    ends: bool
    """The process ends at it."""


class Timeline(NamedTuple):
    """What is drawn, in pixels from the upper left corner, and each step in words."""

    width: float
    height: float
    column: float
    """Width of each column."""
    lanes: Sequence[Lane]
    more: int
    """Objects that are not drawn, beyond `MOST_LANES`."""
    columns: Sequence[Column]
    steps: Sequence[StepText]


def timeline(case: Any, where: str) -> Timeline | None:
    """The time line of a case.

    Args:
        case: the minimal case of a finding, as JSON data.
        where: `violation.where`, which numbers the step that failed.

    Returns:
        None where it is no memory case, or none that may be run.
    """
    try:
        found = msgspec.convert(case, steps.MemoryCase)
        check_memory(found)
    except ValueError:  # msgspec's, and BadCase
        return None
    number = _STEP.search(where)
    failed = int(number[1]) if number else -1
    lived = list(_lives(found.steps))
    wide = COLUMN if len(found.steps) <= _MANY else _NARROW
    shown = lived[:MOST_LANES]
    return Timeline(
        width=GUTTER + wide * (len(found.steps) + 0.5),
        height=TOP + LANE * len(shown) + 6,
        column=wide,
        lanes=[_lane(each, place, wide) for place, each in enumerate(shown)],
        more=len(lived) - len(shown),
        columns=list(_columns(found.steps, wide, failed)),
        steps=list(_texts(found.steps, case, failed)),
    )


class _Life(NamedTuple):
    """An object: steps from which, and before which, it lives, and those that use it."""

    kind: str
    name: str
    spans: list[tuple[int, int]]
    uses: list[tuple[int, str]]


def _lives(sequence: Sequence[steps.AnyStep]) -> Iterator[_Life]:
    """Each object that a case ever has, by kind, in the order in which they are made."""
    alive = Alive()
    found: dict[tuple[str, str], _Life] = {}
    for number, step in enumerate(sequence):
        before = _living(alive)
        alive.follow(step)
        after = _living(alive)
        for key in after - before:
            found.setdefault(key, _Life(*key, [], [])).spans.append((number, len(sequence)))
        for key in before - after:
            start, _ = found[key].spans[-1]
            found[key].spans[-1] = start, number
        for name in dict.fromkeys(used_by(step)):
            for key, life in found.items():
                if key[1] == name and key not in after - before:
                    life.uses.append((number, _use(step, key[0], is_alive=key in before)))
    return iter(sorted(found.values(), key=lambda life: [*KINDS].index(life.kind)))


def _living(alive: Alive) -> set[tuple[str, str]]:
    return {(kind, name) for kind in KINDS for name in getattr(alive, kind)}


def _use(step: steps.AnyStep, kind: str, *, is_alive: bool) -> str:
    if not is_alive:
        return "dead"
    return "executed" if isinstance(step, steps.Execute) and kind == "graphs" else "used"


def _lane(life: _Life, place: int, wide: float) -> Lane:
    what = KINDS[life.kind]
    said = {"dead": f"{what} {life.name} is used and does not live", "used": f"{what} {life.name} is used"}
    marks = [
        Mark(
            _middle(number, wide), kind, f"step {number}: {said.get(kind, f'graph {life.name} is executed')}"
        )
        for number, kind in life.uses
    ]
    bars = [Bar(_middle(start, wide), wide * (end - start)) for start, end in life.spans]
    return Lane(life.name, what, TOP + LANE * place, bars, marks)


def _middle(number: int, wide: float) -> float:
    return GUTTER + wide * (number + 0.5)


def _columns(sequence: Sequence[steps.AnyStep], wide: float, failed: int) -> Iterator[Column]:
    for number, step in enumerate(sequence):
        yield Column(GUTTER + wide * number, number, number == failed, isinstance(step, steps.NewProcess))


def _texts(sequence: Sequence[steps.AnyStep], case: Any, failed: int) -> Iterator[StepText]:
    for number, (step, given) in enumerate(zip(sequence, case["steps"], strict=True)):
        values = {key: value for key, value in given.items() if key != "do"}
        yield StepText(number, str(step.__struct_config__.tag), _words(values), number == failed)


def _words(value: Any) -> str:
    """The values of a step: ``context c0, descriptors (buffer b0, shape [8])``."""
    if isinstance(value, dict):
        return ", ".join(
            f"{key.replace('_', '-')} {_words(part)}" for key, part in value.items() if key != "do"
        )
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        more = [f"and {len(value) - _MOST_PARTS} more"] * (len(value) > _MOST_PARTS)
        return " ".join([*(f"({_words(part) or 'raw'})" for part in value[:_MOST_PARTS]), *more])
    if isinstance(value, list):
        return f"[{' '.join(map(str, value))}]"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"
