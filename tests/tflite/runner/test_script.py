from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest
from kept import keep

from pytest_qnn.core.target import Death
from pytest_qnn.isolation.observe.process import Snapshot
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    HandleOutput,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Parallel,
    Poison,
    Read,
    RemoveAll,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.runner import script
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import CallbackCounts, MeasureCounts, OutputCounts, ScriptTrace

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 3))
GRAPH = Graph((T, T, T), (Node("ADD", (0, 0), (1,)), Node("MUL", (1, 0), (2,))), (0,), (2,))
READY = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
USE = (SetInputs("i0", 3), Invoke("i0"), Read("i0"))

Run = Callable[..., ScriptTrace]


@functools.cache
def _target(runtime: str, sandbox: str = "off") -> DelegateTarget:
    return keep(open_delegate_target([("reference", {})], runtime, sandbox, 10.0))


@pytest.fixture(params=RUNTIMES)
def run(request: pytest.FixtureRequest) -> Run:
    def carry_out(*steps: AnyScriptStep) -> ScriptTrace:
        trace: ScriptTrace = _target(request.param).run(ScriptCase((GRAPH,), steps))
        return trace

    return carry_out


def test_poison_is_not_taken_for_a_result(run: Run) -> None:
    trace = run(*READY, *USE, Poison("i0"), Read("i0"), Invoke("i0"), Read("i0"))
    assert trace.steps[-3].cpu == ()
    assert trace.steps[-1].cpu == trace.steps[-1].outputs


def test_steps_are_numbered_with_those_inside_others_behind_them() -> None:
    inner = Repeat(2, (Invoke("i0"),))
    steps = (Open("i0"), Parallel(((inner,), (Close("i0"),))), Measure())
    assert flat(steps) == (steps[0], steps[1], inner, Invoke("i0"), Close("i0"), Measure())


def test_a_whole_life_gives_the_cpus_results(run: Run) -> None:
    trace = run(*READY, *USE, Close("i0"), DestroyDelegate("d0"))
    assert all(seen.ok for seen in trace.steps)
    read = trace.steps[6]
    assert read.outputs == read.cpu != ()


def test_events_are_put_down_to_their_steps(run: Run) -> None:
    (seen,) = run(*READY, *USE, Close("i0")).interpreters
    found = [(event.kind, step) for event, step in zip(seen.events, seen.event_steps, strict=True)]
    assert found == [("Prepare", 2), ("init", 2), ("prepare", 2), ("invoke", 5), ("free", 7)]
    assert seen.kernel_steps == (2,)
    assert [step for step, _ in seen.plans] == [2]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Apply("i9", "d0"), "no open interpreter i9"),
        (Apply("i0", "d9"), "no delegate d9"),
        (Invoke("i1"), "no open interpreter i1"),
        (Open("i0"), "an interpreter i0 already"),
        (Open("i1", 4), "no graph 4"),
        (MakeDelegate("d0"), "a delegate d0 already"),
        (DestroyDelegate("d0"), "uses the delegate d0"),
        (Resize("i0", 7, (1,)), "no input 7"),
        (Read("i0"), "no successful invoke"),
    ],
)
def test_what_has_no_object_is_skipped_with_a_reason(run: Run, step: AnyScriptStep, reason: str) -> None:
    last = run(*READY, step).steps[-1]
    assert not last.ok
    assert reason in last.skipped


def test_nothing_is_invoked_after_a_failed_allocate(run: Run) -> None:
    trace = run(MakeDelegate("d0"), Open("i0"), Invoke("i0"))
    assert "allocate_tensors" in trace.steps[-1].skipped


def test_results_after_a_resize_are_compared_with_that_shape(run: Run) -> None:
    trace = run(*READY, Resize("i0", 0, (4, 3)), Allocate("i0"), *USE)
    assert trace.steps[-1].outputs[0].shape == (4, 3)
    assert trace.steps[-1].outputs == trace.steps[-1].cpu


