"""What memory a process has, and what of it an execute touches, as C statements and expressions."""

from __future__ import annotations

from typing import Protocol

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.reproduce.text import Names
from pytest_qnn.qnn.runner.state import State


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    state: State | None
    names: Names
    globals: list[str]
    scribbles: list[str]
    buffers: dict[int, str]

    def fact(self, label: str, expression: str) -> None:
        """How the program sees what the label names at this step."""

    def line(self, text: str) -> None:
        """One more statement of the step."""


class TouchedMemory:
    """The looks of a case at the memory of its process.

    Attributes:
        any: there is one.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.any = False
        self._before: dict[int, str] = {}
        """By bytes of a region: the variable of the last look."""

    def _buffers(self) -> tuple[list[str], str]:
        """The client's live buffers by name, and the arguments that say which they are."""
        self.any = True
        state, known = self._writer.state, self._writer.buffers
        live = [
            (name, known[each.pointer])
            for name, each in (state.buffers if state else {}).items()
            if each.live
        ]
        listed = ", ".join(variable for _, variable in live) or "NULL"
        return [name for name, _ in live], f"{len(live)}, (void* const[]){{{listed}}}"

    def look(self, step: case.Observe) -> None:
        """Mappings of the size that the step looks for, compared with the last such look."""
        writer, size = self._writer, step.region
        _, given = self._buffers()
        name = writer.names.free("regions")
        writer.globals.append(f"static struct regions {name};")
        writer.line(f"{name} = regions_now({size}, {given});")
        before, self._before[size] = self._before.get(size, name), name
        writer.fact("regions:filled", f"filled(&{before}, &{name})")

    def watch(self) -> None:
        """Statements around the next call."""
        writer = self._writer
        names, given = self._buffers()
        name = writer.names.free("touched")
        writer.globals.append(f"static struct touched {name};")
        writer.line(f"watch({given});")
        writer.scribbles.append(f"{name} = watched();")
        for number, each in enumerate(names):
            writer.fact(f"used:{each}", f"({name}.own[{number}] > 0)")
