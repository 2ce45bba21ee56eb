from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.valid import check_graph
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.control import Bytes
from pytest_qnn.tflite.graph.elastic import leading
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.numerics.bounds import expected_outputs
from pytest_qnn.tflite.numerics.flat import flattened
from pytest_qnn.tflite.runtime.runtime import load_runtime

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
KINDS = (
    control.elastic,
    control.dynamic,
    control.looping,
    control.branching,
    control.stateful,
)
CHOICES = (("float32", OPS["float32"]), ("int8", OPS["int8"]))
DATA = st.binary(min_size=control.size_of(10), max_size=control.size_of(10))
T, I32 = Tensor((2,)), Tensor((1,), "int32")


def number(value: int) -> Tensor:
    return Tensor((1,), "int32", data=struct.pack("<i", value))


def counting(start: int, step: int, limit: int | None) -> Graph:
    """x doubled as often as the counter goes from ``start`` to the limit, an input if it is None."""
    decision = Tensor((1,), "bool")
    if limit is None:
        condition = Graph((I32, I32, T, decision), (Node("LESS", (0, 1), (3,)),), (0, 1, 2), (3,))
    else:
        tensors = (I32, I32, T, decision, number(limit))
        condition = Graph(tensors, (Node("LESS", (0, 4), (3,)),), (0, 1, 2), (3,))
    nodes = (Node("ADD", (0, 3), (4,)), Node("ADD", (2, 2), (5,)))
    body = Graph((I32, I32, T, number(step), I32, T), nodes, (0, 1, 2), (4, 1, 5))
    tensors = (I32, T, number(start), I32, I32, T)
    loop = Node("WHILE", (2, 0, 1), (3, 4, 5), subgraphs=(1, 2))
    return Graph(tensors, (loop,), (0, 1), (5,), subgraphs=(condition, body))


def run(runtime: str, graph: Graph, inputs: list[Any]) -> list[Any]:
    interpreter = load_runtime(runtime).interpreter(emit(graph))
    for index, value in zip(graph.inputs, inputs, strict=True):
        if value.shape != graph.tensors[index].shape:
            interpreter.resize_tensor_input(index, value.shape)
    interpreter.allocate_tensors()
    for index, value in zip(graph.inputs, inputs, strict=True):
        interpreter.set_tensor(index, value)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in graph.outputs]


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(KINDS), DATA)
def test_every_generated_graph_is_one_that_a_case_file_may_hold(kind: Any, data: bytes) -> None:
    check_graph(kind(Bytes.of(data), CHOICES))


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(RUNTIMES), st.sampled_from(KINDS), DATA, st.integers(0, 200))
def test_the_runtimes_give_what_the_flat_graph_gives(runtime: str, kind: Any, data: bytes, seed: int) -> None:
    graph = kind(Bytes.of(data), CHOICES)
    inputs = inputs_of(DelegateCase(graph, data_seed=seed))
    seen = run(runtime, graph, inputs)
    for expected, output in zip(expected_outputs(flattened(graph, inputs), inputs), seen, strict=True):
        assert output.shape == expected.value.shape
        assert (np.abs(output.astype(np.float64) - expected.value) <= expected.tolerance + 1e-30).all()


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(RUNTIMES), DATA, st.integers(1, 40))
def test_an_elastic_graph_takes_any_leading_dimension(runtime: str, data: bytes, length: int) -> None:
    graph = control.elastic(Bytes.of(data), CHOICES)
    tensors = list(graph.tensors)
    for index, shape in zip(graph.inputs, leading(graph, length), strict=True):
        tensors[index] = msgspec.structs.replace(tensors[index], shape=shape)
    inputs = inputs_of(DelegateCase(msgspec.structs.replace(graph, tensors=tuple(tensors)), data_seed=3))
    flat = flattened(graph, inputs)
    seen = run(runtime, graph, inputs)
    assert [output.shape for output in seen] == [flat.tensors[index].shape for index in flat.outputs]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("start", "turns"), [(0, 4), (1, 3), (4, 0), (5, 0)])
def test_a_loop_is_written_out_as_often_as_it_goes_round(runtime: str, start: int, turns: int) -> None:
    graph = counting(start, 1, None)
    inputs = [np.array([4], np.int32), np.array([1.0, 3.0], np.float32)]
    assert len(flattened(graph, inputs).nodes) == turns
    assert run(runtime, graph, inputs)[0].tolist() == [2.0**turns, 3 * 2.0**turns]


