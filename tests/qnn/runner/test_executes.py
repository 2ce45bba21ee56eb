"""The step `Executes`, and the rules whose step it is (QLEAK-07 and QLEAK-08)."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import pytest
from case_mutations import refusal
from hypothesis import given, settings

from pytest_qnn.core.engine import judge_with_owners
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import FailedCall, Measured, Outcome, Unsupported
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    Executes,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.plain import cycles
from pytest_qnn.qnn.controls.rounds import of_executes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.growth import MALLOC, beyond
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.rules.qleak.executes import executes, qleak_07, qleak_08, refused_executes
from pytest_qnn.qnn.runner import probes
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.strategies.graphs import Cases
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue

WARM_UP = 20
GRAPH = (ContextCreate("c0"), Prepare("g0", "c0"))
NO_HANDLE = (Binding("handle", NULL), Binding(), Binding())
ENDED = (Alloc("b0", 8), Register("c0", (Descriptor("b0", (8,)),), ("h0",)), Deregister(("h0",)))
OUTPUT_BY_HANDLE = (Binding(), Binding(), Binding("handle", "h0"))
ALL_RAW = (Binding(seed=1), Binding(seed=2), Binding())
malloc = ctypes.CDLL(None).malloc
ALL = (502, 1101, 1102)
"""Property keys: handles of tensors, memory, and that of ION."""


def facts(*keys: int, **fields: Any) -> MemoryFacts:
    operators = (("ElementWiseAdd", "UFIXED_POINT_8"),)
    return MemoryFacts(capabilities=dict.fromkeys(keys, 0), **{"operators": operators} | fields)


class _Counts(ReferenceBackend):
    """Executes, and where their raw memory was."""

    def __init__(self) -> None:
        super().__init__()
        self.executes = 0
        self.memory: set[Any] = set()

    def graph_execute(self, graph: int | None, inputs: Any, *rest: Any) -> None:
        self.executes += 1
        self.memory.add(inputs[1].v1.clientBuf.data)
        super().graph_execute(graph, inputs, *rest)


class _SucceedsAtLast(_Counts):
    """The execute with this number does not look at its handles."""

    succeeds = WARM_UP + 5

    def graph_execute(self, graph: int | None, inputs: Any, *rest: Any) -> None:
        if self.executes + 1 == self.succeeds:
            self.executes += 1
            return
        super().graph_execute(graph, inputs, *rest)


class _SucceedsSoon(_SucceedsAtLast):
    succeeds = 1


class _FailsAtLast(_Counts):
    """The execute with this number finds no memory."""

    fails = WARM_UP + 5

    def graph_execute(self, graph: int | None, inputs: Any, *rest: Any) -> None:
        super().graph_execute(graph, inputs, *rest)
        if self.executes == self.fails:
            raise QnnError(1002)


class _FailsSoon(_FailsAtLast):
    fails = 1


class _Denies(ReferenceBackend):
    def graph_execute(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(1000)


class _NoBackend(ReferenceBackend):
    def backend_create(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(4000)


def run(*steps: AnyStep, backend: ReferenceBackend | None = None) -> MemoryTrace:
    served, rpcmem = backend or ReferenceBackend(), EmulatedRpcmem()
    with closing(served), closing(rpcmem):
        trace = run_memory_case(MemoryCase(steps), QnnEntry(served.get_providers, served), rpcmem)
        assert not served.escaped
    return msgspec.structs.replace(trace, facts=facts())


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("before", "bindings"), [((), NO_HANDLE), (ENDED, OUTPUT_BY_HANDLE)], ids=["NULL", "deregistered"]
)
def test_every_round_is_refused_and_the_reference_keeps_nothing(
    before: tuple[AnyStep, ...], bindings: tuple[Binding, ...]
) -> None:
    backend = _Counts()
    seen = run(*GRAPH, *before, Executes("g0", bindings, 150, refused=True), backend=backend).steps[-1]
    assert (seen.code, seen.calls, seen.skipped) == (6004, (), "")
    counts = seen.counted(GrowthCounts)
    assert (counts.rounds, counts.fds, counts.mappings, beyond(counts)) == (150, 0, 0, None)
    assert backend.executes >= WARM_UP + 150
    assert len(backend.memory) == 1


@pytest.mark.parametrize(
    ("backend", "executes", "counts"),
    [(_SucceedsAtLast(), WARM_UP + 5, GrowthCounts(rounds=4)), (_SucceedsSoon(), 1, None)],
    ids=["measured", "first"],
)
def test_an_execute_that_succeeds_is_the_last(
    backend: _SucceedsAtLast, executes: int, counts: GrowthCounts | None
) -> None:
    case = MemoryCase((*GRAPH, Executes("g0", NO_HANDLE, 30, refused=True)))
    trace = run(*case.steps, backend=backend)
    seen = trace.steps[-1]
    assert (seen.code, seen.calls, seen.counts) == (0, (("graphExecute", 0),), counts)
    assert backend.executes == executes
    assert qleak_07(case, trace).count == 0


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("before", "bindings"), [((), ALL_RAW), (ENDED[:2], OUTPUT_BY_HANDLE)], ids=["raw", "registered"]
)
def test_every_round_succeeds_and_the_reference_keeps_nothing(
    before: tuple[AnyStep, ...], bindings: tuple[Binding, ...]
) -> None:
    backend = _Counts()
    seen = run(*GRAPH, *before, Executes("g0", bindings, 150), backend=backend).steps[-1]
    assert (seen.code, seen.calls, seen.skipped) == (0, (), "")
    counts = seen.counted(GrowthCounts)
    assert (counts.rounds, counts.fds, counts.mappings, beyond(counts)) == (150, 0, 0, None)
    assert backend.executes >= WARM_UP + 150


@pytest.mark.parametrize(
    ("backend", "executes", "after"),
    [(_FailsAtLast(), WARM_UP + 5, "after 4"), (_FailsSoon(), 1, "before any is measured")],
    ids=["measured", "first"],
)
def test_an_execute_that_fails_is_the_last_and_is_told(
    backend: _FailsAtLast, executes: int, after: str
) -> None:
    case = MemoryCase((*GRAPH, Executes("g0", ALL_RAW, 30)))
    trace = run(*case.steps, backend=backend)
    assert backend.executes == executes
    with pytest.raises(FailedCall, match=f"1002 QNN_COMMON_ERROR_MEM_ALLOC {after}") as told:
        qleak_08(case, trace)
    assert told.value.call == "graphExecute"


def test_each_rule_looks_at_its_own_executes_only() -> None:
    grown = StepSeen(counts=GrowthCounts(300, fds=300))
    trace = MemoryTrace(steps=(grown,), facts=facts())
    succeeding = MemoryCase((Executes("g0", ALL_RAW, 300),))
    refused = MemoryCase((Executes("g0", NO_HANDLE, 300, refused=True),))
    assert qleak_07(succeeding, trace).count == qleak_08(refused, trace).count == 0
    with pytest.raises(Measured):
        qleak_08(succeeding, trace)
    with pytest.raises(Measured):
        qleak_07(refused, trace)


def test_executes_of_registered_memory_are_among_those_that_succeed() -> None:
    kinds = {case.steps[-1].bindings for case in drawn(facts(*ALL), executes)}  # type: ignore[union-attr]
    handles = {tuple(each.handle for each in bindings if each.kind == "handle") for bindings in kinds}
    assert handles == {(), ("h0",)}
    custom = drawn(facts(502, 1101, 1103, backend_id=6), executes)
    registered = [step for case in custom for step in case.steps if isinstance(step, Register)]
    assert {each.offset for step in registered for each in step.descriptors} == {0, 64}


def test_graphs_are_composed_alone_or_second_or_come_out_of_a_binary() -> None:
    found = drawn(facts(*ALL, 202), executes)
    loads = [case for case in found if any(isinstance(step, ContextFromBinary) for step in case.steps)]
    assert 0 < len(loads) < len(found)
    assert {sum(isinstance(step, Prepare) for step in case.steps) for case in found} == {1, 2}
    steps = [step for case in drawn(facts(*ALL), executes) for step in case.steps]
    assert not [step for step in steps if isinstance(step, ContextFromBinary)]


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("kept", "grows"), [(64, None), (10_000, MALLOC)])
@pytest.mark.parametrize("pause", [0.0, 0.001], ids=["quick", "slow"])
def test_a_pool_that_fills_up_behind_the_first_rounds_is_no_growth(
    kept: int, grows: str | None, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow it is: a first look of more than half of the time is followed by another one, too."""
    monkeypatch.setattr(probes, "_SECONDS", 0.4)
    pool: list[bytearray] = []

    def once() -> None:
        time.sleep(pause)
        if len(pool) < kept:
            pool.append(bytearray(8192))

    _, counts = probes.measured(once, 300)
    assert counts is not None
    growth = beyond(counts)
    assert (growth and growth.what) == grows


