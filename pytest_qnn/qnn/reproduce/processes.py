"""Several processes, one after the other: what each hands on to the next, as C statements.

A client keeps a binary in a file, and knows the graphs in it. A program has both in memory that its processes
share: what is handed on has a number, and the next process takes it over into the same variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.reproduce.text import Names, of_case


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    names: Names
    globals: list[str]
    calls: list[Any]
    binaries: dict[str, tuple[str, str]]
    first_looks: dict[str, str]

    def begin(self, index: int, step: case.AnyStep | None) -> None:
        """The statements from now on are those of a step."""

    def line(self, text: str) -> None:
        """One more statement of the step."""

    def id_names(self) -> list[str]:
        """The variables of all tensors' ids."""


class Processes:
    """The processes of a case.

    Attributes:
        begun: the number of calls that the processes before have made.
        starts: the steps that begin a process, but for the first.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.begun = 0
        self.starts: list[int] = []
        self.several = False
        """There is more than one: binaries are handed on."""
        self._slots = 0
        self._binaries: dict[str, int] = {}
        self._ids: dict[str, list[tuple[int, str]]] = {}

    def keep(self, binary: str) -> None:
        """A binary was made: it is handed on, with the ids of all tensors."""
        writer = self._writer
        if not self.several or binary not in writer.binaries:
            return
        held, size = writer.binaries[binary]
        self._binaries[binary] = self._hand_on(held, size)
        self._ids[binary] = [
            (self._hand_on(f"&{name}", f"sizeof {name}"), name) for name in writer.id_names()
        ]

    def _hand_on(self, pointer: str, size: str) -> int:
        number, self._slots = self._slots, self._slots + 1
        self._writer.line(f"hand_on({number}, {pointer}, {size});")
        return number

    def next(self, index: int, step: case.AnyStep, close: Callable[[], None]) -> None:
        """A process ends with what ``close`` writes, and the next one begins."""
        writer = self._writer
        writer.begin(index, step)
        writer.line(f"if (process == {len(self.starts)}) {{")
        close()
        writer.line("} else {")
        self.begun = len(writer.calls)
        self.starts.append(index)
        writer.first_looks.clear()

    def take_over(self, binary: str) -> None:
        """The new process has the binary."""
        writer = self._writer
        if binary not in self._binaries:
            return
        name, size = writer.names.free(of_case(binary)), writer.names.free(f"{of_case(binary)}_size")
        writer.globals += [f"static unsigned char* {name};", f"static uint64_t {size};"]
        writer.line(f"{name} = taken_over({self._binaries[binary]}, &{size});")
        writer.binaries[binary] = (name, size)
        for number, own in self._ids[binary]:
            writer.line(f"memcpy(&{own}, taken_over({number}, NULL), sizeof {own});")

    def ready(self) -> None:
        """All is taken over."""
        self._writer.line("}")
