"""MEM-16, the self-check of the runtime's planner, and the fault of both runtimes that it knows (RT-13)."""

from __future__ import annotations

import struct
from contextlib import closing

import msgspec
import pytest

from pytest_qnn.core import engine
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import Allocate, Invoke, Open, Read, ScriptCase, SetInputs
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import ScriptTrace

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
RULE = catalogue()["MEM-16"]


def ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", data=struct.pack(f"<{len(values)}i", *values))


def reshaped_twice(op: Op = "ADD") -> Graph:
    """LiteRT#8889: a RESHAPE, and its result again behind what is computed in place in the same memory."""
    tens = Tensor((3, 2), data=struct.pack("<6f", *[10.0] * 6))
    flat, wide, high = Tensor((6,)), Tensor((2, 3)), Tensor((3, 2))
    tensors = (flat, flat, ints(2, 3), wide, ints(3, 2), high, tens, high, high, wide)
    nodes = (
        Node("NEG", (0,), (1,)),
        Node("RESHAPE", (1, 2), (3,)),
        Node("RESHAPE", (3, 4), (5,)),
        Node(op, (5, 6), (7,)),
        Node("ABS", (7,), (8,)),
        Node("ABS", (3,), (9,)),
    )
    return Graph(tensors, nodes, (0,), (8, 9))


def by_both(graph: Graph) -> ScriptCase:
    steps = (Open("plain"), Open("preserving", preserve=True))
    for name in ("plain", "preserving"):
        steps = (*steps, Allocate(name), SetInputs(name, 3), Invoke(name), Read(name))
    return ScriptCase((graph,), steps)


def opened(runtime: str, spec: str = "reference") -> DelegateTarget:
    return open_delegate_target([(spec, {})], runtime, "auto", 10.0)


def outputs(trace: ScriptTrace) -> tuple[bool, bool]:
    """Of each of the two outputs: whether both interpreters have the same."""
    plain, preserving = (trace.steps[at].outputs for at in (5, 9))
    first, second = (one == other for one, other in zip(plain, preserving, strict=True))
    return first, second


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(("runtime", "alike"), [(RUNTIMES[0], True), (RUNTIMES[1], False)])
def test_rt_13_a_reshape_of_a_reshape_loses_its_memory_to_an_operator_in_place(
    runtime: str, alike: bool, op: Op
) -> None:
    """The runtime's fault, which 2.14 has with all tensors preserved, too: MEM-16 is red of neither."""
    case = by_both(reshaped_twice(op))
    with closing(opened(runtime)) as target:
        trace = target.run(case)
        held = engine.judge_case(RULE, target, case)
    assert outputs(trace) == (True, alike)
    if alike:
        assert held == Examined(2, "outputs with and without preserve_all_tensors")
    else:
        assert isinstance(held, Unsupported)
        assert "RT-13" in held.reason


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_without_the_other_reader_both_have_right_values(runtime: str) -> None:
    graph = reshaped_twice()
    graph = msgspec.structs.replace(graph, nodes=graph.nodes[:-1], tensors=graph.tensors[:-1], outputs=(8,))
    with closing(opened(runtime)) as target:
        assert isinstance(engine.judge_case(RULE, target, by_both(graph)), Examined)


def test_a_difference_in_any_other_graph_is_a_finding() -> None:
    chain = Graph((Tensor((4,)),) * 3, (Node("NEG", (0,), (1,)), Node("ABS", (0,), (2,))), (0,), (1, 2))
    with closing(opened(RUNTIMES[1], "mutant:recycles-an-output")) as target:
        held = engine.judge_case(RULE, target, by_both(chain))
    assert isinstance(held, Violation)
    assert "t1" in str(held)
    assert "of 16 bytes are others" in str(held)


def test_a_graph_that_is_not_carried_out_is_not_judged() -> None:
    case = by_both(reshaped_twice())
    with closing(opened(RUNTIMES[0])) as target:
        held = engine.judge_case(RULE, target, msgspec.structs.replace(case, steps=case.steps[:-1]))
    assert isinstance(held, Unsupported)
