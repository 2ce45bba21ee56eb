"""REG: QnnMem_register: valid descriptors, wrong arguments, which memory is meant, and when."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Binding,
    Descriptor,
    Execute,
    FdKind,
    Fill,
    Free,
    MemoryCase,
    Observe,
    Prepare,
    QnnDType,
    Read,
    Register,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.sizes import PAGE, io_inputs, nbytes
from pytest_qnn.qnn.model.codes import SENTINEL, named
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import End, Fault, Note, Relation
from pytest_qnn.qnn.rules.graphs import judge_contents, kinds, require_execute
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    demand_life,
    demand_steady,
    judge_argument,
    judge_faults,
    judge_relation,
    judge_valid,
    own_steps,
    place,
    require_memory,
    require_memory_calls,
)
from pytest_qnn.qnn.strategies.binaries import composed, finalised, loaded, retrieved, saved, written
from pytest_qnn.qnn.strategies.company import SPREAD
from pytest_qnn.qnn.strategies.graphs import MEMORY_BYTES, any_memory, execute, load
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_LARGE_BATCH = 64
_ALL_TRIED = 12
"""Descriptors of a batch of which each handle is tried."""
_READ_ONLY = frozenset({0, int(Error.MEM_ERROR_MAPPING)})
_UNMAPPABLE: tuple[FdKind, ...] = ("pipe", "closed", "directory", "socket")


def _single(walked: Walked) -> bool:
    return isinstance(walked.step, Register) and len(walked.step.descriptors) == 1


def _valid_one(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(3)):
        scene.register(scene.any_context(tape), scene.descriptor(tape))


@rule(
    "REG-01",
    Level.MUST,
    "QnnMem_register with a valid context and one valid descriptor succeeds and gives a handle that is not "
    "NULL.",
    source="seed 002, ION and shared buffer; QnnMem.h: QnnMem_register",
    subject="memory",
    cases=embedded(_valid_one),
    gate=("1101",),
)
def reg_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every single registration that is in order."""
    require_memory(case, trace)
    demand_life(case, trace, "memRegister")
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and _single(w)):
        demand_code(walked, {0})
        if walked.seen.values[:1] in ((0,), (SENTINEL,)):
            raise Violation("a non-NULL handle", f"handle 0x{walked.seen.values[0]:x}", place(walked))
        count += 1
    return Examined(count, "registrations")


def _graph_memory(scene: Scene, tape: Tape, graph: str) -> list[Descriptor]:
    """Descriptors of a buffer of its own for each IO tensor; inputs are written, nothing is registered."""
    made = scene.graphs[graph]
    size = nbytes(made.shape, made.dtype)
    found = []
    for position in range(io_inputs(made) + 1):
        buffer = scene.alloc(size)
        scene.add(Fill(buffer))
        if position < io_inputs(made):
            scene.add(Write(buffer, size, seed=1 + position, dtype=made.dtype))
        found.append(Descriptor(buffer, made.shape, made.dtype, tape.pick(scene.types)))
    return found


def _batch_and_probe(scene: Scene, tape: Tape) -> None:
    """A batch, now and then with the tensors of a graph, which is executed, or in a context behind another.

    One handle is deregistered, and its descriptor offered again.
    """
    if tape.chance(4):
        scene.context()
        context = scene.context()
    else:
        context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.chance(2) else ""
    descriptors = _graph_memory(scene, tape, graph) if graph else []
    used = len(descriptors)
    count = _LARGE_BATCH - used if tape.chance(16) else 2 + tape.below(4)
    if scene.scale.batch >= SPREAD:
        count = _ALL_TRIED - used
    descriptors += [scene.descriptor(tape) for _ in range(count)]
    handles = scene.register(context, *descriptors)
    if graph:
        scene.execute_handles(graph, handles[:used])
        scene.add(Read(descriptors[used - 1].buffer))
    chosen = tape.below(len(handles))
    tried = range(len(handles)) if len(handles) == _ALL_TRIED else [chosen]
    for each in tried:
        scene.deregister(handles[each])
        scene.register(context, descriptors[each])


