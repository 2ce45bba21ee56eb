from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from qnn_mini import Client, operation, raw, tensor

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import DataType, EncodingDefinition, QuantizationEncoding, TensorType
from pytest_qnn.qnn.reference.backend import ReferenceBackend, ServedBackend
from pytest_qnn.qnn.reference.binaries import Binary, StoredGraph, decode, encode
from pytest_qnn.qnn.reference.objects import Encoding, Node, Parameters, Tensor, bytes_of
from pytest_qnn.qnn.reference.operators import table
from pytest_qnn.qnn.reference.operators.values import STORED, load, store
from pytest_qnn.qnn.reference.system import encode as describe

F32, I32, U32, BOOL = DataType.FLOAT_32, DataType.INT_32, DataType.UINT_32, DataType.BOOL_8
U8, S8, U16 = DataType.UFIXED_POINT_8, DataType.SFIXED_POINT_8, DataType.UFIXED_POINT_16
ALL = frozenset({int(F32), int(U8)})
IN, OUT, STATIC = TensorType.APP_WRITE, TensorType.APP_READ, TensorType.STATIC


def made(name: int, shape: tuple[int, ...], data_type: int = F32, **more: Any) -> Tensor:
    fields = {"scale": 1.0, "offset": 0, "mem_type": 0, "size": bytes_of(shape, data_type), **more}
    return Tensor(name, str(name), int(TensorType.NATIVE), data_type, shape, **fields)


def constant(values: Any, data_type: int = U32) -> Tensor:
    stored = np.asarray(values).astype(STORED[data_type])
    return made(0, stored.shape, data_type, data=stored.tobytes())


def computed(name: str, values: list[Any], out: Tensor, **parameters: Any) -> list[float]:
    """What the operator makes of floats."""
    arrays = [np.asarray(each, np.float32) for each in values]
    inputs = [made(at + 1, each.shape) for at, each in enumerate(arrays)]
    assert table.takes(name, inputs, [out], parameters, ALL)
    stored = {at + 1: np.frombuffer(each.tobytes(), np.uint8) for at, each in enumerate(arrays)}
    (result,) = table.results(name, inputs, [out], parameters, stored)
    kept: list[float] = load(out, store(out, result)).ravel().tolist()
    return kept


A, B = [7.0, -6.0, 2.0, 0.5], [2.0, 4.0, 2.0, -0.25]
BINARY: dict[int, Callable[[float, float], float]] = {
    0: operator.add,
    2: operator.truediv,
    4: operator.floordiv,
    5: math.fmod,
    10: max,
    11: min,
    12: operator.mod,
    13: operator.mul,
    17: lambda a, b: (a - b) ** 2,
    18: operator.sub,
}
COMPARED: dict[int, Callable[[float, float], bool]] = {
    3: operator.eq,
    6: operator.gt,
    7: operator.ge,
    8: operator.lt,
    9: operator.le,
    14: operator.ne,
}


@pytest.mark.parametrize("number", BINARY)
def test_every_operation_of_two_numbers(number: int) -> None:
    found = computed("ElementWiseBinary", [A, B], made(9, (4,)), operation=number)
    assert found == [BINARY[number](a, b) for a, b in zip(A, B, strict=True)]


@pytest.mark.parametrize("number", COMPARED)
def test_every_comparison(number: int) -> None:
    found = computed("ElementWiseBinary", [A, B], made(9, (4,), BOOL), operation=number)
    assert found == [COMPARED[number](a, b) for a, b in zip(A, B, strict=True)]


