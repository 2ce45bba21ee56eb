"""EXT: a client's memory for the weights and the spill-fill of a context."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.qnn.abi.codes import HtpContextOption
from pytest_qnn.qnn.cases.case import (
    ContextFinalize,
    Deregister,
    Descriptor,
    FdKind,
    Fill,
    MemoryCase,
    Observe,
    Read,
    Register,
    ReleaseBinary,
    Write,
)
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.cases.memory import CUSTOM, SPILL, WEIGHTS
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import Fault, Note
from pytest_qnn.qnn.rules.binaries import (
    demand_refused,
    executed_after_release,
    judge_flow,
    property_said,
    require_external,
    require_finalize,
    require_needed,
    require_page_alignment,
)
from pytest_qnn.qnn.rules.graphs import require_execution
from pytest_qnn.qnn.rules.judging import (
    LET_GO,
    bytes_read,
    demand_code,
    judge_faults,
    judge_let_go,
    own_steps,
    place,
)
from pytest_qnn.qnn.strategies.binaries import (
    deferred,
    external,
    finalised,
    freed,
    given,
    loaded,
    memory_of,
    retrieved,
)
from pytest_qnn.qnn.strategies.external import (
    ROLES,
    any_roles,
    begun,
    ended,
    executed,
    filled,
    two_contexts,
    weighted,
)
from pytest_qnn.qnn.strategies.graphs import execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_GATE = ("202", "217", "1101", "1103")


def _judge_refused(
    case: MemoryCase, trace: MemoryTrace, faults: Collection[Fault], what: str, because: str
) -> Examined:
    """Registrations with one of these faults are refused; whatever is in order goes on."""
    require_external(case, trace)
    examined = judge_faults(case, trace, faults, what, because)
    judge_flow(case, trace, "this step is in order, whatever else of the case is refused")
    return examined


def _too_small(scene: Scene, tape: Tape) -> None:
    """EXT-07: a byte or more too little, in the buffer or behind the offset; then enough."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    role = tape.pick(ROLES)
    if tape.chance(3):
        buffer = external(scene, context, role)
        scene.add(Register(context, (memory_of(role, buffer, offset=PAGE),), (scene.name("h"),)))
    else:
        buffer = external(scene, context, role, extra=-tape.pick((1, 8, 64, 2048)))
        scene.add(Register(context, (memory_of(role, buffer),), (scene.name("h"),)))
    given(scene, context, role, external(scene, context, role, extra=tape.pick((0, 1, PAGE))))


too_small = embedded(_too_small, before=1)


