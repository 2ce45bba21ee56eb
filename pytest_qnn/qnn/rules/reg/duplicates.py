"""REG: the same memory registered again, in one context, in one batch, in several contexts."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.qnn.cases.case import Deregister, Execute, MemoryCase, Register
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import End, Event, Fault, Note
from pytest_qnn.qnn.rules.judging import demand_code, demand_outputs, judge_valid, own_steps, require_memory
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace


def _survivor(walked: Walked, *events: Event) -> bool:
    """A handle that went through one of ``events`` is used."""
    used = isinstance(walked.step, Deregister | Execute)
    return used and not walked.allowed.notes.isdisjoint(events)


def _twice(scene: Scene, tape: Tape) -> None:
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    handles = scene.tensor_memory(graph) if graph else scene.register(context, scene.descriptor(tape))
    chosen = handles[tape.below(len(handles))]
    for _ in range(1 + tape.below(2)):
        scene.add(Register(context, (scene.handles[chosen].descriptor,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(chosen)


@rule(
    "REG-21",
    Level.MUST,
    "QnnMem_register refuses memory that is registered in the same context already with "
    "QNN_MEM_ERROR_ALREADY_REGISTERED (8002); its handle stays valid.",
    source="QnnMem.h: QNN_MEM_ERROR_ALREADY_REGISTERED; device log: 0x1f42, QNN_MEM_ERROR_ALREADY_REGISTERED "
    "(8002)",
    subject="memory",
    cases=embedded(_twice),
    gate=("1101",),
)
def reg_21(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; then the first handle still executes and is deregistered with success."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register | Deregister | Execute)):
        if walked.allowed.only(Fault.DUPLICATE):
            demand_code(walked, walked.allowed.codes, "the same memory is live in this context")
            count += 1
        elif walked.allowed.valid and _survivor(walked, Event.DUPLICATE_REFUSED):
            demand_code(walked, {0}, "a refused repetition leaves the first handle valid")
    demand_outputs(case, trace, lambda w: _survivor(w, Event.DUPLICATE_REFUSED))
    return Examined(count, "repeated registrations")


def _twice_in_batch(scene: Scene, tape: Tape) -> None:
    context = scene.any_context(tape)
    same = scene.descriptor(tape)
    others = [scene.descriptor(tape) for _ in range(tape.below(3))]
    at = tape.below(len(others) + 1)
    batch = (same, *others[:at], same, *others[at:])
    scene.add(Register(context, batch, tuple(scene.name("h") for _ in batch)))
    scene.register(context, same)
    for other in others:
        scene.register(context, other)


@rule(
    "REG-22",
    Level.MUST,
    "QnnMem_register refuses the same memory twice in one call with QNN_MEM_ERROR_ALREADY_REGISTERED (8002) "
    "and registers nothing of the call.",
    source="QnnMem.h: QNN_MEM_ERROR_ALREADY_REGISTERED",
    subject="memory",
    cases=embedded(_twice_in_batch),
    gate=("1101",),
)
def reg_22(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; then each descriptor of the batch registers alone."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register)):
        if walked.allowed.only(Fault.DUPLICATE_IN_BATCH):
            demand_code(walked, walked.allowed.codes, "the batch names the same memory twice")
            count += 1
        elif walked.allowed.valid and frozenset({Fault.DUPLICATE_IN_BATCH}) in walked.allowed.notes:
            demand_code(walked, {0}, "the refused batch must not have registered it")
    return Examined(count, "batches with a repetition")


def _in_contexts(scene: Scene, tape: Tape) -> None:
    """One memory in two or three contexts; it is deregistered in one and used on in another."""
    contexts = [scene.context() for _ in range(2 + tape.below(2))]
    keeper = contexts[tape.below(len(contexts))]
    graph = scene.prepare(keeper, tape) if tape.below(2) else ""
    kept = scene.tensor_memory(graph) if graph else scene.register(keeper, scene.descriptor(tape))
    shared = scene.handles[kept[tape.below(len(kept))]].descriptor
    others = [scene.register(context, shared)[0] for context in contexts if context != keeper]
    scene.deregister(others[tape.below(len(others))])
    if graph:
        scene.execute_handles(graph, kept)
    scene.deregister(*kept)


@rule(
    "REG-23",
    Level.MUST,
    "The same memory may be registered in several contexts; the handles are independent.",
    source="ONNX Runtime and LiteRT pull request 8818 rely on it; seed 002, shared spill-fill",
    subject="memory",
    cases=embedded(_in_contexts),
    gate=("1101",),
)
def reg_23(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success in each context, and a handle outlives its sibling's deregistration."""
    require_memory(case, trace)
    return judge_valid(
        case,
        trace,
        lambda w: Note.OTHER_CONTEXT in w.allowed.notes or _survivor(w, Event.SIBLING_DEREGISTERED),
        "uses of memory shared by contexts",
        "contexts register the same memory independently",
    )


def _again(scene: Scene, tape: Tape) -> None:
    context = scene.any_context(tape)
    descriptors = [scene.descriptor(tape) for _ in range(1 + tape.below(2))]
    for _ in range(1 + tape.below(4)):
        handles = scene.register(context, *descriptors)
        scene.deregister(*handles)
    scene.register(context, *descriptors)


@rule(
    "REG-24",
    Level.MUST,
    "Memory can be registered again after it was deregistered.",
    source="QnnMem.h: QnnMem_register, QnnMem_deRegister",
    subject="memory",
    cases=embedded(_again),
    gate=("1101",),
)
def reg_24(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success each time round."""
    require_memory(case, trace)
    return judge_valid(
        case,
        trace,
        lambda w: isinstance(w.step, Register) and End.DEREGISTERED in w.allowed.notes,
        "registrations after a deregistration",
        "the memory was deregistered before",
    )
