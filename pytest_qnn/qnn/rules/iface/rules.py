"""IF: discovery of the interface, what it says of itself, its codes, and calls on invalid handles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.printable import heard, is_text
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import ERROR_MASK, Error, Property, low
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    FREED,
    NULL,
    AnyStep,
    Capability,
    ContextCreate,
    ContextFree,
    GetBinary,
    Interface,
    MemoryCase,
    Message,
    Misuse,
    Prepare,
    Providers,
    Register,
    Retrieve,
    Version,
)
from pytest_qnn.qnn.cases.misuses import NULL_IS_GOOD, TAKES, Misused
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import SENTINEL, named, one_of
from pytest_qnn.qnn.rules.iface.codes import PARENTS, component, invalid, is_owned, not_offered
from pytest_qnn.qnn.rules.judging import call_name, facts_of, require_session
from pytest_qnn.qnn.strategies.binaries import retrieved
from pytest_qnn.qnn.strategies.graphs import PROPERTY_KEYS, execute, graph
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen, Versions

_CORE_BYTES = 8
_FUNCTIONS: dict[int, tuple[str, ...]] = {
    Property.GROUP_MEMORY: ("memRegister", "memDeRegister"),
    Property.CONTEXT_SUPPORT_CACHING: (
        "contextGetBinarySize",
        "contextGetBinary",
        "contextCreateFromBinary",
    ),
    Property.BACKEND_SUPPORT_COMPOSITION: (
        "graphCreate",
        "tensorCreateGraphTensor",
        "graphAddNode",
        "graphFinalize",
    ),
    Property.GROUP_DEVICE: ("deviceCreate", "deviceFree"),
}
"""Functions of the table that a property key is about."""


def _first_thing(_: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """GetProviders before anything else, and again between other calls."""

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        steps: list[Providers | ContextCreate | Capability] = [Providers()]
        for number in range(_CORE_BYTES):
            act = tape.below(4)
            if act == 1:
                steps.append(Providers())
            elif act == 2:
                steps.append(ContextCreate(f"c{number}"))
            elif act == 3:
                steps.append(Capability(int(Property.GROUP_MEMORY)))
        return MemoryCase(tuple(steps))

    return decoded(_CORE_BYTES, decode)


def _plain_calls(case: MemoryCase, trace: MemoryTrace) -> list[tuple[int, int, tuple[int, ...]]]:
    """(index, code, values) of each getProviders call without a NULL argument."""
    return [
        (index, seen.code, seen.values)
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Providers) and not (step.null_list or step.null_count) and seen.code is not None
    ]


@rule(
    "IF-01",
    Level.MUST,
    "QnnInterface_getProviders succeeds as the first call of all and gives a provider that is not NULL.",
    source="seed 002, initialisation; QnnInterface.h: QnnInterface_getProviders",
    subject="memory",
    cases=_first_thing,
    weight=0.5,
)
def if_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success and a non-NULL provider, first of all and later on."""
    calls = _plain_calls(case, trace)
    for index, code, values in calls:
        where = f"step {index}, providers"
        if low(code):
            raise Violation(named(0), named(code), where)
        if not any(values):
            seen = f"{len(values)} providers" + (", all of them NULL" if values else "")
            raise Violation("at least one provider that is not NULL", seen, where)
    return Examined(len(calls), "getProviders calls")


def _null_arguments(_: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """The three ways of NULL arguments, in any order, among valid calls."""

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        steps = [
            Providers(n in (1, 3), n in (2, 3)) for n in (tape.below(5) for _ in range(_CORE_BYTES)) if n
        ]
        return MemoryCase((Providers(null_list=True), *steps) if not tape.below(2) else tuple(steps))

    return decoded(_CORE_BYTES + 1, decode)


@rule(
    "IF-02",
    Level.MUST,
    "QnnInterface_getProviders refuses a NULL provider list or a NULL count: "
    "QNN_INTERFACE_ERROR_INVALID_PARAMETER (1004).",
    source="QnnInterface.h: QnnInterface_getProviders",
    subject="memory",
    cases=_null_arguments,
    weight=0.5,
)
def if_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """1004 for each of the three combinations."""
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Providers) or not (step.null_list or step.null_count) or seen.code is None:
            continue
        if low(seen.code) != Error.INTERFACE_ERROR_INVALID_PARAMETER:
            expected = named(Error.INTERFACE_ERROR_INVALID_PARAMETER)
            raise Violation(expected, named(seen.code), f"step {index}, providers")
        count += 1
    return Examined(count, "calls with a NULL argument")


