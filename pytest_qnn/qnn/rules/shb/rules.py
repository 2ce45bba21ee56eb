"""SHB: several tensors in one QNN_HTP_MEM_SHARED_BUFFER, each at an offset of its own."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Retained, Violation
from pytest_qnn.qnn.abi.codes import Error, MemType
from pytest_qnn.qnn.cases.case import (
    Alloc,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Observe,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.cases.sizes import PAGE, arity, nbytes, pages
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.notes import Fault, Relation
from pytest_qnn.qnn.rules.graphs import judge_contents, judge_run, require_executed_memory, require_type
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    judge_faults,
    judge_relation,
    judge_valid,
    own_steps,
    place,
    require_memory,
)
from pytest_qnn.qnn.strategies.graphs import (
    Cases,
    Memory,
    execute,
    graph,
    load,
    one_buffer,
    output_of,
    placed,
    read,
    register_all,
    rounds,
    shuffled,
    tensors_of,
)
from pytest_qnn.qnn.strategies.history import without
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts


def _own_memory(scene: Scene, tape: Tape) -> None:
    """A graph executes in shared buffers that the client made without rpcmem."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape)
    made = scene.graphs.get(graph)
    shape, dtype = (made.shape, made.dtype) if made else scene.tensor(tape)
    count = arity(made.op) + 1 if made else 1
    handles: list[str] = []
    for position in range(count):
        buffer = scene.name("b")
        size = nbytes(shape, dtype)
        scene.add(Alloc(buffer, size, own=True))
        scene.add(Fill(buffer))
        if position < count - 1:
            scene.add(Write(buffer, size, seed=position + tape.below(16), dtype=dtype))
        handles += scene.register(context, Descriptor(buffer, shape, dtype, CUSTOM))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


@rule(
    "SHB-16",
    Level.MUST,
    "Memory of the right kind works whether rpcmem or the client itself allocated it.",
    source="seed 002, custom allocator; clients use DMA heaps of their own",
    subject="memory",
    cases=embedded(_own_memory),
    gate=("1101", "1103", "HTP"),
)
def shb_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success, and right outputs, in memory from the DMA heap (on hosts: a memfd)."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    own = {step.buffer for step in case.steps if isinstance(step, Alloc) and step.own}
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        step = walked.step
        if isinstance(step, Register) and any(each.buffer in own for each in step.descriptors):
            demand_code(walked, {0}, "memory of the client's own is memory of the right kind")
            count += 1
        elif count and isinstance(step, Execute):
            demand_code(walked, {0}, "its memory was registered")
    judge_contents(case, trace)
    return Examined(count, "registrations of memory that is not rpcmem's")


_GATE = ("1101", "1103", "HTP")
_NO_TYPES = (0, 0x7FFFFFFF, 99)


def _shared(scene: Scene, tape: Tape) -> Descriptor:
    """One tensor in a shared buffer that is larger by up to a page."""
    shape, dtype = scene.tensor(tape)
    spare = 4 * tape.below(1024)
    buffer = scene.alloc(nbytes(shape, dtype) + spare + scene.lead())
    offset = 4 * tape.below(1 + spare // 4) + scene.lead()
    if scene.facts.only_aligned:
        offset -= offset % PAGE
    return Descriptor(buffer, shape, dtype, CUSTOM, offset=offset)


def _add_wrong(scene: Scene, tape: Tape, right: Descriptor, wrong: Descriptor) -> None:
    """The wrong descriptor, and now and then the right one after it."""
    context = scene.any_context(tape)
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    if tape.chance(2):
        scene.register(context, right)


def _require_shared(case: MemoryCase, trace: MemoryTrace) -> None:
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)


def _no_info(scene: Scene, tape: Tape) -> None:
    right = _shared(scene, tape)
    _add_wrong(scene, tape, right, msgspec.structs.replace(right, null="custom"))


