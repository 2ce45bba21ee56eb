"""Controls of QNN cases: ordinary calls of the kinds that a case makes, owned by rules that exist."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pytest_qnn.core.engine.attribution import Attribution
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import (
    FailedCall,
    FalseDeclaration,
    Measured,
    Retained,
    Unsupported,
    Violation,
    WrongOutput,
    WrongRefusal,
)
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    Capability,
    Churn,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Descriptor,
    Execute,
    FailedAllocation,
    GetBinary,
    GetSection,
    Lived,
    MemoryCase,
    Miscompose,
    Observe,
    Parallel,
    Prepare,
    Register,
    Resource,
    ThreadCall,
)
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.cases.memory import CUSTOM, ION
from pytest_qnn.qnn.controls.calls import around, controls
from pytest_qnn.qnn.controls.refusals import around_call, of_refusals
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue, listed

CASE = MemoryCase(
    (
        ContextCreate("c7"),
        Prepare("g3", "c7", "Relu", "FLOAT_32", (2, 3), mem_types=(1, 1), relay=True),
        Alloc("b1", 24),
        Register("c7", (Descriptor("b1", (2, 3), "FLOAT_32", shape_config="x"),) * 2, ("h1", "h2")),
        Execute("g3", (Binding("handle", "h1"), Binding())),
        Deregister(("h1", "h1")),
        ContextFree("c7"),
    )
)
CONTEXT = ContextCreate("c0")
GRAPH = Prepare("g0", "c0", "Relu", "FLOAT_32", (2, 3))
TWO: tuple[AnyStep, ...] = (
    Alloc("b0", 4096),
    Alloc("b1", 4096),
    Register("c0", tuple(Descriptor(f"b{at}", (1, 2, 2, 2)) for at in range(2)), ("h0", "h1")),
)
REGISTERED: tuple[AnyStep, ...] = (
    CONTEXT,
    Alloc("b0", 4096),
    Register("c0", (Descriptor("b0", (2, 3), "FLOAT_32"),), ("h0",)),
)


def of_types(case: MemoryCase, *, died: bool) -> Iterator[Control]:
    """The controls on a target that takes ION memory and shared buffers."""
    return controls(case, (1, 2), died=died)


def test_ordinary_calls_of_the_kinds_of_the_case() -> None:
    owned = [control for control in of_types(CASE, died=True) if control.owners]
    assert [(control.case.steps, control.owners) for control in owned[:8]] == [
        ((CONTEXT, GRAPH, Execute("g0", (Binding(), Binding()))), ("EXE-10",)),  # what is behind its output
        ((CONTEXT,), ("CTX-09",)),
        ((CONTEXT, ContextFree("c0")), ("CTX-01",)),
        ((CONTEXT, GRAPH), ("PRE-11",)),
        ((CONTEXT, GRAPH, Execute("g0", (Binding(), Binding()))), ("EXE-21",)),
        (REGISTERED, ("REG-01",)),
        ((*REGISTERED, Deregister(("h0",))), ("DRG-01",)),
        ((CONTEXT, *TWO, Deregister(("h0", "h1"))), ("DRG-01",)),
    ]


@pytest.mark.parametrize(
    "step", [Deregister(("NULL",)), Register("c0", (Descriptor("b0", (1,), fd="minus-one"),), ("h0",))]
)
def test_a_death_in_a_call_that_opens_the_session_is_not_that_of_what_is_refused(step: AnyStep) -> None:
    """A backend that died in QnnBackend_create failed DRG-03 beside IF-12."""
    of_call = [
        control.owners_of(died_in("QnnBackend_create"))
        for control in of_types(MemoryCase((step,)), died=True)
    ]
    assert next(filter(None, of_call)) == ("IF-12",)


def test_a_death_beside_mistakes_has_controls_of_those_that_other_rules_are_about() -> None:
    made = Prepare("g0", "c0", mistakes=("data", "early", "input"))
    died = of_types(MemoryCase((CONTEXT, made)), died=True)
    alone = [
        (control.owners, step)
        for control in died
        if control.owners
        for step in control.case.steps
        if isinstance(step, Miscompose) or (isinstance(step, Prepare) and (step.preset or step.weights))
    ]
    assert alone == [
        (("PRE-02",), Prepare("g0", "c0", preset=(True,))),
        (("PRE-03",), Prepare("g0", "c0", weights=1, weights_as="null")),
        (("PRE-12",), Miscompose("c0", "tensor")),
    ]


def test_a_death_in_an_execute_with_handles_has_controls_of_these() -> None:
    """Each rule with such executes failed for a backend that dies in any of them."""
    others = [each for each in of_types(CASE, died=True) if each.owners][8:]
    plain, own = Prepare("g0", "c0"), Prepare("g0", "c0", "Relu", "FLOAT_32")
    of_plain, of_own, last = [
        [each.owners[0] for each in others if graph in each.case.steps] for graph in (plain, own, GRAPH)
    ]
    assert (
        of_plain
        == of_own
        == [
            "EXE-01",
            "ION-03",
            "EXE-10",
            "EXE-19",
            "EXE-19",
            "EXE-19",
            "REG-02",
            "EXE-02",
            "EXE-02",
            "DRG-11",
        ]
    )
    assert last == ["EXE-01", "REG-18"]
    first = others[0]
    assert first.owners_of(died_in("QnnGraph_execute")) == ("EXE-01",)
    assert first.owners_of(died_in("QnnMem_register")) == ("REG-01",)


def test_owners_are_rules() -> None:
    assert {listed()[owner].subject for control in of_types(CASE, died=True) for owner in control.owners} == {
        "memory"
    }


def test_what_must_succeed_has_controls_that_add_one_thing_at_a_time() -> None:
    found = [
        ([type(step).__name__ for step in control.case.steps[1:]], control.owners[0])
        for control in of_types(CASE, died=False)
    ]
    handles = ["Alloc", "Alloc", "Register", "Register", "Execute"]
    one = ["Alloc", "Register"]
    filled = ["Prepare", "Alloc", "Fill", "Alloc", "Fill"]
    written = [*filled, "Write"]
    again = ["Execute", "Write", "Write", "Execute"]
    assert (
        found
        == [
            ([], "IF-06"),
            (["ContextFree"], "CTX-01"),
            (["Prepare"], "PRE-10"),
            (["Prepare", "Execute"], "EXE-10"),
            (["Prepare", "Execute"], "EXE-21"),
            (["Prepare", "Execute", "Prepare", "Execute"], "PRE-04"),  # without the hint, and with it
            ([*one, "Deregister"], "CAP-02"),
            (["Write", "Read", "Read"], "RPC-02"),  # without a context
            (["Write", "Read"], "RPC-02"),
            (["Alloc", "ToFd", "ToFd"], "RPC-09"),
            (["ToFd", "ToFd"], "RPC-06"),
            (one, "REG-01"),
            (one, "REG-16"),
            ([*one, "Deregister"], "DRG-01"),
            ([*one, *one, "Deregister", "Deregister"], "DRG-11"),
            (["Alloc", "Fill", "Read", "Register", "Read"], "REG-20"),
            ([*one, "Fill", "Deregister", "Read", "Read"], "DRG-09"),
            ([*one, "Deregister", "Register"], "REG-24"),
            (["Alloc", *one, "Deregister", "Register"], "REG-02"),
            (["Alloc", *one], "REG-13"),
            (["Alloc", *one, "Register"], "REG-08"),  # the bad one last
            (["Alloc", *one, "Register"], "REG-08"),  # first
            (["Alloc", *one[:1], *one, "Register"], "REG-08"),  # between; then the one before it
            (["Alloc", *one[:1], *one, "Register"], "REG-08"),  # and the one behind it
            ([*one, "Register", "Deregister"], "REG-21"),
            (["Alloc", *one, "Register", "Deregister", "Register", "Register"], "REG-24"),  # two in one call
            ([*written, "Register", "Register", "Execute"], "EXE-01"),
            ([*written, "Register", "Register", "Execute"], "ION-03"),
            ([*written, "Register", "Register", "Execute", "Read", "Read"], "EXE-10"),
            ([*filled, "Register", "Register", "Write", "Execute"], "EXE-19"),
            ([*written, "Register", "Register", *again], "EXE-19"),  # with the same inputs
            ([*written, "Register", "Register", *again], "EXE-19"),  # with others
            ([*written, "Register", "Execute"], "REG-02"),
            ([*written, "Register", "Register", "Execute"], "EXE-02"),
            ([*written, "Register", "Register", "Execute"], "EXE-02"),
            ([*written, "Register", "Register", *one, "Deregister", "Execute"], "DRG-11"),
            (["Prepare", *handles], "QMG-04"),
            ([*one, "Deregister"], "REG-18"),
            (["Prepare", *handles], "REG-18"),
            ([*written, "Register", "Register", "Execute", "Deregister", "Execute"], "EXE-04"),
            *((["Capability"], "CAP-01") for _ in range(4)),  # without a context
        ]
    )


def test_structs_stay_until_the_end_but_where_they_are_what_it_is_about() -> None:
    for control in of_types(CASE, died=False):
        spoilt = control.owners == ("REG-18",)
        for step in control.case.steps:
            assert not isinstance(step, Register) or (step.keep, step.scribble) == (not spoilt, spoilt)


def test_a_target_that_reads_structs_after_the_call_is_told_by_the_rule_about_structs() -> None:
    target = open_memory_target("mutant:reg-keeps-pointers", "emulated", "off", 5.0)
    wrong = []
    try:
        for control in of_types(CASE, died=False):
            trace = target.run(control.case)
            for owner in control.owners:
                with contextlib.suppress(Unsupported):
                    try:
                        catalogue()[owner].check(control.case, trace)
                    except Violation:
                        wrong.append(owner)
    finally:
        target.close()
    assert set(wrong) == {"REG-18"}


def test_what_is_left_behind_has_controls_that_add_one_thing_at_a_time() -> None:
    looks = MemoryCase((*CASE.steps, Observe()))
    counting = [control for control in of_types(looks, died=False) if control.explains == (Retained,)]
    assert not any(control.explains == (Retained,) for control in of_types(CASE, died=False))
    assert [control.owners[0] for control in counting] == [
        *("RPC-11", "RPC-06", "RPC-11", "DRG-10", "REG-28", "REG-28", "CTX-01", "CTX-10")
    ]
    target = open_memory_target("reference", "emulated", "off", 5.0)
    try:
        for control in counting:
            owner = catalogue()[control.owners[0]]
            assert owner.check(control.case, target.run(control.case)).count > 0, owner.id
    finally:
        target.close()


def test_what_is_declared_is_asked_twice_where_a_case_relies_on_it() -> None:
    flow = (CONTEXT, GRAPH, GetBinary("c0", "f0"), ContextFromBinary("c1", "f0"))
    asked = [each for each in of_types(MemoryCase(flow), died=False) if each.owners == ("CAP-01",)]
    assert [control.case.steps for control in asked] == [(Capability(key),) * 2 for key in (215, 217)]
    assert {control.explains for control in asked} == {(FalseDeclaration,)}


REFUSED_EXECUTES = {
    "null": (Execute("g3", (Binding("handle", "NULL"), Binding())), ["EXE-03"]),
    "null-output": (Execute("g3", (Binding(), Binding("handle", "NULL"))), ["EXE-03", "EXE-03"]),
    "short": (Execute("g3", (Binding(short=1), Binding())), ["EXE-03"]),
    "no-memory-type": (Execute("g3", (Binding(mem_type=77), Binding())), ["EXE-03"]),
    "never-made": (Execute("g3", (Binding("handle", "BOGUS"), Binding())), ["EXE-03"]),
    "too-small": (Execute("g3", (Binding("handle", "h3"), Binding())), ["EXE-03"]),
    "twice": (Execute("g3", (Binding(), Binding()), inputs=(0, 0)), ["EXE-03", "EXE-16", "EXE-16"]),
    "of-another": (Execute("g3", (Binding(of="g4"), Binding())), ["EXE-03", "EXE-16", "EXE-16"]),
    "ended": (Execute("g3", (Binding("handle", "h2"), Binding())), ["EXE-03", "EXE-04"]),
    "in-order": (Execute("g3", (Binding("handle", "h1"), Binding())), []),
    "in-order-raw": (Execute("g3", (Binding(), Binding()), inputs=(0,), outputs=(1,)), []),
}


def with_execute(execute: Execute) -> MemoryCase:
    """Memory that lives, that ended and that is too small; then the execute."""
    made = (ContextCreate("c7"), Prepare("g3", "c7", "Relu", "FLOAT_32", (2, 3)))
    memory = (Alloc("b1", 24), Register("c7", (Descriptor("b1", (2, 3), "FLOAT_32"),), ("h1",)))
    ended = (Alloc("b2", 24), Register("c7", (Descriptor("b2", (2, 3), "FLOAT_32"),), ("h2",)))
    small = (Alloc("b3", 24), Register("c7", (Descriptor("b3", (5,), "FLOAT_32"),), ("h3",)))
    return MemoryCase((*made, *memory, *ended, *small, Deregister(("h2",)), execute))


@pytest.mark.parametrize("name", REFUSED_EXECUTES)
def test_a_death_behind_a_refused_execute_has_controls_with_such_ones(name: str) -> None:
    """A lock that is kept where an execute is refused was the finding of every rule that met it."""
    execute, owners = REFUSED_EXECUTES[name]
    of_refused = [
        control
        for control in of_types(with_execute(execute), died=True)
        if control.owners and control.owners[0] in ("EXE-03", "EXE-04", "EXE-16")
    ]
    # Twice: at the plainest, which is the same for all cases, and with the case's own operator.
    assert [control.owners[0] for control in of_refused] == 2 * owners
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 5.0)) as target:
        for control in of_refused:
            trace = target.run(control.case)
            assert trace.steps[-1].code == 0
            assert catalogue()[control.owners[0]].check(control.case, trace).count == 1
            facts = MemoryFacts(operators=(("Relu", "FLOAT_32"), ("ElementWiseAdd", "UFIXED_POINT_8")))
            assert around(facts, control.case) is facts  # it refuses whatever the operator is


GOOD = Descriptor("b1", (2, 3), "FLOAT_32")
REFUSED_CALLS = {
    "no-file": ((Register("c7", (msgspec.structs.replace(GOOD, fd="pipe"),), ("h1",)),), ["REG-13"]),
    "twice": ((Register("c7", (GOOD,) * 2, ("h1", "h2")),), ["REG-13"]),
    "again": ((Register("c7", (GOOD,), ("h1",)), Register("c7", (GOOD,), ("h2",))), ["REG-13"]),
    "too-large": ((Register("c7", (msgspec.structs.replace(GOOD, shape=(7,)),), ("h1",)),), ["REG-13"]),
    "no-context": ((Register("c8", (GOOD,), ("h1",)),), ["REG-13"]),
    "no-handle": ((Deregister(("NULL",)),), ["DRG-03"]),
    "ended-twice": ((Register("c7", (GOOD,), ("h1",)), Deregister(("h1", "h1"))), ["DRG-03"]),
    "life": ((Lived("refused", "c7"),), ["REG-13", "DRG-03"]),
    "in-order": ((Register("c7", (GOOD,), ("h1",)), Deregister(("h1",))), []),
    "other-life": ((Lived("registrations", "c7"),), []),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_a_death_behind_a_refused_memory_call_has_a_control_with_such_a_one(name: str) -> None:
    steps, owners = REFUSED_CALLS[name]
    given = MemoryCase((ContextCreate("c7"), Alloc("b1", 24), *steps))
    found = [each for each in of_types(given, died=True) if each.owners in (("REG-13",), ("DRG-03",))]
    assert [each.owners[0] for each in found] == owners
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 5.0)) as target:
        for control in found:
            trace = target.run(control.case)
            assert trace.steps[-1].code == 0
            assert catalogue()[control.owners[0]].check(control.case, trace).count == 1


def test_properties_are_asked_one_by_one() -> None:
    flow = (CONTEXT, GRAPH, GetBinary("c0", "f0"), ContextFromBinary("c1", "f0", defer=True))
    found = of_types(MemoryCase((*flow, ContextProperty("c1", (3, 1)))), died=False)
    asked = [control.case.steps[-1] for control in found if control.owners == ("EXT-03",)]
    assert asked == [ContextProperty("c1", (3,)), ContextProperty("c1", (1,))]


def test_a_death_with_sections_is_told_by_the_memory_that_they_are_in() -> None:
    made = Prepare("g3", "c7", "Relu", "FLOAT_32", (2, 3), weights=1, weights_as="updatable")
    taken = GetSection("c7", "g3", "s1", "dead", 3)
    found = [
        (control.owners, control.case.steps[3:])
        for control in of_types(MemoryCase((ContextCreate("c7"), made, taken)), died=True)
        if control.owners[:1] in (("MSC-01",), ("MSC-02",))
    ]
    raw, handle = GetSection("c0", "g0", "s0"), GetSection("c0", "g0", "s1", "handle", 3)
    assert found == [(("MSC-02",), (raw,)), (("MSC-01",), (raw, handle))]


def test_what_comes_out_of_a_binary_has_controls_of_its_own() -> None:
    made = Prepare("g3", "c7", "Relu", "FLOAT_32", (2, 3))
    flow = (ContextCreate("c7"), made, GetBinary("c7", "f1"), ContextFromBinary("c8", "f1", defer=True))
    registered = Register("c8", (Descriptor("b1", (2, 3), "FLOAT_32", mem_type=2),), ("h1",))
    owners = [each.owners for each in of_types(MemoryCase((*flow, Alloc("b1", 24), registered)), died=False)]
    assert [each for each in owners if each[0].startswith(("OFF", "REG-17", "EXT", "CAP-06"))] == [
        ("OFF-03",),
        ("REG-17",),
        ("EXT-01",),
        ("CAP-06",),
        ("EXT-20",),
    ]
    assert ("SHB-04",) in owners


def test_memory_that_is_wrong_spoils_all() -> None:
    spoiling = {each.owners[0] for each in of_types(CASE, died=False) if each.spoils}
    assert spoiling == {"EXE-10", "CAP-02", "RPC-02", "RPC-06", "RPC-09", "REG-02", "REG-21", "DRG-09"}


@pytest.mark.parametrize(
    ("what", "owners"),
    [
        ("register", ["DRG-10"]),
        ("context", ["DRG-10", "CTX-01", "CTX-10"]),
        ("refused", ["DRG-10", "REG-28", "REG-28"]),
        ("unread", []),
    ],
)
def test_what_many_rounds_leave_behind_is_shown_by_a_few(what: Any, owners: list[str]) -> None:
    case = MemoryCase((CONTEXT, Alloc("b0", 4096), Churn(what, "b0", "c0")))
    measured = [each for each in of_types(case, died=False) if Measured in each.explains]
    assert [owner for each in measured for owner in each.owners] == owners


def test_what_contexts_keep_explains_later_calls() -> None:
    lived = MemoryCase((CONTEXT, Lived("contexts", rounds=9)))
    churned = MemoryCase((Alloc("b0", 4096), Churn("context", "b0")))
    for case in (lived, churned):
        found = [each for each in of_types(case, died=False) if each.explains == (WrongOutput, WrongRefusal)]
        assert [(each.owners, each.spoils) for each in found] == [(("CTX-01",), True), (("CTX-10",), True)]


def test_threads_and_refused_requests_have_controls_of_plain_registrations() -> None:
    calls: tuple[ThreadCall, ...] = ("memRegister", "memDeRegister")
    threads = Parallel("histories", threads=2, mem_type=1, calls=(calls, calls))
    refused = FailedAllocation(("memRegister",), "memory", mem_type=1)
    for step in (threads, refused):
        owners = {each.owners[0] for each in of_types(MemoryCase((step,)), died=False)}
        assert {"REG-01", "DRG-01", "DRG-09", "REG-24"} <= owners


def test_a_case_of_a_context_alone_has_no_control_of_memory() -> None:
    assert [control.owners for control in of_types(MemoryCase((CONTEXT,)), died=False)] == [
        ("IF-06", "CTX-09", "IF-09")
    ]


def died_in(call: str) -> Death:
    return Death("signal", "SIGSEGV", evidence=Evidence(call))


def test_a_death_is_owned_by_the_rule_on_its_call() -> None:
    behind, context, *_ = of_types(CASE, died=True)
    assert behind.spoils  # its own death explains nothing
    for call, owner in (
        ("QnnBackend_create", "IF-12"),
        ("QnnContext_create", "CTX-09"),
        ("QnnContext_createFromBinary", "CTX-09"),
        ("QnnContext_free", "CTX-01"),
        ("QnnBackend_free", "CTX-08"),
        ("", "CTX-09"),
    ):
        assert context.owners_of(died_in(call)) == (owner,)
    assert {owner for _, owner in context.calls} <= set(listed())


def test_what_opens_no_context_has_a_session_only() -> None:
    session, ordinary = of_types(MemoryCase((Alloc("b0", 8),)), died=True)
    assert session.owners_of(died_in("QnnBackend_create")) == ("IF-12",)
    assert session.owners_of(died_in("QnnContext_create")) == ()
    assert ordinary.owners_of(died_in("QnnMem_register")) == ("REG-01",)


def test_ordinary_life_has_the_operator_of_its_graphs() -> None:
    lived = MemoryCase((Lived("turns", op="Relu", dtype="FLOAT_32"),))
    *_, ordinary = of_types(lived, died=True)
    assert Prepare("g0", "c0", "Relu", "FLOAT_32") in ordinary.case.steps


def test_a_hang_in_threads_may_be_of_any_call_of_theirs() -> None:
    """Of the calls in progress one is known: a control with owners counts in whatever call it ends."""
    threads = MemoryCase((Parallel("contexts", op="Relu", dtype="FLOAT_32"),))
    *_, ordinary = of_types(threads, died=True)
    assert Prepare("g0", "c0", "Relu", "FLOAT_32") in ordinary.case.steps
    assert ordinary.owners == ("EXE-21",)
    *_, other = of_types(MemoryCase((Lived("turns", op="Relu", dtype="FLOAT_32"),)), died=True)
    assert other.owners == ()


AT_AN_OFFSET = MemoryCase(
    (
        CONTEXT,
        Alloc("b0", 8192),
        Register("c0", (Descriptor("b0", (8,), mem_type=CUSTOM, offset=64),), ("h0",)),
    )
)


@pytest.mark.parametrize(
    ("backend", "rule", "owners"),
    [
        ("reference", "SHB-04", []),
        ("mutant:shb-only-aligned", "SHB-04", ["SHB-10"]),
        ("mutant:shb-only-aligned", "SHB-07", ["SHB-10"]),
        ("mutant:shared-no-offset", "SHB-04", ["SHB-07"]),
        ("mutant:shared-no-offset", "SHB-07", []),
    ],
)
def test_an_offset_that_is_refused_is_told_by_who_owns_it(backend: str, rule: str, owners: list[str]) -> None:
    target = open_memory_target(backend, "emulated", "off", 5.0)
    attribution = Attribution(catalogue()[rule], target, catalogue().__getitem__)
    try:
        refused = FailedCall("success", "8000", call="QnnMem_register")
        cause = attribution.cause(AT_AN_OFFSET, refused)
    finally:
        target.close()
    assert [each.owner.id for each in filter(None, (cause,))] == owners


ROUNDS = range(21)
FREED_OVER = MemoryCase(
    (
        *(Alloc(f"b{number}", 8192) for number in ROUNDS),
        Observe(),
        *(
            step
            for number in ROUNDS
            for step in (
                ContextCreate(f"c{number}"),
                Register(f"c{number}", (Descriptor(f"b{number}", (8,)),), (f"h{number}",)),
                ContextFree(f"c{number}"),
            )
        ),
        Observe(patient=True),
    )
)
REFUSED = MemoryCase((CONTEXT, Alloc("b0", 8192), Churn("refused", "b0", "c0", tensors=2)))


@pytest.mark.parametrize(
    ("rule", "case", "seen"),
    [("CTX-01", FREED_OVER, Retained("1", "21")), ("QLEAK-03", REFUSED, Measured("16", "100"))],
)
@pytest.mark.parametrize("spare", ["drg-unmaps-the-tensor", "drg-keeps-memory"])
def test_what_deregistering_leaves_of_a_buffer_is_one_finding(
    rule: str, case: MemoryCase, seen: Violation, spare: str
) -> None:
    target = open_memory_target(f"mutant:{spare}", "emulated", "off", 5.0)
    try:
        cause = Attribution(catalogue()[rule], target, catalogue().__getitem__).cause(case, seen)
    finally:
        target.close()
    assert cause is not None
    assert cause.owner.id == "DRG-10"


@pytest.mark.parametrize(
    ("tensors", "mem_type", "asked"), [(1, CUSTOM, False), (2, ION, False), (2, CUSTOM, True)]
)
def test_rounds_with_several_tensors_in_a_buffer_have_offsets(
    tensors: int, mem_type: int, *, asked: bool
) -> None:
    rounds = MemoryCase((Alloc("b0", 256), Churn("context", "b0", "", 9, tensors, mem_type)))
    assert any(each.owners == ("SHB-10",) for each in of_types(rounds, died=False)) is asked


def test_around_an_offset_that_is_refused_offsets_are_those_of_pages() -> None:
    (control, *_) = of_types(AT_AN_OFFSET, died=False)
    assert (control.owners, control.shown) == (("SHB-10",), FailedCall)
    assert around(MemoryFacts(), control.case) == MemoryFacts(only_aligned=True)
    assert control.presumes is not None
    assert around(MemoryFacts(), control.presumes.case) == MemoryFacts()


def test_around_leaves_out_the_operator_where_others_are_left() -> None:
    facts = MemoryFacts(operators=(("Relu", "FLOAT_32"), ("ElementWiseAdd", "FLOAT_32")))
    control = MemoryCase((CONTEXT, GRAPH))
    assert around(facts, control).operators == (("ElementWiseAdd", "FLOAT_32"),)
    assert around(facts, MemoryCase((CONTEXT,))) is facts
    alone = MemoryFacts(operators=(("Relu", "FLOAT_32"),))
    assert around(alone, control) is alone


@pytest.mark.parametrize(("what", "owner"), [("new", "OOM-02"), ("any", "OOM-01")])
def test_a_death_behind_refusals_may_need_what_was_done_before(what: Resource, owner: str) -> None:
    before = ContextCreate("c0")
    refused = FailedAllocation(("contextCreate", "deviceCreate"), what, nth=7, rounds=20)
    *_, last = of_types(MemoryCase((before, refused)), died=True)
    assert last.case == MemoryCase((before, msgspec.structs.replace(refused, rounds=0)))
    assert last.owners == (owner,)


def test_a_hang_behind_refusals_is_no_exception() -> None:
    refused = FailedAllocation(("contextCreate",), "new")
    *_, last = of_types(MemoryCase((refused,)), died=True)
    assert last.owners_of(Death("signal", "SIGABRT")) == ("OOM-02",)
    assert last.owners_of(Death("hang", "no answer")) == ("OOM-01",)


@pytest.mark.parametrize(("what", "owner"), [("new", "OOM-02"), ("memory", "OOM-01"), ("any", "OOM-01")])
def test_a_death_in_a_later_round_is_the_affair_of_who_judges_deaths(what: Resource, owner: str) -> None:
    """On libQnnHtp the exception of OOM-02 left a call in a later round only, and OOM-06 was failed."""
    step = FailedAllocation(("contextCreate",), what, rounds=20, use="none")
    repeated, once = MemoryCase((step,)), MemoryCase((msgspec.structs.replace(step, rounds=0),))
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 10.0)) as target:
        last = [*target.controls(repeated, died=True)][-1]
        assert (last.case, last.owners) == (repeated, (owner,))
        assert not any(one.case == repeated for one in target.controls(repeated, died=False))
        assert [*target.controls(once, died=True)][-1].owners == (owner,)
        assert len([one for one in target.controls(once, died=True) if one.case == once]) <= 2


def test_where_one_call_is_refused_something_a_death_in_that_call_is_explained() -> None:
    """libQnnHtp dies in one of twelve calls, and all twelve were tried alone: 24 processes for a death."""
    refused = FailedAllocation(("contextCreate", "deviceCreate"), "new", nth=7)
    given = MemoryCase((ContextCreate("c0"), refused))
    plain = of_types(given, died=True)
    controls = list(of_refusals(plain, given, died=True))
    alone = [one for one in controls if one.within]
    assert {one.within for one in alone} == {"QnnContext_create", "QnnDevice_create"}
    for one in alone:
        (step,) = one.case.steps
        assert isinstance(step, FailedAllocation)
        assert [function_name(call) for call in step.calls] == [one.within]
    assert (controls[-1].case, controls[-1].within) == (given, "")
    assert not any(one.within for one in of_refusals(of_types(given, died=False), given, died=False))


@pytest.mark.parametrize("rounds", [0, 20])
def test_a_case_with_one_refused_call_has_a_control_for_deaths_in_any_call(rounds: int) -> None:
    """Another call may die of what the one that was refused something has left."""
    given = MemoryCase((FailedAllocation(("contextCreate",), "new", nth=7, rounds=rounds),))
    controls = list(of_refusals(of_types(given, died=True), given, died=True))
    assert any(one.owners == ("OOM-02",) and not one.within for one in controls)


def test_calls_of_which_nothing_is_refused_are_one_control() -> None:
    """Whatever would be refused: it is run once."""
    alike = set()
    for what in ("new", "mapping", "any"):
        given = MemoryCase(
            (FailedAllocation(("contextCreate", "deviceCreate"), what, lasting=what == "new"),)
        )
        for one in of_refusals(of_types(given, died=True), given, died=True):
            match one.case.steps:
                case (FailedAllocation(nth=0),):
                    alike.add((one.case, one.owners, one.within))
    ((case, owners, within),) = alike
    assert case == MemoryCase((FailedAllocation(("contextCreate", "deviceCreate"), nth=0),))
    assert (owners, within) == ((), "")


def test_a_call_that_dies_among_others_is_left_out() -> None:
    facts, both = MemoryFacts(), FailedAllocation(("contextCreate", "deviceCreate"), "new")
    left = around_call(facts, MemoryCase((both,)), "QnnContext_create")
    assert left.fatal_calls == ("contextCreate",)
    assert around_call(left, MemoryCase((both,)), "QnnContext_create") is left
    assert around_call(left, MemoryCase((both,)), "QnnDevice_create").fatal_calls == (
        "contextCreate",
        "deviceCreate",
    )
    for call in ("", "QnnGraph_create"):
        assert around_call(facts, MemoryCase((both,)), call) is facts
    nothing = msgspec.structs.replace(both, nth=0)
    assert around_call(facts, MemoryCase((nothing,)), "QnnContext_create") is facts
    assert around_call(facts, MemoryCase((ContextCreate("c0"),)), "QnnContext_create") is facts


def test_a_case_with_refusals_has_a_process_of_its_own() -> None:
    """What a refusal damages is seen in whatever the process does next, which may be the next case."""
    case, other = MemoryCase((FailedAllocation(("contextCreate",)),)), MemoryCase((ContextCreate("c0"),))
    with contextlib.closing(open_memory_target("reference", "emulated", "fork", 10.0)) as target:
        alone = [is_first for _, is_first in target.run_all([other, case, other, other, case])]
    assert alone == [True, True, True, False, True]
