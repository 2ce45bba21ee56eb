from __future__ import annotations

from collections.abc import Sequence

import pytest
from fast_run import later
from hypothesis import example, given
from hypothesis import strategies as st
from kept import keep

from pytest_qnn.core.engine import judge
from pytest_qnn.core.verdict import Examined, Measured, Outcome, Unsupported, Violation
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Read,
    Repeat,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.cases.valid import check_script
from pytest_qnn.tflite.checks.leaks import Key, nothing_left
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.runner.world import World
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.strategies.lifetimes import CYCLES, FEW, LEAST, REPETITIONS, compared, repetitions
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.trace import MeasureCounts, ScriptSeen, ScriptTrace

T = Tensor((2, 3))
GRAPH = Graph((T, T, T), (Node("ADD", (0, 0), (1,)), Node("MUL", (1, 0), (2,))), (0,), (2,))
RUNTIMES = ("tflite_runtime", "ai_edge_litert")


def _spells(name: str) -> tuple[AnyScriptStep, ...]:
    cycle = (MakeDelegate(name), DestroyDelegate(name))
    few, many = Repeat(FEW, cycle), Repeat(CYCLES, cycle)
    return (few, many, Measure(), *((few, Measure(), many, Measure()) * REPETITIONS))


CASE = ScriptCase((GRAPH,), (*_spells("d0"), *_spells("p0")))


def _judge(target: Sequence[int], probe: Sequence[int], key: Key = "malloc", case: ScriptCase = CASE) -> int:
    """Judge what repetitions leave behind, a short and a long one by turns."""
    values: list[int] = []
    for grown in (target, probe):
        values.append(1000)
        for more in grown:
            values.append(values[-1] + more)
    numbers = iter(values)
    steps = (
        ScriptSeen(counts=MeasureCounts(**{key: next(numbers)}) if isinstance(step, Measure) else None)
        for step in flat(case.steps)
    )
    return nothing_left(case, ScriptTrace(steps=tuple(steps)), (key,), "a cycle")


NOTHING = (0,) * (2 * REPETITIONS)
BLOCK = 32
LEAK = (BLOCK * FEW, BLOCK * CYCLES) * REPETITIONS


def test_the_smallest_block_in_each_cycle_is_a_leak() -> None:
    with pytest.raises(Violation, match="as many bytes of malloc's"):
        _judge(LEAK, NOTHING)


def test_what_is_left_has_its_unit_and_says_after_how_many_repetitions() -> None:
    for key, unit in (("malloc", "bytes of malloc's"), ("fds", "descriptors")):
        with pytest.raises(Violation) as raised:
            _judge(LEAK, NOTHING, key)
        left = BLOCK * (CYCLES - FEW)
        said = f"{left}, {left}, {left} more {unit}, each after {CYCLES - FEW} further repetitions"
        assert raised.value.seen == said


def test_a_descriptor_in_each_cycle_is_a_leak() -> None:
    with pytest.raises(Violation, match="descriptors"):
        _judge((FEW, CYCLES) * REPETITIONS, NOTHING, "fds")


def test_what_a_probe_leaves_too_is_nobodys_leak() -> None:
    assert _judge(LEAK, LEAK)


def test_what_each_spell_leaves_whatever_its_length_is_no_leak() -> None:
    assert _judge((5000, 5000) * REPETITIONS, NOTHING)


def test_what_one_spell_does_not_leave_is_no_leak() -> None:
    assert _judge((*LEAK[:-1], 0), NOTHING)


def test_what_spells_leave_by_chance_is_no_leak() -> None:
    assert _judge((0, 3000, 0, 90_000, 0, 1500), NOTHING)


def test_what_short_spells_give_back_of_long_ones_is_no_leak() -> None:
    mebibyte = 1 << 20
    assert _judge((-mebibyte, mebibyte) * REPETITIONS, NOTHING, "virtual")
    assert _judge((0, mebibyte, -mebibyte, mebibyte, -mebibyte, mebibyte), NOTHING, "virtual")
    with pytest.raises(Violation, match="bytes of address space"):
        _judge((0, mebibyte) * REPETITIONS, NOTHING, "virtual")


def test_a_case_from_which_steps_were_taken_is_not_judged() -> None:
    shorter = ScriptCase((GRAPH,), CASE.steps[1:])
    assert not _judge(LEAK, NOTHING, case=shorter)


NUMBERS = st.lists(
    st.integers(-2000, 2000) | st.sampled_from((0, *LEAK)), min_size=2 * REPETITIONS, max_size=2 * REPETITIONS
)


