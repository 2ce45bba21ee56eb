"""REG: QnnMem_register of valid descriptors, and of descriptors that are wrong."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases.memory import (
    Binding,
    Descriptor,
    Execute,
    FdKind,
    Fill,
    MemoryCase,
    Read,
    Register,
    Write,
)
from pytest_qnn.cases.memory_scene import io_inputs
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import SENTINEL
from pytest_qnn.rules.memory_graph_support import judge_contents
from pytest_qnn.rules.memory_support import (
    demand_code,
    judge_faults,
    judge_valid,
    own_steps,
    place,
    require_memory,
)
from pytest_qnn.trace import MemoryTrace

PAGE = 4096
_LARGE_BATCH = 64
_READ_ONLY = frozenset({0, int(Error.MEM_ERROR_MAPPING)})
_UNMAPPABLE: tuple[FdKind, ...] = ("pipe", "closed", "directory", "socket")


def _single(walked: Walked) -> bool:
    return isinstance(walked.step, Register) and len(walked.step.descriptors) == 1


def _valid_one(scene: Scene, tape: Tape) -> None:
    for _ in range(1 + tape.below(3)):
        scene.register(scene.any_context(tape), scene.descriptor(tape.cut(6)))


@rule(
    "REG-01",
    Level.MUST,
    "A valid context and one valid descriptor give success and a non-NULL handle.",
    source="seed 002, ION and shared buffer; H:QnnMem_register",
    subject="memory",
    cases=embedded(_valid_one),
    gate=("1101",),
)
def reg_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every single registration that is in order."""
    require_memory(case, trace)
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
    """A batch, now and then with the tensors of a graph, which is executed.

    One handle is deregistered, and its descriptor offered again.
    """
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape) if tape.chance(2) else ""
    descriptors = _graph_memory(scene, tape, graph) if graph else []
    used = len(descriptors)
    count = _LARGE_BATCH if tape.chance(16) else 2 + tape.below(4)
    descriptors += [scene.descriptor(tape.cut(4)) for _ in range(count)]
    handles = scene.register(context, *descriptors)
    if graph:
        scene.execute_handles(graph, handles[:used])
        scene.add(Read(descriptors[used - 1].buffer))
    chosen = tape.below(len(handles))
    scene.deregister(handles[chosen])
    scene.register(context, descriptors[chosen])


@rule(
    "REG-02",
    Level.MUST,
    "A batch of n descriptors gives n distinct handles, handle[i] belonging to descriptor[i].",
    source="H:QnnMem_register",
    subject="memory",
    cases=embedded(_batch_and_probe),
    gate=("1101",),
)
def reg_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Distinct values; handle[i] reads and writes the memory of descriptor[i], and frees it when it goes."""
    require_memory(case, trace)
    count = 0
    batch: tuple[Descriptor, ...] = ()
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register) and w.allowed.valid):
        assert isinstance(walked.step, Register)
        size = len(walked.step.descriptors)
        if size > 1 and walked.code == 0:
            values = walked.seen.values[:size]
            if len(set(values)) != size or not all(values):
                raise Violation(f"{size} distinct handles", str([hex(v) for v in values]), place(walked))
            batch += walked.step.descriptors
            count += size
        elif "after:deregistered" in walked.allowed.notes and walked.step.descriptors[0] in batch:
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
    "A descriptor with file descriptor -1 is refused.",
    source="H:Qnn_MemDescriptor, invalid fd; seed 002, the check for -1",
    subject="memory",
    cases=embedded(lambda scene, tape: _unmappable(scene, tape, "minus-one")),
    gate=("1101",),
)
def reg_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 or 8000."""
    require_memory(case, trace)
    return judge_faults(case, trace, ("fd-minus-one",), "descriptors with fd -1")


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
    "A file descriptor that is closed or cannot be mapped is refused.",
    source="H:QNN_MEM_ERROR_MAPPING",
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
    found = judge_faults(case, trace, ("fd-unmappable",), "descriptors that cannot be mapped")
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register) and not w.allowed.faults):
        assert isinstance(walked.step, Register)
        if any(each.fd == "readonly" for each in walked.step.descriptors):
            demand_code(walked, _READ_ONLY, "the descriptor is open for reading only")
            count += 1
    return Examined(found.count + count, found.what)


def _too_small(scene: Scene, tape: Tape) -> None:
    """A tensor that needs more than the whole pages of its buffer."""
    whole = 1 + tape.below(3)
    over = 1 + tape.below(3 * PAGE)
    buffer = scene.alloc(whole * PAGE)
    context = scene.any_context(tape)
    bad = Descriptor(buffer, (whole * PAGE + over,), mem_type=tape.pick(scene.types))
    if tape.below(2):
        scene.register(context, scene.descriptor(tape))
    scene.add(Register(context, (bad,), (scene.name("h"),)))


@rule(
    "REG-15",
    Level.MUST,
    "A buffer smaller than the tensor that shape and data type imply is refused.",
    source="H:QnnMem_register; device log 0x1f40",
    subject="memory",
    cases=embedded(_too_small),
    gate=("1101",),
)
def reg_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000, 8003 or 8004."""
    require_memory(case, trace)
    return judge_faults(case, trace, ("small-buffer",), "buffers smaller than their tensor")


def _larger(scene: Scene, tape: Tape) -> None:
    shape, dtype = scene.tensor(tape)
    spare = tape.pick((1, PAGE, 3 * PAGE, 63, 16 * PAGE + 1))
    buffer = scene.alloc(nbytes(shape, dtype) + spare)
    scene.register(scene.any_context(tape), Descriptor(buffer, shape, dtype, tape.pick(scene.types)))


@rule(
    "REG-16",
    Level.MUST,
    "A buffer larger than its tensor is accepted.",
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
        lambda w: _single(w) and "larger" in w.allowed.notes,
        "buffers larger than their tensor",
    )


def _contents(scene: Scene, tape: Tape) -> None:
    """Known contents, read before and after registrations of the buffer."""
    descriptor = scene.descriptor(tape)
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
    "Registering does not change the contents of the buffer.",
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
