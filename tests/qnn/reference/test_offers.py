"""What the reference offers by personality beyond memory: callbacks for data, environments, one piece."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_qnn.qnn.abi.codes import Error, Property, TensorMemType
from pytest_qnn.qnn.abi.layouts import (
    ClientBuffer,
    EnvironmentOption,
    ExecuteEnvironment,
    FreeTensorRawDataFn,
    GetTensorRawDataFn,
    TensorP,
    TensorRetrieveRaw,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.runner.client import Operator, QnnClient, array_of
from pytest_qnn.qnn.runner.library import QnnEntry

SIZE = 8
FIRST, SECOND = (contents("UFIXED_POINT_8", seed, SIZE) for seed in (1, 2))
RIGHT = expected("ElementWiseAdd", "UFIXED_POINT_8", FIRST, SECOND)


class Client:
    """A session, a context and a graph under construction."""

    def __init__(self, personality: str, weights: bytes | None = None) -> None:
        self.backend = ReferenceBackend(PERSONALITIES[personality])
        self.qnn = QnnClient(QnnEntry(self.backend.get_providers, self.backend))
        _, owner = self.qnn.create("backendCreate", None, None)
        _, self.context = self.qnn.create("contextCreate", owner, None, None)
        _, self.graph = self.qnn.create("graphCreate", self.context, b"g", None)
        self.operator = Operator("ElementWiseAdd", "UFIXED_POINT_8", (SIZE,), weights)

    def create(self) -> list[int]:
        """The code of each tensor's creation."""
        call = self.qnn.call
        return [
            call("tensorCreateGraphTensor", self.graph, ctypes.byref(each)) for each in self.operator.tensors
        ]

    def compose(self) -> list[int]:
        """The codes of the nodes and of finalising."""
        codes = [self.qnn.call("graphAddNode", self.graph, config) for config in self.operator.configs()]
        return [*codes, self.qnn.call("graphFinalize", self.graph, None, None)]

    def place(self, position: int, address: int) -> None:
        """Give an IO tensor raw memory."""
        v1 = self.operator.io[position].v1
        v1.memType = TensorMemType.RAW
        v1.clientBuf.data, v1.clientBuf.dataSize = address, SIZE

    def execute(self) -> int:
        o = self.operator
        return self.qnn.call("graphExecute", self.graph, o.inputs, o.io_inputs, o.outputs, 1, None, None)

    def environment(self, option: int, call: str = "graphPrepareExecutionEnvironment") -> int:
        given = ExecuteEnvironment(option=option)
        given.tensorSet.version = 1
        v1 = given.tensorSet.v1
        v1.numInputs, v1.inputs = self.operator.io_inputs, ctypes.cast(self.operator.inputs, TensorP)
        v1.numOutputs, v1.outputs = 1, ctypes.cast(self.operator.outputs, TensorP)
        listed = array_of(ctypes.c_void_p, 1)(ctypes.addressof(given))
        return self.qnn.call(call, self.graph, listed, 1)

    def supports(self, key: Property) -> bool:
        return self.qnn.call("propertyHasCapability", key) == 0


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    with ExitStack() as stack:

        def make(personality: str, weights: bytes | None = None) -> Client:
            made = Client(personality, weights)
            stack.callback(made.backend.close)
            return made

        yield make


class Giver:
    """The client's side of RETRIEVE_RAW."""

    def __init__(self, data: bytes, code: int = 0) -> None:
        self.room = ctypes.create_string_buffer(data, max(1, len(data)))
        self.size = len(data)
        self.code = code
        self.calls: list[tuple[str, int, int, int]] = []
        self.raw = TensorRetrieveRaw(GetTensorRawDataFn(self.get), FreeTensorRawDataFn(self.free))

    def get(self, context: int, graph: int, number: int, out: Any) -> int:
        self.calls.append(("get", context, graph, number))
        out[0] = ClientBuffer(ctypes.addressof(self.room), self.size)
        return self.code

    def free(self, context: int, graph: int, number: int) -> int:
        self.calls.append(("free", context, graph, number))
        return 0

    def give(self, client: Client, version: int = 2) -> Any:
        """Make the weights of the client's operator ones that are fetched."""
        weights = client.operator.inputs[1]
        weights.version = version
        weights.v2.memType = TensorMemType.RETRIEVE_RAW
        weights.v2.retrieveRaw = ctypes.addressof(self.raw)
        return weights


def test_data_is_fetched_once_when_the_graph_is_finalised(client: Callable[..., Client]) -> None:
    made, giver = client("retrieve-raw", bytes(SIZE)), Giver(SECOND)
    weights = giver.give(made)
    assert made.create() == [0, 0, 0]
    assert giver.calls == []
    assert made.compose() == [0, 0]
    of = (made.context, made.graph, weights.v2.id)
    assert giver.calls == [("get", *of), ("free", *of)]
    ctypes.memset(giver.room, 0xEE, SIZE)
    first, output = ctypes.create_string_buffer(FIRST, SIZE), ctypes.create_string_buffer(SIZE)
    made.place(0, ctypes.addressof(first))
    made.place(1, ctypes.addressof(output))
    assert made.execute() == 0
    assert output.raw == RIGHT


@pytest.mark.parametrize(("data", "code"), [(SECOND, 1010), (SECOND[:-1], 0), (b"", 0)])
def test_a_client_without_enough_data_keeps_a_graph_from_being_finalised(
    client: Callable[..., Client], data: bytes, code: int
) -> None:
    made, giver = client("retrieve-raw", bytes(SIZE)), Giver(data, code)
    giver.give(made)
    assert made.create() == [0, 0, 0]
    assert made.compose() == [0, Error.GRAPH_ERROR_FINALIZE_FAILED]
    assert [call for call, *_ in giver.calls] == (["get"] if code else ["get", "free"])


