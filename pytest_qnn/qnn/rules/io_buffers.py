"""Seed 001's table as seen from outside: which IO buffers appear when, and which of them are touched."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.qnn.abi.codes import TensorMemType
from pytest_qnn.qnn.cases.case import (
    ContextFromBinary,
    Execute,
    MemoryCase,
    Observe,
    Prepare,
    Retrieve,
)
from pytest_qnn.qnn.cases.sizes import PAGE, io_inputs, nbytes
from pytest_qnn.qnn.facts import HTP_BACKEND_ID
from pytest_qnn.qnn.rules.graphs import kinds
from pytest_qnn.qnn.rules.judging import facts_of, require_session
from pytest_qnn.qnn.strategies.graphs import execute, prepared
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts

Regions = dict[int, int]
"""Address -> resident bytes of mappings of a tensor's size, or of that of all tensors of a graph together."""


class Inference(msgspec.Struct, frozen=True):
    """One successful execute with a look directly before and after it."""

    step: int
    kinds: set[str]
    new: Regions
    """Mappings that appeared during it."""
    before: Regions
    """Those of preparation, as they were before it."""
    after: Regions
    """Those of preparation that are still there after it."""
    present: frozenset[int]
    """Addresses of all mappings of the size after it, whenever they appeared."""
    unexplained: int
    """Bytes by which the process grew during it beside the new mappings and the bytes of the trace."""


class Row(msgspec.Struct, frozen=True):
    """One prepared graph with a look directly before and after its preparation."""

    step: int
    made: Prepare
    size: int
    """Bytes of the mappings that were looked for."""
    tensors: int
    """IO tensors."""
    raw: int
    """IO tensors prepared RAW."""
    at_prepare: Regions
    unexplained: int
    """Bytes by which the process grew during preparation beside these mappings."""
    inferences: tuple[Inference, ...]

    @property
    def visible(self) -> bool:
        """Some IO buffer was seen to appear."""
        return bool(self.at_prepare) or any(inference.new for inference in self.inferences)

    @property
    def per_tensor(self) -> int:
        """IO buffers of each tensor, where preparation shows it; 0: it does not.

        Seed 001 says that memory is allocated, and not that a tensor has no more than one buffer.
        """
        return len(self.at_prepare) // self.raw if self.raw and len(self.at_prepare) % self.raw == 0 else 0

    @property
    def ambiguous(self) -> bool:
        """The process grew by a tensor or more that is not among the mappings of a tensor's size."""
        size = nbytes(self.made.shape, self.made.dtype)
        return max(self.unexplained, *(each.unexplained for each in self.inferences), 0) >= size

    def touched(self, resident: int) -> bool:
        """So many resident bytes hold a whole tensor: it was copied there."""
        return resident >= nbytes(self.made.shape, self.made.dtype) // PAGE * PAGE


def rows(case: MemoryCase, trace: MemoryTrace, *, whole: bool = False) -> list[Row]:
    """Every prepare of the case that succeeded between two looks for its tensors' size.

    ``whole``: for the size of all its IO tensors together.
    """
    made = [
        _row_at(case, trace, index, step, whole)
        for index, step in enumerate(case.steps)
        if isinstance(step, Prepare)
    ]
    return [row for row in made if row is not None]


def loads(case: MemoryCase, trace: MemoryTrace, *, whole: bool = False) -> list[Row]:
    """As `rows`: each load of a binary of one graph, with the executes of the graph that comes out of it."""
    prepared = {step.graph: step for step in case.steps if isinstance(step, Prepare)}
    contexts = {step.context: at for at, step in enumerate(case.steps) if isinstance(step, ContextFromBinary)}
    found = []
    for step in case.steps:
        if isinstance(step, Retrieve) and step.context in contexts and step.source in prepared:
            made = msgspec.structs.replace(prepared[step.source], graph=step.graph)
            row = _row_at(case, trace, contexts[step.context], made, whole)
            found += [row] if row is not None else []
    return found


def _row_at(case: MemoryCase, trace: MemoryTrace, index: int, made: Prepare, whole: bool) -> Row | None:
    """The graph called ``made.graph`` that step ``index`` brought about, as its Prepare describes it.

    None: the step failed, or there is no look directly before and after it.
    """
    if index >= len(trace.steps) or trace.steps[index].code != 0:
        return None
    tensors = io_inputs(made) + 1
    size = nbytes(made.shape, made.dtype) * (tensors if whole else 1)
    around = _around(case, trace, index, size)
    if around is None:
        return None
    raw = tensors - sum(kind == TensorMemType.MEMHANDLE for kind in made.mem_types[:tensors])
    new = _new(*around)
    growth = _unexplained(trace, index, size, new)
    return Row(index, made, size, tensors, raw, new, growth, _inferences(case, trace, made, size, new))


def _inferences(
    case: MemoryCase, trace: MemoryTrace, made: Prepare, size: int, at_prepare: Regions
) -> tuple[Inference, ...]:
    found = []
    for index, step in enumerate(case.steps[: len(trace.steps)]):
        if not isinstance(step, Execute) or step.graph != made.graph or trace.steps[index].code != 0:
            continue
        around = _around(case, trace, index, size)
        if around is None:
            continue
        before, after = around
        new = _new(before, after)
        found.append(
            Inference(
                index,
                kinds(step),
                new,
                {address: before[address] for address in at_prepare if address in before},
                {address: after[address] for address in at_prepare if address in after},
                frozenset(after),
                _unexplained(trace, index, size, new),
            )
        )
    return tuple(found)