@rule(
    "EXT-07",
    Level.MUST,
    "QnnMem_register refuses external memory smaller than the context's property says: with 8000 to 8005 or "
    "QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=too_small,
    gate=_GATE,
)
def ext_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal for a byte too little, whatever ``size`` means beside an offset; just enough is enough."""
    return _judge_refused(
        case, trace, {Fault.EXTERNAL_SMALL}, "buffers that are too small", "it is too small"
    )


def _misaligned(scene: Scene, tape: Tape) -> None:
    """EXT-08: offsets that are not aligned; then one that is."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    lead = scene.lead(touched=True) // PAGE * PAGE
    buffer = external(scene, context, role, extra=lead + 2 * PAGE)
    wrong = memory_of(role, buffer, offset=lead + tape.pick((1, PAGE // 2, 64, PAGE + 8)))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    given(scene, context, role, buffer, offset=lead + PAGE * tape.pick((0, 1, 0, 2)))
    ended(scene, made, context, tape.below(16))


misaligned = embedded(_misaligned, before=1)


@rule(
    "EXT-08",
    Level.MUST,
    "QnnMem_register refuses external memory whose offset does not satisfy the context's alignment property: "
    "with 8000 to 8005 or QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=misaligned,
    gate=_GATE,
)
def ext_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of another offset; a buffer that is used from its start is taken.

    A good offset may be refused: beside one, ``size`` may mean the whole buffer or what follows.
    """
    what = "misaligned offsets"
    require_external(case, trace)
    if set(property_said(case, trace, HtpContextOption.BUFFER_START_ALIGNMENT)) == {1}:
        raise Unsupported("external memory may begin anywhere: the alignment property says 1")
    return _judge_refused(case, trace, {Fault.EXTERNAL_MISALIGNED}, what, "its offset is not aligned")


def _no_dma(scene: Scene, tape: Tape) -> None:
    """EXT-09: a descriptor that is no DMA buffer's."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    role = tape.pick(ROLES)
    kinds: tuple[FdKind, ...] = ("pipe", "file", "socket", "directory", "closed")
    wrong = msgspec.structs.replace(memory_of(role, external(scene, context, role)), fd=tape.pick(kinds))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))


no_dma = embedded(_no_dma, before=1)


@rule(
    "EXT-09",
    Level.MUST,
    "QnnMem_register refuses external memory that is not a DMA buffer: with 8000 to 8005 or "
    "QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=no_dma,
    gate=_GATE,
)
def ext_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of the descriptor of a pipe, a plain file, a socket or a folder, and a closed one."""
    return _judge_refused(case, trace, {Fault.NOT_DMA}, "descriptors of other things", "it is no DMA buffer")


def _any_shape(scene: Scene, tape: Tape) -> None:
    """EXT-11: shapes and data types that mean nothing here."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    for role in (WEIGHTS, SPILL):
        shape: tuple[int, ...] = tape.pick(((), (0,), (1 << 20, 1 << 10), (3, 0), (1,)))
        dtype = tape.pick(("UFIXED_POINT_8", "FLOAT_32"))
        usual = memory_of(role, external(scene, context, role))
        scene.register(context, msgspec.structs.replace(usual, shape=shape, dtype=dtype))
    ended(scene, made, context, tape.below(16))


any_shape = embedded(_any_shape, before=1)


@rule(
    "EXT-11",
    Level.MUST,
    "QnnMem_register ignores the shape and the data type of external memory.",
    source=f"{_FLOW}, code example",
    subject="memory",
    cases=any_shape,
    gate=_GATE,
)
def ext_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering succeeds with any shape, and the graphs are right."""
    require_page_alignment(case, trace)
    return _judge_given(case, trace, "registrations of any shape", "shape and data type mean nothing here")


def _judge_given(case: MemoryCase, trace: MemoryTrace, what: str, because: str) -> Examined:
    """Registrations of external memory that are in order succeed, and so does what follows."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if walked.allowed.notes & {Note.WEIGHTS, Note.SPILL}:
            demand_code(walked, {0}, because)
            count += 1
    judge_flow(case, trace, because)
    return Examined(count, what)


def _none_one_both(scene: Scene, tape: Tape) -> None:
    """EXT-12: memory of neither kind, of one, or of both, in one call or two, at offsets."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    roles = any_roles(tape)
    offset = PAGE * tape.below(2)
    described = [
        memory_of(role, external(scene, context, role, extra=offset), offset=offset) for role in roles
    ]
    if described and tape.chance(2):
        scene.register(context, *described)
    else:
        for each in described:
            scene.register(context, each)
    ended(scene, made, context, tape.below(16))


none_one_both = embedded(_none_one_both, before=1)


@rule(
    "EXT-12",
    Level.MUST,
    "A client may register weights memory, spill-fill memory, both or neither; the graphs work in each case.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=none_one_both,
    gate=_GATE,
)
def ext_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering, finalising and executing succeed in each combination, and outputs are right."""
    require_external(case, trace)
    count = judge_flow(case, trace, "any combination of external memory will do")
    require_execution(trace)
    return Examined(count, "executes with external memory, or without")


def _second(scene: Scene, tape: Tape) -> None:
    """EXT-14: another buffer of the same kind for one context."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    given(scene, context, role, external(scene, context, role))
    wrong = memory_of(role, external(scene, context, role))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    ended(scene, made, context, tape.below(16))


second = embedded(_second, before=1)


def _weights_shared(scene: Scene, tape: Tape) -> None:
    """EXT-13: one buffer as the weights of two contexts, before and after the first is finalised."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    buffer = external(scene, first, WEIGHTS, extra=PAGE * tape.below(2))
    given(scene, first, WEIGHTS, buffer)
    late = tape.chance(2)
    if late:
        finalised(scene, first)
    scene.add(Register(second, (memory_of(WEIGHTS, buffer),), (scene.name("h"),)))
    if not late:
        finalised(scene, first)
    executed(scene, made, first, tape.below(16))


weights_shared = embedded(_weights_shared, before=1)


@rule(
    "EXT-13",
    Level.MUST,
    "QnnMem_register refuses memory that is another context's weights memory as weights memory: with 8000 to "
    "8005 or QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=weights_shared,
    gate=_GATE,
)
def ext_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of the weights memory of another context, which goes on."""
    require_needed(case, trace, WEIGHTS)
    what = "weights buffers of another context"
    because = "it is registered as another context's weights memory"
    return _judge_refused(case, trace, {Fault.WEIGHTS_SHARED}, what, because)


@rule(
    "EXT-14",
    Level.SHOULD,
    "QnnMem_register refuses a second weights buffer, or a second spill-fill buffer, for one context: with "
    "8000 to 8005 or QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 4 (the external weights buffer, the external spill-fill buffer)",
    subject="memory",
    cases=second,
    gate=_GATE,
)
def ext_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of a second one."""
    return _judge_refused(
        case, trace, {Fault.SECOND_EXTERNAL}, "second buffers", "the context has one already"
    )


def _spill_shared(scene: Scene, tape: Tape) -> None:
    """EXT-15, EXT-26: one spill-fill buffer for two to four contexts, executed in turns."""
    made = weighted(scene, tape, 1 + tape.below(2))
    if made is None:
        return
    contexts = [deferred(scene, made.binary) for _ in range(2 + tape.below(3))]
    buffer = filled(scene, contexts[0], SPILL)
    for context in contexts:
        given(scene, context, SPILL, buffer)
    graphs = []
    for context in contexts:
        finalised(scene, context)
        graphs += [retrieved(scene, context, source) for source in made.graphs]
    turns = 2 + tape.below(2)
    step = 16 * (1 - tape.below(2))  # equal inputs again may find a result of before in the memory
    for turn in range(turns):
        for at, graph in enumerate(graphs):
            execute(scene, graph, None, seed=step * turn + at)


spill_shared = embedded(_spill_shared, before=1)


@rule(
    "EXT-15",
    Level.MUST,
    "One buffer may be registered as the spill-fill memory of several contexts.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=spill_shared,
    gate=("202", "217", "1101", "1103", "spill-fill"),
)
def ext_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering it with each of them succeeds."""
    require_external(case, trace)
    require_page_alignment(case, trace)
    require_needed(case, trace, SPILL)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and Note.SPILL_SHARED in w.allowed.notes):
        demand_code(walked, {0}, "spill-fill memory may be shared between contexts")
        count += 1
    return Examined(count, "spill-fill buffers of another context")


def _other_use(scene: Scene, tape: Tape) -> None:
    """EXT-16: one buffer for two uses, in either order, in one context or two."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    role = tape.pick(ROLES)
    buffer = external(scene, first, role)
    kinds = tuple(kind for kind in scene.types if kind != 3) or (CUSTOM,)
    io = Descriptor(buffer, (1, 2, 2, 2), mem_type=tape.pick(kinds))
    others = (io, memory_of(WEIGHTS + SPILL - role, buffer))
    pair = (memory_of(role, buffer), tape.pick(others))
    if tape.chance(2):
        pair = (pair[1], pair[0])
    owner = first if tape.below(2) else second
    scene.register(first, pair[0])
    scene.add(Register(owner, (pair[1],), (scene.name("h"),)))
    ended(scene, made, first, tape.below(16))
    scene.add(Register(second, (io,), (scene.name("h"),)))


other_use = embedded(_other_use, before=1)


@rule(
    "EXT-16",
    Level.MUST,
    "QnnMem_register refuses a buffer for another use (IO tensors, weights, spill-fill) than it is "
    "registered for, in any context: with 8000 to 8005 or QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED (1005).",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=other_use,
    gate=_GATE,
)
def ext_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal of the second use of a buffer: IO tensors, weights, spill-fill, in either order."""
    return _judge_refused(
        case, trace, {Fault.OTHER_USE}, "buffers with two uses", "the buffer has another use"
    )


def _too_late(scene: Scene, tape: Tape) -> None:
    """EXT-24: external memory for a context that is finalised, or was never deferred."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    buffer = external(scene, context, role)
    kind = tape.below(3)
    if kind == 0:
        finalised(scene, context)
    late = (context, made.context, "")[kind] or loaded(scene, made.binary)
    scene.add(Register(late, (memory_of(role, buffer),), (scene.name("h"),)))
    if kind:
        finalised(scene, context)
    executed(scene, made, context, tape.below(16))


too_late = embedded(_too_late, before=1)


@rule(
    "EXT-24",
    Level.SHOULD,
    "QnnMem_register refuses external memory outside the time between deferred creation and "
    "QnnContext_finalize.",
    source=f"{_FLOW}, the order of the steps",
    subject="memory",
    cases=too_late,
    gate=_GATE,
)
def ext_24(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal, with whatever code, after contextFinalize and for contexts that were never deferred."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(
        case, trace, lambda w: w.allowed.specified and Fault.NOT_OPEN in w.allowed.faults
    ):
        demand_refused(walked, "the context does not wait for contextFinalize")
        count += 1
    judge_flow(case, trace, "external memory was refused")
    return Examined(count, "registrations too late, or for ordinary contexts")


def _reads(case: MemoryCase, trace: MemoryTrace) -> dict[str, list[tuple[Walked, bytes]]]:
    """By buffer, what the client read there, in order."""
    found: dict[str, list[tuple[Walked, bytes]]] = {}
    for walked in walk(case, trace):
        data = bytes_read(walked.seen)
        if isinstance(walked.step, Read) and data is not None:
            found.setdefault(walked.step.buffer, []).append((walked, data))
    return found


def _external(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[Walked, Register]]:
    """Registrations of external memory that are in order."""
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register) and walked.allowed.notes & {Note.WEIGHTS, Note.SPILL}:
            yield walked, walked.step