@rule(
    "SHB-01",
    Level.MUST,
    "QnnMem_register refuses a CUSTOM descriptor whose customInfo is NULL: QNN_MEM_ERROR_INVALID_ARGUMENT "
    "(8000).",
    source="QnnMem.h: Qnn_MemDescriptor_t.customInfo, QNN_MEM_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=embedded(_no_info),
    gate=_GATE,
)
def shb_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000."""
    _require_shared(case, trace)
    return judge_faults(case, trace, (Fault.NULL_CUSTOM,), "descriptors without customInfo")


def _odd_type(scene: Scene, tape: Tape) -> None:
    right = _shared(scene, tape)
    _add_wrong(scene, tape, right, msgspec.structs.replace(right, htp_type=tape.pick(_NO_TYPES)))


@rule(
    "SHB-02",
    Level.MUST,
    "QnnMem_register refuses a custom HTP memory type that is QURT, UNDEFINED or unknown: "
    "QNN_MEM_ERROR_INVALID_ARGUMENT (8000) or QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE (8005).",
    source="QnnHtpMem.h: QnnHtpMem_Type_t",
    subject="memory",
    cases=embedded(_odd_type),
    gate=_GATE,
)
def shb_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8005 for 0, 99 and 0x7fffffff; 4 is a type of later headers."""
    _require_shared(case, trace)
    return judge_faults(case, trace, (Fault.HTP_TYPE,), "descriptors of no HTP memory type")


def _too_long(scene: Scene, tape: Tape) -> None:
    right = _shared(scene, tape)
    whole = pages(scene.buffers[right.buffer])
    size = whole + tape.pick((PAGE, 1, 1 << 20, 1 << 33))
    _add_wrong(scene, tape, right, msgspec.structs.replace(right, size=size))


@rule(
    "SHB-05",
    Level.MUST,
    "QnnMem_register refuses a size larger than the shared buffer: QNN_MEM_ERROR_INVALID_ARGUMENT (8000), "
    "QNN_MEM_ERROR_MAPPING (8003) or QNN_MEM_ERROR_INVALID_SHAPE (8004).",
    source="QnnMem.h: QNN_MEM_ERROR_MAPPING; QnnHtpMem.h: QnnMemHtp_Descriptor_t.size",
    subject="memory",
    cases=embedded(_too_long),
    gate=_GATE,
)
def shb_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000, 8003 or 8004 for sizes beyond the buffer's last page."""
    _require_shared(case, trace)
    return judge_faults(case, trace, (Fault.SIZE_TOO_LARGE,), "sizes beyond the buffer")


def _uneven(scene: Scene, tape: Tape) -> None:
    """Tensors of a graph at offsets that are multiples of their element and of no more."""
    name = graph(scene, tape)
    if not name:
        return
    made = scene.graphs[name]
    grain = 4 if made.dtype == "FLOAT_32" else 1
    size = nbytes(made.shape, made.dtype)
    offsets: list[int] = []
    end = 0
    for _ in range(tensors_of(scene, name)):
        end += grain * (1 + 2 * tape.below(8))
        offsets.append(end)
        end += size + grain * (size // grain % 2)
    buffer = scene.alloc(end)
    scene.add(Fill(buffer))
    descriptors = [Descriptor(buffer, made.shape, made.dtype, CUSTOM, offset=offset) for offset in offsets]
    handles = register_all(scene, tape, made.context, descriptors)
    memory = Memory(handles, (buffer,) * len(offsets), tuple(offsets))
    load(scene, name, memory, tape.below(16))
    execute(scene, name, memory)
    read(scene, [output_of(scene, name, memory)])


@rule(
    "SHB-10",
    Level.SHOULD,
    "Offsets in a shared buffer need no alignment beyond that of their elements.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER: its code packs tensors back to back",
    subject="memory",
    cases=embedded(_uneven, core_bytes=48),
    gate=_GATE,
)
def shb_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success at odd multiples of the element's size, and every tensor is found there (SHB-08 owns that)."""
    require_executed_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    because = "an offset is aligned when its elements are"
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register | Execute):
            demand_code(walked, {0}, because)
    return Examined(judge_contents(case, trace, because=because), "outputs and buffers at odd offsets")


def _fails_half_way(scene: Scene, tape: Tape) -> None:
    """Tensors of one buffer are registered; a later one of the group fails; the first ones are used."""
    name = graph(scene, tape)
    if not name:
        return
    memory = one_buffer(scene, tape, name)
    made = scene.graphs[name]
    good = scene.handles[memory.handles[0]].descriptor
    bad = (
        msgspec.structs.replace(good, fd="minus-one"),
        msgspec.structs.replace(good, offset=scene.buffers[good.buffer]),
        msgspec.structs.replace(good, fd="pipe"),
    )
    scene.add(Register(made.context, (tape.pick(bad),), (scene.name("h"),)))
    load(scene, name, memory, tape.below(16))
    execute(scene, name, memory)
    read(scene, [output_of(scene, name, memory)])
    scene.add(Register(made.context, (good,), (scene.name("h"),)))
    for handle in memory.handles:
        scene.deregister(handle)