@rule(
    "REG-02",
    Level.MUST,
    "QnnMem_register of n descriptors gives n distinct handles; handle[i] belongs to descriptor[i].",
    source="QnnMem.h: QnnMem_register",
    subject="memory",
    cases=embedded(_batch_and_probe),
    gate=("1101",),
)
def reg_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Distinct values; handle[i] reads and writes the memory of descriptor[i], and frees it when it goes."""
    require_memory(case, trace)
    count = 0
    batch: tuple[Descriptor, ...] = ()
    handles: set[str] = set()
    for walked in own_steps(
        case, trace, lambda w: isinstance(w.step, Register | Execute) and w.allowed.valid
    ):
        if isinstance(walked.step, Execute):
            if handles & {binding.handle for binding in walked.step.bindings}:
                demand_code(walked, {0}, "it uses handles of a batch, each for its own tensor")
            continue
        assert isinstance(walked.step, Register)
        size = len(walked.step.descriptors)
        if size > 1 and walked.code == 0:
            values = walked.seen.values[:size]
            if len(set(values)) != size or not all(values):
                raise Violation(f"{size} distinct handles", str([hex(v) for v in values]), place(walked))
            batch += walked.step.descriptors
            handles.update(walked.step.handles)
            count += size
        elif End.DEREGISTERED in walked.allowed.notes and walked.step.descriptors[0] in batch:
            because = "the handle of this very descriptor was deregistered"
            demand_code(walked, {0}, because)
    judge_contents(case, trace, because="each handle of a batch means the memory of its own descriptor")
    return Examined(count, "handles of batches")


def _unmappable(scene: Scene, tape: Tape, *kinds: FdKind) -> None:
    shape, dtype = scene.tensor(tape)
    buffer = scene.alloc(nbytes(shape, dtype))
    bad = Descriptor(buffer, shape, dtype, tape.pick(scene.types), fd=tape.pick(kinds))
    context = scene.any_context(tape)
    if tape.below(2):
        scene.register(context, scene.descriptor(tape))
    scene.add(Register(context, (bad,), (scene.name("h"),)))


@rule(
    "REG-13",
    Level.MUST,
    "QnnMem_register refuses a descriptor whose file descriptor is -1: QNN_MEM_ERROR_MAPPING (8003) or "
    "QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: Qnn_MemDescriptor_t, invalid fd; seed 002, the check for -1",
    subject="memory",
    cases=embedded(lambda scene, tape: _unmappable(scene, tape, "minus-one")),
    gate=("1101",),
)
def reg_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 or 8000."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.FD_MINUS_ONE,), "descriptors with fd -1")


def _read_only(scene: Scene, tape: Tape) -> None:
    """An output's memory comes by a descriptor that is open for reading only; the graph is executed."""
    graph = scene.prepare(scene.any_context(tape), tape)
    made = scene.graphs.get(graph)
    shape, dtype = (made.shape, made.dtype) if made else scene.tensor(tape)
    context = made.context if made else scene.any_context(tape)
    buffer, handle = scene.alloc(nbytes(shape, dtype)), scene.name("h")
    only = Descriptor(buffer, shape, dtype, tape.pick(scene.types), fd="readonly")
    scene.add(Register(context, (only,), (handle,)))
    if made:
        raw = (Binding(seed=position) for position in range(io_inputs(made)))
        scene.add(Execute(graph, (*raw, Binding("handle", handle))))


def _no_memory(scene: Scene, tape: Tape) -> None:
    if tape.chance(3):
        _read_only(scene, tape)
    else:
        _unmappable(scene, tape, *_UNMAPPABLE)