def test_without_known_inputs_nothing_is_expected(run: Run) -> None:
    read = run(*READY, Invoke("i0"), Read("i0")).steps[-1]
    assert read.outputs
    assert not read.cpu


def test_a_repeat_keeps_the_first_and_the_last_time(run: Run) -> None:
    inside = (Open("i0"), Apply("i0", "d0"), Allocate("i0"), *USE, Close("i0"))
    trace = run(MakeDelegate("d0"), Repeat(5, inside))
    counts = trace.steps[1].counted(CallbackCounts)
    assert counts.by_kind == {"Prepare": 5, "init": 5, "prepare": 5, "invoke": 5, "free": 5}
    assert [(seen.name, seen.round) for seen in trace.interpreters] == [("i0", 0), ("i0", 4)]
    first, last = trace.steps[7].first, trace.steps[7]
    assert first is not None
    assert first.outputs == last.outputs == last.cpu


def test_the_events_of_a_repeat_carry_its_rounds(run: Run) -> None:
    (seen,) = run(*READY, SetInputs("i0"), Repeat(4, (Invoke("i0"),))).interpreters
    rounds = [r for event, r in zip(seen.events, seen.event_rounds, strict=True) if event.kind == "invoke"]
    assert rounds == [0, 3]


def test_branches_run_on_interpreters_of_their_own(run: Run) -> None:
    prepared = [
        step
        for name in ("i0", "i1")
        for step in (Open(name), Apply(name, "d0"), Allocate(name), SetInputs(name, ord(name[1])))
    ]
    branches = tuple((Repeat(9, (Invoke(name), Read(name))),) for name in ("i0", "i1"))
    trace = run(MakeDelegate("d0"), *prepared, Parallel(branches))
    reads = [seen for seen in trace.steps if seen.cpu]
    assert [seen.outputs == seen.cpu for seen in reads] == [True, True]
    assert reads[0].outputs != reads[1].outputs
    counts = [seen.counts for seen in trace.steps if isinstance(seen.counts, CallbackCounts)]
    assert [each.by_kind for each in counts] == [{}, {"invoke": 9}, {"invoke": 9}]


def test_one_interpreter_is_left_to_one_branch(run: Run) -> None:
    trace = run(*READY, SetInputs("i0"), Parallel(((Invoke("i0"),), (Invoke("i0"),))))
    assert [seen.ok for seen in trace.steps[-2:]] == [True, False]
    assert "another branch" in trace.steps[-1].skipped


def test_one_delegate_on_two_interpreters_is_told_apart(run: Run) -> None:
    trace = run(*READY, Open("i1"), Apply("i1", "d0"), Resize("i0", 0, (1, 3)), Allocate("i0"))
    first, second = trace.interpreters
    assert [event.kind for event in first.events].count("Prepare") == 2
    assert [event.kind for event in second.events].count("Prepare") == 1


def test_all_delegates_are_removed(run: Run) -> None:
    trace = run(*READY, RemoveAll("i0"), Allocate("i0"), *USE)
    (seen,) = trace.interpreters
    assert [node.index for node in seen.plans[-1][1]] == [0, 1]
    assert trace.steps[-1].outputs == trace.steps[-1].cpu


def test_poison_fills_the_outputs(run: Run) -> None:
    trace = run(*READY, *USE, Poison("i0", 0x41), Read("i0"))
    assert set(trace.steps[-1].outputs[0].data) == {0x41}


def test_the_process_is_measured(run: Run) -> None:
    counts = run(Measure()).steps[0].counted(MeasureCounts)
    assert min(counts.fds, counts.threads, counts.mappings, counts.virtual) > 0


def test_the_handle_output_member_is_written(run: Run) -> None:
    trace = run(*READY, HandleOutput("i0"), HandleOutput("i0", allow=False))
    assert [seen.counted(OutputCounts).before for seen in trace.steps[-2:]] == [False, True]


