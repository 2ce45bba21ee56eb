"""CAP: capability keys, and whether a target does what they say."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, FalseDeclaration, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, Property, TensorMemType, low
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Capability,
    ContextProperty,
    Deregister,
    Descriptor,
    Environment,
    Execute,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.sizes import PAGE, nbytes
from pytest_qnn.qnn.facts import HTP_BACKEND_ID, MemoryFacts
from pytest_qnn.qnn.model.codes import SENTINEL, TYPE_KEYS, named
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.model.notes import Fault, Note
from pytest_qnn.qnn.rules.binaries import require_binaries
from pytest_qnn.qnn.rules.graphs import (
    CREATE_TENSOR,
    judge_contents,
    kinds,
    require_execution,
    require_prepared,
)
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    own_steps,
    place,
    require_memory_type,
    require_operator,
    require_session,
)
from pytest_qnn.qnn.strategies.external import deferred_flow
from pytest_qnn.qnn.strategies.graphs import PROPERTY_KEYS, Cases, any_memory, execute, graph, load
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace

_ANSWERS = frozenset({0, int(Error.PROPERTY_NOT_SUPPORTED), int(Error.PROPERTY_ERROR_UNKNOWN_KEY)})
_KNOWN = tuple(int(key) for key in Property)
_LAST_KEY = 3000
_KEYS_PER_CASE = 64
_SAVER, _RECORDED = 2, 4950
"""The backend that writes calls down instead of carrying them out, and QNN_SAVER_ERROR_DUMMY_RETVALUE:
QnnSaver.h lists this call among those that it answers so."""
_NOT_SUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)
_UNSUPPORTED = int(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


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
            again = 1 + (kind % 8 > 5)
            (early if kind > 127 else late).extend([Capability(key, kind > 127)] * again)
        return MemoryCase((*early, *late))

    length = 3 * _KEYS_PER_CASE
    return decoded(length, decode)


@rule(
    "CAP-01",
    Level.MUST,
    "QnnProperty_hasCapability answers every key, at any time, with QNN_SUCCESS (0), "
    "QNN_PROPERTY_NOT_SUPPORTED (1000) or QNN_PROPERTY_ERROR_UNKNOWN_KEY (2000), and alike if asked again at "
    "once.",
    source="QnnProperty.h: QnnProperty_hasCapability",
    subject="memory",
    cases=_sweep,
)
def cap_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0, 1000 or 2000 for each key, before and after backendCreate; the same one for the same question.

    QNN Saver answers 4950 to every key, and its header says so: that is no answer, and no violation.
    """
    count = recorded = 0
    before: Walked | None = None
    for walked in walk(case, trace):
        if walked.code == _RECORDED and facts_of(trace).backend_id == _SAVER:
            recorded += 1
            continue
        if isinstance(walked.step, Capability) and walked.seen.code is not None:
            if before is not None and before.step == walked.step and before.code != walked.code:
                wanted = f"{named(before.code or 0)}, as key {walked.step.key} was answered right before"
                raise Violation(wanted, named(walked.seen.code), place(walked))
            before = walked
            when = "before" if walked.step.early else "after"
            demand_code(walked, _ANSWERS, f"the answer to key {walked.step.key} {when} backendCreate")
            count += 1
    if recorded and not count:
        raise Unsupported(
            f"QNN Saver answers {_RECORDED} to every key, as QnnSaver.h says: it asks no backend"
        )
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
    "Where the memory API is not supported, QnnMem_register and QnnMem_deRegister answer every argument with "
    "QNN_MEM_ERROR_NOT_SUPPORTED (1000) and write nothing.",
    source="QnnMem.h; QnnProperty.h: QNN_PROPERTY_GROUP_MEMORY",
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
        raise Unsupported(
            "only a target without the memory API can show it: here key 1101 and memRegister agree"
        )
    for walked in calls:
        demand_code(walked, {_NOT_SUPPORTED}, "there is no memory API")
        written = [hex(v) for v in walked.seen.values if v != SENTINEL]
        if isinstance(walked.step, Register) and not walked.step.null_handles and written:
            raise Violation("an untouched handle array", f"{written} written", place(walked))
    return Examined(len(calls), "memory calls")


def _happy(scene: Scene, tape: Tape) -> None:
    shape, dtype = scene.tensor(tape)
    spare = tape.pick((0, PAGE, 1))
    for _ in range(1 + tape.below(2)):
        buffer = scene.alloc(nbytes(shape, dtype) + spare)
        scene.register(scene.any_context(tape), Descriptor(buffer, shape, dtype, tape.pick(scene.types)))


