"""EXT: whether external memory is used."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported
from pytest_qnn.qnn.cases.case import (
    AllocNeeded,
    Execute,
    MemoryCase,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.cases.memory import SPILL, WEIGHTS
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.model.notes import Note
from pytest_qnn.qnn.rules.binaries import judge_flow, require_external, require_page_alignment
from pytest_qnn.qnn.rules.graphs import require_execution
from pytest_qnn.qnn.rules.judging import demand_code, place
from pytest_qnn.qnn.strategies.binaries import external, finalised, given, retrieved
from pytest_qnn.qnn.strategies.external import begun, ended
from pytest_qnn.qnn.strategies.graphs import execute, load, own_buffers
from pytest_qnn.qnn.strategies.history import without
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_GATE = ("202", "217", "1101", "1103")
_SOME = ((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL))


def _used(scene: Scene, tape: Tape) -> None:
    """EXT-33: external memory of either kind or both, and executes with handles that are measured."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    for role in tape.pick(_SOME):
        given(scene, context, role, external(scene, context, role))
    finalised(scene, context)
    for source in made.graphs:
        name = retrieved(scene, context, source)
        memory = own_buffers(scene, tape, name, scene.types[0])
        for turn in range(2):
            load(scene, name, memory, 16 * turn)
            execute(scene, name, memory)
            scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], measured=True)


def _holding(prepared: Prepare) -> dict[Note, str]:
    """What the graph has in external memory."""
    found = {Note.WEIGHTS: "weights"} if prepared.weights is not None else {}
    return found | ({Note.SPILL: "spill-fill"} if prepared.relay else {})


@rule(
    "EXT-33",
    Level.SHOULD,
    "Executes use the external memory of their context: for the weights of a graph, and for what lies "
    "between its nodes.",
    source=f"{_FLOW}, step 4 (used by QNN to store all the weights; shared between all graphs)",
    subject="memory",
    cases=embedded(_used, before=1, without=without("EXT-33")),
    gate=_GATE,
)
def ext_33(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Looks at which pages of the buffers the process uses during an execute.

    Where it does not use those of the inputs either, another processor computes, and nothing is seen.
    What a client writes to the buffers itself has no specified effect, so nothing is written.
    """
    require_external(case, trace)
    require_page_alignment(case, trace)
    judge_flow(case, trace, "the context has external memory")
    prepared = {step.graph: step for step in case.steps if isinstance(step, Prepare)}
    retrieval = {step.graph: step for step in case.steps if isinstance(step, Retrieve)}
    buffers: dict[tuple[str, Note], str] = {}
    count = 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Register) and walked.allowed.valid and walked.code == 0:
            notes = [note for note in (Note.WEIGHTS, Note.SPILL) if note in walked.allowed.notes]
            buffers |= {(step.context, note): step.descriptors[0].buffer for note in notes}
        if not isinstance(step, Execute) or not step.measured or walked.code != 0:
            continue
        source = retrieval.get(step.graph)
        used = dict(walked.seen.counted(ExecuteCounts).buffers)
        if source is None or source.source not in prepared:
            continue
        external_memory = {buffer for (context, _), buffer in buffers.items() if context == source.context}
        if not any(bytes_used for buffer, bytes_used in used.items() if buffer not in external_memory):
            raise Unsupported("the process is not seen to use the inputs: the graph is computed elsewhere")
        for note, what in _holding(prepared[source.source]).items():
            buffer = buffers.get((source.context, note), "")
            if used.get(buffer, 1) == 0:
                wanted = f"the external {what} memory ({buffer}) used by the execute"
                raise Measured(wanted, "no page of it is", place(walked))
            count += buffer in used
    require_execution(trace)
    return Examined(count, "external buffers during executes")


def _own(scene: Scene, tape: Tape) -> None:
    """EXT-35: external memory that rpcmem knows nothing of, all or some of it."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    roles = tape.pick(_SOME)
    for role in roles:
        other = len(roles) > 1 and tape.chance(4)
        given(scene, context, role, external(scene, context, role, own=not other))
    ended(scene, made, context, tape.below(16))


@rule(
    "EXT-35",
    Level.MUST,
    "External memory may be the client's own DMA buffer: it need not come from rpcmem_alloc.",
    source=f"{_FLOW}, code example (DMA buffers can be allocated using custom allocator or rpcmem_alloc)",
    subject="memory",
    cases=embedded(_own, before=1),
    gate=_GATE,
)
def ext_35(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registrations of such memory, and whatever follows, succeed.

    It comes from /dev/dma_heap/system where that is there, else from memfd_create.
    """
    require_external(case, trace)
    require_page_alignment(case, trace)
    own = {step.buffer for step in case.steps if isinstance(step, AllocNeeded) and step.own}
    because = "the client has made the memory itself"
    count = 0
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Register) and walked.allowed.valid and own & {d.buffer for d in step.descriptors}:
            demand_code(walked, {0}, because)
            count += walked.code == 0
    judge_flow(case, trace, because)
    return Examined(count, "external buffers of the client's own")
