"""SHB: wrong descriptors of shared buffers, offsets of any alignment, groups that fail half way."""

from __future__ import annotations

import msgspec

from pytest_qnn.abi.qnn_codes import MemType
from pytest_qnn.cases.memory import Deregister, Descriptor, Execute, Fill, MemoryCase, Register
from pytest_qnn.cases.memory_graph_scene import (
    CUSTOM,
    Memory,
    execute,
    graph,
    load,
    one_buffer,
    output_of,
    read,
    register_all,
    tensors_of,
)
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.rules.memory_graph_support import judge_contents, require_executed_memory, require_type
from pytest_qnn.rules.memory_support import demand_code, judge_faults, judge_valid, own_steps, require_memory
from pytest_qnn.trace import MemoryTrace

_GATE = ("1101", "1103")
_NO_TYPES = (0, 0x7FFFFFFF, 99)
PAGE = 4096


def _shared(scene: Scene, tape: Tape) -> Descriptor:
    """One tensor in a shared buffer that is larger by up to a page."""
    shape, dtype = scene.tensor(tape)
    spare = 4 * tape.below(1024)
    buffer = scene.alloc(nbytes(shape, dtype) + spare)
    return Descriptor(buffer, shape, dtype, CUSTOM, offset=4 * tape.below(1 + spare // 4))


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
    "A CUSTOM descriptor whose customInfo is NULL is refused.",
    source="QnnMem.h: Qnn_MemDescriptor_t.customInfo, QNN_MEM_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=embedded(_no_info),
    gate=_GATE,
)
def shb_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000."""
    _require_shared(case, trace)
    return judge_faults(case, trace, ("null-custom",), "descriptors without customInfo")


def _odd_type(scene: Scene, tape: Tape) -> None:
    right = _shared(scene, tape)
    _add_wrong(scene, tape, right, msgspec.structs.replace(right, htp_type=tape.pick(_NO_TYPES)))


@rule(
    "SHB-02",
    Level.MUST,
    "A custom HTP memory type that is QURT, UNDEFINED or unknown is refused.",
    source="QnnHtpMem.h: QnnHtpMem_Type_t",
    subject="memory",
    cases=embedded(_odd_type),
    gate=_GATE,
)
def shb_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8005 for 0, 99 and 0x7fffffff; 4 is a type of later headers."""
    _require_shared(case, trace)
    return judge_faults(case, trace, ("htp-type",), "descriptors of no HTP memory type")


def _too_long(scene: Scene, tape: Tape) -> None:
    right = _shared(scene, tape)
    whole = -(-scene.buffers[right.buffer] // PAGE) * PAGE
    size = whole + tape.pick((PAGE, 1, 1 << 20, 1 << 33))
    _add_wrong(scene, tape, right, msgspec.structs.replace(right, size=size))


@rule(
    "SHB-05",
    Level.MUST,
    "A size that is larger than the buffer is refused.",
    source="QnnMem.h: QNN_MEM_ERROR_MAPPING; QnnHtpMem.h: QnnMemHtp_Descriptor_t.size",
    subject="memory",
    cases=embedded(_too_long),
    gate=_GATE,
)
def shb_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 or 8000 for sizes beyond the buffer's last page."""
    _require_shared(case, trace)
    return judge_faults(case, trace, ("size-too-large",), "sizes beyond the buffer")


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
    "Offsets need no alignment beyond that of their elements.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER: its code packs tensors back to back",
    subject="memory",
    cases=embedded(_uneven, core_bytes=48),
    gate=_GATE,
)
def shb_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success at odd multiples of the element's size, and every tensor is found there."""
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
    "After a failed registration in a group the handles made before are still valid.",
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
    for walked in own_steps(case, trace, lambda w: w.allowed.settled):
        if isinstance(walked.step, Register) and walked.code and not walked.allowed.only("duplicate"):
            failed += 1
        elif failed and walked.allowed.only("duplicate"):
            demand_code(walked, walked.allowed.codes, because)
    after = judge_valid(case, trace, lambda w: isinstance(w.step, Deregister | Execute), "", because)
    return Examined(after.count if failed else 0, "uses of handles after a failure in their group")