@rule(
    "REG-14",
    Level.MUST,
    "QnnMem_register refuses a file descriptor that is closed or cannot be mapped: QNN_MEM_ERROR_MAPPING "
    "(8003).",
    source="QnnMem.h: QNN_MEM_ERROR_MAPPING",
    subject="memory",
    cases=embedded(_no_memory),
    gate=("1101",),
)
def reg_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 for a closed fd, a pipe, a socket and a directory.

    One that is open for reading only may be taken, since it may be an input's; then an execute that writes
    there must not end the process.
    """
    require_memory(case, trace)
    found = judge_faults(case, trace, (Fault.FD_UNMAPPABLE,), "descriptors that cannot be mapped")
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register) and not w.allowed.faults):
        assert isinstance(walked.step, Register)
        if any(each.fd == "readonly" for each in walked.step.descriptors):
            demand_code(walked, _READ_ONLY, "the descriptor is open for reading only")
            count += 1
    return Examined(found.count + count, found.what)


_UNCOUNTED: tuple[tuple[tuple[int, ...], QnnDType], ...] = (
    ((1 << 16, 1 << 16), "UFIXED_POINT_8"),
    ((1, 1 << 30), "FLOAT_32"),
    ((1 << 12, (1 << 20) + 1), "UFIXED_POINT_8"),
    ((1 << 31, 1 << 31, 4), "UFIXED_POINT_8"),
    ((1 << 16, 1 << 16, 1 << 15, 1 << 15), "FLOAT_32"),
)
"""Tensors whose bytes, modulo 2**32 or 2**64, are no more than a page."""


def _too_small(scene: Scene, tape: Tape) -> None:
    """A tensor that needs more than the whole pages of its buffer, or more than 32 or 64 bits can count."""
    whole = 1 + tape.below(3)
    over = 1 + tape.below(3 * PAGE)
    shape = scene.scale.shaped((whole * PAGE + over,), "UFIXED_POINT_8")
    dtype: QnnDType = "UFIXED_POINT_8"
    buffer = scene.alloc((prod(shape) - over) // PAGE * PAGE)
    if tape.chance(4):
        shape, dtype = tape.pick(_UNCOUNTED)
    context = scene.any_context(tape)
    bad = Descriptor(buffer, shape, dtype, tape.pick(scene.types))
    if tape.below(2):
        scene.register(context, scene.descriptor(tape))
    scene.add(Register(context, (bad,), (scene.name("h"),)))


@rule(
    "REG-15",
    Level.MUST,
    "QnnMem_register refuses a buffer smaller than its tensor (shape times size of an element): "
    "QNN_MEM_ERROR_INVALID_ARGUMENT (8000), QNN_MEM_ERROR_MAPPING (8003) or QNN_MEM_ERROR_INVALID_SHAPE "
    "(8004).",
    source="QnnMem.h: QnnMem_register; device log: 0x1f40, QNN_MEM_ERROR_INVALID_ARGUMENT (8000)",
    subject="memory",
    cases=embedded(_too_small),
    gate=("1101",),
)
def reg_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000, 8003 or 8004."""
    require_memory(case, trace)
    return judge_faults(case, trace, (Fault.SMALL_BUFFER,), "buffers smaller than their tensor")


def _larger(scene: Scene, tape: Tape) -> None:
    shape, dtype = scene.tensor(tape)
    spare = tape.pick((1, PAGE, 3 * PAGE, 63, 16 * PAGE + 1))
    buffer = scene.alloc(nbytes(shape, dtype) + spare)
    scene.register(scene.any_context(tape), Descriptor(buffer, shape, dtype, tape.pick(scene.types)))


@rule(
    "REG-16",
    Level.MUST,
    "QnnMem_register accepts a buffer larger than its tensor.",
    source="seed 002, total size; ONNX Runtime's allocator",
    subject="memory",
    cases=embedded(_larger),
    gate=("1101",),
)
def reg_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success for every such registration."""
    require_memory(case, trace)
    return judge_valid(
        case,
        trace,
        lambda w: _single(w) and Note.LARGER in w.allowed.notes,
        "buffers larger than their tensor",
    )


def _contents(scene: Scene, tape: Tape) -> None:
    """Known contents, read before and after registrations of the buffer."""
    descriptor = scene.descriptor(tape, touched=True)
    size = scene.buffers[descriptor.buffer]
    scene.add(Fill(descriptor.buffer, 0xEE ^ tape.byte()))
    scene.add(Write(descriptor.buffer, min(size, 16), seed=tape.byte()))
    scene.add(Read(descriptor.buffer))
    for _ in range(1 + tape.below(2)):
        scene.register(scene.context(), descriptor)
        scene.add(Read(descriptor.buffer))


@rule(
    "REG-20",
    Level.MUST,
    "QnnMem_register does not change the contents of the buffer.",
    source="inference from seed 002: inputs may be loaded before or after registration",
    subject="memory",
    cases=embedded(_contents),
    gate=("1101",),
)
def reg_20(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Reads of one buffer with nothing but registrations between them agree."""
    require_memory(case, trace)
    known: dict[str, bytes] = {}
    registered: set[str] = set()
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Register) and seen.code == 0:
            registered |= {descriptor.buffer for descriptor in step.descriptors}
        elif isinstance(step, Fill | Write):
            known.pop(step.buffer, None)
        elif isinstance(step, Read) and seen.data:
            before = known.setdefault(step.buffer, seen.data[0])
            count += step.buffer in registered
            if before != seen.data[0]:
                where = f"step {index}, read of {step.buffer}"
                raise Violation("the bytes that were there before", _difference(before, seen.data[0]), where)
    return Examined(count, "registered buffers read again")


