"""What memory a process has, and what of it an execute touches, as C statements and expressions."""

from __future__ import annotations

from typing import Protocol

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.sizes import PAGE, nbytes, pages
from pytest_qnn.qnn.reproduce import copies
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.text import Names
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import MemoryTrace


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    index: int
    state: State | None
    step: case.AnyStep | None
    facts: dict[Where, str]
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
        self._names: dict[int, str] = {}
        """By step: the variable of what its execute has touched."""
        self._late: dict[int, str] = {}
        """By step: bytes of tensors that a library may map while it executes, and that are new then."""

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
        self._names[writer.index], self._late[writer.index] = name, self._mapped_late(name, names)
        for number, each in enumerate(names):
            writer.fact(f"used:{each}", f"({name}.own[{number}] > 0)")

    def _mapped_late(self, name: str, names: list[str]) -> str:
        """As `pytest_qnn.qnn.trace.ExecuteCounts.mapped_late`."""
        state, step = self._writer.state, self._writer.step
        if state is None or not isinstance(step, case.Execute) or step.graph not in state.graphs:
            return "0"
        own = {id(each): names.index(buffer) for buffer, each in state.buffers.items() if each.live}
        handles = [state.handles.get(each.handle) for each in step.bindings if each.kind != "raw"]
        shared = [each.buffer for each in handles if each is not None and each.buffer is not None]
        late = " + ".join(
            f"({name}.mapped[{own[id(each)]}] <= {pages(each.size)})" for each in shared if id(each) in own
        )
        made = state.graphs[step.graph].step
        return f"({late}) * {pages(nbytes(made.shape, made.dtype)) + PAGE}" if late else "0"

    def compare(self, steps: tuple[case.AnyStep, ...], trace: MemoryTrace) -> None:
        """All executes are over: how the program sees whether those with handles copy tensors."""
        if self._names:
            of = self._names.__getitem__, self._late.__getitem__
            for step, label, expression in copies.expressions(steps, trace, *of):
                self._writer.facts[Where(step, label)] = expression