@rule(
    "IF-05",
    Level.MUST,
    "A function pointer of the interface is NULL only if its feature is not supported.",
    source="QnnInterface.h; QnnProperty.h",
    subject="memory",
    cases=_first_thing,
    weight=0.05,
)
def if_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The pointers behind each property key that is supported."""
    del case
    facts = facts_of(trace)
    count = 0
    for key, functions in _FUNCTIONS.items():
        if not facts.supports(key):
            continue
        for function in functions:
            if function in facts.null_functions:
                raise Violation(f"{function} in the table: key {key} is supported", f"{function} is NULL")
            count += 1
    if not count:
        raise Unsupported("no property key says that a feature with functions of its own is supported")
    return Examined(count, "function pointers")


_UNSUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_COMMON = 1
"""Thousands of a code that any component may give."""


def pairs(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, AnyStep, StepSeen]]:
    """(place, step, what was seen) of each step that was carried out."""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not seen.skipped:
            yield f"step {index}, {call_name(step)}", step, seen


def demand(seen: StepSeen, codes: frozenset[int], where: str, because: str) -> None:
    """Raise Violation unless the code seen, if any, is one of ``codes`` (low 16 bits)."""
    if seen.code is not None and low(seen.code) not in codes:
        raise Violation(f"{one_of(codes)}: {because}", named(seen.code), where)


Cases = st.SearchStrategy[MemoryCase]


def interfaces(facts: MemoryFacts) -> Cases:
    """IF-03: looks at the interface, with objects made and freed in between."""

    def core(scene: Scene, tape: Tape) -> None:
        scene.add(Interface())
        for _ in range(1 + tape.below(4)):
            act = tape.below(4)
            if act == 1:
                scene.free_context(scene.context())
            elif act == 2:
                scene.add(Misuse("backendFree", FREED))
            elif act == 3:
                scene.add(Providers())
            scene.add(Interface())

    return scenes(facts, core)


@rule(
    "IF-03",
    Level.MUST,
    "The interface that QnnInterface_getProviders lists keeps its address and its contents for the life of "
    "the library.",
    source="QnnInterface.h: QnnInterface_getProviders",
    subject="memory",
    cases=interfaces,
    weight=0.5,
)
def if_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The same address and the same bytes at every look."""
    first: StepSeen | None = None
    count = 0
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Interface) or not seen.data:
            continue
        first = first or seen
        if seen.values != first.values:
            raise Violation("the interface at the address given before", "another address", where)
        for before, now, of in zip(first.data, seen.data, ("struct", "provider name"), strict=True):
            if before != now:
                at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), 0)
                raise Violation(f"a {of} that stays as it is", f"byte {at} differs", where)
        count += 1
    return Examined(count, "looks at the interface")


_MAJOR = 2
PLACES: tuple[Misused, ...] = (
    "backendFree",
    "contextFree",
    "contextGetBinarySize",
    "graphRetrieve",
    "graphExecute",
    "memDeRegister",
    "deviceFree",
    "logFree",
    "profileFree",
)
"""Calls, from the table's beginning to its end, that no known library answers to NULL by crashing."""
_BYTES = 12


def _listed(choices: Sequence[AnyStep], first: AnyStep) -> Cases:
    """``first``, then any of ``choices`` in any order; zero bytes: nothing more."""

    def decode(data: bytes) -> MemoryCase:
        acts = (byte % (len(choices) + 1) for byte in data)
        return MemoryCase((first, *(choices[act - 1] for act in acts if act)))

    return decoded(_BYTES, decode)


def table(facts: MemoryFacts) -> Cases:
    """IF-04: the versions, and calls all over the table."""
    del facts
    calls: list[AnyStep] = [*(Misuse(call) for call in PLACES), Message(8000, null=True)]
    return _listed([Version(), Interface(), *calls], Interface()).map(
        lambda case: MemoryCase((Version(), *case.steps))
    )