@rule(
    "CAP-03",
    Level.MUST,
    "Where the property keys of the memory API and of a memory type answer supported, QnnMem_register "
    "accepts a valid buffer of that type.",
    source="QnnProperty.h; QnnMem.h: QnnMem_register",
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
    "QnnMem_register refuses a known memory type whose property key is not supported: "
    "QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE (8005).",
    source="QnnMem.h: QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE",
    subject="memory",
    cases=embedded(_unsupported_type),
    gate=("1101", "absent memory type"),
)
def cap_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8005, on a target that registers memory of another type."""
    require_session(trace)
    facts = facts_of(trace)
    if not _closed_types(facts):
        raise Unsupported("only a target that lacks a memory type can show it: ION, CUSTOM or DMA_BUF")
    answers = [low(w.seen.code or 0) for w in own_steps(case, trace, lambda w: isinstance(w.step, Register))]
    if answers and set(answers) == {_NOT_SUPPORTED}:
        raise Unsupported("memRegister answers 1000, not supported")
    require_memory_type(facts)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(Fault.TYPE_UNSUPPORTED)):
        demand_code(walked, walked.allowed.codes)
        count += 1
    return Examined(count, "registrations of unsupported types")


@rule(
    "CAP-06",
    Level.MUST,
    "Deferred initialisation (property key 217) and its context properties (215) work completely where their "
    "keys are supported, and are refused where they are not.",
    source="QnnProperty.h; seed 002, external weights and spill-fill buffers",
    subject="memory",
    cases=embedded(deferred_flow),
    gate=("202",),
)
def cap_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """With 217, creation, contextFinalize and graphRetrieve succeed; without, creation answers 1000.

    With 215, a deferred context has the properties; without, they answer 1000. Else it is a contradiction.
    With which other code a call fails that is supported, is not looked at.
    """
    require_binaries(case, trace)
    if not facts_of(trace).capabilities:
        raise Unsupported("the target's property keys are not known")
    count = 0
    unfinished = _unfinished(case, trace)
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        key = _key_of(walked)
        if key == _PROPERTIES and facts_of(trace).backend_id not in (0, HTP_BACKEND_ID):
            continue  # the key may speak of other properties than the HTP's
        if key is not None and not (unfinished and key == _DEFERRED and walked.code in (0, _UNSUPPORTED)):
            _demand_as_said(walked, key, offered=facts_of(trace).supports(key))
            count += 1
    return Examined(count, "steps of the deferred way")


_DEFERRED = Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT
_PROPERTIES = Property.CONTEXT_SUPPORT_CUSTOM_PROPERTY


def _unfinished(case: MemoryCase, trace: MemoryTrace) -> bool:
    """Without key 217, deferred initialisation begins and does not end: EXT-29 reports that."""
    steps = list(own_steps(case, trace, lambda w: bool(w.allowed.notes & {Note.DEFERRED, Note.FINALISES})))
    begun = any(Note.DEFERRED in w.allowed.notes and w.code == 0 for w in steps)
    ended = any(Note.FINALISES in w.allowed.notes and w.code == 0 for w in steps)
    return begun and not ended and not facts_of(trace).supports(_DEFERRED)


def _key_of(walked: Walked) -> Property | None:
    """The property key that says whether the step can be done."""
    notes = walked.allowed.notes
    if isinstance(walked.step, ContextProperty):
        return _PROPERTIES
    if Note.DEFERRED in notes or Note.FINALISES in notes:
        return _DEFERRED
    return None


def _demand_as_said(walked: Walked, key: Property, *, offered: bool) -> None:
    """Success where the key is supported, 1000 where it is not."""
    wanted = 0 if offered else _UNSUPPORTED
    said = f"property key {int(key)} says {'' if offered else 'not '}supported"
    if walked.code in (0, _UNSUPPORTED) and walked.code != wanted:
        raise FalseDeclaration(f"{named(wanted)}: {said}", named(walked.code or 0), place(walked))
    if not offered:
        demand_code(walked, {wanted}, said)


_COMMON_NOT_SUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)


def hinted_raw(facts: MemoryFacts) -> Cases:
    """CAP-05: a graph prepared memhandle and executed raw; then with handles, where there can be any."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape, (1, 1, 1))):
            return
        execute(scene, name, None, seed=tape.below(16))
        if facts.supports(1101):
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, 3)
            execute(scene, name, memory)

    return scenes(facts, core)