def test_powers_and_logic() -> None:
    assert computed("ElementWiseBinary", [[2, 3], [3, 2]], made(9, (2,)), operation=16) == [8, 9]
    truths = [made(1, (4,), BOOL), made(2, (4,), BOOL)]
    stored = {1: np.array([0, 0, 1, 1], np.uint8), 2: np.array([0, 1, 0, 1], np.uint8)}
    for number, wanted in ((1, [0, 0, 0, 1]), (15, [0, 1, 1, 1]), (19, [0, 1, 1, 0])):
        (found,) = table.results("ElementWiseBinary", truths, truths[:1], {"operation": number}, stored)
        assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("number", "values", "wanted"),
    [
        (0, [-1.5, 2], [1.5, 2]),
        (1, [1.0], [math.asin(1)]),
        (2, [1.0], [math.atan(1)]),
        (3, [1.25, -1.25], [2, -1]),
        (4, [0.0], [1]),
        (5, [1.0], [math.e]),
        (6, [1.25, -1.25], [1, -2]),
        (7, [math.e], [1]),
        (8, [3.0, -2], [-3, 2]),
        (10, [4.0, -0.5], [0.25, -2]),
        (11, [0.5, 1.5, -0.5, 2.6], [0, 2, 0, 3]),
        (12, [4.0, 0.25], [0.5, 2]),
        (13, [-3.0, 0, 3], [-1, 0, 1]),
        (14, [math.pi / 2], [1]),
        (15, [9.0], [3]),
    ],
)
def test_every_operation_of_one_number(number: int, values: list[float], wanted: list[float]) -> None:
    found = computed("ElementWiseUnary", [values], made(9, (len(values),)), operation=number)
    assert found == pytest.approx(wanted, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(
    ("number", "more", "wanted"),
    [
        (0, {"alpha": 2.0}, [2 * math.expm1(-1), 0, 3]),
        (1, {}, [-(1 + math.erf(-(2**-0.5))) / 2, 0, 3 * (1 + math.erf(3 * 2**-0.5)) / 2]),
        (2, {"alpha": 0.25, "beta": 0.5}, [0.25, 0.5, 1]),
        (3, {}, [-1 / 3, 0, 3]),
        (4, {}, [0, 0, 3]),
        (5, {"min_value": -0.5, "max_value": 2.0}, [-0.5, 0, 2]),
        (6, {}, [1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-3))]),
        (7, {}, [math.log1p(math.exp(-1)), math.log(2), math.log1p(math.exp(3))]),
        (8, {}, [math.tanh(-1), 0, math.tanh(3)]),
    ],
)
def test_every_activation(number: int, more: dict[str, float], wanted: list[float]) -> None:
    found = computed("ElementWiseNeuron", [[-1.0, 0, 3]], made(9, (3,)), operation=number, **more)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "inputs", "output", "parameters"),
    [
        ("Softmin", [(2,)], (2,), {}),
        ("Softmax", [(2,)], (3,), {}),
        ("Softmax", [(2,)], (2,), {"axis": 1}),
        ("Softmax", [(2,)], (2,), {"temperature": 1.0}),
        ("Softmax", [(2,), (2,)], (2,), {}),
        ("ElementWiseBinary", [(2,), (2,)], (2,), {}),
        ("ElementWiseBinary", [(2,), (2,)], (2,), {"operation": 77}),
        ("ElementWiseDivide", [(2,), (3,)], (3,), {}),
        ("Transpose", [(2, 3)], (3, 2), {"perm": constant([0, 0])}),
        ("Transpose", [(2, 3)], (3, 2), {}),
        ("Conv2d", [(1, 4, 4, 2), (3, 3, 3, 4)], (1, 2, 2, 4), {"stride": constant([1, 1])}),
        ("MatMul", [(2, 3), (4, 5)], (2, 5), {}),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], parameters: Parameters
) -> None:
    tensors = [made(at + 1, shape) for at, shape in enumerate(inputs)]
    assert not table.takes(name, tensors, [made(9, output)], parameters, ALL)


def test_data_types_must_fit_and_be_taken_by_the_personality() -> None:
    floats, fixed, truths = made(1, (2,)), made(2, (2,), U16), made(3, (2,), BOOL)
    assert table.takes("Quantize", [floats], [fixed], {}, ALL)
    assert not table.takes("Quantize", [fixed], [floats], {}, ALL)
    assert not table.takes("Tanh", [floats], [fixed], {}, ALL)
    assert not table.takes("Tanh", [truths], [truths], {}, ALL)
    assert table.takes("Tanh", [fixed], [fixed], {}, ALL)
    assert not table.takes("Tanh", [fixed], [fixed], {}, frozenset({int(F32)}))
    assert not table.takes("Tanh", [floats], [floats], {}, frozenset({int(U8)}))


def test_indices_outside_are_refused() -> None:
    inputs = [made(1, (3, 2)), made(2, (1,), I32, data=np.array([3], "<i4").tobytes())]
    assert not table.takes("Gather", inputs, [made(9, (1, 2))], {"axis": 0}, ALL)
    inputs[1].data = np.array([-3], "<i4").tobytes()
    assert table.takes("Gather", inputs, [made(9, (1, 2))], {"axis": 0}, ALL)


def test_scales_of_an_axis_and_narrow_numbers() -> None:
    axis = made(1, (2, 2), S8, encoding=Encoding(1, (0.5, 2.0), (0, -1)))
    stored = np.array([[4, 3], [-2, 1]], np.int8).view(np.uint8)
    assert load(axis, stored.ravel()).tolist() == [[2, 4], [-1, 0]]
    assert store(axis, load(axis, stored.ravel())).tolist() == stored.ravel().tolist()
    narrow = made(1, (3,), S8, scale=0.5, encoding=Encoding(bits=4))
    assert load(narrow, np.array([0x07, 0x08, 0xF1], np.uint8)).tolist() == [3.5, -4, 0.5]


