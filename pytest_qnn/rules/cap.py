"""CAP: capability keys, and whether the target does what they say."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.abi.qnn_codes import Error, Property, low
from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    Capability,
    Deregister,
    Descriptor,
    MemoryCase,
    Register,
)
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded, nbytes
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.facts import MemoryFacts
from pytest_qnn.oracle.memory import walk
from pytest_qnn.oracle.memory_codes import SENTINEL, TYPE_KEYS, named
from pytest_qnn.rules.memory_support import (
    demand_code,
    facts_of,
    own_steps,
    place,
    require_memory_type,
    require_session,
)
from pytest_qnn.trace import MemoryTrace

_ANSWERS = frozenset({0, int(Error.PROPERTY_NOT_SUPPORTED), int(Error.PROPERTY_ERROR_UNKNOWN_KEY)})
_KNOWN = tuple(int(key) for key in Property)
_LAST_KEY = 3000
_KEYS_PER_CASE = 64
_NOT_SUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)


def _sweep(_: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """Up to 64 keys, those of the headers and any others up to 3000, before and after backendCreate."""

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        early: list[Capability] = []
        late: list[Capability] = []
        for _ in range(_KEYS_PER_CASE):
            kind, number = tape.byte(), tape.below(1 << 16)
            if not kind:
                continue
            key = _KNOWN[number % len(_KNOWN)] if kind % 2 else number % (_LAST_KEY + 1)
            (early if kind > 127 else late).append(Capability(key, kind > 127))
        return MemoryCase((*early, *late))

    length = 3 * _KEYS_PER_CASE
    return decoded(length, decode)


@rule(
    "CAP-01",
    Level.MUST,
    "QnnProperty_hasCapability answers supported, not supported or unknown key only, at any time.",
    source="H:QnnProperty_hasCapability",
    subject="memory",
    cases=_sweep,
)
def cap_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0, 1000 or 2000 for each key, before and after backendCreate."""
    count = 0
    for walked in walk(case, trace):
        if isinstance(walked.step, Capability) and walked.seen.code is not None:
            when = "before" if walked.step.early else "after"
            demand_code(walked, _ANSWERS, f"the answer to key {walked.step.key} {when} backendCreate")
            count += 1
    if not count:
        require_session(trace)
    return Examined(count, "answers")


def _anything(scene: Scene, tape: Tape) -> None:
    """A registration that would be in order; then calls with any arguments, right or wrong."""
    descriptor = scene.descriptor(tape)
    context = scene.any_context(tape)
    scene.add(Register(context, (descriptor,), (scene.name("h"),)))
    for _ in range(1 + tape.below(4)):
        act = tape.cut(4)
        owner = act.pick((context, NULL, BOGUS))
        flag = act.below(4)
        if act.below(2):
            scene.add(Deregister((act.pick((BOGUS, NULL)),), null_handles=flag == 1))
            continue
        kind = act.pick((1, 2, 3, 9))
        wrong = Descriptor(descriptor.buffer, descriptor.shape, descriptor.dtype, kind)
        scene.add(Register(owner, (wrong,), (scene.name("h"),), flag == 1, flag == 2))


