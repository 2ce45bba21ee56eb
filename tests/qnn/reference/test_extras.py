"""Profiles, signals and settings of the reference backend."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from qnn_mini import F32, Client, array, operation, raw, tensor

from pytest_qnn.qnn.abi import layouts, system
from pytest_qnn.qnn.abi.codes import Error, Property, TensorType
from pytest_qnn.qnn.reference.backend import ReferenceBackend, ServedBackend
from pytest_qnn.qnn.reference.operators import suite, table
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.system import ReferenceSystem

ABORT, TIMEOUT = 1, 2
PRIORITY = 1
GRAPH_PRIORITY = 3


@pytest.fixture
def backend() -> Iterator[ReferenceBackend]:
    made = ReferenceBackend()
    yield made
    made.close()
    assert made.escaped == []


@pytest.fixture
def client(backend: ReferenceBackend) -> Client:
    return Client(backend.get_providers)


def listed(*entries: Any) -> Any:
    """A NULL-terminated array of pointers, which keeps what they lead to."""
    made = (ctypes.c_void_p * (len(entries) + 1))(*map(ctypes.addressof, entries), None)
    made.keep = entries
    return made


def events(client: Client, profile: int) -> list[tuple[int, int, bytes]]:
    """(type, unit, identifier) of each event."""
    ids, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
    assert client.api.profileGetEvents(profile, ctypes.byref(ids), ctypes.byref(count)) == 0
    found = []
    for event in ids[: count.value]:
        data = layouts.ProfileEventData()
        assert client.api.profileGetEventData(event, ctypes.byref(data)) == 0
        found.append((data.type, data.unit, data.identifier))
    return found


def executed(client: Client, graph: int, tensors: list[Any], profile: int | None, signal: int | None) -> int:
    memory = [raw(bytes(8)) for _ in tensors]
    for each, room in zip(tensors, memory, strict=True):
        each.v1.clientBuf.data, each.v1.clientBuf.dataSize = ctypes.addressof(room), 8
    inputs, outputs = array(tensors[:-1]), array(tensors[-1:])
    return int(client.api.graphExecute(graph, inputs, len(tensors) - 1, outputs, 1, profile, signal))


def test_a_profile_has_the_event_of_the_call_that_had_it_last(client: Client) -> None:
    profile = client.new("profileCreate", client.backend, 1)
    assert events(client, profile) == []
    tensors = [tensor("a", TensorType.APP_WRITE), tensor("o", TensorType.APP_READ)]
    graph = client.new("graphCreate", client.context(), b"g", None)
    for each in tensors:
        assert client.api.tensorCreateGraphTensor(graph, ctypes.byref(each)) == 0
    assert client.api.graphAddNode(graph, operation("Relu", tensors[:1], tensors[1:])) == 0
    assert client.api.graphFinalize(graph, profile, None) == 0
    assert events(client, profile) == [(300, 1, b"finalize")]
    assert executed(client, graph, tensors, profile, None) == 0
    assert events(client, profile) == [(400, 1, b"execute")]


def test_the_events_of_a_profile_end_with_it(client: Client) -> None:
    profile = client.new("profileCreate", client.backend, 2)
    graph, tensors = client.graph(client.context())
    assert executed(client, graph, tensors, profile, None) == 0
    ids, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
    assert client.api.profileGetEvents(profile, ctypes.byref(ids), ctypes.byref(count)) == 0
    event = ids[0]
    sub = (ctypes.byref(ctypes.POINTER(ctypes.c_uint64)()), ctypes.byref(count))
    assert client.api.profileGetSubEvents(event, *sub) == 0
    assert count.value == 0
    assert client.api.profileFree(profile) == 0
    assert client.api.profileGetEventData(event, ctypes.byref(layouts.ProfileEventData())) == 12000
    assert client.api.profileGetSubEvents(event, *sub) == 12000
    assert client.api.profileFree(profile) == 12000


def test_an_execute_with_what_is_no_profile_or_no_signal_is_refused(client: Client) -> None:
    graph, tensors = client.graph(client.context())
    assert executed(client, graph, tensors, 77, None) == 6000
    assert executed(client, graph, tensors, None, 77) == 6000


def test_a_signal_comes_too_late_to_abort(client: Client) -> None:
    abort = layouts.SignalConfig(option=ABORT)
    signal = client.new("signalCreate", client.backend, listed(abort))
    graph, tensors = client.graph(client.context())
    assert executed(client, graph, tensors, None, signal) == 0
    assert client.api.signalTrigger(signal) == 9001
    assert client.api.signalSetConfig(signal, None) == 0
    assert client.api.signalTrigger(signal) == 9005
    assert (client.api.signalFree(signal), client.api.signalFree(signal)) == (0, 9003)


def test_signals_do_not_time_out(client: Client) -> None:
    signal = client.new("signalCreate", client.backend, None)
    assert client.api.signalSetConfig(signal, listed(layouts.SignalConfig(option=TIMEOUT))) == 1000
    assert client.api.signalSetConfig(signal, listed(layouts.SignalConfig(option=9))) == 9002


def test_profiles_and_signals_go_with_their_backend(client: Client) -> None:
    other = client.new("backendCreate", None, None)
    profile, signal = client.new("profileCreate", other, 1), client.new("signalCreate", other, None)
    assert client.api.backendFree(other) == 0
    assert (client.api.profileFree(profile), client.api.signalFree(signal)) == (12000, 9003)


def test_the_operators_of_the_list_are_those_that_validate(client: Client) -> None:
    count, out = ctypes.c_uint32(), ctypes.c_void_p()
    for backend in (None, client.backend):
        call = client.api.backendGetSupportedOperations
        assert call(backend, ctypes.byref(count), ctypes.byref(out)) == 0
        names = (layouts.OperationName * count.value).from_address(out.value or 0)
        assert {each.packageName for each in names} == {b"qti.aisw"}
        listed = [each.name.decode() for each in names]
        assert listed[:2] == ["ElementWiseAdd", "ElementWiseMultiply"]  # those of the suite first
        assert len(listed) == len(set(listed))
        assert set(listed) == {*suite.OPERATORS, *table.DEFINITIONS}


@pytest.mark.parametrize(
    ("call", "option", "code"),
    [
        ("backendSetConfig", 1, 4003),
        ("contextSetConfig", PRIORITY, 0),
        ("contextSetConfig", 9, 1000),
        ("graphSetConfig", GRAPH_PRIORITY, 0),
        ("graphSetConfig", 4, 1000),
        ("deviceSetConfig", 1, 1000),
        ("profileSetConfig", 1, 1000),
        ("backendGetProperty", 0, 4003),
        ("graphGetProperty", 0, 1000),
    ],
)
def test_an_option_without_effect_is_taken_and_any_other_is_not_offered(
    client: Client, call: str, option: int, code: int
) -> None:
    context = client.context()
    handles = {
        "backend": client.backend,
        "context": context,
        "graph": client.graph(context)[0],
        "device": client.device,
        "profile": client.new("profileCreate", client.backend, 1),
    }
    handle = next(value for word, value in handles.items() if call.startswith(word))
    entry = layouts.ContextConfig(option=option)
    assert getattr(client.api, call)(handle, listed(entry)) == code
    assert getattr(client.api, call)(handle, listed()) == 0


def test_a_binary_is_valid_where_a_context_can_be_made_of_it(client: Client) -> None:
    context = client.context()
    client.graph(context)
    size, written = ctypes.c_uint64(), ctypes.c_uint64()
    assert client.api.contextGetBinarySize(context, ctypes.byref(size)) == 0
    room = ctypes.create_string_buffer(size.value)
    place = ctypes.addressof(room)
    assert client.api.contextGetBinary(context, place, size.value, ctypes.byref(written)) == 0
    signal = client.new("signalCreate", client.backend, None)
    for length, code in ((size.value, 0), (size.value - 1, 5005)):
        validate = client.api.contextValidateBinary
        assert validate(client.backend, client.device, None, place, length) == code
        out = ctypes.c_void_p()
        made = (client.backend, client.device, None, place, length, ctypes.byref(out), None)
        assert client.api.contextCreateFromBinaryWithSignal(*made, signal) == code
        assert bool(out.value) is (code == 0)
        assert client.api.contextCreateFromBinaryWithSignal(*made, 77) == 5002


def test_a_verbose_message_is_the_clients_until_it_is_given_back(client: Client) -> None:
    text = ctypes.c_char_p()
    assert client.api.errorGetVerboseMessage(8002, ctypes.byref(text)) == 0
    assert b"ALREADY_REGISTERED" in (text.value or b"")
    address = ctypes.cast(text, ctypes.c_void_p).value
    free = client.api.errorFreeVerboseMessage
    assert (free(address), free(address), free(None)) == (0, 10000, 10000)
    assert client.api.errorGetVerboseMessage(4999, ctypes.byref(text)) == 10001


def test_the_keys_say_what_is_offered(client: Client) -> None:
    offered = (
        Property.GROUP_PROFILE,
        Property.GROUP_SIGNAL,
        Property.SIGNAL_SUPPORT_ABORT,
        Property.CONTEXT_SUPPORT_VALIDATE_BINARY,
        Property.ERROR_GET_VERBOSE_MESSAGE,
    )
    assert [client.api.propertyHasCapability(key) for key in offered] == [0] * len(offered)
    assert client.api.propertyHasCapability(Property.SIGNAL_SUPPORT_TIMEOUT) == 1000
    bare = ReferenceBackend(PERSONALITIES["no-binaries"])
    without = Client(bare.get_providers).api
    assert without.propertyHasCapability(Property.CONTEXT_SUPPORT_VALIDATE_BINARY) == 1000
    assert without.contextValidateBinary(None, None, None, None, 0) == 1000
    bare.close()


def test_an_updatable_tensor_takes_no_elements_of_another_type() -> None:
    """They were taken, as they came: four bytes for four floats, and each execute failed from then on."""
    backend = ReferenceBackend(PERSONALITIES["binary-sections"])
    client = Client(backend.get_providers)
    graph = client.new("graphCreate", client.context(), b"g", None)
    data = raw(bytes(16))
    kinds = (TensorType.APP_WRITE, TensorType.UPDATEABLE_STATIC, TensorType.APP_READ)
    tensors = [tensor(name, kind, (4,), F32) for name, kind in zip("awo", kinds, strict=True)]
    weights = tensors[1].v1
    weights.clientBuf.data, weights.clientBuf.dataSize = ctypes.addressof(data), 16
    for each in tensors:
        assert client.api.tensorCreateGraphTensor(graph, ctypes.byref(each)) == 0
    assert client.api.graphAddNode(graph, operation("ElementWiseAdd", tensors[:2], tensors[2:])) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    other = tensor("w", TensorType.UPDATEABLE_STATIC, (4,))
    other.v1.id = weights.id
    other.v1.clientBuf.data, other.v1.clientBuf.dataSize = ctypes.addressof(data), 4
    listed = (ctypes.c_void_p * 1)(ctypes.addressof(other))
    update = client.api.tensorUpdateGraphTensors
    assert update(graph, listed, 1) == Error.TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE
    listed = (ctypes.c_void_p * 1)(ctypes.addressof(tensors[1]))
    assert update(graph, listed, 1) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    assert client.execute(graph, [tensors[0], tensors[2]], [raw(bytes(16)), raw(bytes(16))]) == 0
    backend.close()
    assert backend.escaped == []


@pytest.mark.parametrize("kind", [ReferenceBackend, ServedBackend])
def test_a_binary_says_the_versions_of_the_backend_that_wrote_it(kind: type[ReferenceBackend]) -> None:
    """That of the library for foreign clients, of API 2.40, said that one of 2.32 had written it."""
    made, companion = kind(), ReferenceSystem()
    client = Client(made.get_providers)
    context = client.context()
    client.graph(context)
    size = ctypes.c_uint64()
    assert client.api.contextGetBinarySize(context, ctypes.byref(size)) == 0
    binary = ctypes.create_string_buffer(size.value)
    assert client.api.contextGetBinary(context, binary, size, ctypes.byref(size)) == 0
    handle, out = ctypes.c_void_p(), ctypes.POINTER(system.BinaryInfo)()
    companion.create(ctypes.pointer(handle))
    companion.get_metadata(handle.value, ctypes.addressof(binary), size.value, ctypes.pointer(out))
    said = out[0].contextBinaryInfoV3
    versions = client.interface.apiVersion
    assert bytes(said.coreApiVersion) == bytes(versions.coreApiVersion)
    assert bytes(said.backendApiVersion) == bytes(versions.backendApiVersion)
    made.close()
    assert made.escaped == []
