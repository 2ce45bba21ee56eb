"""DRG: calls with no handle or with handles of several contexts, orders of ending, and threads."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.cases.memory import (
    Deregister,
    Execute,
    Free,
    MemoryCase,
    Observe,
    Register,
)
from pytest_qnn.cases.memory_probes import Parallel
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.facts import MemoryFacts
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.rules.memory_support import (
    demand_code,
    demand_outputs,
    judge_valid,
    own_steps,
    place,
    require_memory,
    require_memory_type,
    require_operator,
    require_session,
)
from pytest_qnn.rules.rpc_support import demand_steady
from pytest_qnn.trace import MemoryTrace


def _nothing(scene: Scene, tape: Tape) -> None:
    """A live handle is passed with a count of 0; then it is used."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    handles = scene.tensor_memory(graph) if graph else scene.register(context, scene.descriptor(tape))
    scene.add(Deregister(handles[: 1 + tape.below(len(handles))], count=0))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "DRG-07",
    Level.MAY,
    "A count of 0 succeeds or is refused; nothing happens.",
    source="QnnMem.h: QnnMem_deRegister is silent; libQnnGpu answers 8000",
    subject="memory",
    cases=embedded(_nothing),
    gate=("1101",),
)
def drg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8000, and live handles stay live. The choice is in the report."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Deregister | Execute)):
        if walked.allowed.only("count-zero"):
            demand_code(walked, walked.allowed.codes)
            count += 1
        elif count and walked.allowed.valid:
            demand_code(walked, {0}, "the call with a count of 0 deregisters nothing")
    if count:
        demand_outputs(case, trace, lambda w: w.allowed.valid)
    return Examined(count, "deregistrations of nothing")


def _of_several(scene: Scene, tape: Tape) -> None:
    """Handles of two or three contexts in one call, mixed."""
    contexts = [scene.context() for _ in range(2 + tape.below(2))]
    handles = [scene.register(context, scene.descriptor(tape.cut(4)))[0] for context in contexts]
    if tape.below(2):
        handles += scene.register(contexts[0], scene.descriptor(tape.cut(4)))
    scene.deregister(*handles[:: -1 if tape.below(2) else 1])


@rule(
    "DRG-08",
    Level.SHOULD,
    "One call may deregister handles of several contexts.",
    source="QnnMem.h: QnnMem_deRegister has no context",
    subject="memory",
    cases=embedded(_of_several),
    gate=("1101",),
)
def drg_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success where all handles are live, whichever contexts they are of."""
    require_memory(case, trace)
    owners = {
        handle: step.context for step in case.steps if isinstance(step, Register) for handle in step.handles
    }

    def several(walked: Walked) -> bool:
        step = walked.step
        return isinstance(step, Deregister) and len({owners.get(handle) for handle in step.handles}) > 1

    return judge_valid(case, trace, several, "deregistrations across contexts")


_ROUNDS = 4


def _given_back(scene: Scene, tape: Tape) -> None:
    """A round to warm up, then rounds of alloc, register, deregister, free between two looks."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    parts = [tape.cut(4) for _ in range(1 + tape.below(2))]
    for number in range(1 + _ROUNDS):
        if number == 1:
            scene.add(Observe())
        if graph:
            handles = scene.tensor_memory(graph)
            scene.execute_handles(graph, handles)
        else:
            handles = scene.register(context, *(scene.descriptor(part) for part in parts))
        buffers = [scene.handles[handle].descriptor.buffer for handle in handles]
        scene.deregister(*handles)
        for buffer in buffers:
            scene.free(buffer)
    scene.add(Observe())


@rule(
    "DRG-10",
    Level.MUST,
    "After deregistering and the client's free the memory is gone: the backend keeps no reference to it.",
    source="seed 002, deregister, then rpcmem_free",
    subject="memory",
    cases=embedded(_given_back, after=0),
    gate=("1101",),
)
def drg_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors and mappings of shared memory are what they were before the rounds."""
    require_memory(case, trace)
    gone = [w for w in own_steps(case, trace, lambda w: isinstance(w.step, Deregister)) if w.code == 0]
    if len(gone) < _ROUNDS:
        return Examined(0, "buffers given back")
    demand_steady(case, trace, "deregistering and freeing", ("fds", "memfds"))
    return Examined(len(gone), "buffers given back")


def _array(scene: Scene, tape: Tape) -> None:
    """Good handles, and now and then one that is none."""
    context = scene.any_context(tape)
    handles = list(
        scene.register(context, *(scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))))
    )
    if tape.chance(3):
        scene.add(Deregister((*handles, "BOGUS")))
    else:
        scene.deregister(*handles)


@rule(
    "DRG-12",
    Level.SHOULD,
    "The array of handles is not modified.",
    source="QnnMem.h: QnnMem_deRegister, const Qnn_MemHandle_t*",
    subject="memory",
    cases=embedded(_array),
    gate=("1101",),
)
def drg_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every byte of it, whatever the answer."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Deregister)):
        if walked.seen.counts.get("handles_changed"):
            values = [hex(value) for value in walked.seen.values]
            raise Violation("the handle array as it was", f"{values} after the call", place(walked))
        count += 1
    return Examined(count, "deregistrations")


def _freed_first(scene: Scene, tape: Tape) -> None:
    """The client frees its memory, or its context too, and deregisters afterwards."""
    context = scene.any_context(tape)
    handles = scene.register(context, *(scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))))
    for handle in handles:
        scene.add(Free(scene.handles[handle].descriptor.buffer))
        del scene.buffers[scene.handles[handle].descriptor.buffer]
    if tape.below(2):
        scene.alloc(1 + tape.below(4096))
    for handle in handles[:: -1 if tape.below(2) else 1]:
        scene.deregister(handle)


@rule(
    "DRG-13",
    Level.MUST,
    "A backend survives a client that frees its memory first: deregistering still succeeds.",
    source="seed 002, deregister before rpcmem_free; clients have had it the wrong way round",
    subject="memory",
    cases=embedded(_freed_first),
    gate=("1101",),
)
def drg_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0, and no crash."""
    require_memory(case, trace)
    owners = {
        name: each.buffer
        for step in case.steps
        if isinstance(step, Register)
        for name, each in zip(step.handles, step.descriptors, strict=False)
    }
    freed: set[str] = set()
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        freed = {step.buffer for step in case.steps[: walked.index] if isinstance(step, Free) and step.buffer}
        if isinstance(walked.step, Deregister) and any(
            owners.get(name) in freed for name in walked.step.handles
        ):
            demand_code(walked, {0}, "the handle is live, whatever became of the client's memory")
            count += 1
    return Examined(count, "deregistrations after the client's free")


def _while_executing(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    scene = Scene(facts)
    op, dtype = scene.operators[0] if scene.operators else ("ElementWiseAdd", "UFIXED_POINT_8")
    return st.sampled_from(scene.types).map(
        lambda kind: MemoryCase((Parallel("deregister", mem_type=kind, op=op, dtype=dtype),))
    )


@rule(
    "DRG-14",
    Level.SHOULD,
    "Deregistering memory that a graph is executing with neither crashes nor blocks the backend.",
    source="QnnMem.h is silent; the client should not do it",
    subject="memory",
    cases=_while_executing,
    gate=("502", "1101"),
    weight=0.2,
)
def drg_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Any answers; the process lives, and both threads end."""
    require_session(trace)
    require_memory_type(trace.facts or MemoryFacts())
    require_operator(trace)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Parallel) and seen.skipped:
            raise Unsupported(seen.skipped)
    return Examined(sum(seen.code is not None for seen in trace.steps), "deregistrations during an execute")
