"""DRG: QnnMem_deRegister."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import (
    Examined,
    Level,
    Retained,
    Unsupported,
    Violation,
    WrongOutput,
    WrongSuccess,
)
from pytest_qnn.qnn.abi.codes import MemType
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    MAPPED,
    MOST_PARTS,
    NULL,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    MemoryCase,
    Observe,
    Parallel,
    Read,
    Register,
    ToFd,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import End, Event, Fault
from pytest_qnn.qnn.rules.judging import (
    bytes_read,
    demand_code,
    demand_life,
    demand_outputs,
    demand_steady,
    judge_argument,
    judge_faults,
    judge_valid,
    own_steps,
    place,
    require_memory,
    require_memory_calls,
    require_memory_type,
    require_operator,
    require_session,
)
from pytest_qnn.qnn.strategies.graphs import placed
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import ArrayCounts, MemoryTrace, ProcessCounts


def _several(scene: Scene, tape: Tape, least: int = 1, most: int = 4) -> tuple[str, ...]:
    """Handles of one context, registered one by one or in one call."""
    context = scene.any_context(tape)
    wanted = [scene.descriptor(tape) for _ in range(least + tape.below(most - least + 1))]
    if tape.below(2):
        return scene.register(context, *wanted)
    return tuple(scene.register(context, descriptor)[0] for descriptor in wanted)


_ROW = 8
"""Elements of the first tensor of a row."""


def _row(scene: Scene, tape: Tape) -> list[Descriptor]:
    """Descriptors of three to nine tensors of one buffer, each longer than the one before it."""
    lengths = [_ROW * (number + 1) for number in range(tape.pick((3, 8, 9, 8)))]
    *offsets, end = itertools.accumulate((placed(scene, length) for length in lengths), initial=0)
    buffer = scene.alloc(end)
    return [
        Descriptor(buffer, (length,), "UFIXED_POINT_8", MemType.CUSTOM, offset=offset)
        for length, offset in zip(lengths, offsets, strict=False)
    ]


def _live(scene: Scene, tape: Tape) -> None:
    handles = _several(scene, tape)
    if tape.below(2):
        scene.deregister(*handles)
    else:
        for handle in handles[:: -1 if tape.below(2) else 1]:
            scene.deregister(handle)


@rule(
    "DRG-01",
    Level.MUST,
    "QnnMem_deRegister of live handles succeeds.",
    source="QnnMem.h: QnnMem_deRegister; seed 002",
    subject="memory",
    cases=embedded(_live),
    gate=("1101",),
)
def drg_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every call all of whose handles are live."""
    require_memory(case, trace)
    demand_life(case, trace, "memDeRegister")
    return judge_valid(case, trace, lambda w: isinstance(w.step, Deregister), "deregistrations")


def _null_array(scene: Scene, tape: Tape) -> None:
    if tape.below(2):
        _several(scene, tape)
    scene.add(Deregister((), null_handles=True, count=1 + tape.below(4)))