@rule(
    "CAP-02",
    Level.MUST,
    "Without the memory API both memory calls answer not supported to every argument and touch nothing.",
    source="H:QnnMem, QNN_PROPERTY_GROUP_MEMORY",
    subject="memory",
    cases=embedded(_anything, before=0, after=0),
    gate=("no 1101",),
)
def cap_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1000, and the handle array as it was.

    Judged where property key 1101 is not supported, and where a registration that is in order is
    answered with 1000.
    """
    calls = [w for w in walk(case, trace) if isinstance(w.step, Register | Deregister)]
    calls = [w for w in calls if w.seen.code is not None]
    offered = facts_of(trace).supports(Property.GROUP_MEMORY)
    refused = any(w.allowed.valid and w.code == _NOT_SUPPORTED for w in calls)
    if offered and not refused:
        require_session(trace)
        raise Unsupported("the memory API is there: key 1101 and memRegister agree")
    for walked in calls:
        demand_code(walked, {_NOT_SUPPORTED}, "there is no memory API")
        written = [hex(v) for v in walked.seen.values if v != SENTINEL]
        if isinstance(walked.step, Register) and not walked.step.null_handles and written:
            raise Violation("an untouched handle array", f"{written} written", place(walked))
    return Examined(len(calls), "memory calls")


def _happy(scene: Scene, tape: Tape) -> None:
    shape, dtype = scene.tensor(tape)
    spare = tape.pick((0, 4096, 1))
    for _ in range(1 + tape.below(2)):
        buffer = scene.alloc(nbytes(shape, dtype) + spare)
        scene.register(scene.any_context(tape), Descriptor(buffer, shape, dtype, tape.pick(scene.types)))


@rule(
    "CAP-03",
    Level.MUST,
    "Where the keys of the memory API and of a memory type say supported, a valid buffer registers.",
    source="H:QnnProperty and QnnMem_register",
    subject="memory",
    cases=embedded(_happy, before=0, after=0),
    gate=("1101",),
)
def cap_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success for each type whose key is supported; 1000 there is a contradiction."""
    require_session(trace)
    facts = facts_of(trace)
    if not facts.supports(Property.GROUP_MEMORY):
        answer = facts.capabilities.get(Property.GROUP_MEMORY)
        raise Unsupported(f"there is no memory API: key 1101 is answered with {named(answer or 0)}")
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register) and w.allowed.valid):
        assert isinstance(walked.step, Register)
        keys = sorted({TYPE_KEYS[descriptor.mem_type] for descriptor in walked.step.descriptors})
        if not all(facts.supports(key) for key in keys):
            continue
        said = f"property keys 1101 and {', '.join(map(str, keys))} say supported"
        if walked.code == _NOT_SUPPORTED:
            seen = f"memRegister answers {named(walked.seen.code or 0)}"
            raise Contradiction(f"success: {said}", seen, place(walked))
        demand_code(walked, {0}, said)
        count += 1
    if not count:
        require_memory_type(facts)
    return Examined(count, "valid registrations of supported types")


def _closed_types(facts: MemoryFacts) -> tuple[int, ...]:
    return tuple(kind for kind, key in TYPE_KEYS.items() if not facts.supports(key))


def _unsupported_type(scene: Scene, tape: Tape) -> None:
    """A valid registration of a supported type; then one of a type whose key is not supported."""
    scene.register(scene.any_context(tape), scene.descriptor(tape))
    closed = _closed_types(scene.facts)
    if not closed:
        return
    shape, dtype = scene.tensor(tape)
    buffer = scene.alloc(nbytes(shape, dtype))
    wrong = Descriptor(buffer, shape, dtype, tape.pick(closed))
    scene.add(Register(scene.any_context(tape), (wrong,), (scene.name("h"),)))


@rule(
    "CAP-04",
    Level.MUST,
    "A known memory type whose key is not supported is refused as an unsupported type.",
    source="H:QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE",
    subject="memory",
    cases=embedded(_unsupported_type),
    gate=("1101", "absent memory type"),
)
def cap_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8005, on a target that registers memory of another type."""
    require_session(trace)
    facts = facts_of(trace)
    if not _closed_types(facts):
        raise Unsupported("every memory type is supported: ION, CUSTOM and DMA_BUF")
    answers = [low(w.seen.code or 0) for w in own_steps(case, trace, lambda w: isinstance(w.step, Register))]
    if answers and set(answers) == {_NOT_SUPPORTED}:
        raise Unsupported("memRegister answers 1000, not supported")
    require_memory_type(facts)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only("type-unsupported")):
        demand_code(walked, walked.allowed.codes)
        count += 1
    return Examined(count, "registrations of unsupported types")