def test_a_binary_keeps_parameters_and_encodings_and_a_plain_one_has_none() -> None:
    weights = made(1, (2,), S8, encoding=Encoding(0, (0.5, 0.25), (0, 0), 4), data=b"\1\2")
    node = Node("Softmax", (1,), (2,), {"axis": 1, "beta": 1.0, "flag": True, "perm": constant([1, 0])})
    graph = StoredGraph("g", (weights,), (node, Node("Relu", (1,), (2,))))
    (kept,) = decode(encode(Binary(b"b", (graph,)))).graphs
    assert kept.tensors[0].encoding == weights.encoding
    first, second = kept.nodes
    assert not isinstance(first.parameters, msgspec.UnsetType)
    assert {name: first.parameters[name] for name in ("axis", "beta", "flag")} == {
        "axis": 1,
        "beta": 1.0,
        "flag": True,
    }
    perm = first.parameters["perm"]
    assert isinstance(perm, Tensor)
    assert perm.data == constant([1, 0]).data
    assert second.parameters is msgspec.UNSET
    plain = encode(Binary(b"b", (StoredGraph("g", (made(1, (2,)),), (Node("Relu", (1,), (2,)),)),)))
    assert b"parameters" not in plain
    assert b"encoding" not in plain


@pytest.mark.parametrize(
    ("encoding", "wanted"),
    [
        (msgspec.UNSET, QuantizationEncoding.SCALE_OFFSET),
        (Encoding(0, (0.5, 0.25), (3, 4)), QuantizationEncoding.AXIS_SCALE_OFFSET),
        (Encoding(bits=4), QuantizationEncoding.BW_SCALE_OFFSET),
        (Encoding(0, (0.5, 0.25), (3, 4), 4), QuantizationEncoding.BW_AXIS_SCALE_OFFSET),
    ],
)
def test_clients_read_the_encoding_that_they_gave(encoding: Any, wanted: int) -> None:
    given = made(1, (2,), S8, scale=0.125, offset=-7, encoding=encoding)
    struct = tensor("x", OUT, (2,), S8)
    kept = describe(struct.v1.quantizeParams, given)
    assert struct.v1.quantizeParams.encodingDefinition == EncodingDefinition.DEFINED
    assert struct.v1.quantizeParams.quantizationEncoding == wanted
    backend = ReferenceBackend()
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    assert client.api.tensorCreateGraphTensor(graph, struct) == 0
    (read,) = backend.graphs[graph].tensors.values()
    assert read.encoding == encoding
    if encoding is msgspec.UNSET or encoding.axis < 0:
        assert (read.scale, read.offset) == (0.125, -7)
    del kept
    backend.close()


def test_a_parameter_reaches_the_operator_and_its_data_is_copied() -> None:
    backend = ReferenceBackend()
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    a, out = tensor("a", IN, (2, 3), F32), tensor("o", OUT, (3, 2), F32)
    perm = tensor("p", STATIC, (2,), U32)
    data = raw(np.array([1, 0], "<u4").tobytes())
    perm.v1.clientBuf.data, perm.v1.clientBuf.dataSize = ctypes.addressof(data), 8
    for each in (a, out):
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    config = operation("Transpose", [a], [out])
    parameters = (layouts.Param * 1)(layouts.Param(paramType=1, name=b"perm", tensorParam=perm))
    assert client.api.graphAddNode(graph, config) == 6005
    config.v1.numOfParams, config.v1.params = 1, parameters
    assert client.api.graphAddNode(graph, config) == 0
    data[:] = b"\xff" * 8
    assert client.api.graphFinalize(graph, None, None) == 0
    output = raw(bytes(24))
    assert client.execute(graph, [a, out], [raw(np.arange(6, dtype="<f4").tobytes()), output]) == 0
    assert np.frombuffer(output.raw, "<f4").tolist() == [0, 3, 1, 4, 2, 5]
    assert backend.escaped == []
    backend.close()


def test_an_index_outside_that_only_an_input_shows_fails_the_execution() -> None:
    backend = ReferenceBackend()
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    tensors = [tensor("a", IN, (3,), F32), tensor("i", IN, (2,), I32), tensor("o", OUT, (2,), F32)]
    for each in tensors:
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    assert client.api.graphAddNode(graph, operation("Gather", tensors[:2], tensors[2:])) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    data, output = raw(np.array([5, 6, 7], "<f4").tobytes()), raw(bytes(8))
    for indices, code in (([2, 0], 0), ([3, 0], 1100)):
        given = raw(np.array(indices, "<i4").tobytes())
        assert client.execute(graph, tensors, [data, given, output]) == code
    assert np.frombuffer(output.raw, "<f4").tolist() == [7, 5]
    assert backend.escaped == []
    backend.close()


def test_the_library_has_the_versions_that_clients_want() -> None:
    backend = ServedBackend()
    client = Client(backend.get_providers)
    version = layouts.ApiVersion()
    assert client.api.backendGetApiVersion(version) == 0
    core, own = version.coreApiVersion, version.backendApiVersion
    assert (core.major, core.minor, core.patch) == (2, 40, 0)
    assert (own.major, own.minor) >= (5, 50)
    backend.close()