@given(NUMBERS)
@example([0, LEAST["malloc"] * (CYCLES - FEW)] * REPETITIONS)
@example([-LEAST["malloc"] * (CYCLES - FEW) // 2, LEAST["malloc"] * (CYCLES - FEW) // 2] * REPETITIONS)
def test_what_would_be_a_leak_beside_a_probe_that_leaves_nothing_is_compared_with_one(
    grown: list[int],
) -> None:
    """Neither further pairs of repetitions nor the probe's are left out where there would be a finding."""
    conditions = [getattr(step, "where_kept", None) for step in repetitions((), CYCLES)]
    further = next(filter(None, conditions))
    assert conditions == [None] * 7 + [further] * 8
    probe = next(step.where_kept for step in compared(CASE.steps) if isinstance(step, Repeat))
    assert probe is not None
    world = World(CASE, (), load_runtime(), lambda _number, _options: pytest.fail("nothing is made"), None)
    world.shortest, world.longest = FEW, CYCLES
    found = [MeasureCounts(malloc=1000 + sum(grown[:count])) for count in range(len(grown) + 1)]
    world.measured += found[:3]
    goes_on = world.keeps(further)
    world.measured += found[3:] if goes_on else ()
    try:
        _judge(grown, NOTHING)
    except Violation:
        assert goes_on
        assert world.keeps(probe)
    assert goes_on or not world.keeps(probe)


@pytest.mark.usefixtures("frozen")
def test_more_is_repeated_only_where_the_target_has_kept_something() -> None:
    def half(delegate: MakeDelegate) -> tuple[AnyScriptStep, ...]:
        cycle = (Open("i0"), Apply("i0", delegate.delegate), Allocate("i0"), Invoke("i0"), Close("i0"))
        return repetitions((delegate, *cycle, DestroyDelegate(delegate.delegate)), CYCLES)

    steps = (*half(MakeDelegate("d0")), *compared(half(MakeDelegate("p0", "probe")), ("fds",)))
    case = ScriptCase((GRAPH,), steps)
    counts = []
    for name in ("reference", "mutant:keeps-device"):
        # In a child: other threads of a worker of pytest-xdist allocate while this process would be measured.
        trace = keep(open_delegate_target([(name, {})], "auto", "fork", 10.0)).run(case)
        seen = zip(flat(case.steps), trace.steps, strict=True)
        counts.append(sum(isinstance(step, Measure) and not one.skipped for step, one in seen))
    assert counts == [3, 2 * (2 * REPETITIONS + 1)]


def test_without_mallinfo2_leaks_of_memory_are_unsupported() -> None:
    steps = tuple(ScriptSeen(counts=MeasureCounts()) for _ in flat(CASE.steps))
    with pytest.raises(Unsupported, match="mallinfo2"):
        nothing_left(CASE, ScriptTrace(steps=steps), ("malloc",), "a cycle")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cycles_of_the_reference_leave_nothing(runtime: str) -> None:
    target = keep(open_delegate_target([("reference", {})], runtime, "fork", 10.0))
    cycle = (
        *(MakeDelegate("d0"), Open("i0"), Apply("i0", "d0")),
        *(SetInputs("i0"), Close("i0"), DestroyDelegate("d0")),
    )
    few, many = Repeat(FEW, cycle), Repeat(CYCLES, cycle)
    half = (few, many, Measure(), *((few, Measure(), many, Measure()) * REPETITIONS))
    case = ScriptCase((GRAPH,), (*half, *half))

    def judge() -> None:
        trace = target.run(case)
        assert isinstance(trace, ScriptTrace)
        for rule_id in ("LEAK-01", "LEAK-02", "OWN-02"):
            assert catalogue()[rule_id].check(case, trace).count == CYCLES * REPETITIONS

    # What is measured is a finding only if another process shows it too (`Measured`).
    try:
        judge()
    except Measured:
        judge()


def test_every_script_of_the_strategies_may_be_replayed() -> None:
    check_script(CASE)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_error_on_another_thread_is_accepted_where_the_rule_says_so(runtime: str) -> None:
    target = keep(open_delegate_target([("reference", {})], runtime, "off", 10.0))
    steps = (
        *(MakeDelegate("d0", fault="kernel-invoke"), Open("i0"), Apply("i0", "d0")),
        *(SetInputs("i0"), Invoke("i0"), Read("i0")),
    )
    allocated = (*steps[:3], Allocate("i0"), *steps[3:])
    trace = target.run(ScriptCase((GRAPH,), allocated))
    with pytest.raises(Unsupported, match="handed to another thread"):
        catalogue()["THR-04"].check(ScriptCase((GRAPH,), allocated), trace)
    with pytest.raises(Violation, match="every step to succeed"):
        catalogue()["THR-01"].check(ScriptCase((GRAPH,), allocated), trace)


def test_nothing_read_is_nothing_examined() -> None:
    case = ScriptCase((GRAPH,), (Open("i0"),))
    found = catalogue()["THR-01"].check(case, ScriptTrace(steps=(ScriptSeen(),)))
    assert found == Examined(0, "outputs read on threads")


@pytest.mark.parametrize("rule_id", [later("THR-01"), later("THR-02")])
def test_no_case_of_much_work_is_too_much_for_a_child_to_answer(rule_id: str) -> None:
    """With three turns of eight outputs one gave 11 MB, and was judged in pytest's process only."""
    target = keep(open_delegate_target([("reference", {})], RUNTIMES[0], "fork", 10.0))
    verdict = judge(catalogue()[rule_id], target, profile("default"), seed=1)
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, "")
