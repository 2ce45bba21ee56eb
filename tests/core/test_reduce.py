from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import msgspec
import pytest
from fast_run import later, part
from hypothesis import HealthCheck, Phase
from reducing import smaller

from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.rule import NothingToJudge, Subject
from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.cases.case import (
    Alloc,
    BadArgument,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    MemoryCase,
    Observe,
    Prepare,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.reduce import one_call
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.reduce import restricted, smaller_script
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

REGISTERED = (
    ContextCreate("c0"),
    Alloc("b0", 4),
    Alloc("b1", 4),
    Register("c0", (Descriptor("b0", (4,)), Descriptor("b1", (4,))), ("h0", "h1")),
    Deregister(("h0", "h1")),
)
T = Tensor((2,))
CHAIN = Graph(
    (T, T, T, T),
    (Node("ABS", (0,), (1,)), Node("RELU", (1,), (2,)), Node("ADD", (2, 1), (3,))),
    (0,),
    (3,),
)


def memory(*steps: object) -> set[MemoryCase]:
    return set(smaller(MemoryCase(steps)))  # type: ignore[arg-type] # steps, as the tests give them


def test_what_stands_on_a_step_goes_with_it() -> None:
    left = MemoryCase(REGISTERED[:1] + REGISTERED[1:3])
    assert MemoryCase((REGISTERED[1], REGISTERED[2])) in memory(*REGISTERED)
    assert left in memory(*REGISTERED)


def test_a_batch_loses_the_entries_over_a_buffer_that_goes() -> None:
    shorter = Register("c0", (Descriptor("b1", (4,)),), ("h1",))
    assert MemoryCase((REGISTERED[0], REGISTERED[2], shorter, Deregister(("h1",)))) in memory(*REGISTERED)


def test_one_entry_of_a_deregistration_can_go_alone() -> None:
    assert MemoryCase((*REGISTERED[:4], Deregister(("h0",)))) in memory(*REGISTERED)


def test_a_buffer_is_not_freed_under_a_registration_by_leaving_its_end_out() -> None:
    freed = (*REGISTERED, Free("b0"), Free("b1"))
    assert MemoryCase((*REGISTERED[:4], *freed[5:])) not in memory(*freed)


def test_a_buffer_that_was_filled_is_not_executed_on_unfilled() -> None:
    steps = (
        *REGISTERED[:4],
        Fill("b0"),
        Fill("b1"),
        Prepare("g0", "c0", "Relu"),
        Execute("g0", (Binding("handle", "h0"), Binding("handle", "h1"))),
    )
    unfilled = MemoryCase((*steps[:4], *steps[5:]))
    assert unfilled not in memory(*steps)
    assert unfilled in set(smaller(MemoryCase(steps), deadly=True))


def test_an_input_that_was_written_is_not_executed_on_unwritten() -> None:
    handles = Execute("g0", (Binding("handle", "h0"), Binding("handle", "h1")))
    filled = (*REGISTERED[:4], Fill("b0"), Fill("b1"), Prepare("g0", "c0", "Relu"))
    unwritten = MemoryCase((*filled, handles))
    assert unwritten not in memory(*filled, Write("b0", 4), handles)
    assert unwritten in memory(*filled, Write("b1", 4), handles)
    back = Execute("g0", (Binding("handle", "h1"), Binding("handle", "h0")))
    assert MemoryCase((*filled, Write("b0", 4), back)) not in memory(*filled, Write("b0", 4), handles, back)


def test_an_output_that_was_wiped_is_not_used_again_unwiped() -> None:
    use = Execute("g0", (Binding(), Binding("handle", "h1")))
    steps = (*REGISTERED[:4], Fill("b1"), Prepare("g0", "c0", "Relu"), use, Deregister(("h1",)))
    assert MemoryCase((*steps, use)) not in memory(*steps, Fill("b1"), use)
    assert MemoryCase((*steps, use)) in memory(*steps, use, use)


def test_a_bound_handle_becomes_raw_memory_in_preparation_and_execute() -> None:
    steps = (
        Prepare("g0", "c0", "Relu", mem_types=(1, 1)),
        Execute("g0", (Binding("handle", "h0"), Binding("handle", "h1"))),
    )
    plainer = (
        Prepare("g0", "c0", "Relu", mem_types=(0, 1)),
        Execute("g0", (Binding(), Binding("handle", "h1"))),
    )
    assert MemoryCase(plainer) in memory(*steps)


def test_counts_stay_even_and_targets_warm() -> None:
    def turn(number: int) -> tuple[object, ...]:
        return (ContextCreate(f"c{number}"), ContextFree(f"c{number}"))

    steps = (*turn(0), Observe(), *turn(1), *turn(2), Observe())
    assert memory(*steps) == {
        MemoryCase((*turn(0), Observe(), *turn(number), Observe())) for number in (1, 2)
    }  # type: ignore[arg-type] # steps


def test_counts_are_nothing_to_a_case_that_ends_the_process() -> None:
    steps = (ContextCreate("c0"), Observe(), ContextFree("c0"), Observe())
    assert MemoryCase((ContextCreate("c0"), ContextFree("c0"))) in set(
        smaller(MemoryCase(steps), deadly=True)
    )


def graphs(case: DelegateCase) -> list[Graph]:
    return [candidate.graph for candidate in smaller(case)]


def test_a_call_with_a_bad_argument_is_alone_with_what_makes_what_it_uses() -> None:
    bad = BadArgument("graphCreate", "graphName", "c1")
    steps = (ContextCreate("c0"), ContextCreate("c1"), BadArgument("logCreate", "logger"), bad)
    case = MemoryCase(steps)
    assert one_call(case, 3) == MemoryCase((ContextCreate("c1"), bad))
    assert [one_call(case, step) for step in (-1, 0, 4)] == [None] * 3


def test_a_buffer_that_goes_is_looked_at_no_more() -> None:
    steps = (Alloc("b0", 4), Alloc("b1", 4), Observe(buffers=("b0", "b1")))
    left = set(smaller(MemoryCase(steps), deadly=True))
    assert MemoryCase((steps[0], Observe(buffers=("b0",)))) in left
    assert MemoryCase((steps[1], Observe(buffers=("b1",)))) in left


def test_readers_of_a_node_that_goes_read_its_operand() -> None:
    joined = Graph((T, T, T), (Node("ABS", (0,), (1,)), Node("ADD", (1, 1), (2,))), (0,), (2,))
    assert joined in graphs(DelegateCase(CHAIN))


def test_or_its_result_becomes_an_input() -> None:
    cut = Graph((T, T, T, T), (Node("ABS", (0,), (1,)), Node("ADD", (2, 1), (3,))), (0, 2), (3,))
    assert cut in graphs(DelegateCase(CHAIN))


@pytest.mark.parametrize("join", [True, False])
def test_what_nobody_reads_any_more_is_an_output(join: bool) -> None:
    assert restricted(CHAIN, {0, 1}, join=join) == Graph((T, T, T), CHAIN.nodes[:2], (0,), (2,))


def test_an_output_that_others_read_can_stop_being_one() -> None:
    more = msgspec.structs.replace(CHAIN, outputs=(1, 3))
    assert CHAIN in graphs(DelegateCase(more))


def test_a_reshape_whose_operand_is_needed_elsewhere_stays_an_output() -> None:
    flat = Tensor((2,), "int32", data=b"\2\0\0\0")
    nodes = (
        Node("ABS", (0,), (1,)),
        Node("RESHAPE", (1, 2), (3,)),
        Node("ADD", (3, 3), (4,)),
        Node("NEG", (1,), (5,)),
    )
    shared = Graph((T, T, flat, T, T, T), nodes, (0,), (3, 4, 5))
    assert [graph for graph in graphs(DelegateCase(shared)) if graph.nodes == nodes] == []
    unprotected = msgspec.structs.replace(shared, outputs=(4, 5))
    assert restricted(unprotected, {0, 1, 2, 3}, join=True) == shared


def test_claims_follow_the_nodes_they_mean() -> None:
    case = DelegateCase(CHAIN, (Application(claim=(0, 2)), Application("probe", claim=(1,))))
    without_the_first = [c for c in smaller(case) if [n.op for n in c.graph.nodes] == ["RELU", "ADD"]]
    assert without_the_first
    assert {tuple(a.claim for a in c.applications) for c in without_the_first} == {((1,), (0,))}


def test_the_target_is_never_left_out() -> None:
    case = DelegateCase(CHAIN, (Application("probe"), Application()))
    assert DelegateCase(CHAIN, (Application(),)) in list(smaller(case))
    assert all(any(a.who == "target" for a in c.applications) for c in smaller(case))


def test_invokes_and_poison_go_together() -> None:
    case = DelegateCase(CHAIN, invokes=3, poison=(1, 2, 3))
    assert {(c.invokes, c.poison) for c in smaller(case)} >= {(1, (1,)), (2, (1, 2)), (3, ())}


@pytest.fixture(scope="module")
def delegate() -> Iterator[DelegateTarget]:
    target = open_delegate_target([("reference", {})], "auto", "auto", 10.0)
    yield target
    target.close()


@pytest.fixture(scope="module")
def backend() -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", "off", 10.0)
    yield target
    target.close()


def rules_of(subject: Subject) -> list[str]:
    return [rule.id for rule in catalogue().values() if rule.subject == subject]


def some_cases(rule_id: str, facts: object, count: int) -> list[object]:
    found: list[object] = []
    try:
        cases = catalogue()[rule_id].cases(facts)
    except NothingToJudge:
        return found

    @hypothesis.seed(5)
    @hypothesis.settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(cases)
    def collect(case: object) -> None:
        found.append(case)

    collect()
    return found[1:]  # the first is the simplest


DEAR = ("LEAK-", "OWN-01", "OWN-02", "OWN-03", "LIFE-05", "RSZ-05", "THR-05", "QLEAK-", "QTHR-")
"""Rules whose cases go through many cycles or threads: half a second and more for each."""


def a_few(rule_id: str, case: Any, step: int, target: DelegateTarget | MemoryTarget) -> list[object]:
    """Some of the smaller cases, from the boldest to the least bold; four of a rule that is dear."""
    found = list(target.smaller(case, deadly=False))
    if not rule_id.startswith(DEAR):
        return found[::step]
    return [*found[:-1][:: max(1, len(found) // 3)][:3], *found[-1:]]


SOME_OR_ALL = pytest.mark.parametrize(
    ("which", "rarely"), [pytest.param(slice(1), 6, id="first"), later(slice(None), 1, name="all")]
)
"""Which of a rule's cases are made smaller, and of how many smaller ones that `a_few` takes one is judged."""


@SOME_OR_ALL
@pytest.mark.parametrize("rule_id", part(rules_of("delegate"), 0, 4))
def test_no_smaller_case_accuses_a_conforming_delegate(
    rule_id: str, which: slice, rarely: int, delegate: DelegateTarget
) -> None:
    for case in some_cases(rule_id, delegate.facts, 4)[which]:
        for candidate in a_few(rule_id, case, 5, delegate)[::rarely]:
            if isinstance(case, DelegateCase) and isinstance(candidate, DelegateCase):
                assert len(emit(candidate.graph)) <= len(emit(case.graph))
            assert not isinstance(judge_case(catalogue()[rule_id], delegate, candidate), Violation), candidate


@SOME_OR_ALL
@pytest.mark.parametrize("rule_id", part(rules_of("memory"), 0, 4))
def test_no_smaller_case_accuses_a_conforming_backend(
    rule_id: str, which: slice, rarely: int, backend: MemoryTarget
) -> None:
    for case in some_cases(rule_id, backend.facts, 3)[which]:
        for candidate in a_few(rule_id, case, 9, backend)[::rarely]:
            assert not isinstance(judge_case(catalogue()[rule_id], backend, candidate), Violation), candidate


def test_no_smaller_script_loses_an_allocation_that_a_later_step_needs() -> None:
    graph = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
    use = (SetInputs("i0"), Invoke("i0"), Read("i0"))
    opened = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"))
    proper = ScriptCase((graph,), (*opened, Allocate("i0"), *use))
    kept = [[type(step) for step in one.steps] for one in smaller_script(proper)]
    assert kept
    assert all(Allocate in types for types in kept if SetInputs in types or Invoke in types)
    resized = (*opened, Allocate("i0"), Resize("i0", 0, (3,)), Allocate("i0"), *use)
    for one in smaller_script(ScriptCase((graph,), resized)):
        types = [type(step) for step in one.steps]
        if Resize in types and Invoke in types:
            assert Allocate in types[types.index(Resize) : types.index(Invoke)]
    without = ScriptCase((graph,), (*opened, *use))
    assert any(SetInputs in map(type, one.steps) for one in smaller_script(without))