def _difference(before: bytes, after: bytes) -> str:
    changed = [at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b]
    if not changed:
        return f"{len(after)} bytes instead of {len(before)}"
    at = changed[0]
    return f"{len(changed)} bytes changed, the first at {at}: 0x{before[at]:02x} to 0x{after[at]:02x}"


_NOWHERE = (NULL, BOGUS)


def _wrong_array(scene: Scene, tape: Tape, flag: str) -> None:
    """The wrong call on a live context and, for targets that open none, on no context."""
    descriptor = scene.descriptor(tape)
    wrong = Register(scene.any_context(tape), (descriptor,), (scene.name("h"),))
    wrong = msgspec.structs.replace(wrong, **{flag: True})
    scene.add(wrong)
    if tape.below(4):
        nowhere = tape.pick(_NOWHERE)
        scene.add(msgspec.structs.replace(wrong, context=nowhere, handles=(scene.name("h"),)))
    if tape.below(2):
        scene.register(wrong.context, descriptor)


@rule(
    "REG-03",
    Level.MUST,
    "QnnMem_register refuses a NULL array of descriptors: QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="QnnMem.h: QnnMem_register",
    subject="memory",
    cases=embedded(lambda scene, tape: _wrong_array(scene, tape, "null_descriptors")),
    gate=("1101",),
)
def reg_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000; with a context that is none, 8001 is as right."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, Fault.NULL_DESCRIPTORS, "NULL descriptor arrays")


@rule(
    "REG-04",
    Level.MUST,
    "QnnMem_register refuses a NULL array of handles with QNN_MEM_ERROR_INVALID_ARGUMENT (8000), and nothing "
    "stays registered.",
    source="QnnMem.h: QnnMem_register",
    subject="memory",
    cases=embedded(lambda scene, tape: _wrong_array(scene, tape, "null_handles")),
    gate=("1101",),
)
def reg_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 (8001 with a context that is none); then the same memory registers cleanly."""
    require_memory_calls(case, trace)
    leaked = judge_valid(
        case,
        trace,
        lambda w: frozenset({Fault.NULL_HANDLES}) in w.allowed.notes,
        "",
        "the refused call with a NULL handle array must not have registered this memory",
    )
    refused = judge_argument(case, trace, Fault.NULL_HANDLES, "NULL handle arrays")
    return Examined(refused.count + leaked.count, refused.what)


def _none(scene: Scene, tape: Tape) -> None:
    descriptor = scene.descriptor(tape)
    context = scene.any_context(tape)
    scene.add(Register(context, (descriptor,), (scene.name("h"),), count=0))
    if tape.below(2):
        scene.register(context, descriptor)


@rule(
    "REG-05",
    Level.MAY,
    "QnnMem_register with a count of 0 succeeds or answers QNN_MEM_ERROR_INVALID_ARGUMENT (8000); it touches "
    "no memory.",
    source="QnnMem.h: QnnMem_register is silent; libQnnGpu answers QNN_MEM_ERROR_INVALID_ARGUMENT (8000)",
    subject="memory",
    cases=embedded(_none),
    gate=("1101",),
)
def reg_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8000, and the handle array as it was."""
    require_memory(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.COUNT_ZERO)):
        if not isinstance(walked.step, Register):
            continue
        demand_code(walked, walked.allowed.codes)
        touched = [hex(value) for value in walked.seen.values if value != SENTINEL]
        if touched:
            raise Violation("an untouched handle array", f"{touched} written", place(walked))
        count += 1
    return Examined(count, "registrations of nothing")


def _wrong_context(scene: Scene, tape: Tape) -> None:
    descriptor = scene.descriptor(tape)
    freed = scene.context()
    kind = tape.below(3)
    if kind == 2:
        if tape.below(2):
            scene.register(freed, scene.descriptor(tape))
        scene.free_context(freed)
    wrong = (NULL, BOGUS, freed)[kind]
    scene.add(Register(wrong, (descriptor,), (scene.name("h"),)))


