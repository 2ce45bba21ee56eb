"""The reference's variants that keep their kernels while shapes change, and that hold variables."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from delegate_doubles import Factory

from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.control import Bytes
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate, DynamicOutputs, PropagatedDelegate
from pytest_qnn.tflite.reference.variables import VariableDelegate
from pytest_qnn.tflite.runner.script import run_script_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.trace import CallbackCounts, ScriptTrace

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
T = Tensor((2, 3))
CHAIN = Graph((T, T, T), (Node("ABS", (0,), (1,)), Node("RELU", (1,), (2,))), (0,), (2,))
OPENED = (MakeDelegate("d0"), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
RUN = (SetInputs("i0", seed=3), Invoke("i0"), Read("i0"))


def carried_out(runtime: str, create: Any, graph: Graph, *steps: Any) -> tuple[ScriptTrace, Factory]:
    factory = Factory("double", create)
    case = ScriptCase((graph,), (*OPENED, *steps))
    return run_script_case(case, [factory], load_runtime(runtime), lambda _, __: factory), factory


def resized(length: int) -> tuple[Any, ...]:
    return (Resize("i0", 0, (length, 3)), Allocate("i0"))


def kinds(trace: ScriptTrace) -> list[str]:
    return [event.kind for event in trace.interpreters[0].events]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("create", [ReferenceDelegate, DynamicDelegate, PropagatedDelegate, DynamicOutputs])
def test_results_after_resizes_are_the_cpus(create: Any, runtime: str) -> None:
    trace, factory = carried_out(runtime, create, CHAIN, *RUN, *resized(5), *RUN, *resized(1), *RUN)
    reads = [step for step in trace.steps if step.cpu]
    assert [step.outputs[0].shape for step in reads] == [(2, 3), (5, 3), (1, 3)]
    assert all(step.outputs == step.cpu for step in reads)
    assert factory.made[0].errors == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_kernel_of_the_dynamic_delegate_lives_through_a_resize(runtime: str) -> None:
    static, _ = carried_out(runtime, ReferenceDelegate, CHAIN, *resized(5))
    dynamic, _ = carried_out(runtime, DynamicDelegate, CHAIN, *resized(5))
    assert kinds(static).count("init") == kinds(static).count("free") == 2
    assert kinds(dynamic).count("init") == kinds(dynamic).count("free") == 1
    assert kinds(dynamic).count("prepare") == 2


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("create", [DynamicDelegate, PropagatedDelegate])
def test_a_reshape_by_data_is_claimed_and_followed(create: Any, runtime: str) -> None:
    graph = control.dynamic(Bytes.of(bytes(control.size_of(4))), [("float32", ["RELU"])])
    runs = [step for seed in (0, 7, 8) for step in (SetInputs("i0", seed=seed), Invoke("i0"), Read("i0"))]
    trace, _ = carried_out(runtime, create, graph, *runs)
    reads = [step for step in trace.steps if step.cpu]
    assert len({step.outputs[0].shape for step in reads}) > 1
    assert all(step.outputs == step.cpu for step in reads)
    (kernel,) = trace.interpreters[0].kernels
    assert "RESHAPE" in {graph.nodes[index].op for index in kernel.nodes}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_variables_are_held_by_the_delegate(runtime: str) -> None:
    graph = control.stateful(Bytes.of(bytes(control.size_of(8))), [("float32", OPS["float32"])])
    again = [step for seed in (5, 6) for step in (SetInputs("i0", seed=seed), Invoke("i0"), Read("i0"))]
    trace, factory = carried_out(runtime, VariableDelegate, graph, *again)
    assert all(step.outputs == step.cpu for step in trace.steps if step.cpu)
    claimed = {index for kernel in trace.interpreters[0].kernels for index in kernel.nodes}
    assert {"VAR_HANDLE", "ASSIGN_VARIABLE", "READ_VARIABLE"} <= {graph.nodes[i].op for i in claimed}
    assert factory.made[0].errors == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_kernels_of_subgraphs_are_told_apart_and_borrowed_contexts_given_back(runtime: str) -> None:
    data = Bytes.of(bytes(control.size_of(9)))
    graph = control.looping(data, [("float32", ["ABS"])])
    trace, _ = carried_out(runtime, ReferenceDelegate, graph, *RUN)
    seen = trace.interpreters[0]
    assert {kernel.subgraph for kernel in seen.kernels} == {0, 2}
    assert sorted({event.subgraph for event in seen.events if event.kind == "Prepare"}) == [0, 1, 2]
    calls = [(call.index, call.acquire, call.status) for call in seen.subgraph_calls]
    assert calls == [(1, True, 0), (1, False, 0), (2, True, 0), (2, False, 0)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_flags_are_seen_before_and_after_each_prepare(runtime: str) -> None:
    class Changes(ReferenceDelegate):
        def prepare(self, context: int) -> int:
            status = super().prepare(context)
            self._struct.flags = 2
            return status

    assert carried_out(runtime, Changes, CHAIN)[0].interpreters[0].flags == ((0, 2),)
    assert carried_out(runtime, DynamicDelegate, CHAIN)[0].interpreters[0].flags == ((1,),)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_seen_of_many_rounds_is_bounded(runtime: str) -> None:
    few, many = (
        carried_out(runtime, ReferenceDelegate, CHAIN, Repeat(times, (*resized(5), *resized(2))))[0]
        for times in (3, 60)
    )
    assert len(many.interpreters[0].kernels) == len(few.interpreters[0].kernels)
    assert len(msgspec.msgpack.encode(many)) < 1.1 * len(msgspec.msgpack.encode(few))
    rounds = many.steps[len(OPENED)].counted(CallbackCounts).by_kind
    assert rounds["init"] == rounds["free"] == 120
