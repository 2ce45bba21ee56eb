from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
import tflite
from hypothesis import given, settings

from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.graphs import graphs
from pytest_qnn.cases.model import emit

RUNTIMES = [name for name in ("tflite_runtime", "ai_edge_litert") if importlib.util.find_spec(name)]
TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "int32": tflite.TensorType.INT32,
    "int8": tflite.TensorType.INT8,
}
ACTIVATIONS = {
    "NONE": tflite.ActivationFunctionType.NONE,
    "RELU": tflite.ActivationFunctionType.RELU,
    "RELU6": tflite.ActivationFunctionType.RELU6,
}
OPTIONS = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "ABS": "AbsOptions",
    "NEG": "NegOptions",
    "RESHAPE": "ReshapeOptions",
    "CONCATENATION": "ConcatenationOptions",
    "MEAN": "ReducerOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "CONV_2D": "Conv2DOptions",
}


def read(graph: Graph) -> Any:
    return tflite.Model.GetRootAs(emit(graph), 0)


def listed(vector: Any) -> list[Any]:
    return vector.tolist() if isinstance(vector, np.ndarray) else []


def options_of(operator: Any, name: str) -> Any:
    table = operator.BuiltinOptions()
    options = getattr(tflite, name)()
    options.Init(table.Bytes, table.Pos)
    return options


def check_tensor(model: Any, seen: Any, tensor: Tensor, index: int) -> None:
    assert seen.Name() == f"t{index}".encode()
    assert tuple(listed(seen.ShapeAsNumpy())) == tensor.shape
    assert seen.Type() == TYPES[tensor.dtype]
    assert not seen.IsVariable()
    if tensor.data is None:
        assert seen.Buffer() == 0
    else:
        assert model.Buffers(seen.Buffer()).DataAsNumpy().tobytes() == tensor.data
    quantisation = seen.Quantization()
    assert (quantisation is None) == (not tensor.scales)
    if quantisation is not None:
        assert tuple(listed(quantisation.ScaleAsNumpy())) == tensor.scales
        assert tuple(listed(quantisation.ZeroPointAsNumpy())) == tensor.zero_points
        assert quantisation.QuantizedDimension() == tensor.axis


def check_operator(model: Any, seen: Any, node: Node) -> None:
    code = model.OperatorCodes(seen.OpcodeIndex())
    assert code.BuiltinCode() == code.DeprecatedBuiltinCode() == getattr(tflite.BuiltinOperator, node.op)
    assert tuple(listed(seen.InputsAsNumpy())) == node.inputs
    assert tuple(listed(seen.OutputsAsNumpy())) == node.outputs
    if node.op not in OPTIONS:
        assert seen.BuiltinOptionsType() == tflite.BuiltinOptions.NONE
        return
    assert seen.BuiltinOptionsType() == getattr(tflite.BuiltinOptions, OPTIONS[node.op])
    options = options_of(seen, OPTIONS[node.op])
    if hasattr(options, "FusedActivationFunction"):
        assert options.FusedActivationFunction() == ACTIVATIONS[node.activation]
    if node.op == "CONCATENATION":
        assert options.Axis() == node.axis
    if node.op == "MEAN":
        assert options.KeepDims() == node.keep_dims
    if node.op == "CONV_2D":
        assert options.Padding() == (tflite.Padding.SAME if node.same_padding else tflite.Padding.VALID)
        assert (options.StrideH(), options.StrideW()) == node.stride
        assert (options.DilationHFactor(), options.DilationWFactor()) == node.dilation


@settings(deadline=None, max_examples=100)
@given(graphs(max_nodes=30))
def test_an_independent_schema_library_reads_back_what_was_emitted(graph: Graph) -> None:
    model = read(graph)
    assert model.Version() == 3
    assert model.SubgraphsLength() == 1
    subgraph = model.Subgraphs(0)
    assert subgraph.Name() == b"main"
    assert tuple(listed(subgraph.InputsAsNumpy())) == graph.inputs
    assert tuple(listed(subgraph.OutputsAsNumpy())) == graph.outputs
    assert subgraph.TensorsLength() == len(graph.tensors)
    for index, tensor in enumerate(graph.tensors):
        check_tensor(model, subgraph.Tensors(index), tensor, index)
    assert subgraph.OperatorsLength() == len(graph.nodes)
    for index, node in enumerate(graph.nodes):
        check_operator(model, subgraph.Operators(index), node)


@settings(deadline=None, max_examples=50)
@given(graphs(max_nodes=30))
def test_constants_have_their_own_aligned_buffers_and_buffer_0_is_empty(graph: Graph) -> None:
    model = read(graph)
    assert model.Buffers(0).DataLength() == 0
    used = [model.Subgraphs(0).Tensors(i).Buffer() for i, t in enumerate(graph.tensors) if t.data is not None]
    assert used == list(range(1, model.BuffersLength()))
    for index in used:
        data = model.Buffers(index)
        start = data._tab.Vector(data._tab.Offset(4))
        assert start % 16 == 0


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_runtime_loads_and_allocates_every_generated_model(runtime: str) -> None:
    interpreter_class = importlib.import_module(f"{runtime}.interpreter").Interpreter

    @settings(deadline=None, max_examples=150)
    @given(graphs(max_nodes=40))
    def loads(graph: Graph) -> None:
        interpreter = interpreter_class(model_content=emit(graph))
        interpreter.allocate_tensors()
        seen = [detail["index"] for detail in interpreter.get_output_details()]
        assert tuple(seen) == graph.outputs
        for detail in interpreter.get_output_details():
            tensor = graph.tensors[detail["index"]]
            assert tuple(detail["shape"].tolist()) == tensor.shape
            assert np.dtype(detail["dtype"]).name == tensor.dtype
            assert detail["name"] == f"t{detail['index']}"

    loads()


def test_int8_operators_carry_the_version_that_allows_int8() -> None:
    quantised = Tensor((2,), "int8", (0.5,), (0,))
    graph = Graph((quantised, quantised), (Node("ADD", (0, 0), (1,)),), (0,), (1,))
    plain = Graph((Tensor((2,)), Tensor((2,))), graph.nodes, (0,), (1,))
    assert [read(graph).OperatorCodes(0).Version(), read(plain).OperatorCodes(0).Version()] == [2, 1]


def test_one_operator_in_both_types_has_two_operator_codes() -> None:
    quantised = Tensor((2,), "int8", (0.5,), (0,))
    tensors = (quantised, quantised, Tensor((2,)), Tensor((2,)))
    graph = Graph(tensors, (Node("RELU", (0,), (1,)), Node("RELU", (2,), (3,))), (0, 2), (1, 3))
    assert read(graph).OperatorCodesLength() == 2


def test_names_stay_unique_beyond_a_thousand_tensors() -> None:
    count = 1200
    nodes = tuple(Node("RELU", (i,), (i + 1,)) for i in range(count))
    graph = Graph((Tensor((1,)),) * (count + 1), nodes, (0,), (count,))
    subgraph = read(graph).Subgraphs(0)
    assert len({subgraph.Tensors(i).Name() for i in range(count + 1)}) == count + 1


def test_an_absent_operand_is_written_as_minus_one() -> None:
    tensors = (Tensor((1, 2)), Tensor((3, 2), data=bytes(24)), Tensor((1, 3)))
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, -1), (2,)),), (0,), (2,))
    assert listed(read(graph).Subgraphs(0).Operators(0).InputsAsNumpy()) == [0, 1, -1]