@rule(
    "DRG-02",
    Level.MUST,
    "QnnMem_deRegister refuses a NULL array of handles: QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=embedded(_null_array),
    gate=("1101",),
)
def drg_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 for any count above 0."""
    require_memory_calls(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.NULL_HANDLES)):
        if isinstance(walked.step, Deregister):
            demand_code(walked, walked.allowed.codes)
            count += 1
    return Examined(count, "NULL handle arrays")


def _no_handle(scene: Scene, tape: Tape) -> None:
    if tape.below(2):
        _several(scene, tape)
    wrong = tape.pick((NULL, BOGUS, "", MAPPED))
    scene.add(Deregister((wrong or scene.any_context(tape),)))


@rule(
    "DRG-03",
    Level.MUST,
    "QnnMem_deRegister answers a handle that is NULL, unknown or of another kind with "
    "QNN_MEM_ERROR_INVALID_HANDLE (8001).",
    source="QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=embedded(_no_handle),
    gate=("1101",),
)
def drg_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001. A context whose value happens to equal a live memory handle is not judged."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, Fault.BAD_HANDLE, "values that are no memory handle")


def _twice(scene: Scene, tape: Tape) -> None:
    handles = _several(scene, tape)
    scene.deregister(*handles)
    for _ in range(tape.below(3)):
        scene.register(scene.any_context(tape), scene.descriptor(tape))
    scene.add(Deregister((handles[tape.below(len(handles))],)))


@rule(
    "DRG-04",
    Level.MUST,
    "QnnMem_deRegister answers a handle that was deregistered before with QNN_MEM_ERROR_INVALID_HANDLE "
    "(8001).",
    source="QnnMem.h: QnnMem_deRegister, invalid handle",
    subject="memory",
    cases=embedded(_twice),
    gate=("1101",),
)
def drg_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001, also after unrelated registrations; a value that was given out again is not judged."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.DEAD_HANDLE,), "second deregistrations")


def _mixed(scene: Scene, tape: Tape) -> None:
    """Live handles with a bad one among them, then the memory of the live ones is registered again."""
    handles = list(_several(scene, tape, least=2))
    again = [scene.handles[handle] for handle in handles]
    bad = NULL if tape.below(2) else BOGUS
    at = 1 + tape.below(len(handles) + 1)
    array = [*handles[: at - 1], bad, *handles[at - 1 :]] if at > 1 else [bad, *handles]
    scene.follow(Deregister(tuple(array)))
    for known in again:
        scene.register(known.context, known.descriptor)


@rule(
    "DRG-05",
    Level.MUST,
    "When some handles of one QnnMem_deRegister are invalid, the valid ones are deregistered nevertheless; "
    "the answer is QNN_MEM_ERROR_INVALID_HANDLE (8001).",
    source="QnnMem.h: QnnMem_deRegister, note on invalid handles",
    subject="memory",
    cases=embedded(_mixed),
    gate=("1101",),
)
def drg_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001; then the memory of every valid handle registers again."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register | Deregister)):
        if _is_mixed(walked):
            demand_code(walked, walked.allowed.codes, "one handle of the array is none")
            count += 1
        elif walked.allowed.valid and End.DEREGISTERED_MIXED in walked.allowed.notes:
            demand_code(walked, {0}, "its handle was valid in a call with an invalid one")
    return Examined(count, "calls with valid and invalid handles")


def _is_mixed(walked: Walked) -> bool:
    step = walked.step
    return isinstance(step, Deregister) and len(step.handles) > 1 and walked.allowed.only(Fault.BAD_HANDLE)


def _repeated(scene: Scene, tape: Tape) -> None:
    handles = _several(scene, tape)
    chosen = handles[tape.below(len(handles))]
    known = scene.handles[chosen]
    scene.follow(Deregister((chosen,) * (2 + tape.below(2))))
    scene.register(known.context, known.descriptor)


@rule(
    "DRG-06",
    Level.MUST,
    "QnnMem_deRegister with the same handle twice deregisters it once and answers "
    "QNN_MEM_ERROR_INVALID_HANDLE (8001).",
    source="QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=embedded(_repeated),
    gate=("1101",),
)
def drg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001; then its memory registers again."""
    require_memory(case, trace)
    refused = judge_faults(case, trace, (Fault.REPEATED_HANDLE,), "handles repeated in one call")
    judge_valid(
        case,
        trace,
        lambda w: End.DEREGISTERED_TWICE in w.allowed.notes,
        "",
        "the call with the repeated handle must have deregistered it",
    )
    return refused


def _client_keeps(scene: Scene, tape: Tape) -> None:
    """One round to warm up, then a round between two looks at descriptors, fd and contents.

    The client's descriptors are looked at before and after it all.
    """
    if MemType.CUSTOM in scene.types and tape.chance(3):
        descriptors = _row(scene, tape)
    else:
        descriptors = [scene.descriptor(tape, touched=True)]
    buffer = descriptors[0].buffer
    context = scene.any_context(tape)
    look = Observe(buffers=tuple(scene.buffers)[-MOST_PARTS:])
    scene.add(look)
    scene.deregister(*scene.register(context, *map(msgspec.structs.replace, descriptors)))
    scene.add(Fill(buffer, 0x11 + tape.below(0xC0)))
    scene.add(ToFd(buffer))
    scene.add(Observe())
    for _ in range(1 + tape.below(2)):
        scene.deregister(*scene.register(context, *descriptors))
    scene.add(Observe(patient=True))
    scene.add(look)
    scene.add(ToFd(buffer))
    scene.add(Read(buffer, "fd"))
    scene.add(Read(buffer))