@rule(
    "REG-06",
    Level.MUST,
    "QnnMem_register refuses a context that is NULL, unknown or freed: QNN_MEM_ERROR_INVALID_HANDLE (8001).",
    source="QnnMem.h: QnnMem_register; seed 002, the context comes first",
    subject="memory",
    cases=embedded(_wrong_context),
    gate=("1101",),
)
def reg_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001. A freed context whose handle value was given out again is not judged."""
    require_memory_calls(case, trace)
    return judge_argument(case, trace, Fault.BAD_CONTEXT, "registrations without a context")


def _failures(scene: Scene, tape: Tape) -> None:
    """A batch that cannot succeed, for one of several reasons."""
    batch = [scene.descriptor(tape) for _ in range(1 + tape.below(4))]
    reason = tape.below(6)
    context = tape.pick(_NOWHERE) if reason in (0, 5) else scene.any_context(tape)
    at = tape.below(len(batch))
    if reason == 1:
        batch[at] = msgspec.structs.replace(batch[at], fd="minus-one")
    elif reason == 2:
        scene.register(context, batch[at])
    elif reason == 3:
        batch[at] = msgspec.structs.replace(batch[at], shape=(1 << 20,))
    names = tuple(scene.name("h") for _ in batch)
    scene.add(Register(context, tuple(batch), names, null_descriptors=reason in (4, 5)))


@rule(
    "REG-07",
    Level.MUST,
    "After a QnnMem_register that fails, every handle of the array is NULL.",
    source="QnnMem.h: QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_failures),
    gate=("1101",),
)
def reg_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """All entries up to the count, whatever the reason of the failure."""
    require_memory_calls(case, trace)
    count = 0
    for walked in own_steps(case, trace, _failed_registration):
        assert isinstance(walked.step, Register)
        kept = [hex(value) for value in walked.seen.values[: len(walked.step.handles)] if value]
        if kept:
            seen = f"{kept} after the call answered {named(walked.seen.code or 0)}"
            raise Violation("every handle NULL after a failure", seen, place(walked))
        count += 1
    return Examined(count, "failed registrations")


def _failed_registration(walked: Walked) -> bool:
    step = walked.step
    return isinstance(step, Register) and walked.code != 0 and not step.null_handles and step.count is None


def _one_bad(scene: Scene, tape: Tape) -> None:
    """A bad descriptor alone, then among good ones; then the good ones alone, one by one."""
    context = scene.any_context(tape)
    good = [scene.descriptor(tape) for _ in range(1 + tape.below(3))]
    bad = _bad(scene, tape, context)
    at = tape.below(len(good) + 1)
    scene.add(Register(context, (bad,), (scene.name("h"),)))
    # The zero choice is the telling one: the bad descriptor last.
    batch = [*good, bad] if at == 0 else [*good[: at - 1], bad, *good[at - 1 :]]
    scene.add(Register(context, tuple(batch), tuple(scene.name("h") for _ in batch)))
    for descriptor in good:
        scene.register(context, descriptor)


def _bad(scene: Scene, tape: Tape, context: str) -> Descriptor:
    right = scene.descriptor(tape)
    kind = tape.below(4)
    if kind == 1:
        return msgspec.structs.replace(right, fd="pipe")
    if kind == 2:
        return msgspec.structs.replace(right, shape=(1 << 20,))
    if kind == 3:
        scene.register(context, right)
        return right
    return msgspec.structs.replace(right, fd="minus-one")


@rule(
    "REG-08",
    Level.MUST,
    "QnnMem_register registers all descriptors of a call or none: a single bad one makes it fail with that "
    "one's code.",
    source="QnnMem.h: QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_one_bad),
    gate=("1101",),
)
def reg_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The bad one's code; then every good one registers alone, so none was kept.

    A descriptor that is taken alone is none that makes a batch fail. The code is the one that the target gave
    to the bad one alone, or one that the document has for it: which of these it should have been alone is for
    the rule about that descriptor. Of one that was not tried alone any failure will do.
    """
    require_memory(case, trace)
    refused = 0
    alone: dict[Descriptor, set[int]] = {}
    for one in own_steps(case, trace, lambda w: bool(w.allowed.faults)):
        if isinstance(one.step, Register) and len(one.step.descriptors) == 1 and one.code is not None:
            alone.setdefault(one.step.descriptors[0], set()).add(one.code)
    for walked in own_steps(case, trace, _faulty_batch):
        assert isinstance(walked.step, Register)
        given = set().union(*(alone.get(each, ()) for each in walked.step.descriptors))
        if 0 in given:
            continue
        if given or not walked.code:
            demand_code(walked, walked.allowed.codes | given, "one descriptor of the batch is bad")
        refused += 1
    after = judge_valid(
        case,
        trace,
        _after_failure,
        "",
        "this memory was in a batch that was refused, so it must not be registered",
    )
    return Examined(refused + after.count, "refused batches and their good descriptors")


