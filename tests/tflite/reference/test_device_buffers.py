from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing

import pytest
from kept import keep

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Cancel,
    Close,
    CopyFrom,
    CopyTo,
    HandleOutput,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PassToConstructor,
    Poison,
    Profile,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers
from pytest_qnn.tflite.reference.personalities import PERSONALITIES, DelegatePersonality
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import (
    AnyScriptCounts,
    BufferFunctions,
    CopyCounts,
    CopyToCounts,
    InvokeCounts,
    LentCounts,
    MeasureCounts,
    ScriptTrace,
)

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 3))
SKIP = Graph(
    (T,) * 4, (Node("ADD", (0, 0), (1,)), Node("MUL", (1, 0), (2,)), Node("ADD", (1, 2), (3,))), (0,), (3,)
)
"""t1 goes from the first node to the last one directly, and by way of the second one."""
BEHIND = (MakeDelegate("p0", "probe", claim=(1,)), MakeDelegate("d0"), Open("i0"), Apply("i0", "p0"))
READY = (*BEHIND, Apply("i0", "d0"), Allocate("i0"))
USE = (SetInputs("i0", 3), Poison("i0"), Invoke("i0"), Read("i0"))

Run = Callable[..., ScriptTrace]


@functools.cache
def _target(spec: str, runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([(spec, {})], runtime, "off", 10.0))


@pytest.fixture(params=RUNTIMES)
def run(request: pytest.FixtureRequest) -> Run:
    def carry_out(*steps: AnyScriptStep, spec: str = "reference:device-buffers") -> ScriptTrace:
        trace: ScriptTrace = _target(spec, request.param).run(ScriptCase((SKIP,), steps, buffers=True))
        return trace

    return carry_out


def _found(
    steps: tuple[AnyScriptStep, ...], trace: ScriptTrace, kind: type[AnyScriptStep]
) -> AnyScriptCounts | None:
    """Numbers of the last step of a kind."""
    pairs = zip(steps, trace.steps, strict=True)
    return [seen.counts for step, seen in pairs if isinstance(step, kind)][-1]


def test_results_stay_in_buffers_until_somebody_needs_them(run: Run) -> None:
    trace = run(*READY, *USE)
    assert trace.steps[-1].outputs == trace.steps[-1].cpu != ()
    seen = trace.interpreters[0]
    outputs = {one.tensor: one for one in seen.handled if not one.is_input and one.tensor != 2}
    assert all(one.stale and one.owned and one.handle > 0 and not one.written for one in outputs.values())
    assert sorted(outputs) == [1, 3]


def test_a_kernel_reads_its_own_delegates_buffer_and_the_runtime_copies_for_another_one(run: Run) -> None:
    seen = run(*READY, *USE).interpreters[0]
    fed = [(one.tensor, one.stale) for one in seen.handled if one.is_input]
    copied = [call.tensor for call in seen.buffer_calls if call.kind == "from"]
    assert copied == [1, 3]
    # The probe's kernel has had t1 copied; whoever comes after it finds it readable.
    assert fed in ([], [(1, True)])


def test_handles_are_freed_with_the_interpreter(run: Run) -> None:
    steps = (*READY, *USE, Close("i0"))
    seen = run(*steps).interpreters[0]
    freed = [call for call in seen.buffer_calls if call.kind == "free"]
    assert sorted(call.handle for call in freed) == sorted({one.handle for one in seen.handled if one.stale})
    assert {(call.status, call.step) for call in freed} == {(-1, len(steps) - 1)}


def test_which_functions_a_delegate_has_is_seen(run: Run) -> None:
    functions = run(*READY).interpreters[0].functions
    assert functions == (BufferFunctions(False, False, False), BufferFunctions(True, True, True))


def test_a_client_can_copy_again(run: Run) -> None:
    steps = (*READY, *USE, CopyFrom("i0"), Read("i0"))
    trace = run(*steps)
    assert trace.steps[-1].outputs == trace.steps[-3].outputs
    counts = _found(steps, trace, CopyFrom)
    assert isinstance(counts, CopyCounts)
    assert (counts.status, counts.untouched, counts.other) == (0, 0, -1)


@pytest.mark.parametrize("wrong", ["none", "unknown"])
def test_what_is_no_handle_is_refused(run: Run, wrong: str) -> None:
    steps = (*READY, *USE, CopyFrom("i0", 0, wrong))  # type: ignore[arg-type] # parametrised
    counts = _found(steps, run(*steps), CopyFrom)
    assert isinstance(counts, CopyCounts)
    assert counts.status
    assert counts.untouched == 1


def test_a_tensor_without_a_handle_is_not_copied(run: Run) -> None:
    assert "no buffer handle" in run(*READY, *USE, CopyFrom("i0"), spec="reference").steps[-1].skipped