class _KeepsBlocks(ReferenceBackend):
    """One of malloc's smallest blocks for each execute, or for each second one."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.number = every, 0

    def graph_execute(self, *arguments: Any) -> None:
        super().graph_execute(*arguments)
        self.number += 1
        if self.number % self.every == 0:
            malloc(1)


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("every", "grows"), [(1, True), (2, True), (1000, False)])
def test_the_smallest_block_for_each_execute_is_found(every: int, grows: bool) -> None:
    seen = run(*GRAPH, Executes("g0", ALL_RAW, 10_000), backend=_KeepsBlocks(every)).steps[-1]
    growth = beyond(seen.counted(GrowthCounts))
    assert (growth is not None and growth.what == MALLOC) is grows


@pytest.mark.parametrize(("bindings", "before"), [(NO_HANDLE, ()), (OUTPUT_BY_HANDLE, ENDED)])
def test_refused_executes_have_controls_with_raw_memory_and_with_a_valid_handle(
    bindings: tuple[Binding, ...], before: tuple[AnyStep, ...]
) -> None:
    case = MemoryCase((*GRAPH, *before, Executes("g0", bindings, 300, refused=True)))
    raw, by_handle = (each.case.steps for each in of_executes((), case, (1,)))
    assert [step for step in raw if isinstance(step, Register)] == []
    handles = [each.handle for each in by_handle[-1].bindings]  # type: ignore[union-attr]
    assert handles == [each.handle and "h0" for each in bindings]
    assert all(seen.code in (0, None) for seen in run(*by_handle).steps)


@pytest.mark.full
@pytest.mark.usefixtures("frozen")
def test_what_every_execute_leaves_is_no_finding_about_those_that_are_refused() -> None:
    rules = catalogue()
    with closing(opened(table()["leak-executes"], PLACES["memory"][0])) as target:
        found = judge_with_owners(rules["QLEAK-07"], target, PROFILES["quick"], 1, rules.__getitem__)
    assert (found.verdict.outcome, found.verdict.blocked_by) == (Outcome.INCONCLUSIVE, ("QLEAK-08",))
    assert [(each.rule, each.outcome) for each in found.handed_over] == [("QLEAK-08", Outcome.FAIL)]


def test_without_a_graph_or_a_session_it_is_skipped() -> None:
    without = run(ContextCreate("c0"), Executes("g0", NO_HANDLE)).steps[-1]
    assert (without.lacking, without.code) == (True, None)
    closed = run(Executes("g0", NO_HANDLE), backend=_NoBackend()).steps[-1]
    assert "no session" in closed.skipped


def test_its_rounds_and_its_bindings_have_bounds_and_count() -> None:
    assert refusal(MemoryCase((*GRAPH, Executes("g0", NO_HANDLE, rounds=1 << 20))))
    assert refusal(MemoryCase((*GRAPH, Executes("g0", (Binding(mem_type=1),)))))
    assert not refusal(MemoryCase((*GRAPH, Executes("g0", NO_HANDLE))))
    assert cycles(MemoryCase((*GRAPH, Executes("g0", NO_HANDLE, 70)))) > 70


def test_what_is_refused_as_not_supported_is_not_judged() -> None:
    case = MemoryCase((*GRAPH, Executes("g0", NO_HANDLE, 100, refused=True)))
    with pytest.raises(Unsupported, match="graphExecute answers 1000"):
        qleak_07(case, run(*case.steps, backend=_Denies()))


@pytest.mark.parametrize("more", [0, 1])
def test_only_growth_beyond_the_bound_is_told(more: int) -> None:
    case = MemoryCase((Executes("g0", NO_HANDLE, 300, refused=True),))
    seen = StepSeen(code=6004, counts=GrowthCounts(300, fds=4 + more))
    trace = MemoryTrace(steps=(seen,), facts=facts())
    if more:
        with pytest.raises(Measured, match="5 more"):
            qleak_07(case, trace)
    else:
        assert qleak_07(case, trace).count == 300


def test_few_rounds_prove_nothing() -> None:
    case = MemoryCase((Executes("g0", NO_HANDLE, 300, refused=True),))
    seen = StepSeen(code=6004, counts=GrowthCounts(99))
    assert qleak_07(case, MemoryTrace(steps=(seen,), facts=facts())).count == 0


def drawn(
    known: MemoryFacts, strategy: Callable[[MemoryFacts], Cases] = refused_executes
) -> list[MemoryCase]:
    found: list[MemoryCase] = []

    @settings(max_examples=60, database=None, derandomize=True)
    @given(strategy(known))
    def draw(case: MemoryCase) -> None:
        found.append(case)

    draw()
    return found


def bad(case: MemoryCase) -> Binding:
    """The one binding of a case's rounds that is no raw memory; the execute before them has the same."""
    *_, one, many = case.steps
    assert isinstance(many, Executes)
    assert one == Execute(many.graph, many.bindings)
    (found,) = (each for each in many.bindings if each.kind == "handle")
    return found