def _faulty_batch(walked: Walked) -> bool:
    step = walked.step
    batch = isinstance(step, Register) and len(step.descriptors) > 1
    return batch and walked.allowed.specified and bool(walked.allowed.faults)


def _after_failure(walked: Walked) -> bool:
    return isinstance(walked.step, Register) and any(
        isinstance(note, frozenset) for note in walked.allowed.notes
    )


_FAILURES = 8


def _through_dup(scene: Scene, tape: Tape) -> None:
    """Memory that is registered comes again through a dup of its fd; the first handle is used on."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    handles = scene.tensor_memory(graph) if graph else scene.register(context, scene.descriptor(tape))
    chosen = scene.handles[handles[tape.below(len(handles))]].descriptor
    again = msgspec.structs.replace(chosen, fd="dup")
    scene.add(Register(context, (again,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "REG-25",
    Level.MAY,
    "QnnMem_register accepts a dup(2) of a registered file descriptor or refuses it with "
    "QNN_MEM_ERROR_ALREADY_REGISTERED (8002); the first handle stays valid.",
    source="QnnMem.h: QNN_MEM_ERROR_ALREADY_REGISTERED does not say what tells memory apart",
    subject="memory",
    cases=embedded(_through_dup),
    gate=("1101",),
)
def reg_25(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 or 8002; the first handle executes and is deregistered. The choice is in the report."""
    require_memory(case, trace)
    codes = {0, int(Error.MEM_ERROR_ALREADY_REGISTERED)}
    return judge_relation(case, trace, Relation.DUPLICATE_FD, codes, "registrations through a dup")


def _number_again(scene: Scene, tape: Tape) -> None:
    """A buffer is registered, deregistered and freed; the next one, of another size, gets its number."""
    context = scene.any_context(tape)
    for _ in range(2 + tape.below(3)):
        shape, dtype = scene.tensor(tape)
        spare = tape.pick((0, PAGE, 1, 3 * PAGE + 5))
        buffer = scene.alloc(nbytes(shape, dtype) + spare)
        scene.add(ToFd(buffer))
        handles = scene.register(context, Descriptor(buffer, shape, dtype, tape.pick(scene.types)))
        scene.deregister(*handles)
        scene.free(buffer)


