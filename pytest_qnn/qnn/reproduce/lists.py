"""Contexts out of lists of binaries, as C statements: what the client is notified of, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.reproduce.text import Names, of_case


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    index: int
    names: Names
    globals: list[str]
    scribbles: list[str]

    def fact(self, label: str, expression: str) -> None:
        """How the program sees what the label names at this step."""

    def made(self, value: int | None, name: str) -> None:
        """A call has given a handle, which is in this variable."""


class Created(Protocol):
    """A context of a list, as the case's client knows it."""

    context: int
    """Its handle; 0: it was not notified of."""


class Lists:
    """The lists of a case.

    Attributes:
        entries: contexts of all lists so far.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.entries = 0
        self._awaited: list[tuple[Created, str]] = []
        """Contexts, with their variables, until their client knows them."""
        self._amiss: dict[int, str] = {}

    def begin(self, count: int) -> int:
        """A list of ``count`` contexts; the number of its first."""
        first, self.entries = self.entries, self.entries + count
        return first

    def wait(self, step: case.ContextFromBinary, made: Sequence[Created], first: int) -> None:
        """Statements behind the call: all contexts are waited for; the step's is the last."""
        writer, last = self._writer, first + len(made) - 1
        told = writer.names.free("told")
        writer.globals.append(f"static struct notified {told};")
        amiss = self._amiss[writer.index] = f"{told}.strangely || {told}.never"
        call = f"notifications({first}, {len(made)}, !code)"
        writer.scribbles += [f"{told} = {call};", f"if ({amiss}) break;"]
        for number, each in enumerate(made, first):
            name = writer.names.free(of_case(step.context) if number == last else "ahead")
            writer.globals.append(f"static void* {name} = UNTOUCHED;")
            writer.scribbles.append(f"if (!code) {name} = entries[{number}].context;")
            self._awaited.append((each, name))
            if number == last:
                writer.fact("value:0", name)
        writer.scribbles.append(f"if (!code) code = entries[{last}].status;")
        for label in ("strangely", "refused", "twice", "never"):
            writer.fact(f"notified:{label}", f"{told}.{label}")

    def notified(self) -> None:
        """The client knows the contexts."""
        for each, name in self._awaited:
            self._writer.made(each.context, name)
        self._awaited.clear()

    def ending(self, index: int, *, looked: bool) -> list[str]:
        """Without a step's contexts nothing is to go on; ``looked``: what was found is looked at by then."""
        if index not in self._amiss:
            return []
        ends = "finish()" if looked else 'stop("a list is not notified of as it must be")'
        return [f"if ({self._amiss[index]}) {ends};"]