@rule(
    "SHB-15",
    Level.MUST,
    "After a failed registration in a shared buffer the handles made before stay valid.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, comment on failure in the loop",
    subject="memory",
    cases=embedded(_fails_half_way, core_bytes=48),
    gate=_GATE,
)
def shb_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """They execute, their memory is still registered (8002), and they are deregistered with success."""
    require_executed_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    because = "only a later registration of the group failed"
    failed = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.specified):
        if isinstance(walked.step, Register) and walked.code and not walked.allowed.only(Fault.DUPLICATE):
            failed += 1
        elif failed and walked.allowed.only(Fault.DUPLICATE):
            demand_code(walked, walked.allowed.codes, because)
    after = judge_valid(case, trace, lambda w: isinstance(w.step, Deregister | Execute), "", because)
    return Examined(after.count if failed else 0, "uses of handles after a failure in their group")


_TWICE = int(Error.MEM_ERROR_ALREADY_REGISTERED)
_SHAPE = (1, 4, 4, 2)


def _first(scene: Scene, tape: Tape, kind: int) -> tuple[str, str, tuple[str, ...]]:
    """A context, a graph of it ("" without operators), and registered memory of each of its tensors."""
    context = scene.any_context(tape)
    graph = scene.prepare(context, tape, shape=_SHAPE)
    if graph:
        return context, graph, scene.tensor_memory(graph, kind)
    dtype = scene.tensor(tape)[1]
    descriptor = Descriptor(scene.alloc(nbytes(_SHAPE, dtype)), _SHAPE, dtype, kind)
    return context, graph, scene.register(context, descriptor)


def _second(scene: Scene, tape: Tape, kind: int, change: dict[str, object]) -> None:
    """Memory of a tensor comes again, changed; then the first handles are used."""
    context, graph, handles = _first(scene, tape, kind)
    chosen = scene.handles[handles[tape.below(len(handles))]].descriptor
    other = msgspec.structs.replace(chosen, **change)
    scene.add(Register(context, (other,), (scene.name("h"),)))
    if graph:
        scene.execute_handles(graph, handles)
    scene.deregister(*handles)


def _same_offset(scene: Scene, tape: Tape) -> None:
    _second(scene, tape, CUSTOM, {"shape": tape.pick(((1,), (4, 4), (32,), (1, 4, 2)))})


@rule(
    "SHB-11",
    Level.SHOULD,
    "QnnMem_register refuses a file descriptor and offset that are registered already, whatever the shape: "
    "QNN_MEM_ERROR_ALREADY_REGISTERED (8002).",
    source="QnnHtpMem.h: a different offset for each tensor; inference",
    subject="memory",
    cases=embedded(_same_offset),
    gate=("1101", "1103", "HTP"),
)
def shb_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; the first handle executes and is deregistered with success."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    return judge_relation(case, trace, Relation.SAME_OFFSET, {_TWICE}, "second registrations at an offset")