@rule(
    "REG-26",
    Level.MUST,
    "After a buffer was deregistered and freed, a new one with the same file descriptor number can be "
    "registered, whatever its size.",
    source="QnnMem.h: QnnMem_deRegister; devices answer otherwise when a registration is left behind",
    subject="memory",
    cases=embedded(_number_again),
    gate=("1101",),
)
def reg_26(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success; only buffers count that were given the number of a freed one."""
    require_memory(case, trace)
    numbers: dict[str, int] = {}
    gone: set[int] = set()
    count = 0
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, ToFd) and seen.values and step.pointer == "base":
            numbers[step.buffer] = seen.values[0]
    for index, step in enumerate(case.steps):
        if isinstance(step, Free):
            gone.add(numbers.get(step.buffer, -1))
        if not isinstance(step, Register):
            continue
        again = {numbers.get(each.buffer, -1) for each in step.descriptors} & gone - {-1}
        for walked in own_steps(case, trace, lambda w: w.allowed.valid) if again else ():
            if walked.index == index:
                demand_code(walked, {0}, f"descriptor number {min(again)} belongs to another buffer now")
                count += 1
    return Examined(count, "buffers with a number used before")


def _failing(scene: Scene, tape: Tape) -> None:
    """One failing call to warm up, then eight between two looks."""
    context = scene.any_context(tape)
    reason = tape.below(4)
    batch = [scene.descriptor(tape) for _ in range(1 + tape.below(2))]
    bad = scene.descriptor(tape)
    if reason == 1:
        bad = msgspec.structs.replace(bad, fd="pipe")
    elif reason == 2:
        bad = msgspec.structs.replace(bad, shape=(1 << 20,))
    elif reason == 3:
        scene.register(context, bad)
    else:
        bad = msgspec.structs.replace(bad, fd="minus-one")
    for number in range(1 + _FAILURES):
        if number == 1:
            scene.add(Observe())
        names = tuple(scene.name("h") for _ in (*batch, bad))
        scene.add(Register(context, (*batch, bad), names))
    scene.add(Observe(patient=True))


@rule(
    "REG-28",
    Level.MUST,
    "A QnnMem_register that fails leaves no file descriptor and no mapping behind.",
    source="QnnMem.h: QnnMem_register, note on failure",
    subject="memory",
    cases=embedded(_failing, after=0),
    gate=("1101",),
)
def reg_28(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Counts of descriptors and of shared mappings are the same before and after eight failures."""
    require_memory(case, trace)
    failed = [w for w in own_steps(case, trace, lambda w: isinstance(w.step, Register)) if w.code]
    if len(failed) < _FAILURES:
        return Examined(0, "failed registrations")
    demand_steady(case, trace, f"{_FAILURES} failed registrations", falling=True)
    return Examined(len(failed), "failed registrations")


def _use(scene: Scene, tape: Tape, name: str, later: Callable[[], None] | None = None) -> None:
    """Registered memory for a graph, executed over; with ``later``, the graph comes between the two."""
    made = scene.steps.pop() if later else None
    memory = any_memory(scene, tape.cut(MEMORY_BYTES), name)
    if later and made is not None:
        later()
        scene.add(made)
    load(scene, name, memory, 1)
    execute(scene, name, memory, raw=tape.below(4))


def _composed(scene: Scene, tape: Tape) -> None:
    """Before the graph is prepared, or after."""
    name = composed(scene, tape.cut(4), scene.context())
    if name:
        _use(scene, tape, name, (lambda: None) if tape.below(2) else None)


def _unfinished(scene: Scene, tape: Tape) -> None:
    """While a graph of the context is begun only: one of its tensors was refused."""
    context = scene.context()
    name = composed(scene, tape.cut(4), context, weights=False)
    if name:
        made = scene.graphs[name]
        scene.add(Prepare(scene.name("u"), context, made.op, made.dtype, made.shape, preset=(True,)))
        _use(scene, tape, name)


def _from_binary(scene: Scene, tape: Tape) -> None:
    """In a context from a binary, before or after the graph is retrieved."""
    made = saved(scene, tape.cut(4))
    if made is not None:
        name = retrieved(scene, loaded(scene, made.binary), made.graphs[0])
        _use(scene, tape, name, (lambda: None) if tape.below(2) else None)


def _deferred(scene: Scene, tape: Tape) -> None:
    """In a deferred context, before or after contextFinalize."""
    made = saved(scene, tape.cut(4))
    if made is None:
        return
    context = loaded(scene, made.binary, defer=True)
    early = tape.below(2)
    if not early:
        finalised(scene, context)
    name = retrieved(scene, context, made.graphs[0])
    _use(scene, tape, name, (lambda: finalised(scene, context)) if early else None)


def _written_out(scene: Scene, tape: Tape) -> None:
    """Before the context's binary is asked for, which leaves the registrations as they are."""
    name = composed(scene, tape.cut(4), scene.context())
    if name:
        memory = any_memory(scene, tape.cut(MEMORY_BYTES), name)
        if scene.facts.supports(Property.CONTEXT_SUPPORT_CACHING):
            written(scene, scene.graphs[name].context)
        load(scene, name, memory, 1)
        execute(scene, name, memory, raw=tape.below(4))


def _any_time(scene: Scene, tape: Tape) -> None:
    tape.pick((_composed, _from_binary, _unfinished, _deferred, _written_out))(scene, tape)


any_time = embedded(_any_time)


@rule(
    "REG-17",
    Level.MUST,
    "QnnMem_register succeeds at any time of a context's life: before its graphs are made, after them, and "
    "in contexts from binaries; the registration lasts, whatever is made of the context then.",
    source="seed 002 (context obtained online or offline); QnnMem.h: QnnMem_register, QnnMem_deRegister",
    subject="memory",
    cases=any_time,
    gate=("1101",),
)
def reg_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each registration answers 0, and a graph that comes before or after it executes with the handles."""
    require_memory(case, trace)
    require_execute(case, trace)

    def own(walked: Walked) -> bool:
        step = walked.step
        return isinstance(step, Register) or (isinstance(step, Execute) and "handle" in kinds(step))

    return judge_valid(case, trace, own, "registrations and executes", "memory registers at any time")
