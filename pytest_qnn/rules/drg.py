"""DRG: QnnMem_deRegister."""

from __future__ import annotations

import itertools

import msgspec

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    Deregister,
    Execute,
    Fill,
    MemoryCase,
    Observe,
    Read,
    Register,
    ToFd,
)
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_support import (
    bytes_read,
    demand_code,
    demand_outputs,
    judge_argument,
    judge_faults,
    judge_valid,
    own_steps,
    require_memory,
    require_memory_calls,
)
from pytest_qnn.trace import MemoryTrace


def _several(scene: Scene, tape: Tape, least: int = 1, most: int = 4) -> tuple[str, ...]:
    """Handles of one context, registered one by one or in one call."""
    context = scene.any_context(tape)
    wanted = [scene.descriptor(tape.cut(4)) for _ in range(least + tape.below(most - least + 1))]
    if tape.below(2):
        return scene.register(context, *wanted)
    return tuple(scene.register(context, descriptor)[0] for descriptor in wanted)


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
    "Deregistering a live handle succeeds.",
    source="H:QnnMem_deRegister; seed 002",
    subject="memory",
    cases=embedded(_live),
    gate=("1101",),
)
def drg_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every call all of whose handles are live."""
    require_memory(case, trace)
    return judge_valid(case, trace, lambda w: isinstance(w.step, Deregister), "deregistrations")


def _null_array(scene: Scene, tape: Tape) -> None:
    if tape.below(2):
        _several(scene, tape)
    scene.add(Deregister((), null_handles=True, count=1 + tape.below(4)))


@rule(
    "DRG-02",
    Level.MUST,
    "A NULL handle array is refused.",
    source="H:QnnMem_deRegister",
    subject="memory",
    cases=embedded(_null_array),
    gate=("1101",),
)
def drg_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 for any count above 0."""
    require_memory_calls(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("null-handles")):
        if isinstance(walked.step, Deregister):
            demand_code(walked, walked.allowed.codes)
            count += 1
    return Examined(count, "NULL handle arrays")


def _no_handle(scene: Scene, tape: Tape) -> None:
    if tape.below(2):
        _several(scene, tape)
    wrong = tape.pick((NULL, BOGUS, ""))
    scene.add(Deregister((wrong or scene.any_context(tape),)))


@rule(
    "DRG-03",
    Level.MUST,
    "A handle that is NULL, unknown or of another kind is reported.",
    source="H:QnnMem_deRegister",
    subject="memory",
    cases=embedded(_no_handle),
    gate=("1101",),
)
def drg_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001. A context whose value happens to equal a live memory handle is not judged."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, "bad-handle", "values that are no memory handle")


def _twice(scene: Scene, tape: Tape) -> None:
    handles = _several(scene, tape)
    scene.deregister(*handles)
    for _ in range(tape.below(3)):
        scene.register(scene.any_context(tape), scene.descriptor(tape.cut(4)))
    scene.add(Deregister((handles[tape.below(len(handles))],)))


@rule(
    "DRG-04",
    Level.MUST,
    "Deregistering a handle a second time is reported.",
    source="H:QnnMem_deRegister, invalid handle",
    subject="memory",
    cases=embedded(_twice),
    gate=("1101",),
)
def drg_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001, also after unrelated registrations; a value that was given out again is not judged."""
    require_memory(case, trace)
    return judge_faults(case, trace, ("dead-handle",), "second deregistrations")


def _mixed(scene: Scene, tape: Tape) -> None:
    """Live handles with a bad one among them, then the memory of the live ones is registered again."""
    handles = list(_several(scene, tape, least=2))
    again = [scene.handles[handle] for handle in handles]
    bad = NULL if tape.below(2) else BOGUS
    at = 1 + tape.below(len(handles) + 1)
    array = [*handles[: at - 1], bad, *handles[at - 1 :]] if at > 1 else [bad, *handles]
    scene.add(Deregister(tuple(array)))
    for handle, known in zip(handles, again, strict=True):
        scene.dead[handle] = scene.handles.pop(handle)
        scene.register(known.context, known.descriptor)


@rule(
    "DRG-05",
    Level.MUST,
    "When some handles of a call are invalid, the valid ones are deregistered all the same.",
    source="H:QnnMem_deRegister, note on invalid handles",
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
        elif walked.allowed.valid and "after:deregistered-mixed" in walked.allowed.notes:
            demand_code(walked, {0}, "its handle was valid in a call with an invalid one")
    return Examined(count, "calls with valid and invalid handles")


def _is_mixed(walked: Walked) -> bool:
    step = walked.step
    return isinstance(step, Deregister) and len(step.handles) > 1 and walked.allowed.only("bad-handle")


def _repeated(scene: Scene, tape: Tape) -> None:
    handles = _several(scene, tape)
    chosen = handles[tape.below(len(handles))]
    known = scene.handles[chosen]
    scene.add(Deregister((chosen,) * (2 + tape.below(2))))
    scene.dead[chosen] = scene.handles.pop(chosen)
    scene.register(known.context, known.descriptor)


@rule(
    "DRG-06",
    Level.MUST,
    "The same handle twice in one call is deregistered once, and the error is reported.",
    source="H:QnnMem_deRegister",
    subject="memory",
    cases=embedded(_repeated),
    gate=("1101",),
)
def drg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001; then its memory registers again."""
    require_memory(case, trace)
    refused = judge_faults(case, trace, ("repeated-handle",), "handles repeated in one call")
    judge_valid(
        case,
        trace,
        lambda w: "after:deregistered-twice" in w.allowed.notes,
        "",
        "the call with the repeated handle must have deregistered it",
    )
    return refused


