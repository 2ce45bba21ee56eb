"""The numbers of the reference's operators, driven through its interface table."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from qnn_mini import F32, Client, operation, raw, tensor

from pytest_qnn.qnn.abi.codes import TensorType
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES

IN, OUT, NATIVE, STATIC = TensorType.APP_WRITE, TensorType.APP_READ, TensorType.NATIVE, TensorType.STATIC


@pytest.fixture
def backend() -> Iterator[ReferenceBackend]:
    made = ReferenceBackend()
    yield made
    made.close()
    assert made.escaped == []


def run(backend: ReferenceBackend, operator: str, tensors: list[Any], inputs: list[Any]) -> bytes:
    client = Client(backend.get_providers)
    graph, made = client.graph(client.context(), operator, tensors)
    size = math.prod(made[-1].v1.dimensions[: made[-1].v1.rank]) * (4 if made[-1].v1.dataType == F32 else 1)
    output = raw(b"\xee" * size)
    assert client.execute(graph, made, [raw(np.asarray(each).tobytes()) for each in inputs] + [output]) == 0
    return output.raw


def test_quantised_add_rounds_halves_up(backend: ReferenceBackend) -> None:
    a = np.arange(256, dtype=np.uint8)
    b = np.ones(256, np.uint8)
    tensors = [
        tensor("a", IN, (256,), scale=0.5),
        tensor("b", IN, (256,), scale=0.5),
        tensor("o", OUT, (256,), scale=1),
    ]
    seen = np.frombuffer(run(backend, "ElementWiseAdd", tensors, [a, b]), np.uint8)
    assert seen.tolist() == [(q + 2) // 2 for q in range(256)]


def test_quantised_results_saturate_at_both_ends(backend: ReferenceBackend) -> None:
    a, b = np.array([255, 0], np.uint8), np.array([255, 255], np.uint8)
    tensors = [tensor(name, IN, (2,), scale=1) for name in "ab"]
    tensors.append(tensor("o", OUT, (2,), scale=0.5, offset=10))
    assert run(backend, "ElementWiseSubtract", tensors, [a, b]) == bytes([0, 0])
    assert run(backend, "ElementWiseAdd", tensors, [a, b]) == bytes([255, 255])


def test_offsets_are_added_before_scaling(backend: ReferenceBackend) -> None:
    tensors = [
        tensor("a", IN, (2,), scale=0.25, offset=-100),
        tensor("b", IN, (2,), scale=0.5, offset=-10),
        tensor("o", OUT, (2,), scale=0.25, offset=-20),
    ]
    a, b = np.array([104, 96], np.uint8), np.array([12, 14], np.uint8)
    assert run(backend, "ElementWiseMultiply", tensors, [a, b]) == bytes([24, 12])


@pytest.mark.parametrize(
    ("operator", "function"),
    [("ElementWiseAdd", np.add), ("ElementWiseMultiply", np.multiply), ("ElementWiseSubtract", np.subtract)],
)
def test_float_arithmetic_is_numpys(backend: ReferenceBackend, operator: str, function: Any) -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 2, 3, 4)).astype(np.float32)
    tensors = [tensor(name, kind, (2, 3, 4), F32) for name, kind in (("a", IN), ("b", IN), ("o", OUT))]
    assert run(backend, operator, tensors, [a, b]) == function(a, b).tobytes()


def test_relu_cuts_at_real_zero_for_both_types(backend: ReferenceBackend) -> None:
    quantised = [tensor("a", IN, (3,), scale=0.1, offset=-10), tensor("o", OUT, (3,), scale=0.1, offset=0)]
    assert run(backend, "Relu", quantised, [np.array([5, 10, 12], np.uint8)]) == bytes([0, 0, 2])
    floats = [tensor("a", IN, (2,), F32), tensor("o", OUT, (2,), F32)]
    assert run(backend, "Relu", floats, [np.array([-1, 2], np.float32)]) == np.array([0, 2], "f4").tobytes()


def test_reshape_keeps_the_bytes(backend: ReferenceBackend) -> None:
    data = np.arange(8, dtype=np.uint8)
    tensors = [tensor("a", IN, (2, 4), offset=-3), tensor("o", OUT, (8,), offset=-3)]
    assert run(backend, "Reshape", tensors, [data]) == data.tobytes()


def test_overflow_is_infinite_and_no_failure(backend: ReferenceBackend) -> None:
    tensors = [tensor(name, kind, (1,), F32) for name, kind in (("a", IN), ("b", IN), ("o", OUT))]
    big = np.array([3e38], np.float32)
    assert run(backend, "ElementWiseAdd", tensors, [big, big]) == np.array([np.inf], "f4").tobytes()


def test_inner_tensors_are_stored_in_their_own_encoding(backend: ReferenceBackend) -> None:
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    a, middle = tensor("a", IN, (2,), scale=0.1), tensor("m", NATIVE, (2,), scale=1)
    out = tensor("o", OUT, (2,), scale=0.1)
    for each in (a, middle, out):
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    assert client.api.graphAddNode(graph, operation("ElementWiseAdd", [a, a], [middle])) == 0
    assert client.api.graphAddNode(graph, operation("Relu", [middle], [out])) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    output = raw(b"\0\0")
    assert client.execute(graph, [a, out], [raw(bytes([4, 6])), output]) == 0
    assert output.raw == bytes([10, 10])


def test_constants_are_copied_at_creation(backend: ReferenceBackend) -> None:
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    a, constant, out = (
        tensor(name, kind, (4,), F32) for name, kind in (("a", IN), ("c", STATIC), ("o", OUT))
    )
    data = raw(np.full(4, 2, "f4").tobytes())
    constant.v1.clientBuf.data, constant.v1.clientBuf.dataSize = ctypes.addressof(data), 16
    for each in (a, constant, out):
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    data[:] = b"\xff" * 16
    assert client.api.graphAddNode(graph, operation("ElementWiseMultiply", [a, constant], [out])) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    output = raw(bytes(16))
    assert client.execute(graph, [a, out], [raw(np.arange(4, dtype="f4").tobytes()), output]) == 0
    assert np.frombuffer(output.raw, "f4").tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("operator", "tensors"),
    [
        ("ElementWiseAdd", [("a", IN, (2,)), ("o", OUT, (2,))]),
        ("Relu", [("a", IN, (2,)), ("o", OUT, (3,))]),
        ("Reshape", [("a", IN, (2, 3)), ("o", OUT, (5,))]),
        ("Relu", [("a", IN, (2,)), ("o", OUT, (2,), F32)]),
        ("ElementWiseAdd", [("a", IN, (2,)), ("b", IN, (3,)), ("o", OUT, (3,))]),
    ],
)
def test_operators_that_do_not_fit_are_refused(
    backend: ReferenceBackend, operator: str, tensors: list[Any]
) -> None:
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    made = [tensor(*each) for each in tensors]
    config = operation(operator, made[:-1], made[-1:])
    assert client.api.backendValidateOpConfig(client.backend, config) == 3110
    for each in made:
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    assert client.api.graphAddNode(graph, operation(operator, made[:-1], made[-1:])) == 6005


def test_unknown_operators_and_packages_are_refused(backend: ReferenceBackend) -> None:
    client = Client(backend.get_providers)
    made = [tensor("a", IN), tensor("o", OUT)]
    for config in (operation("Softmin", made[:1], made[1:]), operation("Relu", made[:1], made[1:], b"mine")):
        assert client.api.backendValidateOpConfig(client.backend, config) == 4005


@pytest.mark.parametrize(("name", "taken"), [("float-only", F32), ("quantised-only", 0x408)])
def test_personalities_take_one_data_type(name: str, taken: int) -> None:
    backend = ReferenceBackend(PERSONALITIES[name])
    client = Client(backend.get_providers)
    for dtype in (0x232, 0x408):
        made = [tensor("a", IN, dtype=dtype), tensor("o", OUT, dtype=dtype)]
        code = client.api.backendValidateOpConfig(client.backend, operation("Relu", made[:1], made[1:]))
        assert code == (0 if dtype == taken else 3110)
