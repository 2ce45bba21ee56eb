from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
import tflite
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.graph.strategies import graphs

RUNTIMES = [name for name in ("tflite_runtime", "ai_edge_litert") if importlib.util.find_spec(name)]
TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "int32": tflite.TensorType.INT32,
    "int8": tflite.TensorType.INT8,
    "bool": tflite.TensorType.BOOL,
    "resource": tflite.TensorType.RESOURCE,
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
    "LESS": "LessOptions",
    "IF": "IfOptions",
    "WHILE": "WhileOptions",
    "VAR_HANDLE": "VarHandleOptions",
    "READ_VARIABLE": "ReadVariableOptions",
    "ASSIGN_VARIABLE": "AssignVariableOptions",
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


def check_tensor(model: Any, seen: Any, tensor: Tensor, index: int, prefix: str = "") -> None:
    assert seen.Name() == f"{prefix}t{index}".encode()
    assert tuple(listed(seen.ShapeSignatureAsNumpy())) == tensor.signature
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
    number = getattr(tflite.BuiltinOperator, node.op)
    # The old field has one byte; greater numbers are 127 there (schema.fbs, OperatorCode).
    assert (code.BuiltinCode(), code.DeprecatedBuiltinCode()) == (number, min(number, 127))
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
    if node.op == "IF":
        assert (options.ThenSubgraphIndex(), options.ElseSubgraphIndex()) == node.subgraphs
    if node.op == "WHILE":
        assert (options.CondSubgraphIndex(), options.BodySubgraphIndex()) == node.subgraphs
    if node.op == "VAR_HANDLE":
        assert (options.Container(), options.SharedName()) == (b"", node.variable.encode())
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


KINDS = (control.dynamic, control.looping, control.branching, control.stateful)
CHOICES = (("float32", OPS["float32"]), ("int8", OPS["int8"]))


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(KINDS), st.binary(min_size=44, max_size=44))
def test_subgraphs_and_variables_are_read_back_too(kind: Any, data: bytes) -> None:
    graph = kind(control.Bytes.of(data), CHOICES)
    model = read(graph)
    assert model.SubgraphsLength() == 1 + len(graph.subgraphs)
    for number, part in enumerate((graph, *graph.subgraphs)):
        subgraph = model.Subgraphs(number)
        assert subgraph.Name() == (f"sub{number}".encode() if number else b"main")
        assert tuple(listed(subgraph.InputsAsNumpy())) == part.inputs
        assert tuple(listed(subgraph.OutputsAsNumpy())) == part.outputs
        for index, tensor in enumerate(part.tensors):
            check_tensor(model, subgraph.Tensors(index), tensor, index, f"s{number}" if number else "")
        for index, node in enumerate(part.nodes):
            check_operator(model, subgraph.Operators(index), node)


def test_control_edges_are_metadata_of_varints() -> None:
    tensor = Tensor((2,))
    nodes = tuple(Node("ABS", (index,), (index + 1,)) for index in range(130))
    graph = Graph((tensor,) * 131, nodes, (0,), (130,), control_edges=((1, 2), (64, 129)))
    model = read(graph)
    assert model.MetadataLength() == 1
    assert model.Metadata(0).Name() == b"model_control_dependencies"
    contents = model.Buffers(model.Metadata(0).Buffer()).DataAsNumpy().tobytes()
    # Version 1, one subgraph, two edges; each number doubled, in groups of seven bits from the lowest.
    assert contents == bytes((1, 1, 2, 2, 4, 0x80, 0x01, 0x82, 0x02))
    assert read(Graph(graph.tensors, nodes, (0,), (130,))).MetadataLength() == 0


def test_a_shape_signature_is_written_beside_the_quantisation() -> None:
    tensors = (
        Tensor((2, 3), signature=(-1, 3)),
        Tensor((2, 3), "int8", (0.5, 0.25, 1.0), (0, 0, 0), 1, signature=(-1, 3)),
        Tensor((2, 3)),
    )
    model = read(Graph(tensors, (Node("ABS", (0,), (2,)),), (0, 1), (2,)))
    for index, tensor in enumerate(tensors):
        check_tensor(model, model.Subgraphs(0).Tensors(index), tensor, index)


def test_a_subgraph_for_validation_has_the_name_that_keeps_it_from_delegation() -> None:
    plain = Graph((Tensor((2,)), Tensor((2,))), (Node("ABS", (0,), (1,)),), (0,), (1,))
    spared = Graph(plain.tensors, plain.nodes, (0,), (1,), validation=True)
    model = read(Graph(plain.tensors, plain.nodes, (0,), (1,), subgraphs=(plain, spared)))
    assert [model.Subgraphs(n).Name() for n in range(3)] == [b"main", b"sub1", b"VALIDATION:sub2"]


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
