"""Requests of a library that are refused during a call, as C statements around the calls of a life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.text import literal

LABELS: Final = ("refused:calls", "refused:failed", "refused:output")
"""What may be amiss: behind which calls, which call fails then, or an output that differs."""
_ALONE: Final = "refused:alone:"
"""Begins a fact about one call: the bit that stands for it."""


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    def line(self, text: str) -> None:
        """One more statement of the step."""

    def fact(self, label: str, expression: str) -> None:
        """How the program sees what the label names at this step."""


class Refusals:
    """The life whose calls are written now.

    Attributes:
        any: the program has lives.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.any = False
        self._inside = self._closing = False
        self._bits: dict[str, int] = {}
        self._left: set[str] = set()
        """Calls of which a request may be refused, and that the life has not made yet."""

    def begin(self, calls: Sequence[str]) -> None:
        """The calls from now on are a life's; of these a request may be refused, each the first time."""
        self.any = self._inside = True
        self._closing = False
        self._bits = {name: number for number, name in enumerate(calls)}
        self._left = set(calls)
        for name in calls:
            self._writer.fact(f"{_ALONE}{name}", f"0x{1 << self._bits[name]:x}u")
        for label in LABELS:
            self._writer.fact(label, "amiss")

    def close(self) -> None:
        """The calls from now on give back what the life has made: each is made, whatever another answers."""
        self._closing = True

    def end(self) -> None:
        """The life is over."""
        self._inside = False

    def around(self, name: str, call: str) -> str:
        """The statement of a call."""
        if not self._inside or name not in self._left:
            return f"{call};"
        self._left.discard(name)
        number = self._bits[name]
        self._writer.line(f"refuse({number});")
        return f"do {call}; while (again({number}));"

    def behind(self, name: str) -> str:
        """The statement behind a call of a life; empty: the call is none of a life's."""
        if not self._inside:
            return ""
        told = f'fails("{function_name(name)}");'
        return f"if (code) {told}" if self._closing else f"if (code) {{ {told} break; }}"


def statement(slot: int, place: Where, found: tuple[str, ...], facts: Mapping[Where, str]) -> str:
    """The statement that looks at what is amiss behind a refusal (`observed.observations`)."""
    if place.label == "refused:output":
        return f'observe({slot}, "an output is another one than without a refusal", amiss.differs);'
    *calls, code = found
    if place.label == "refused:failed":
        name = literal(function_name(calls[0]).encode())
        shown = f"{function_name(calls[0])} gives {code} behind it, with nothing refused"
        failed = f"amiss.failed && !strcmp(amiss.failed, {name}) && amiss.failed_code == UINT64_C({code})"
        return f'observe({slot}, "{shown}", {failed});'
    names = " and ".join(map(function_name, calls))
    answers = "answers" if len(calls) == 1 else "answer"
    bits = " | ".join(facts[Where(place.step, f"{_ALONE}{name}")] for name in calls)
    answered = f"amiss.refused == ({bits}) && amiss.answer == UINT64_C({code})"
    shown = f"{names}, refused something, {answers} {code}; then something is amiss"
    return f'observe({slot}, "{shown}", {answered});'