def test_handles_are_null_or_deregistered_and_never_a_value_that_was_not_given_out() -> None:
    """EXE-05 owns what only such a value does: libQnnHtp.so dies of it."""
    handles = {bad(case).handle for case in drawn(facts(*ALL))}
    assert handles == {NULL, "h0"}
    assert BOGUS not in handles


@pytest.mark.parametrize("keys", [(), (1101, 1102), (502,)], ids=["none", "no handles", "no memory"])
def test_without_memory_for_tensors_the_handle_is_null(keys: tuple[int, ...]) -> None:
    assert {bad(case).handle for case in drawn(facts(*keys))} == {NULL}


def test_where_nothing_can_be_executed_there_is_nothing_to_judge() -> None:
    with pytest.raises(NothingToJudge, match="operator"):
        refused_executes(facts(operators=()))
    with pytest.raises(NothingToJudge, match="311"):
        executes(MemoryFacts(capabilities={311: 1000}, operators=facts().operators))
    with pytest.raises(NothingToJudge, match="leave something behind, too"):
        refused_executes(facts(executes_grow=True))


@pytest.mark.parametrize(
    ("wanted", "owners"), [(NULL, {"EXE-03"}), ("h0", {"EXE-03", "EXE-04"})], ids=["NULL", "deregistered"]
)
def test_a_death_of_one_refused_execute_is_its_owners(wanted: str, owners: set[str]) -> None:
    """The execute before the rounds asks for the controls that have one."""
    with closing(open_memory_target("reference", "emulated", "off", 5.0)) as target:
        case = next(case for case in drawn(target.facts) if bad(case).handle == wanted)
        found = [each for each in target.controls(case, died=True) if "EXE-03" in each.owners]
        assert found
        named = {owner for each in target.controls(case, died=True) for owner in each.owners}
    assert named & {"EXE-03", "EXE-04"} == owners