@rule(
    "CAP-05",
    Level.SHOULD,
    "Memory handles can be executed if property key 502 (memory handle tensors) says so; a graph prepared "
    "with memory type MEMHANDLE can be executed with raw memory in any case.",
    source="QnnProperty.h: QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE; seed 001, row 3",
    subject="memory",
    cases=hinted_raw,
)
def cap_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Prepared with the hint, a graph executes raw.

    1000 to handles where 502 says yes is a contradiction, and so is success where it says no.

    A target without property 502 may refuse the hint when the tensor is created.
    """
    require_operator(trace)
    declared = facts_of(trace).supports(Property.TENSOR_SUPPORT_MEMHANDLE_TYPE)
    count = 0
    for walked in walk(case, trace):
        step, code = walked.step, walked.code
        if not walked.allowed.valid:
            continue
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types and code:
            call = walked.seen.calls[-1][0]
            if call == CREATE_TENSOR and not declared:
                raise Unsupported(f"{call} of a MEMHANDLE tensor answers {named(code)}")
            seen = f"{call} answers {named(code)}"
            raise Violation("a graph with the hint is prepared", seen, place(walked))
        if not isinstance(step, Execute):
            continue
        if kinds(step) == {"raw"}:
            if code == _COMMON_NOT_SUPPORTED:
                raise Unsupported("graphExecute answers 1000, not supported")
            demand_code(walked, {0}, "the hint does not keep a graph from running raw")
        elif declared and code == _COMMON_NOT_SUPPORTED:
            raise Contradiction("success: property key 502 says supported", named(code), place(walked))
        elif not declared and code == 0:
            wanted = f"{named(_COMMON_NOT_SUPPORTED)}: property key 502 says not supported"
            raise Contradiction(wanted, named(0), place(walked))
        count += 1
    judge_contents(case, trace, lambda seen: seen.where == "output")
    require_execution(trace)
    return Examined(count, "executes of graphs, most with the hint")


_KEYS = {
    0: Property.GRAPH_SUPPORT_ENV_OPTION_BIND_MEM_HANDLES,
    1: Property.GRAPH_SUPPORT_ENV_OPTION_POPULATE_CLIENT_BUFS,
}


def environments(facts: MemoryFacts) -> Cases:
    """CAP-07: execution environments of both kinds."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            for _ in range(1 + tape.below(2)):
                scene.add(Environment(name, tape.below(2)))

    return scenes(facts, core)


@rule(
    "CAP-07",
    Level.MAY,
    "Execution environments that bind memory handles or supply client buffers are refused where their "
    "property keys (317, 318) are not supported.",
    source="QnnGraph.h: QnnGraph_prepareExecutionEnvironment; property keys 317 and 318",
    subject="memory",
    cases=environments,
    gate=("absent environment",),
    weight=0.5,
)
def cap_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1000 where the key is not supported. Where it is, nothing here says more."""
    require_prepared(case, trace)
    count = 0
    supported = ""
    for walked in walk(case, trace):
        if not isinstance(walked.step, Environment) or walked.seen.code is None:
            continue
        key = _KEYS[walked.step.option]
        if facts_of(trace).supports(key):
            supported = f"property key {int(key)} says supported, and this suite does not bind environments"
            continue
        if low(walked.seen.code) != _COMMON_NOT_SUPPORTED:
            wanted = f"{named(_COMMON_NOT_SUPPORTED)}: property key {int(key)} says so"
            raise Violation(wanted, named(walked.seen.code), place(walked))
        count += 1
    if supported and not count:
        raise Unsupported(supported)
    return Examined(count, "environments without their property key")


def repeated_keys(facts: MemoryFacts) -> Cases:
    """CAP-08: the same keys early, between other things, and late."""

    def core(scene: Scene, tape: Tape) -> None:
        keys = [tape.pick(PROPERTY_KEYS) for _ in range(3 + tape.below(4))]
        early = [Capability(key, early=True) for key in keys] if tape.below(2) else []
        scene.steps[:0] = early
        for _ in range(1 + tape.below(3)):
            for key in keys:
                scene.add(Capability(key))
            act = tape.below(3)
            if act == 1:
                scene.around(tape.cut(8))
            elif act == 2 and scene.contexts:
                scene.free_context(scene.contexts[-1])
            else:
                scene.context()
        for key in keys:
            scene.add(Capability(key))

    return scenes(facts, core, before=1)


@rule(
    "CAP-08",
    Level.SHOULD,
    "QnnProperty_hasCapability gives the same answer to a key throughout the life of the process.",
    source="QnnProperty.h: QnnProperty_hasCapability (a property of the backend)",
    subject="memory",
    cases=repeated_keys,
)
def cap_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Equal answers early and late, before, between and after contexts and registrations."""
    first: dict[int, int] = {}
    count = 0
    for walked in walk(case, trace):
        if not isinstance(walked.step, Capability) or walked.code is None:
            continue
        key = walked.step.key
        if first.setdefault(key, walked.code) != walked.code:
            wanted = f"{named(first[key])}, as key {key} was answered before"
            raise Violation(wanted, named(walked.code), place(walked))
        count += 1
    return Examined(count, "answers to property keys")