def test_a_delegate_that_fails_says_so(run: Run) -> None:
    trace = run(MakeDelegate("d0", "probe", fault="prepare"), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    assert [seen.ok for seen in trace.steps] == [True, True, False, True]
    assert "delegate" in trace.steps[2].message.lower()


def test_options_of_the_reference_are_refused_as_on_the_command_line(run: Run) -> None:
    seen = run(MakeDelegate("d0", options=(("key", "value"),))).steps[0]
    assert not seen.ok
    assert "no options" in seen.message


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_child_sees_what_this_process_sees(runtime: str) -> None:
    case = ScriptCase((GRAPH,), (*READY, *USE, Close("i0")))
    here, there = _target(runtime).run(case), _target(runtime, "fork").run(case)
    assert here == there


def test_a_case_and_its_trace_survive_encoding() -> None:
    case = ScriptCase((GRAPH,), (*READY, Repeat(2, USE), Parallel((USE, (Repeat(2, USE),)))))
    assert msgspec.json.decode(msgspec.json.encode(case), type=ScriptCase) == case
    trace = _target(RUNTIMES[0]).run(ScriptCase((GRAPH,), (*READY, Repeat(2, USE))))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trace), type=ScriptTrace) == trace


def _fds_at(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors as each look at the process finds them, the last number for ever; what is left of them."""
    left = list(counts)

    def looked() -> Snapshot:
        return Snapshot(left.pop(0) if len(left) > 1 else left[0], (), 0, 0)

    monkeypatch.setattr(script, "snapshot", looked)
    monkeypatch.setattr(script, "malloc_in_use", lambda: 0)
    monkeypatch.setattr(script, "threads", lambda: 1)
    return left


@pytest.mark.usefixtures("frozen")
def test_what_is_given_back_within_a_second_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = _fds_at([3, 7, 7, 7, 3, 9], monkeypatch)
    found = [seen.counts for seen in run(Measure(), Measure(waits=True)).steps]
    assert [counts.fds for counts in found if isinstance(counts, MeasureCounts)] == [3, 3]
    assert left == [9]
    _fds_at([3, 7, 7, 3], monkeypatch)
    found = [seen.counts for seen in run(Measure(), Measure()).steps]
    assert [counts.fds for counts in found if isinstance(counts, MeasureCounts)] == [3, 7]


@pytest.mark.usefixtures("frozen")
def test_what_is_never_given_back_is_waited_for_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_TO_END", 0.1)
    looks = [3, *[4] * 1000]
    left = _fds_at(looks, monkeypatch)
    run(Measure(), Measure(waits=True))
    assert 2 < len(looks) - len(left) < 20
    _fds_at([3, *range(4, 1000)], monkeypatch)
    found = [seen.counts for seen in run(Measure(), *[Measure(waits=True)] * 6).steps]
    fds = [counts.fds for counts in found if isinstance(counts, MeasureCounts)]
    looks = [after - before for before, after in itertools.pairwise(fds)]
    assert min(looks[:2]) > 1
    assert looks[2:] == [1, 1, 1, 1]


LONG = Tensor((700_000,))
_LARGE_CASES = {
    "delegate": DelegateCase(Graph((LONG, LONG), (Node("ABS", (0,), (1,)),), (0,), (1,))),
    "script": ScriptCase((Graph((LONG, LONG), (Node("ABS", (0,), (1,)),), (0,), (1,)),), READY + USE * 2),
}


@pytest.mark.parametrize("kind", _LARGE_CASES)
def test_of_a_case_that_gives_too_much_it_is_said_whether_the_cpu_does_too(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In company as alone; and what a delegate alone has made so large is no doing of the case."""
    large, small = _LARGE_CASES[kind], ScriptCase((GRAPH,), READY + USE)
    with closing(open_delegate_target([("reference", {})], "ai_edge_litert", "fork", 10.0)) as target:
        deaths = [trace.death for trace, _ in target.run_all([small, large, small])]
        assert deaths[::2] == [None, None]
        for death in (deaths[1], target.run(large).death):
            assert (death.kind, death.of_case) == ("large", True)
        death = Death("large", "what the case gives is too much")
        assert not target._graphs.seen(small, death).death.of_case