def _around_finalize(case: MemoryCase, trace: MemoryTrace) -> list[tuple[bytes, list[tuple[Walked, bytes]]]]:
    """Of each weights buffer: what was last read of it before contextFinalize, and each read after it."""
    owners: dict[str, str] = {}
    finalised: dict[str, int] = {}
    for walked in walk(case, trace):
        if isinstance(walked.step, Register) and Note.WEIGHTS in walked.allowed.notes and walked.code == 0:
            owners |= {each.buffer: walked.step.context for each in walked.step.descriptors}
        elif isinstance(walked.step, ContextFinalize) and walked.code == 0:
            finalised[walked.step.context] = walked.index
    found = []
    for buffer, reads in _reads(case, trace).items():
        end = finalised.get(owners.get(buffer, ""), -1)
        before = [data for walked, data in reads if walked.index < end]
        if before:
            found.append((before[-1], [(walked, data) for walked, data in reads if walked.index > end]))
    return found


_WIDE = (1, 8, 264, 512)
"""A shape whose weights take more than a mebibyte."""


def _weights_stored(scene: Scene, tape: Tape) -> None:
    """EXT-17: the weights' buffer, zero before finalising and read after it, and an execute."""
    count = 1 + tape.below(2)
    found = begun(scene, tape, count, _WIDE if tape.chance(5) else None)
    if found is None:
        return
    made, context = found
    buffer = filled(scene, context, WEIGHTS, extra=PAGE * tape.below(2))
    given(scene, context, WEIGHTS, buffer)
    scene.add(Read(buffer))
    finalised(scene, context)
    scene.add(Read(buffer))
    executed(scene, made, context, tape.below(16))


