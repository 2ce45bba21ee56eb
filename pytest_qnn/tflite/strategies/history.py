"""What comes before a case: classes of ordinary life, each met in every search.

Two bytes in front of those that the case itself is decoded from: the first chooses the class, a sixteenth of
its values each, and is spread evenly over the examples of a search (`pytest_qnn.core.drawing.strings`); the
second chooses the numbers. Zeros are no history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import prefixed
from pytest_qnn.tflite.cases.history import History

BYTES: Final = 2
_STRATA: Final = 16

_RARE: Final = 224
"""From this value of the second byte on there are most repetitions and most invokes, which cost most."""

CLASSES: Final[dict[str, Callable[[int], History]]] = {
    "interpreters": lambda byte: History(used=2 + byte % 3, repeated=1 + (byte >> 4) % 3),
    "hundreds": lambda byte: (
        History(made=96 + byte % 161, used=9 + byte % 8) if byte < _RARE else History(repeated=16 + byte % 25)
    ),
    "failures": lambda byte: History(failed=1 + byte % 8, used=byte >> 4 & 1),
    "turns": lambda byte: History(kept=1 + byte % 3, invokes=1 + (byte >> 4) % 4, warm=2 + byte % 2),
    "invokes": lambda byte: History(used=1, invokes=4 + byte % 14, warm=(4, 100)[byte >= _RARE] + byte % 13),
    "upkeep": lambda byte: History(
        used=1 + byte % 3, invokes=2, resized=True, profiled=True, kept=byte >> 4 & 1, warm=3
    ),
}
"""By name: what the second byte makes of the class."""


def class_of(byte: int) -> str:
    """The class that the first byte chooses; empty: none."""
    none = _STRATA - len(CLASSES)
    place = byte * _STRATA // 256 - none
    return list(CLASSES)[place] if place >= 0 else ""


def history_of(data: bytes) -> History | None:
    """What two bytes stand for."""
    chosen = class_of(data[0])
    return CLASSES[chosen](data[1]) if chosen else None


def with_history(cases: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """The cases, some of them with a history."""
    return prefixed(BYTES, cases, _behind)


def _behind(case: Any, data: bytes) -> Any:
    history = history_of(data)
    return case if history is None else replace(case, history=history)