@rule(
    "DRG-09",
    Level.MUST,
    "QnnMem_deRegister does not close the client's file descriptor, unmap its pointer or change its "
    "contents.",
    source="seed 002, the order deregister, rpcmem_free",
    subject="memory",
    cases=embedded(_client_keeps),
    gate=("1101",),
)
def drg_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every descriptor of the client is open, no more are, and every byte is as before.

    Fewer may be open than before: a thread of the backend may have closed those of its own that were left.
    """
    require_memory(case, trace)
    fills: dict[str, int] = {}
    count = 0
    looks: list[tuple[int, int]] = []
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Fill):
            fills[step.buffer] = step.byte
        elif isinstance(step, Observe):
            if not step.buffers:
                looks.append((index, seen.counted(ProcessCounts).fds))
        elif isinstance(step, Read) and step.buffer in fills:
            data = bytes_read(seen)
            where = f"step {index}, read of {step.buffer} via {step.via}"
            if data is None:
                raise WrongOutput("the buffer can be read after its deregistration", seen.skipped, where)
            if data.strip(bytes([fills[step.buffer]])):
                raise WrongOutput(
                    f"every byte 0x{fills[step.buffer]:02x}", f"{data[:16].hex(' ')} ...", where
                )
            count += 1
    for (_, before), (index, after) in itertools.pairwise(looks):
        if after > before:
            seen_fds = f"{after} after registering and deregistering"
            raise Retained(f"{before} open descriptors", seen_fds, f"step {index}, observe")
    _demand_open(case, trace)
    return Examined(count, "buffers read after deregistration")


def _demand_open(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Violation when a descriptor was open at the first look at its buffer and is not at a later."""
    opened: dict[str, int] = {}
    for walked in walk(case, trace):
        if not isinstance(walked.step, Observe):
            continue
        mapped = walked.seen.counted(ProcessCounts).mapped
        for name, now in zip(walked.step.buffers, mapped, strict=False):
            first = opened.setdefault(name, now)
            if now < 0 <= first:
                raise Violation(f"the descriptor of {name} open", "it is closed", place(walked))