def _around(case: MemoryCase, trace: MemoryTrace, index: int, size: int) -> tuple[Regions, Regions] | None:
    """The looks directly before and after a step, if there are any for this size."""
    looks = []
    for at in (index - 1, index + 1):
        if not 0 <= at < len(trace.steps) or case.steps[at] != Observe(size) or trace.steps[at].skipped:
            return None
        looks.append(dict(trace.steps[at].regions))
    return looks[0], looks[1]


def _unexplained(trace: MemoryTrace, index: int, size: int, new: Regions) -> int:
    """Growth of the process between the looks around a step, beside new mappings and the trace itself."""
    before, after = (trace.steps[at].counted(ProcessCounts) for at in (index - 1, index + 1))
    grown = after.vm - after.kept - (before.vm - before.kept)
    return grown - len(new) * size


def _new(before: Regions, after: Regions) -> Regions:
    return {address: resident for address, resident in after.items() if address not in before}


def require_htp(trace: MemoryTrace) -> None:
    """Raise Unsupported for a backend that is not the HTP: seed 001 says nothing of its IO buffers."""
    require_session(trace)
    backend = facts_of(trace).backend_id
    if backend != HTP_BACKEND_ID:
        raise Unsupported(
            f"seed 001 speaks of the HTP backend (id {HTP_BACKEND_ID}); this one has id {backend}"
        )


def require_visible(found: list[Row]) -> None:
    """Raise Unsupported when nothing can be said of allocation, though all calls were answered.

    A backend that works in the caller's buffers, as Qualcomm's simulator for x86-64 does, or allocates all
    IO buffers in one piece, which QMG-13 judges, shows none in any row: there is nothing to judge. One that
    shows buffers in one row of the case is judged strictly in all; except that a case proves nothing in which
    the process grew otherwise by the size of a tensor, since neighbouring anonymous mappings merge.
    """
    if found and not any(row.visible for row in found):
        raise Unsupported("no IO buffer can be seen from outside in this process")
    if any(row.ambiguous for row in found):
        raise Unsupported("IO buffers cannot be told apart: the process grew in mappings of other sizes")


def demand_at_prepare(row: Row) -> None:
    """As many new IO buffers for each tensor that was prepared RAW, at least one, and none for the others."""
    if len(row.at_prepare) != row.raw and not row.per_tensor:
        raise Violation(
            f"{row.raw} IO buffers allocated at preparation ({row.raw} of {row.tensors} tensors are RAW)",
            f"{len(row.at_prepare)}",
            f"step {row.step}, prepare",
        )


def demand_new(row: Row, inference: Inference, tensors: int, because: str) -> None:
    """New IO buffers for so many tensors during the execute, as many for each as others of the graph have."""
    found = len(inference.new)
    each = row.per_tensor or (found // tensors if tensors and found % tensors == 0 else 1)
    wanted = max(1, each) * tensors
    if found != wanted:
        expected = f"{wanted} IO buffers allocated: {because}"
        raise Violation(expected, f"{found}", f"step {inference.step}, execute")


def demand_copied(row: Row, inference: Inference, regions: Regions) -> None:
    """Of the IO buffers in ``regions``, one of each tensor that they are for holds it after the execute."""
    untouched = [resident for resident in regions.values() if not row.touched(resident)]
    each = row.per_tensor or max(1, len(inference.new) // max(1, row.tensors - row.raw))
    if len(regions) - len(untouched) < len(regions) // each:
        seen = f"{len(untouched)} of {len(regions)} IO buffers are not filled (resident bytes {untouched})"
        raise Violation("raw inputs and outputs are copied", seen, f"step {inference.step}, execute")


def demand_not_copied(row: Row, inference: Inference) -> None:
    """No IO buffer of preparation was filled by the execute (one that was full already tells nothing)."""
    for address, resident in inference.after.items():
        if row.touched(resident) and not row.touched(inference.before.get(address, 0)):
            seen = f"an IO buffer has {resident} resident bytes afterwards"
            raise Violation("the copy is avoided", seen, f"step {inference.step}, execute")


PLAIN: tuple[int, ...] = ()
SMALL = (1, 2, 2, 2)
"""Shape of the tensors of a graph beside the one that a rule is about."""
HINTED = (1, 1, 1)
"""Every IO tensor is created with memory type MEMHANDLE."""


def size_of(scene: Scene, name: str) -> int:
    """Bytes of a tensor of the graph, which are what its IO buffers have."""
    made = scene.graphs[name]
    return nbytes(made.shape, made.dtype)


def watched(scene: Scene, tape: Tape, mem_types: tuple[int, ...]) -> str:
    """A graph of large tensors with a look before and after its preparation; "" without operators.

    A small graph in a context of its own is executed first: libQnnHtp maps arenas with the first graph of a
    process, which would hide the IO buffers of that one (facts, 7.20).
    """
    if not any(isinstance(step, Execute) for step in scene.steps):
        small = prepared(scene, tape.cut(4), PLAIN, SMALL)
        if small:
            execute(scene, small, None)
    shape = (1, 3, 251, 201 + 2 * tape.below(64))
    name = prepared(scene, tape, mem_types, shape)
    if name:
        made = scene.steps.pop()
        look = Observe(size_of(scene, name))
        scene.steps += [look, made, look]
    return name