weights_stored = embedded(_weights_stored, before=1)


@rule(
    "EXT-17",
    Level.MUST,
    "QnnContext_finalize stores the weights of the context in its external weights memory.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=weights_stored,
    gate=_GATE,
)
def ext_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The buffer holds other bytes than before. What QNN writes there later is its own affair."""
    require_external(case, trace)
    require_needed(case, trace, WEIGHTS)
    judge_flow(case, trace, "the context has external weights memory")
    count = 0
    for before, after in _around_finalize(case, trace):
        if after and before == after[0][1]:
            seen = "the buffer is as it was before contextFinalize"
            raise WrongOutput("weights in the external weights memory", seen, place(after[0][0]))
        count += bool(after)
    return Examined(count, "weights buffers")


def _released(scene: Scene, tape: Tape) -> None:
    """EXT-19: the binary is gone once contextFinalize has returned."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    for role in any_roles(tape):
        given(scene, context, role, external(scene, context, role))
    finalised(scene, context)
    scene.add(ReleaseBinary(context))
    executed(scene, made, context, tape.below(16))


released = embedded(_released, before=1)


@rule(
    "EXT-19",
    Level.MUST,
    "The client may free the binary and the configuration once QnnContext_finalize has returned.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=released,
    gate=("202", "217"),
)
def ext_19(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Both are overwritten after finalising; retrieving and executing give what they must."""
    require_finalize(case, trace)
    judge_flow(case, trace, "the binary was released after contextFinalize")
    require_execution(trace)
    return Examined(executed_after_release(case, trace), "executes after the binary was released")


def _kept(scene: Scene, tape: Tape) -> None:
    """EXT-21: deregistering external memory after finalising; executes before and after."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    handles = [
        given(scene, context, role, external(scene, context, role))
        for role in tape.pick(((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL)))
    ]
    names = ended(scene, made, context, tape.below(16))
    for handle in handles:
        # Refused, so it may be tried again.
        scene.steps += [Deregister((handle,))] * (1 + tape.below(3))
    for name in names:
        execute(scene, name, None, seed=tape.below(16))