def _overlapping(scene: Scene, tape: Tape) -> None:
    """A tensor that begins inside a registered one, offered twice; deregistered if it was taken."""
    context = scene.any_context(tape)
    shape, dtype = (4, 4), scene.tensor(tape)[1]
    grain = 4 if dtype == "FLOAT_32" else 1
    size = nbytes(shape, dtype)
    shift = grain * (1 + tape.below(15))
    if scene.facts.only_aligned:
        shape, size, shift = (64, PAGE // 32 // grain), 2 * PAGE, PAGE
    first = Descriptor(scene.alloc(2 * size), shape, dtype, CUSTOM)
    over = msgspec.structs.replace(first, offset=shift)
    (kept,) = scene.register(context, first)
    for _ in range(2):
        scene.deregister(*scene.register(context, over))
    scene.deregister(kept)


@rule(
    "SHB-12",
    Level.MAY,
    "QnnMem_register accepts overlapping ranges of one shared buffer or refuses them, always alike; other "
    "registrations stay valid.",
    source="QnnHtpMem.h does not say whether ranges may overlap",
    subject="memory",
    cases=embedded(_overlapping),
    gate=("1101", "1103", "HTP"),
)
def shb_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0, 8000 or 8002, each time the same; the first handle stays valid. The choice is in the report."""
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    codes = {0, _TWICE, int(Error.MEM_ERROR_INVALID_ARGUMENT)}
    found = judge_relation(case, trace, Relation.OVERLAP, codes, "overlapping registrations")
    answers: dict[tuple[Descriptor, ...], int | None] = {}
    for walked in own_steps(
        case, trace, lambda w: Relation.OVERLAP in w.allowed.notes and not w.allowed.faults
    ):
        assert isinstance(walked.step, Register)
        first = answers.setdefault(walked.step.descriptors, walked.code)
        if first != walked.code:
            before = f"{named(first or 0)} as before for the same range"
            raise Violation(before, named(walked.code or 0), place(walked))
    return found


def _two_types(scene: Scene, tape: Tape) -> None:
    kind = tape.pick((ION, CUSTOM))
    _second(scene, tape, kind, {"mem_type": CUSTOM if kind == ION else ION})


@rule(
    "SHB-14",
    Level.SHOULD,
    "QnnMem_register refuses memory as a shared buffer that is registered as ION in the same context, and "
    "the other way round: QNN_MEM_ERROR_ALREADY_REGISTERED (8002).",
    source="seed 002, table of memory types: one handle for an fd of ION memory",
    subject="memory",
    cases=embedded(_two_types),
    gate=("1101", "1102", "1103", "HTP"),
)
def shb_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002; the first handle executes and is deregistered with success."""
    require_memory(case, trace)
    require_type(trace, MemType.ION)
    require_type(trace, MemType.CUSTOM)
    return judge_relation(case, trace, Relation.TWO_TYPES, {_TWICE}, "registrations as another type")


def _judge_bounds(case: MemoryCase, trace: MemoryTrace, fault: Fault, because: str) -> Examined:
    """Descriptors with the fault are refused with its codes; shared buffers without one are registered."""
    _require_shared(case, trace)
    found = judge_faults(case, trace, (fault,), f"registrations with {fault.value} and good ones", because)
    if not found.count:
        return found
    good = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register) and _shared_only(walked.step):
            demand_code(walked, {0}, because)
            good += 1
    return Examined(found.count + good, found.what)


def _shared_only(step: Register) -> bool:
    return all(descriptor.mem_type == MemType.CUSTOM for descriptor in step.descriptors)


# SHB


def _tensors_of_one_buffer(scene: Scene, tape: Tape, count: int) -> tuple[str, list[Descriptor]]:
    """A buffer and descriptors of ``count`` tensors that lie in it without overlap, not yet registered.

    On a scale with large offsets, all but the first lie behind so many bytes.
    """
    shape, dtype = scene.tensor(tape)
    size = nbytes(shape, dtype)
    gap = 4 * tape.pick((0, 1, 5, 16))
    step = placed(scene, size + gap)
    lead = scene.lead() // (1 << 20) * (1 << 20)
    # A multiple of 2**32 is lost in 32 bits: there the second tensor lies on the first.
    second = lead if lead >= step else step
    offsets = [0, *(second + tensor * step for tensor in range(count - 1))]
    buffer = scene.alloc(second + (count - 1) * step + 4 * tape.below(64))
    return buffer, [Descriptor(buffer, shape, dtype, CUSTOM, offset=offset) for offset in offsets]


def shared_sizes(facts: MemoryFacts) -> Cases:
    """SHB-03: a second tensor of a mapped buffer comes with another size, then with the right one.

    The first may be deregistered by then, while a third holds the buffer.
    """

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        buffer, tensors = _tensors_of_one_buffer(scene, tape, 2 + tape.below(3))
        order = shuffled(tape, len(tensors))
        whole, wrong = tensors[order[0]], tensors[order[1]]
        if whole.offset < wrong.offset:
            whole, wrong = wrong, whole
        (first,) = scene.register(context, whole)
        if len(tensors) > 2 and tape.chance(3):
            scene.register(context, tensors[order[2]])
            scene.deregister(first)
        least = wrong.offset + nbytes(wrong.shape, wrong.dtype)
        size = least + tape.below(scene.buffers[buffer] - least)
        scene.add(Register(context, (msgspec.structs.replace(wrong, size=size),), (scene.name("h"),)))
        scene.register(context, wrong)

    return scenes(facts, core)