@rule(
    "IF-04",
    Level.MUST,
    "The interface has the API version of the backend, and its table has the functions in the order of the "
    "header.",
    source="QnnCommon.h: Qnn_ApiVersion_t; QnnInterface.h: QnnInterface_t",
    subject="memory",
    cases=table,
    weight=0.5,
)
def if_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The version from both sources; and that calls on NULL are answered by the component they belong to.

    A function in another's place answers with the codes of its own component.
    """
    said: tuple[int, ...] | None = None
    count = 0
    for where, step, seen in pairs(case, trace):
        if isinstance(step, Version | Interface) and isinstance(seen.counts, Versions):
            version = seen.counts.core
            if version[0] != _MAJOR:
                raise Unsupported(f"the interface is of API {version[0]}, this suite's is of API {_MAJOR}")
            said = said or version
            if version != said:
                raise Violation(f"core API {_dotted(said)}, as said before", _dotted(version), where)
            count += 1
        elif isinstance(step, Misuse) and seen.code:
            own = component(step.call) | PARENTS.get(step.call, frozenset())
            _demand_component(step.call, own, seen.code, where)
            count += 1
        elif isinstance(step, Message) and step.null and seen.code:
            own = frozenset({int(Error.ERROR_INVALID_ARGUMENT)})
            _demand_component("errorGetMessage", own, seen.code, where)
            count += 1
    return Examined(count, "versions, and functions called")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _demand_component(call: str, own: frozenset[int], code: int, where: str) -> None:
    components = {each // 1000 for each in own} | {_COMMON}
    if low(code) // 1000 not in components:
        wanted = " or ".join(f"{each}xxx" for each in sorted(components))
        raise Violation(f"a code of the component of {call}: {wanted}", named(code), where)


def anything(facts: MemoryFacts) -> Cases:
    """IF-06, IF-09: things that are in order, and calls of every component."""

    def core(scene: Scene, tape: Tape) -> None:
        scene.add(Version())
        scene.add(Capability(tape.pick(PROPERTY_KEYS)))
        if name := graph(scene, tape):
            execute(scene, name, None)
        else:
            scene.context()

    return scenes(facts, core)


@rule(
    "IF-06",
    Level.MUST,
    "A call that succeeds returns exactly 0; in any other answer the low 16 bits are an error code.",
    source="QnnCommon.h: Qnn_ErrorHandle_t, QNN_GET_ERROR_CODE, QNN_SUCCESS",
    subject="memory",
    cases=anything,
)
def if_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No answer of any call has low bits of 0 and others set."""
    count = 0
    answers = [("session", call, code) for call, code in trace.session]
    answers += [("end of the case", call, code) for call, code in trace.closing]
    for where, step, seen in pairs(case, trace):
        answers += [(where, call, code) for call, code in seen.calls]
        if seen.code is not None:
            answers.append((where, call_name(step), seen.code))
    for where, call, code in answers:
        if low(code) > ERROR_MASK:
            raise Violation("0, or an error code in the low 16 bits", f"{call} answers 0x{code:x}", where)
        count += 1
    return Examined(count, "answers")


def versions(facts: MemoryFacts) -> Cases:
    """IF-07: the version and the build id before anything else, and NULL."""
    del facts
    asked = [Version(), Version(null=True), Version("build"), Version("build", null=True)]
    return st.integers(0, 3).flatmap(lambda first: _listed(asked, asked[first]))


