"""IF-10 call by call: what each answers to a handle that stands for nothing, and how that is judged."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from stratified import decoders, stratified

from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, Property
from pytest_qnn.qnn.abi.table import FUNCTIONS
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    FREED,
    NULL,
    AnyStep,
    ContextCreate,
    ContextFree,
    GetBinary,
    MemoryCase,
    Misuse,
    Prepare,
)
from pytest_qnn.qnn.cases.misuses import NULL_IS_GOOD, TAKES, Misused
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import PERSONALITIES, Personality
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.reference.table import ENTRIES
from pytest_qnn.qnn.rules.iface.codes import OWNERS, component, is_owned
from pytest_qnn.qnn.rules.iface.rules import if_10
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.state import BOGUS_HANDLE
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue

WITHOUT_HANDLE = {
    "propertyHasCapability",
    "backendGetApiVersion",
    "backendGetBuildId",
    "logCreate",
    "deviceGetInfrastructure",
    "errorGetMessage",
    "globalConfigSet",
    "contextGetBinarySectionUpdate",
    "contextFreeBinarySectionUpdate",
}
"""Entries whose first argument is no handle, and errorGetMessage, which IF-08 judges."""
INVALID_CONTEXT_ARGUMENT = 5000
ELSEWHERE: dict[Misused, str] = {
    "graphExecuteAsync": "asynchronous",
    "contextCreateFromBinaryWithCallback": "provided-pieces",
    "contextCreateFromBinaryListAsync": "lists-of-binaries",
    "contextGetBinarySectionSize": "binary-sections",
    "contextGetBinarySection": "binary-sections",
    "contextApplyBinarySection": "binary-sections",
    "tensorUpdateGraphTensors": "binary-sections",
    "graphPrepareExecutionEnvironment": "environments",
    "graphReleaseExecutionEnvironment": "environments",
}
"""What the default reference does not offer, and the personality that does."""
ABSENT = {call for call in TAKES if not hasattr(ReferenceBackend, ENTRIES[call])} | set(ELSEWHERE)
"""What the default reference does not offer: it has no method for it, or another personality has it."""
OFFERED = [call for call in TAKES if call not in ABSENT or call in ELSEWHERE]
PRELUDE = (ContextCreate("c0"), Prepare("g0", "c0"), GetBinary("c0", "f0"))
DEAD = (ContextCreate("c1"), Prepare("g1", "c1"), ContextFree("c1"))


def offering(call: Misused) -> Personality:
    """A personality of the reference that has the call."""
    return PERSONALITIES[ELSEWHERE.get(call, "default")]


class Careless(ReferenceBackend):
    """One call succeeds where its handle is refused."""

    def __init__(self, call: Misused) -> None:
        self.call = call
        super().__init__(offering(call))

    def answer(self, name: str, code: int) -> int:
        refused = name == self.call and code in (*component(self.call), INVALID_CONTEXT_ARGUMENT)
        return 0 if refused else super().answer(name, code)


class Takes(ReferenceBackend):
    """One call succeeds with a handle that is NULL, unknown or freed."""

    def __init__(self, call: Misused, handle: str) -> None:
        self.wrong = handle
        refusing = getattr(self, ENTRIES[call])

        def takes(given: Any, *more: Any) -> None:
            value = given[0] if call == "memDeRegister" and given else given
            if self.kind_of(value) != self.wrong:
                refusing(given, *more)

        setattr(self, ENTRIES[call], takes)
        super().__init__()

    def kind_of(self, value: Any) -> str:
        if value in self.contexts or value in self.registrations:
            return ""
        return {None: NULL, BOGUS_HANDLE: BOGUS}.get(value, FREED)


def run(backend: ReferenceBackend, *steps: AnyStep) -> tuple[MemoryCase, MemoryTrace]:
    case, rpcmem = MemoryCase(steps), EmulatedRpcmem()
    try:
        return case, run_memory_case(case, QnnEntry(backend.get_providers, backend), rpcmem)
    finally:
        backend.close()
        rpcmem.close()


def misuses(call: Misused) -> tuple[Misuse, ...]:
    """The call on NULL where that is wrong, on a value never given out, and on what is gone."""
    gone = {"context": "c1", "graph": "g1", "error": BOGUS}.get(TAKES[call], FREED)
    names = (gone, BOGUS) if call in NULL_IS_GOOD else (gone, BOGUS, NULL)
    return tuple(Misuse(call, name) for name in names)


def judged(code: int, call: Misused, handle: str = BOGUS) -> Examined:
    """The verdict on one answer; ``g1`` is a graph whose context is freed."""
    case = MemoryCase((*DEAD, Misuse(call, handle)))
    made = (StepSeen(code=0, values=(7,)), StepSeen(code=0, values=(8,)), StepSeen(code=0))
    return if_10(case, MemoryTrace(steps=(*made, StepSeen(code=code))))


def test_every_entry_of_the_table_that_takes_a_handle_is_a_call_of_the_rule() -> None:
    assert set(get_args(Misused)) == set(TAKES)
    assert set(TAKES) == {name for name, _ in FUNCTIONS} - WITHOUT_HANDLE


@pytest.mark.parametrize(("call", "handle"), OWNERS, ids=lambda part: part)
def test_what_the_rule_leaves_out_is_found_by_its_owner(
    call: Misused, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = open_memory_target("reference", "emulated", "off", 5.0)
    facts = target.facts
    target.close()
    owner = catalogue()[OWNERS[call, handle]]
    ((size, decode),) = decoders(owner, facts, monkeypatch)
    for data in stratified(size, 100, seed=5):
        case, trace = run(Takes(call, handle), *decode(data).steps)
        with contextlib.suppress(Unsupported):
            try:
                owner.check(case, msgspec.structs.replace(trace, facts=facts))
            except Violation:
                return
    pytest.fail(f"{owner.id} does not see that {call} takes a handle that is {handle}")


@pytest.mark.parametrize("call", ["contextGetBinarySize", "contextFinalize"])
def test_calls_whose_owner_needs_binaries_are_judged_here_without_them(call: Misused) -> None:
    binaries = MemoryFacts(capabilities={Property.CONTEXT_SUPPORT_CACHING: 0})
    for handle in (NULL, BOGUS):
        assert is_owned(call, handle, binaries)
        assert judged(Error.CONTEXT_ERROR_INVALID_HANDLE, call, handle).count == 1
        with pytest.raises(Violation):
            judged(Error.GRAPH_ERROR_INVALID_HANDLE, call, handle)


@pytest.mark.parametrize("call", OFFERED)
def test_the_reference_refuses_each_invalid_handle(call: Misused) -> None:
    steps = misuses(call)
    case, trace = run(ReferenceBackend(offering(call)), *PRELUDE, *DEAD, *steps)
    assert [seen.skipped for seen in trace.steps] == [""] * len(case.steps)
    assert if_10(case, trace).count == sum(not is_owned(call, step.handle, MemoryFacts()) for step in steps)
    # QnnContext.h lists 5000 for a context of applyBinarySection.
    codes = {INVALID_CONTEXT_ARGUMENT} if call == "contextApplyBinarySection" else component(call)
    assert {seen.code for seen in trace.steps[-len(steps) :]} == codes


@pytest.mark.parametrize("call", sorted(ABSENT))
def test_what_is_not_offered_is_not_judged(call: Misused) -> None:
    case, trace = run(ReferenceBackend(), *PRELUDE, *DEAD, Misuse(call, BOGUS))
    if trace.steps[-1].skipped:
        assert call == "deviceFreePlatformInfo"
    else:
        with pytest.raises(Unsupported, match=f"{call} answers 1000"):
            if_10(case, trace)


@pytest.mark.parametrize(
    "step",
    [step for call in OFFERED for step in misuses(call) if not is_owned(call, step.handle, MemoryFacts())],
    ids=lambda step: f"{step.call}-{step.handle}",
)
def test_each_call_that_succeeds_all_the_same_is_accused(step: Misuse) -> None:
    case, trace = run(Careless(step.call), *PRELUDE, *DEAD, step)
    kind = {NULL: "NULL", BOGUS: "unknown"}.get(step.handle, "freed")
    with pytest.raises(Violation, match=f"{step.call} on a handle that is {kind}"):
        if_10(case, trace)


@pytest.mark.parametrize("call", sorted(NULL_IS_GOOD))
def test_null_is_no_misuse_where_it_may_be_given(call: Misused) -> None:
    assert judged(0, call, NULL).count == 0


def test_a_call_that_fails_without_a_log_too_says_nothing_of_the_log() -> None:
    class NoMoreBackends(ReferenceBackend):
        def backend_create(self, log: int | None, config: int | None, out: object) -> None:
            if self.backends:
                raise QnnError(4000)
            super().backend_create(log, config, out)

    _, trace = run(NoMoreBackends(), *PRELUDE, Misuse("backendCreate", BOGUS))
    assert "4000 without a log" in trace.steps[-1].skipped


@pytest.mark.parametrize(
    ("code", "call", "handle"),
    [
        (6039, "graphExecute", "g1"),
        (6039, "graphExecuteAsync", "g1"),
        (4005, "backendRegisterOpPackage", BOGUS),
        (5000, "contextApplyBinarySection", BOGUS),
        (5014, "contextReleaseIncrementalBinary", BOGUS),
        (6000, "graphReleaseExecutionEnvironment", BOGUS),
        (10000, "errorFreeVerboseMessage", BOGUS),
        (7001 | 0x7E57 << 32, "tensorUpdateGraphTensors", BOGUS),
    ],
)
def test_a_code_that_the_header_lists_is_allowed(code: int, call: Misused, handle: str) -> None:
    assert judged(code, call, handle).count == 1


@pytest.mark.parametrize(
    ("code", "call", "handle"),
    [
        (6039, "graphExecute", BOGUS),
        (6039, "graphFinalize", "g1"),
        (5000, "contextFinalize", "c1"),
        (6000, "graphPrepareExecutionEnvironment", BOGUS),
        (4003, "backendFree", BOGUS),
        (4950, "contextGetProperty", BOGUS),
        (4011, "signalCreate", BOGUS),
    ],
)
def test_a_code_that_the_header_lists_for_other_things_is_wrong(
    code: int, call: Misused, handle: str
) -> None:
    with pytest.raises(Violation):
        judged(code, call, handle)


@pytest.mark.parametrize(
    ("code", "call"),
    [(4003, "backendGetProperty"), (4950, "contextGetBinary"), (1000, "signalFree")],
)
def test_a_backend_may_say_in_several_ways_that_it_has_no_such_function(code: int, call: Misused) -> None:
    with pytest.raises(Unsupported):
        judged(code, call)


def test_the_real_library_is_accused_of_exactly_these_answers() -> None:
    """libQnnHtp 2.51 takes NULL for a bad handle more often than a value that it never gave out."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("onnxruntime-qnn has no wheel for this platform")
    library = str(Path(next(iter(spec.submodule_search_locations))) / "libQnnHtp.so")
    steps = tuple(step for call in TAKES for step in misuses(call))
    target = open_memory_target(library, "emulated", "auto", 10.0)
    try:
        trace = target.run(MemoryCase((*PRELUDE, *DEAD, *steps)))
    finally:
        target.close()
    assert trace.death is None
    made = trace.steps[: -len(steps)]
    accused: dict[str, set[int | None]] = {}
    for step, seen in zip(steps, trace.steps[-len(steps) :], strict=True):
        with contextlib.suppress(Unsupported):
            try:
                if_10(MemoryCase((*PRELUDE, *DEAD, step)), MemoryTrace(steps=(*made, seen)))
            except Violation:
                accused.setdefault(step.call, set()).add(seen.code)
    assert accused == {
        "graphCreate": {6000},
        "graphRetrieve": {5002, 6000},
        "tensorCreateGraphTensor": {6001},
        "logSetLogLevel": {11003},
        "logFree": {11003},
        "backendCreate": {4004},
        "backendSetConfig": {0},
        "graphGetProperty": {0},
        "deviceCreate": {11003},
        "profileSetConfig": {0},
        "profileGetSubEvents": {1004},
        "profileGetEventData": {1004},
        "profileGetExtendedEventData": {1004},
    }