@pytest.mark.parametrize("wrong", ["version", "null", "input", "default"])
def test_what_cannot_be_fetched_is_refused_at_creation(client: Callable[..., Client], wrong: str) -> None:
    made, giver = client("default" if wrong == "default" else "retrieve-raw", bytes(SIZE)), Giver(SECOND)
    weights = giver.give(made, 1 if wrong == "version" else 2)
    if wrong == "null":
        weights.v2.retrieveRaw = None
    if wrong == "input":
        weights = made.operator.inputs[0]
        weights.version, weights.v2.memType = 2, TensorMemType.RETRIEVE_RAW
        weights.v2.retrieveRaw = ctypes.addressof(giver.raw)
    code = made.qnn.call("tensorCreateGraphTensor", made.graph, ctypes.byref(weights))
    unsupported = Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM
    assert code == (unsupported if wrong == "input" else Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
    assert giver.calls == []


def test_the_type_is_refused_at_execute_and_nothing_there_is_called(client: Callable[..., Client]) -> None:
    made, room = client("retrieve-raw"), ctypes.create_string_buffer(SIZE)
    made.create()
    made.compose()
    for position in range(3):
        made.place(position, ctypes.addressof(room))
    made.operator.inputs[0].v1.memType = TensorMemType.RETRIEVE_RAW
    assert made.execute() == Error.GRAPH_ERROR_INVALID_TENSOR
    assert made.backend.escaped == []


def finished(client: Callable[..., Client], personality: str) -> Client:
    made = client(personality)
    made.create()
    assert made.compose() == [0, 0]
    return made


def test_populated_buffers_are_the_backends_and_compute_in_place(client: Callable[..., Client]) -> None:
    made = finished(client, "environments")
    assert made.environment(EnvironmentOption.POPULATE_CLIENT_BUFS) == 0
    places = [each.v1.clientBuf.data for each in made.operator.io]
    assert len(set(places)) == 3
    assert {each.v1.clientBuf.dataSize for each in made.operator.io} == {SIZE}
    for place, data in zip(places, (FIRST, SECOND), strict=False):
        ctypes.memmove(place, data, SIZE)
    assert made.execute() == 0
    assert ctypes.string_at(places[2], SIZE) == RIGHT
    release = "graphReleaseExecutionEnvironment"
    codes = [made.environment(EnvironmentOption.POPULATE_CLIENT_BUFS, release) for _ in range(2)]
    assert codes == [0, Error.GRAPH_ERROR_INVALID_ARGUMENT]


def test_only_registered_handles_are_bound(client: Callable[..., Client]) -> None:
    made = finished(client, "environments")
    room = ctypes.create_string_buffer(SIZE)
    for position in range(3):
        made.place(position, ctypes.addressof(room))
    raw = made.environment(EnvironmentOption.BIND_MEM_HANDLES)
    for tensor in made.operator.io:
        tensor.v1.memType, tensor.v1.memHandle = TensorMemType.MEMHANDLE, 0xB0605
    bogus = made.environment(EnvironmentOption.BIND_MEM_HANDLES)
    assert [raw, bogus] == [Error.GRAPH_ERROR_INVALID_ARGUMENT] * 2


def test_an_unknown_environment_is_not_supported_and_a_bogus_graph_no_graph(
    client: Callable[..., Client],
) -> None:
    made = finished(client, "environments")
    assert made.environment(2) == Error.GRAPH_ERROR_UNSUPPORTED_FEATURE
    made.graph = 0xB0605
    assert made.environment(EnvironmentOption.BIND_MEM_HANDLES) == Error.GRAPH_ERROR_INVALID_HANDLE


@pytest.mark.parametrize(("personality", "mappings"), [("io-in-one-piece", 1), ("default", 3)])
def test_io_buffers_lie_in_one_mapping_or_each_in_its_own(
    client: Callable[..., Client], personality: str, mappings: int
) -> None:
    made = finished(client, personality)
    assert len(made.backend.mappings) == mappings
    rooms = [ctypes.create_string_buffer(data, SIZE) for data in (FIRST, SECOND, bytes(SIZE))]
    for position, room in enumerate(rooms):
        made.place(position, ctypes.addressof(room))
    assert made.execute() == 0
    assert rooms[2].raw == RIGHT
    assert made.qnn.call("contextFree", made.context, None) == 0
    assert made.backend.mappings == set()


KEYS = {
    "asynchronous": (Property.GRAPH_SUPPORT_ASYNC_EXECUTION,),
    "binary-sections": (
        Property.CONTEXT_SUPPORT_BINARY_UPDATES,
        Property.TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS,
    ),
    "environments": (
        Property.GRAPH_SUPPORT_ENV_OPTION_BIND_MEM_HANDLES,
        Property.GRAPH_SUPPORT_ENV_OPTION_POPULATE_CLIENT_BUFS,
    ),
    "retrieve-raw": (Property.TENSOR_SUPPORT_RETRIEVE_RAW,),
}


@pytest.mark.parametrize("personality", KEYS)
def test_a_property_is_supported_where_its_personality_says_so(
    client: Callable[..., Client], personality: str
) -> None:
    for other, keys in KEYS.items():
        assert all(client(personality).supports(key) is (other == personality) for key in keys)