def test_a_variable_is_what_was_assigned_last() -> None:
    handle = Tensor((1,), "resource")
    nodes = (
        Node("VAR_HANDLE", (), (1,), variable="v0"),
        Node("ASSIGN_VARIABLE", (1, 0), ()),
        Node("READ_VARIABLE", (1,), (2,)),
        Node("NEG", (2,), (3,)),
        Node("ASSIGN_VARIABLE", (1, 3), ()),
        Node("READ_VARIABLE", (1,), (4,)),
    )
    graph = Graph((T, handle, T, T, T), nodes, (0,), (2, 4))
    inputs = [np.array([1.0, 2.0], np.float32)]
    flat = flattened(graph, inputs)
    assert [node.op for node in flat.nodes] == ["NEG"]
    assert flat.outputs == (flat.inputs[0], flat.nodes[0].outputs[0])
    for runtime in RUNTIMES:
        assert [output.tolist() for output in run(runtime, graph, inputs)] == [[1, 2], [-1, -2]]


@pytest.mark.parametrize(
    ("start", "step", "limit", "words"),
    [(-1, 1, 3, "begins"), (0, 0, 3, "a turn counts"), (0, -1, 3, "a turn counts"), (0, 1, 10**6, "limit")],
)
def test_a_loop_that_might_not_end_is_refused(start: int, step: int, limit: int, words: str) -> None:
    check_graph(counting(0, 1, 3))
    with pytest.raises(BadCase, match=words):
        check_graph(counting(start, step, limit))


def test_a_loop_that_changes_its_limit_is_refused() -> None:
    graph = counting(0, 1, None)
    condition, body = graph.subgraphs
    nodes = (*body.nodes, Node("ADD", (1, 3), (6,)))
    moving = msgspec.structs.replace(body, tensors=(*body.tensors, I32), nodes=nodes, outputs=(4, 6, 5))
    with pytest.raises(BadCase, match="changes its limit"):
        check_graph(msgspec.structs.replace(graph, subgraphs=(condition, moving)))


def test_a_subgraph_that_calls_is_refused() -> None:
    graph = counting(0, 1, 3)
    condition, body = graph.subgraphs
    calling = msgspec.structs.replace(body, nodes=(*body.nodes[:1], graph.nodes[0]))
    with pytest.raises(BadCase, match="calls another"):
        check_graph(msgspec.structs.replace(graph, subgraphs=(condition, calling)))


def test_a_variable_read_before_it_is_assigned_is_refused() -> None:
    handle = Tensor((1,), "resource")
    nodes = (Node("VAR_HANDLE", (), (0,), variable="v0"), Node("READ_VARIABLE", (0,), (1,)))
    with pytest.raises(BadCase, match="before it is assigned"):
        check_graph(Graph((handle, T), nodes, (), (1,)))


def test_a_signature_that_contradicts_the_shape_is_refused() -> None:
    nodes = (Node("ABS", (0,), (1,)),)
    check_graph(Graph((Tensor((2,), signature=(-1,)), T), nodes, (0,), (1,)))
    with pytest.raises(BadCase, match="shape signature"):
        check_graph(Graph((Tensor((2,), signature=(3,)), T), nodes, (0,), (1,)))


def test_control_edges_that_run_backwards_are_refused() -> None:
    nodes = (Node("ABS", (0,), (1,)), Node("ABS", (0,), (2,)))
    check_graph(Graph((T, T, T), nodes, (0,), (1, 2), control_edges=((0, 1),)))
    with pytest.raises(BadCase, match="backwards"):
        check_graph(Graph((T, T, T), nodes, (0,), (1, 2), control_edges=((1, 0),)))


def test_graphs_written_before_there_were_subgraphs_are_read_as_before() -> None:
    old = b'{"tensors":[{"shape":[2]},{"shape":[2]}],"nodes":[{"op":"ABS","inputs":[0],"outputs":[1]}],'
    old += b'"inputs":[0],"outputs":[1]}'
    graph = msgspec.json.decode(old, type=Graph)
    assert graph == Graph((T, T), (Node("ABS", (0,), (1,)),), (0,), (1,))
    assert b"subgraphs" not in msgspec.json.encode(graph)