def _others(scene: Scene, tape: Tape) -> None:
    """Of several live handles some go, in any order; the rest must still work."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    kept = list(scene.tensor_memory(graph)) if graph else list(_several(scene, tape, least=1))
    gone = list(_several(scene, tape, least=1))
    if MemType.CUSTOM in scene.types and tape.chance(4):
        *others, longest = scene.register(context, *_row(scene, tape))
        scene.deregister(longest)
        (gone if graph else kept).extend(others)
    for _ in range(len(gone)):
        scene.deregister(gone.pop(tape.below(len(gone))))
    if graph:
        scene.execute_handles(graph, kept)
    while kept:
        handle = kept.pop(tape.below(len(kept)))
        if tape.below(2):
            known = scene.handles[handle]
            scene.add(Register(known.context, (known.descriptor,), (scene.name("h"),)))
        scene.deregister(handle)


@rule(
    "DRG-11",
    Level.MUST,
    "Deregistering one handle has no effect on any other handle.",
    source="QnnMem.h: QnnMem_deRegister",
    subject="memory",
    cases=embedded(_others, core_bytes=48),
    gate=("1101",),
)
def drg_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Handles that stayed live are still known: they refuse a repetition, execute and deregister."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.specified):
        notes = walked.allowed.notes
        uses = isinstance(walked.step, Deregister | Execute) and Event.OTHER_DEREGISTERED in notes
        if uses and not walked.allowed.faults:
            demand_code(walked, {0}, "only other handles were deregistered")
            count += 1
        elif walked.allowed.only(Fault.DUPLICATE) and Event.OTHER_DEREGISTERED in notes and walked.code == 0:
            raise WrongSuccess(
                "the memory still registered: only other handles were deregistered",
                f"registered again with {named(0)}",
                f"step {walked.index}",
            )
    demand_outputs(case, trace, lambda w: Event.OTHER_DEREGISTERED in w.allowed.notes)
    return Examined(count, "uses of handles that stayed live")


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
    "QnnMem_deRegister with a count of 0 succeeds or answers QNN_MEM_ERROR_INVALID_ARGUMENT (8000); it has "
    "no effect.",
    source="QnnMem.h: QnnMem_deRegister is silent; libQnnGpu answers QNN_MEM_ERROR_INVALID_ARGUMENT (8000)",
    subject="memory",
    cases=embedded(_nothing),
    gate=("1101",),
)
def drg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8000, and live handles stay live. The choice is in the report."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Deregister | Execute)):
        if walked.allowed.only(Fault.COUNT_ZERO):
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
    handles = [scene.register(context, scene.descriptor(tape))[0] for context in contexts]
    if tape.below(2):
        handles += scene.register(contexts[0], scene.descriptor(tape))
    scene.deregister(*handles[:: -1 if tape.below(2) else 1])


@rule(
    "DRG-08",
    Level.SHOULD,
    "One QnnMem_deRegister may deregister handles of several contexts.",
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
_DESCRIPTOR = 4
"""Bytes that a descriptor is drawn from."""


def _given_back(scene: Scene, tape: Tape) -> None:
    """A round to warm up, then rounds of alloc, register, deregister, free between two looks."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    kind = tape.pick(scene.types)
    drawn = [bytes(tape.byte() for _ in range(_DESCRIPTOR)) for _ in range(1 + tape.below(2))]
    repeated = tape.chance(3)
    for number in range(1 + _ROUNDS):
        if number == 1:
            scene.add(Observe())
        if graph:
            handles = scene.tensor_memory(graph, kind)
            scene.execute_handles(graph, handles)
        else:
            # From the start of its bytes each time: every round is as the one to warm up.
            handles = scene.register(context, *(scene.descriptor(Tape(each)) for each in drawn))
        buffers = [scene.handles[handle].descriptor.buffer for handle in handles]
        if repeated:  # which may be refused, and gives no handle then
            known, again = scene.handles[handles[0]], scene.name("h")
            scene.add(Register(known.context, (known.descriptor,), (again,)))
            scene.add(Deregister((again,)))
        scene.deregister(*handles)
        for buffer in buffers:
            scene.free(buffer)
    scene.add(Observe(patient=True))


@rule(
    "DRG-10",
    Level.MUST,
    "After QnnMem_deRegister and the client's free the memory is released: the backend keeps no reference to "
    "it.",
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
    demand_steady(case, trace, "deregistering and freeing", falling=True)
    return Examined(len(gone), "buffers given back")


def _array(scene: Scene, tape: Tape) -> None:
    """Good handles, and now and then one that is none."""
    context = scene.any_context(tape)
    handles = list(scene.register(context, *(scene.descriptor(tape) for _ in range(1 + tape.below(3)))))
    if tape.chance(3):
        scene.add(Deregister((*handles, "BOGUS")))
    else:
        scene.deregister(*handles)


@rule(
    "DRG-12",
    Level.SHOULD,
    "QnnMem_deRegister does not modify the array of handles.",
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
        if walked.seen.counted(ArrayCounts).changed:
            values = [hex(value) for value in walked.seen.values]
            raise Violation("the handle array as it was", f"{values} after the call", place(walked))
        count += 1
    return Examined(count, "deregistrations")


def _freed_first(scene: Scene, tape: Tape) -> None:
    """The client frees its memory, or its context too, and deregisters afterwards."""
    context = scene.any_context(tape)
    handles = scene.register(context, *(scene.descriptor(tape) for _ in range(1 + tape.below(3))))
    for handle in handles:
        scene.free(scene.handles[handle].descriptor.buffer)
    if tape.below(2):
        scene.alloc(1 + tape.below(4096))
    for handle in handles[:: -1 if tape.below(2) else 1]:
        scene.deregister(handle)


@rule(
    "DRG-13",
    Level.MUST,
    "QnnMem_deRegister succeeds even if the client has freed the memory before.",
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
    "Deregistering memory while a graph executes with it neither crashes nor blocks the backend.",
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