@rule(
    "IF-07",
    Level.MUST,
    "QnnBackend_getApiVersion and QnnBackend_getBuildId succeed before any backend is created, and refuse "
    "NULL: QNN_BACKEND_ERROR_INVALID_ARGUMENT (4004).",
    source="QnnBackend.h: QnnBackend_getApiVersion, QnnBackend_getBuildId",
    subject="memory",
    cases=versions,
    weight=0.5,
)
def if_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success and something told, which may be an empty text; 4004 for a NULL out pointer."""
    count = 0
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Version):
            continue
        if seen.code is not None and low(seen.code) == _UNSUPPORTED:
            raise Unsupported(f"{_TOLD[step.call]} answers 1000")
        if step.null:
            codes = frozenset({int(Error.BACKEND_ERROR_INVALID_ARGUMENT)})
            demand(seen, codes, where, "the out pointer is NULL")
        else:
            demand(seen, frozenset({0}), where, "no backend is needed")
            if step.call == "build" and seen.values != (1,):
                raise Violation("a build id", "NULL, or nothing is written", where)
        count += 1
    return Examined(count, "questions for the version or the build id")


_TOLD = {"api": "backendGetApiVersion", "build": "backendGetBuildId"}
CODES = (8000, 8001, 8002, 8003, 8004, 8005)
UNKNOWN_CODES = (999, 1, 20_000, 0xFFFF, 8099)


def messages(facts: MemoryFacts) -> Cases:
    """IF-08: the codes of QnnMem, unknown ones right behind them, and NULL; also once calls were refused."""
    del facts
    refused = [Misuse("memRegister"), Misuse("memDeRegister")]
    known = [Message(code) for code in CODES]
    unknown = [Message(code) for code in UNKNOWN_CODES]
    return _listed([*known, *unknown, Message(CODES[0], null=True), *refused], known[0])


_ERRORS = 1001
"""QNN_PROPERTY_GROUP_ERROR."""


@rule(
    "IF-08",
    Level.SHOULD,
    "QnnError_getMessage knows the codes of QnnMem; for an unknown code it answers "
    "QNN_ERROR_INVALID_ERROR_HANDLE (10001) and sets the message to NULL.",
    source="QnnError.h: QnnError_getMessage",
    subject="memory",
    cases=messages,
    weight=0.5,
)
def if_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A text for 8000 to 8005; 10001 and NULL for codes that are none; 10000 for a NULL out pointer.

    A text where key 1001 says that there are none is a contradiction, as 1000 is where it says yes.
    """
    count = 0
    said = facts_of(trace).capabilities.get(_ERRORS)
    for where, step, seen in pairs(case, trace):
        if not isinstance(step, Message):
            continue
        if seen.code is not None and low(seen.code) == _UNSUPPORTED:
            if said == 0:
                raise Contradiction(f"messages: key {_ERRORS} says supported", named(seen.code), where)
            raise Unsupported("errorGetMessage answers 1000")
        if seen.code == 0 and seen.data and said == _UNSUPPORTED:
            wanted = f"{named(_UNSUPPORTED)}: key {_ERRORS} says not supported"
            raise Contradiction(wanted, f"a text for {step.error}", where)
        if step.null:
            demand(seen, frozenset({int(Error.ERROR_INVALID_ARGUMENT)}), where, "the out pointer is NULL")
        elif step.error in CODES:
            demand(seen, frozenset({0}), where, f"{step.error} is a code of QnnMem")
            if not seen.data:
                raise Violation(f"a text for {step.error}", "none", where)
            if not is_text(heard(seen.data[0])):
                raise Violation(
                    f"a text for {step.error}", f"bytes that are none: {seen.data[0][:80]!r}", where
                )
        elif step.error in UNKNOWN_CODES:
            unknown = frozenset({int(Error.ERROR_INVALID_ERROR_HANDLE)})
            demand(seen, unknown, where, f"{step.error} is no error code")
            if seen.values != (0,):
                raise Violation("a pointer that is NULL afterwards", "it is not", where)
        count += 1
    return Examined(count, "questions for a message")


@rule(
    "IF-09",
    Level.MUST,
    "A call that succeeds never returns 0 as a handle.",
    source="QnnCommon.h: opaque handles; QnnContext_create, QnnGraph_create, QnnMem_register",
    subject="memory",
    cases=anything,
)
def if_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Contexts, graphs and memory handles; equal values of different kinds are in order."""
    count = 0
    for where, step, seen in pairs(case, trace):
        if isinstance(step, ContextCreate | Prepare):
            made = seen.values[:1] if seen.code == 0 else ()
        elif isinstance(step, Register) and not (step.null_handles or step.null_descriptors):
            made = seen.values[: len(step.descriptors)] if seen.code == 0 else ()
        else:
            continue
        for value in made:
            if value in (0, SENTINEL):
                raise Violation("a handle that is not 0", "0" if not value else "none was written", where)
            count += 1
    if not count:
        require_session(trace)
    return Examined(count, "handles")


class _Gone:
    """Contexts and graphs by name: which are gone, and whose value was not given out again."""

    def __init__(self) -> None:
        self.contexts: dict[str, int] = {}
        self.graphs: dict[str, tuple[str, int]] = {}
        self.live: set[str] = set()

    def follow(self, step: AnyStep, seen: StepSeen) -> None:
        if isinstance(step, ContextCreate) and seen.code == 0:
            self.contexts[step.context] = seen.values[0]
            self.live.add(step.context)
        elif isinstance(step, ContextFree) and seen.code == 0:
            self.live.discard(step.context)
        elif (isinstance(step, Prepare) and seen.values) or (isinstance(step, Retrieve) and seen.code == 0):
            self.graphs[step.graph] = (step.context, seen.values[0])

    def stands_for_nothing(self, name: str) -> bool:
        if name in (NULL, BOGUS, FREED):
            return True
        if name in self.graphs:
            context, value = self.graphs[name]
            again = {mine for of, mine in self.graphs.values() if of in self.live}
            return context not in self.live and value not in again
        again = {self.contexts[each] for each in self.live}
        return name in self.contexts and self.contexts[name] not in again


_CALLS: tuple[Misused, ...] = tuple(TAKES)
_MISUSE_BYTES = 5
_CACHING = 202
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING."""