@rule(
    "SHB-03",
    Level.MUST,
    "The size of a shared buffer is its total size, the same in all registrations of its file descriptor; "
    "another size is refused: QNN_MEM_ERROR_INVALID_ARGUMENT (8000).",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, note on size; QnnHtpMem.h",
    subject="memory",
    cases=shared_sizes,
    gate=_GATE,
)
def shb_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Another size for a mapped fd answers 8000 and leaves the right size usable."""
    return _judge_bounds(case, trace, Fault.SIZE_MISMATCH, "size is the same for all registrations of an fd")


def shared_ends(facts: MemoryFacts) -> Cases:
    """SHB-04: a tensor that ends exactly with its buffer, and one that does not fit."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        shape, dtype = scene.tensor(tape)
        grain = 4 if dtype == "FLOAT_32" else 1
        room = grain * tape.pick((0, 1, 64, 1024))
        room = placed(scene, room + scene.lead())
        buffer = scene.alloc(nbytes(shape, dtype) + room)
        fits = Descriptor(buffer, shape, dtype, CUSTOM, offset=room)
        beyond = grain * tape.pick((1, 2, 3, 4096, 1 << 20))
        past = msgspec.structs.replace(fits, offset=room + (1 if scene.lead() else beyond))
        if tape.chance(2):
            scene.register(context, fits)
            scene.add(Register(context, (past,), (scene.name("h"),)))
        else:
            scene.add(Register(context, (past,), (scene.name("h"),)))
            scene.register(context, fits)

    return scenes(facts, core)


@rule(
    "SHB-04",
    Level.MUST,
    "QnnMem_register refuses a tensor that ends behind its shared buffer (offset + bytes > size): "
    "QNN_MEM_ERROR_INVALID_ARGUMENT (8000), QNN_MEM_ERROR_MAPPING (8003) or QNN_MEM_ERROR_INVALID_SHAPE "
    "(8004).",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER; QnnMem.h: QnnMem_register; device log: 8000",
    subject="memory",
    cases=shared_ends,
    gate=_GATE,
)
def shb_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """An exact fit is registered; a tensor past the end answers 8000, 8003 or 8004."""
    return _judge_bounds(case, trace, Fault.PAST_END, "offset + bytes <= size")


HUGE_OFFSETS = (1 << 32, (1 << 64) - 4, (1 << 64) - 1, 1 << 63, (1 << 33) + 4, (1 << 48) + 1)


def shared_wraps(facts: MemoryFacts) -> Cases:
    """SHB-06: offsets that only 64-bit arithmetic without wrap-around refuses; then a good one."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        _, (good, *_) = _tensors_of_one_buffer(scene, tape, 2)
        for _ in range(1 + tape.below(3)):
            huge = msgspec.structs.replace(good, offset=tape.pick(HUGE_OFFSETS))
            scene.add(Register(context, (huge,), (scene.name("h"),)))
        scene.register(context, good)

    return scenes(facts, core)


@rule(
    "SHB-06",
    Level.MUST,
    "Offsets are 64 bits wide: QnnMem_register refuses huge ones, and those that overflow with the size of "
    "the tensor: QNN_MEM_ERROR_INVALID_ARGUMENT (8000), QNN_MEM_ERROR_MAPPING (8003) or "
    "QNN_MEM_ERROR_INVALID_SHAPE (8004).",
    source="QnnHtpMem.h: QnnHtpMem_SharedBufferConfig_t.offset",
    subject="memory",
    cases=shared_wraps,
    gate=_GATE,
)
def shb_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Offsets from 2**32 on answer 8000, 8003 or 8004 in buffers that are smaller."""
    return _judge_bounds(case, trace, Fault.HUGE_OFFSET, "the offset counts with all its 64 bits")


def shared_offsets(facts: MemoryFacts) -> Cases:
    """SHB-07: several tensors in one buffer."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        _, tensors = _tensors_of_one_buffer(scene, tape, 2 + tape.below(7))
        register_all(scene, tape, context, tensors)

    return scenes(facts, core)


@rule(
    "SHB-07",
    Level.MUST,
    "Each offset in one shared buffer gets a memory handle of its own.",
    source="QnnHtpMem.h; seed 002, Using QNN_HTP_MEM_SHARED_BUFFER",
    subject="memory",
    cases=shared_offsets,
    gate=_GATE,
)
def shb_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The live handles of all registrations differ and none is NULL."""
    _require_shared(case, trace)
    live: dict[str, int] = {}
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.specified):
        step = walked.step
        if isinstance(step, Deregister) and walked.code == 0:
            for name in step.handles:
                live.pop(name, None)
        if not isinstance(step, Register) or not walked.allowed.valid:
            continue
        if _shared_only(step):
            demand_code(walked, {0}, "each offset gives a handle")
        if walked.code != 0:
            continue
        for name, value in zip(step.handles, walked.seen.values, strict=False):
            if value == 0 or value in live.values():
                other = next((each for each, given in live.items() if given == value), "NULL")
                raise Violation("a handle of its own for each offset", f"{name} is {other}", place(walked))
            live[name] = value
            count += _shared_only(step)
    return Examined(count, "handles of shared buffers")