def test_outputs_are_left_to_a_client_that_wants_them_so(run: Run) -> None:
    seen = run(*READY, HandleOutput("i0"), *USE).interpreters[0]
    assert [call.tensor for call in seen.buffer_calls if call.kind == "from"] == [1]


def test_a_script_that_does_not_ask_sees_no_buffers(run: Run) -> None:
    del run
    trace: ScriptTrace = _target("reference:device-buffers", RUNTIMES[0]).run(
        ScriptCase((SKIP,), (*READY, *USE))
    )
    seen = trace.interpreters[0]
    assert (seen.handled, seen.buffer_calls, seen.functions) == ((), (), ())


def test_a_profiler_counts_an_event_for_each_node(run: Run) -> None:
    steps = (*BEHIND[:3], Profile("i0"), *BEHIND[3:], Apply("i0", "d0"), Allocate("i0"), *USE)
    assert _found(steps, run(*steps), Invoke) == InvokeCounts(operator=3, delegate=0)


def test_a_cancelled_invoke_runs_no_later_kernel_and_the_next_one_works(run: Run) -> None:
    steps = (*READY, Cancel("i0", 1), SetInputs("i0", 1), Invoke("i0"), Cancel("i0"), *USE)
    trace = run(*steps)
    assert [seen.ok for step, seen in zip(steps, trace.steps, strict=True) if isinstance(step, Invoke)] == [
        False,
        True,
    ]
    seen = trace.interpreters[0]
    cancelled = [
        event
        for event, at in zip(seen.events, seen.event_steps, strict=True)
        if event.kind == "invoke" and at == len(READY) + 2
    ]
    assert len(cancelled) == 1
    assert trace.steps[-1].outputs == trace.steps[-1].cpu


def test_an_interpreter_holds_what_its_constructor_was_given(run: Run) -> None:
    steps = (MakeDelegate("p0", "probe"), PassToConstructor("p0"))
    assert _found(steps, run(*steps), PassToConstructor) == LentCounts(kept=True, released=True)


def test_a_delegate_can_be_applied_without_the_spy(run: Run) -> None:
    trace = run(MakeDelegate("d0"), Open("i0"), Apply("i0", "d0", spied=False), Allocate("i0"), *USE)
    seen = trace.interpreters[0]
    assert seen.kernels == ()
    assert [node.owner for node in seen.applied[0].plan_after] == [0]
    assert trace.steps[-1].outputs == trace.steps[-1].cpu


def test_address_space_is_measured(run: Run) -> None:
    steps = (Measure(),)
    counts = _found(steps, run(*steps), Measure)
    assert isinstance(counts, MeasureCounts)
    assert counts.virtual > 1 << 20


def test_what_is_copied_to_a_buffer_comes_back(run: Run) -> None:
    steps = (*READY, *USE, CopyTo("i0"))
    counts = _found(steps, run(*steps), CopyTo)
    assert isinstance(counts, CopyToCounts)
    assert counts.elements > 0
    assert (counts.status, counts.lost, counts.shared) == (0, 0, False)


def test_where_buffers_are_the_tensors_memory_nothing_is_seen(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither function copies: there is one memory."""
    monkeypatch.setattr(DeviceBuffers, "copy_from", lambda *_: 0)
    monkeypatch.setattr(DeviceBuffers, "copy_to", lambda *_: 0)
    steps = (*READY, *USE, CopyTo("i0"))
    counts = _found(steps, run(*steps), CopyTo)
    assert isinstance(counts, CopyToCounts)
    assert counts.shared


def test_a_delegate_without_buffers_is_not_copied_to(run: Run) -> None:
    assert "no buffer handle" in run(*READY, *USE, CopyTo("i0"), spec="reference").steps[-1].skipped


@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
def test_a_mean_of_many_elements_is_a_result_of_its_tensors_type(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy has float64 for it: a buffer of eight bytes, of which none was copied into a tensor of four."""
    copied: list[int] = []

    class Watched(DeviceBuffers):
        def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
            copied.append(super().copy_from(context, handle, tensor))
            return copied[-1]

    monkeypatch.setitem(PERSONALITIES, "device-buffers", DelegatePersonality("device-buffers", "", Watched))
    tensors = (Tensor((1 << 18,)), Tensor((1,), "int32", data=bytes(4)), Tensor((1,)))
    graph = Graph(tensors, (Node("MEAN", (0, 1), (2,), keep_dims=True),), (0,), (2,))
    with closing(open_delegate_target([("reference:device-buffers", {})], runtime, "off", 10.0)) as target:
        copied.clear()
        target.run(DelegateCase(graph, (Application(),)))
    assert copied
    assert not any(copied)