def _gone(scene: Scene, tape: Tape, call: Misused) -> str:
    """The name of an object of the kind that the call takes, which is gone; BOGUS where there can be none."""
    kind = TAKES[call]
    if kind == "error":
        return BOGUS
    if kind not in ("context", "graph"):
        return FREED
    if kind == "context":
        context = scene.context()
        scene.free_context(context)
        return context
    name = graph(scene, tape)
    if not name:
        return BOGUS
    return _replaced(scene, name) if tape.chance(4) else _freed(scene, name)


def _freed(scene: Scene, graph: str) -> str:
    scene.free_context(scene.graphs[graph].context)
    return graph


def _replaced(scene: Scene, graph: str) -> str:
    """Another name for the handle of a graph that is gone, while a newer graph with its name lives."""
    made = scene.graphs[graph]
    old = retrieved(scene, made.context, graph)
    _freed(scene, graph)
    scene.follow(msgspec.structs.replace(made, context=scene.context()))
    return old


def misuses(facts: MemoryFacts) -> Cases:
    """IF-10: every call, on NULL, on a value never given out, and maybe on what was freed just before.

    Left out is what other rules are about. One freed graph of four has been followed by another of its name.

    There is little to vary, and what one case does not show takes many to find. Before them a graph is made
    and its context written to a binary, where there are binaries, for the calls that want them.
    """

    def core(scene: Scene, tape: Tape) -> None:
        start = tape.below(len(_CALLS))
        if (name := graph(scene, Tape(b""))) and facts.supports(_CACHING):
            scene.add(GetBinary(scene.graphs[name].context, "f0"))
        for position in range(len(_CALLS)):
            act = tape.cut(_MISUSE_BYTES)
            call = _CALLS[(start + position) % len(_CALLS)]
            if call not in NULL_IS_GOOD and not is_owned(call, NULL, facts):
                scene.add(Misuse(call, NULL))
            if not is_owned(call, BOGUS, facts):
                scene.add(Misuse(call, BOGUS))
            if act.below(2) and not is_owned(call, FREED, facts):
                scene.add(Misuse(call, _gone(scene, act, call)))

    length = 1 + _MISUSE_BYTES * len(_CALLS)
    return scenes(facts, core, core_bytes=length, before=1, after=0)


@rule(
    "IF-10",
    Level.MUST,
    "A call with an invalid handle (NULL, unknown or freed) fails with its component's code for that, "
    "without a crash, where no other rule is about that call.",
    source="header of each component: ..._ERROR_INVALID_HANDLE",
    subject="memory",
    cases=misuses,
)
def if_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """4011, 5002, 6001, 7001, 8001, 9003, 11004, 12000, 14000, as the call's own component has it.

    `pytest_qnn.qnn.rules.iface.codes` says where a header lists more, and which calls on which handles
    other rules judge. What answers 1000 is not offered at all, and NULL is no misuse where it may be given.
    """
    count = 0
    unsupported = ""
    gone = _Gone()
    for where, step, seen in pairs(case, trace):
        gone.follow(step, seen)
        if not isinstance(step, Misuse) or seen.code is None or not gone.stands_for_nothing(step.handle):
            continue
        is_good = step.handle == NULL and step.call in NULL_IS_GOOD
        if is_good or is_owned(step.call, step.handle, facts_of(trace)):
            continue
        if low(seen.code) in not_offered(step.call):
            unsupported = f"{step.call} answers {low(seen.code)}"
            continue
        codes = invalid(step.call, step.handle)
        kind = {NULL: "NULL", BOGUS: "unknown"}.get(step.handle, "freed")
        demand(seen, codes, where, f"{step.call} on a handle that is {kind}")
        count += 1
    if unsupported and not count:
        raise Unsupported(unsupported)
    return Examined(count, "calls on handles that stand for nothing")