def _client_keeps(scene: Scene, tape: Tape) -> None:
    """One round to warm up, then a round between two looks at descriptors, fd and contents."""
    descriptor = scene.descriptor(tape)
    buffer = descriptor.buffer
    context = scene.any_context(tape)
    scene.deregister(*scene.register(context, msgspec.structs.replace(descriptor)))
    scene.add(Fill(buffer, 0x11 + tape.below(0xC0)))
    scene.add(ToFd(buffer))
    scene.add(Observe())
    for _ in range(1 + tape.below(2)):
        scene.deregister(*scene.register(context, descriptor))
    scene.add(Observe())
    scene.add(ToFd(buffer))
    scene.add(Read(buffer, "fd"))
    scene.add(Read(buffer))


@rule(
    "DRG-09",
    Level.MUST,
    "Deregistering does not close the client's descriptor, unmap its pointer or change its contents.",
    source="seed 002, the order deregister, rpcmem_free",
    subject="memory",
    cases=embedded(_client_keeps),
    gate=("1101",),
)
def drg_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The number of descriptors, the fd and every byte are as before."""
    require_memory(case, trace)
    fills: dict[str, int] = {}
    count = 0
    looks: list[tuple[int, dict[str, int]]] = []
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Fill):
            fills[step.buffer] = step.byte
        elif isinstance(step, Observe):
            looks.append((index, seen.counts))
        elif isinstance(step, Read) and step.buffer in fills:
            data = bytes_read(seen)
            where = f"step {index}, read of {step.buffer} via {step.via}"
            if data is None:
                raise Violation("the buffer can be read after its deregistration", seen.skipped, where)
            if data.strip(bytes([fills[step.buffer]])):
                raise Violation(f"every byte 0x{fills[step.buffer]:02x}", f"{data[:16].hex(' ')} ...", where)
            count += 1
    for (_, before), (index, after) in itertools.pairwise(looks):
        if before["fds"] != after["fds"]:
            seen_fds = f"{after['fds']} after registering and deregistering"
            raise Violation(f"{before['fds']} open descriptors", seen_fds, f"step {index}, observe")
    return Examined(count, "buffers read after deregistration")


def _others(scene: Scene, tape: Tape) -> None:
    """Of several live handles some go, in any order; the rest must still work."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    kept = list(scene.tensor_memory(graph)) if graph else list(_several(scene, tape, least=1))
    gone = list(_several(scene, tape, least=1))
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
    "Deregistering one handle has no effect on any other.",
    source="H:QnnMem_deRegister",
    subject="memory",
    cases=embedded(_others, core_bytes=48),
    gate=("1101",),
)
def drg_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Handles that stayed live are still known: they refuse a repetition, execute and deregister."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.settled):
        notes = walked.allowed.notes
        uses = isinstance(walked.step, Deregister | Execute) and "survived:other-deregistered" in notes
        if uses and not walked.allowed.faults:
            demand_code(walked, {0}, "only other handles were deregistered")
            count += 1
        elif walked.allowed.only("duplicate") and "survived:other-deregistered" in notes and walked.code == 0:
            raise Violation(
                "the memory still registered: only other handles were deregistered",
                f"registered again with {named(0)}",
                f"step {walked.index}",
            )
    demand_outputs(case, trace, lambda w: "survived:other-deregistered" in w.allowed.notes)
    return Examined(count, "uses of handles that stayed live")
