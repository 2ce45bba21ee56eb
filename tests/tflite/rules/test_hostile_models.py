from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Unsupported
from pytest_qnn.isolation.executor import Executing
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.edits import AnyEdit, CustomOperator, StatedOperands
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.target.graphs import Graphs
from pytest_qnn.tflite.trace import ScriptTrace

TENSOR = Tensor((2, 3))
GRAPH = Graph((TENSOR,) * 3, (Node("MAXIMUM", (0, 0), (1,)), Node("RELU", (1,), (2,))), (0,), (2,))


@pytest.fixture(params=["tflite_runtime", "ai_edge_litert"], scope="module")
def target(request: pytest.FixtureRequest) -> Iterator[DelegateTarget]:
    opened = open_delegate_target([("reference:dynamic", {})], request.param, "auto", 20.0)
    yield opened
    opened.close()


def used(*edits: AnyEdit, probe: bool) -> ScriptCase:
    second = (MakeDelegate("p0", "probe", claim=(1,), flags=1),) if probe else ()
    applied = (Apply("i0", "d0"), *((Apply("i0", "p0"),) if probe else ()))
    made = (MakeDelegate("d0"), *second, Open("i0"), *applied, Allocate("i0"))
    use = (SetInputs("i0", 1), Invoke("i0"), Read("i0"))
    return ScriptCase((GRAPH, GRAPH), (*made, *use), edits=edits)


def test_a_custom_operator_that_a_probe_computes_gives_results(target: DelegateTarget) -> None:
    trace = target.run(used(CustomOperator(1, "UnknownRELU"), probe=True))
    assert [seen.ok for seen in trace.steps] == [True] * len(trace.steps)
    assert trace.steps[-1].outputs
    assert not trace.steps[-1].cpu  # the CPU alone refuses the model


def test_a_custom_operator_that_nobody_computes_is_refused(target: DelegateTarget) -> None:
    trace = target.run(used(CustomOperator(1, "UnknownOperator"), probe=True))
    assert "custom op: UnknownOperator" in trace.steps[5].message


def test_a_model_of_which_the_runtime_dies_alone_is_nobodys_fault(target: DelegateTarget) -> None:
    shape = Tensor((1,), "int32", data=b"\x06\0\0\0")
    graph = Graph((TENSOR, shape, Tensor((6,))), (Node("RESHAPE", (0, 1), (2,)),), (0,), (2,))
    steps = (MakeDelegate("d0", claim=()), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    case = ScriptCase((graph, graph), steps, edits=(StatedOperands(0, (0, -1)),))
    trace = target.run(case)
    assert trace.died_alone
    with pytest.raises(Unsupported, match="without any delegate"):
        catalogue()["HOS-02"].check(case, trace)


class _DiesAtItsStart:
    """Every process dies while it is made ready with the delegate, before a step of a case."""

    def run(self, case: Any, *, guarded: bool = False) -> Death:
        return Death("signal", f"SIGABRT of {'a child for ' if guarded else ''}{type(case).__name__}")


def test_a_process_that_dies_before_the_case_is_not_the_runtimes_fault() -> None:
    graphs = Graphs(cast("Executing", _DiesAtItsStart()), DelegateFacts(delegates=("reference",)), {})
    trace = graphs.run(used(StatedOperands(0, (0, -1)), probe=False))
    assert not trace.died_alone
    assert trace.death.detail == "SIGABRT of a child for ScriptCase"


@pytest.mark.parametrize("rule", ["HOS-01", "HOS-02", "HOS-03"])
def test_a_trace_in_which_nothing_was_seen_is_unsupported(rule: str) -> None:
    with pytest.raises(Unsupported):
        catalogue()[rule].check(used(probe=False), ScriptTrace(died_alone=True))