kept = embedded(_kept, before=1)


@rule(
    "EXT-21",
    Level.MUST,
    "QnnMem_deRegister refuses external memory once its context is finalised.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=kept,
    gate=_GATE,
)
def ext_21(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """MemDeRegister is refused, with whatever code, and the graphs go on."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.FIXED_HANDLE)):
        demand_refused(walked, "the context uses the memory")
        count += 1
    judge_flow(case, trace, "deregistering was refused")
    return Examined(count, "external memory deregistered after contextFinalize")


def _given_back(scene: Scene, tape: Tape) -> None:
    """EXT-22: contextFree ends the registrations: their memory serves another context, handles are dead."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    roles = tape.pick(((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL)))
    buffers = {role: external(scene, first, role) for role in roles}
    handles = [given(scene, first, role, buffers[role]) for role in roles]
    ended(scene, made, first, tape.below(16))
    freed(scene, first)
    for handle in handles:
        scene.add(Deregister((handle,)))
    for role in roles:
        given(scene, second, role, buffers[role])
    ended(scene, made, second, tape.below(16))
    for _ in range(tape.pick((0, 0, 1, 3))):
        freed(scene, second)
        second = deferred(scene, made.binary)
        for role in roles:
            given(scene, second, role, buffers[role])
        ended(scene, made, second, tape.below(16))


given_back = embedded(_given_back, before=1)


@rule(
    "EXT-22",
    Level.MUST,
    "QnnContext_free deregisters the external memory of its context.",
    source=f"{_FLOW}, step 5",
    subject="memory",
    cases=given_back,
    gate=_GATE,
)
def ext_22(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The handle is none any more (8001), and the memory serves another context."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.DEAD_HANDLE)):
        demand_code(walked, walked.allowed.codes, "its context was freed")
        count += 1
    for walked, _ in _external(case, trace):
        demand_code(walked, {0}, "the context that had this memory was freed")
    judge_flow(case, trace, "the context that had this memory was freed")
    return Examined(count, "handles of contexts that were freed")


def _taken_back(scene: Scene, tape: Tape) -> None:
    """EXT-23: deregistered before finalising: the buffer is left alone, the context works."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    buffer = filled(scene, context, role, byte=0xEE)
    handle = given(scene, context, role, buffer)
    scene.add(Deregister((handle,)))
    if tape.chance(3):
        given(scene, context, role, external(scene, context, role))
    scene.add(Read(buffer))
    ended(scene, made, context, tape.below(16))
    scene.add(Read(buffer))


taken_back = embedded(_taken_back, before=1)


@rule(
    "EXT-23",
    Level.SHOULD,
    "External memory can be deregistered before QnnContext_finalize: the context then works without it.",
    source=f"{_FLOW}, step 4 (what is not registered is allocated by QNN)",
    subject="memory",
    cases=taken_back,
    gate=_GATE,
)
def ext_23(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """MemDeRegister answers 0, finalising and executing succeed, and the buffer is left alone."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and Note.TAKEN_BACK in w.allowed.notes):
        demand_code(walked, {0}, "the context is not finalised yet")
        count += 1
    judge_flow(case, trace, "external memory was taken back")
    alive = Alive()
    held: dict[str, bytes] = {}
    for walked in walk(case, trace):
        if isinstance(walked.step, Read) and (data := bytes_read(walked.seen)) is not None:
            if data != held.setdefault(walked.step.buffer, data):
                raise Violation("a buffer that was taken back stays as it is", "other bytes", place(walked))
        elif not walked.seen.code:
            alive.follow(walked.step)
        if isinstance(walked.step, Fill | Write):
            held.pop(walked.step.buffer, None)
        for known in alive.handles.values():
            held.pop(known.descriptor.buffer, None)
    return Examined(count, "external memory taken back")


@rule(
    "EXT-26",
    Level.MUST,
    "Graphs that share spill-fill memory may be executed one after the other in any order.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=spill_shared,
    gate=("202", "217", "1101", "1103", "spill-fill"),
)
def ext_26(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each output is right, whichever graph was executed before."""
    require_external(case, trace)
    require_needed(case, trace, SPILL)
    shared = sum(Note.SPILL_SHARED in walked.allowed.notes for walked in walk(case, trace))
    count = judge_flow(case, trace, "the graphs are executed in turns")
    require_execution(trace)
    return Examined(count if shared else 0, "executes over shared spill-fill memory")


def _let_go(scene: Scene, tape: Tape) -> None:
    """EXT-34: external memory of its own for each context, which is freed before or after finalising."""
    found = begun(scene, tape, 1, (1, 2, 2, 2))
    if found is None:
        return
    made, context = found
    role, late = tape.pick(ROLES), tape.chance(2)
    buffers = tuple(external(scene, context, role) for _ in range(LET_GO))
    scene.add(Observe(buffers=buffers))
    for buffer in buffers:
        context = loaded(scene, made.binary, defer=True)
        given(scene, context, role, buffer)
        if late:
            finalised(scene, context)
        freed(scene, context)
    scene.add(Observe(buffers=buffers, patient=True))


@rule(
    "EXT-34",
    Level.MUST,
    "QnnContext_free lets go of the external memory of its context: the backend does not keep every such "
    "buffer mapped.",
    source=f"{_FLOW}, step 5 (automatically deregistered when the context is freed)",
    subject="memory",
    cases=embedded(_let_go, before=0, after=0),
    gate=_GATE,
    weight=0.2,
)
def ext_34(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Ten buffers, of which at least one must not be mapped any more a second after the last contextFree.

    Which mappings are kept, and whether, is the backend's choice as long as their number is bounded.
    """
    require_external(case, trace)
    return Examined(judge_let_go(case, trace), "buffers of contexts that were freed")