def _judge_layout(case: MemoryCase, trace: MemoryTrace, because: str) -> Examined:
    require_executed_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    return judge_run(case, trace, "outputs and buffers", because)


def shared_layout(facts: MemoryFacts) -> Cases:
    """SHB-08, SHB-09: all IO tensors of a graph, and spare ones, in one buffer in any order."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            memory = one_buffer(scene, tape, name, tape.below(3), far=True)
            rounds(scene, tape, name, memory, 1 + tape.below(2))

    return scenes(facts, core, core_bytes=48)


@rule(
    "SHB-08",
    Level.MUST,
    "QnnGraph_execute reads and writes a tensor exactly in [offset, offset + bytes) of its shared buffer and "
    "leaves the rest unchanged.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, memory pointer offset of each tensor",
    subject="memory",
    cases=shared_layout,
    gate=_GATE,
)
def shb_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The whole buffer is compared after each execute: output, inputs, neighbours and padding."""
    return _judge_layout(case, trace, "only [offset, offset + bytes) belongs to a tensor")


@rule(
    "SHB-09",
    Level.MUST,
    "Inputs and outputs may be in one shared buffer in any order, registered one by one or in one call.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, loop over tensors; QnnMem.h: QnnMem_register",
    subject="memory",
    cases=shared_layout,
    gate=_GATE,
)
def shb_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every order of layout and of registration is accepted and computes the same."""
    return _judge_layout(case, trace, "tensors may lie in one buffer in any order")


def shared_deregistered(facts: MemoryFacts) -> Cases:
    """SHB-13: spare tensors of the buffer go one by one, executes in between, then all the rest.

    Looks stand before the first registration, after the last, and after the last deregistration.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        spares = 1 + tape.below(3)
        looks = tape.chance(2)
        start = len(scene.steps)
        memory = one_buffer(scene, tape, name, spares)
        look = Observe(buffers=memory.buffers[:1])
        if looks:
            first = next(i for i, step in enumerate(scene.steps) if i >= start and isinstance(step, Register))
            scene.steps.insert(first, look)
            scene.add(look)
        used = tensors_of(scene, name)
        for spare in shuffled(tape, spares):
            scene.deregister(memory.handles[used + spare])
            rounds(scene, tape, name, memory, 1)
        for tensor in shuffled(tape, used):
            scene.deregister(memory.handles[tensor])
        if looks:
            scene.add(msgspec.structs.replace(look, patient=True))

    return scenes(facts, core, core_bytes=48, without=without("SHB-13"))


@rule(
    "SHB-13",
    Level.MUST,
    "Deregistering one handle leaves the other tensors of its shared buffer usable; the buffer is unmapped "
    "with the last one.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, loop of deregistrations",
    subject="memory",
    cases=shared_deregistered,
    gate=_GATE,
)
def shb_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes between the deregistrations are right; the buffer is mapped as often as before the first.

    Only the client's buffer is looked at: a backend may map shared memory of its own meanwhile.
    """
    found = _judge_layout(case, trace, "other tensors of the buffer are still registered")
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and isinstance(w.step, Deregister)):
        demand_code(walked, {int(Error.SUCCESS)}, "the handle is live")
    looks = [
        (index, seen.counted(ProcessCounts).mapped[0])
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Observe) and step.buffers and not seen.skipped
    ]
    ended = all(
        seen.code == 0
        for step, seen in zip(case.steps, trace.steps, strict=False)
        if isinstance(step, Deregister)
    )
    if len(looks) != 3 or not ended:
        return found
    (_, before), (_, registered), (last, after) = looks
    if registered > before and after > before:
        raise Retained(
            f"{before} mappings of the buffer once the last handle is gone, as before the first",
            f"{after} (and {registered} while handles were live)",
            f"step {last}, observe",
        )
    return Examined(found.count + 1, found.what)
