"""The objects, graphs and execution of the reference backend, driven through its interface table."""

from __future__ import annotations

import ctypes
import errno
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from qnn_mini import MEMHANDLE, RAW, Buffer, Client, array, ion, operation, raw, tensor

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi import table as qnn_table
from pytest_qnn.qnn.abi.codes import Property, TensorType
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES

BOGUS = 0xB0605
SIZE = 3 * 1024 * 1024 + 4096
BIG = (1, SIZE)


@pytest.fixture
def backend() -> Iterator[ReferenceBackend]:
    made = ReferenceBackend()
    yield made
    made.close()
    assert made.escaped == []


@pytest.fixture
def client(backend: ReferenceBackend) -> Client:
    return Client(backend.get_providers)


def io_regions() -> list[int]:
    """Resident bytes of each internal IO buffer, as the kernel shows them."""
    found = []
    with open("/proc/self/smaps") as smaps:
        inside = False
        for line in smaps:
            if "-" in line.split()[0]:
                inside = "memfd:qnn-io:big:" in line
            elif inside and line.startswith("Rss:"):
                found.append(int(line.split()[1]) * 1024)
    return found


def big_graph(client: Client, context: int, mem_types: tuple[int, int, int]) -> tuple[int, list[Any]]:
    kinds = (TensorType.APP_WRITE, TensorType.APP_WRITE, TensorType.APP_READ)
    made = [
        tensor(name, kind, BIG, mem_type=mem) for name, kind, mem in zip("abo", kinds, mem_types, strict=True)
    ]
    return client.graph(context, tensors=made, name="big")


def test_the_provider_is_the_same_at_every_call(backend: ReferenceBackend) -> None:
    listed, count = ctypes.POINTER(qnn_table.InterfaceP)(), ctypes.c_uint32()
    seen = set()
    for _ in range(3):
        assert backend.get_providers(ctypes.byref(listed), ctypes.byref(count)) == 0
        seen.add((count.value, ctypes.addressof(listed[0].contents)))
    assert len(seen) == 1
    assert listed[0].contents.apiVersion.coreApiVersion.minor == 32
    assert backend.get_providers(None, ctypes.byref(count)) == 1004
    assert backend.get_providers(ctypes.byref(listed), None) == 1004


def test_every_entry_exists_and_the_unserved_ones_answer_1000(client: Client) -> None:
    assert all(getattr(client.api, name) for name, _ in qnn_table.FUNCTIONS)
    assert client.api.graphCreateSubgraph(None, None, None) == 1000
    assert client.api.deviceGetInfo(client.device, ctypes.byref(ctypes.c_void_p())) == 1000


def test_spare_pointers_behind_the_table_are_null(client: Client) -> None:
    padded = qnn_table.PaddedInterface.from_address(ctypes.addressof(client.interface))
    assert list(padded.spare) == [None] * 64


def test_capabilities_are_only_0_1000_or_2000(client: Client) -> None:
    answers = {key: client.api.propertyHasCapability(key) for key in range(3001)}
    assert set(answers.values()) == {0, 1000, 2000}
    assert [answers[key] for key in (502, 1101, 1102, 1103, 1104, 217, 9)] == [0, 0, 0, 0, 1000, 0, 2000]
    assert all(answers[key] != 2000 for key in Property)


def test_version_and_build_need_no_backend(backend: ReferenceBackend) -> None:
    table = Client(backend.get_providers).api
    version, build = layouts.ApiVersion(), ctypes.c_char_p()
    assert table.backendGetApiVersion(ctypes.byref(version)) == 0
    assert table.backendGetBuildId(ctypes.byref(build)) == 0
    assert (version.coreApiVersion.major, version.coreApiVersion.minor) == (2, 32)
    assert build.value
    assert (table.backendGetApiVersion(None), table.backendGetBuildId(None)) == (4004, 4004)


def test_error_messages_name_the_code(client: Client) -> None:
    text = ctypes.c_char_p(b"stale")
    for code in (*range(8000, 8006), 1000, 6004, 5002):
        assert client.api.errorGetMessage(code | 0x7E57 << 32, ctypes.byref(text)) == 0
        assert text.value.startswith(b"QNN_")
    assert client.api.errorGetMessage(4999, ctypes.byref(text)) == 10001
    assert text.value is None
    assert client.api.errorGetMessage(8000, None) == 10000


def test_freed_unknown_and_null_parents_are_refused(client: Client) -> None:
    context = client.context()
    assert client.api.contextFree(context, None) == 0
    out = ctypes.byref(ctypes.c_void_p())
    for handle in (None, BOGUS, context):
        assert client.api.contextFree(handle, None) == 5002
        assert client.api.graphCreate(handle, b"g", None, out) == 6001
        assert client.api.graphRetrieve(handle, b"g", out) == 6001
    for handle in (None, BOGUS):
        assert client.api.backendFree(handle) == 4011
        assert client.api.deviceFree(handle) == 14000
        assert client.api.logFree(handle) == 11004
        assert client.api.contextCreate(handle, None, None, out) == 5002
        assert client.api.tensorCreateGraphTensor(handle, tensor("a", 0)) == 7001
        assert client.api.graphFinalize(handle, None, None) == 6001


def test_null_out_pointers_are_refused(client: Client) -> None:
    context = client.context()
    assert client.api.backendCreate(None, None, None) == 4004
    assert client.api.contextCreate(client.backend, None, None, None) == 5000
    assert client.api.graphCreate(context, b"g", None, None) == 6000
    assert client.api.logCreate(None, 1, None) == 11003


def test_a_device_in_use_stays(client: Client) -> None:
    context = client.context()
    assert client.api.deviceFree(client.device) == 14003
    assert client.api.contextFree(context, None) == 0
    assert client.api.deviceFree(client.device) == 0


def test_backend_free_takes_its_contexts_along(client: Client) -> None:
    context = client.context()
    assert client.api.backendFree(client.backend) == 0
    assert client.api.contextFree(context, None) == 5002


def test_deferred_graphs_are_refused_and_zero_means_not_deferred(client: Client) -> None:
    for deferred, code in ((0, 0), (1, 1000)):
        config = layouts.ContextConfig(option=9)
        config.isGraphInitDeferred = deferred
        listed = (ctypes.POINTER(layouts.ContextConfig) * 2)(ctypes.pointer(config))
        out = ctypes.byref(ctypes.c_void_p())
        assert client.api.contextCreate(client.backend, None, listed, out) == code


def test_handles_are_never_reused_and_distinct_across_kinds(client: Client) -> None:
    seen = [client.backend, client.device]
    for _ in range(3):
        seen.append(client.context())
        assert client.api.contextFree(seen[-1], None) == 0
    assert len(set(seen)) == len(seen)
    assert all(handle >> 56 for handle in seen)


def test_small_handles_are_reused_at_once() -> None:
    client = Client(ReferenceBackend(PERSONALITIES["small-reused-handles"]).get_providers)
    first = client.context()
    assert client.api.contextFree(first, None) == 0
    assert (client.backend, client.device, first, client.context()) == (1, 1, 1, 1)


def test_high_error_bits_stand_above_the_code_and_success_is_0() -> None:
    client = Client(ReferenceBackend(PERSONALITIES["high-error-bits"]).get_providers)
    code = client.api.contextFree(BOGUS, None)
    assert code & 0xFFFF == 5002
    assert code >> 16
    assert client.api.contextFinalize(None, None) >> 16
    assert client.api.propertyHasCapability(1101) == 0


def test_an_exception_inside_reads_as_1100_and_is_kept() -> None:
    class Broken(ReferenceBackend):
        def free_context(self, context: Any) -> None:
            raise ZeroDivisionError(context.handle)

    backend = Broken()
    client = Client(backend.get_providers)
    assert client.api.contextFree(client.context(), None) == 1100
    assert [(name, type(error)) for name, error in backend.escaped] == [("contextFree", ZeroDivisionError)]


@pytest.mark.parametrize("kind", [TensorType.APP_WRITE, TensorType.APP_READ])
@pytest.mark.parametrize("version", [1, 2])
def test_io_tensors_come_without_memory(client: Client, kind: int, version: int) -> None:
    graph = client.new("graphCreate", client.context(), b"g", None)
    with_data = tensor("a", kind, version=version)
    with_data.v1.clientBuf.data = 4096
    with_handle = tensor("a", kind, mem_type=MEMHANDLE, version=version)
    with_handle.v1.memHandle = 4096
    assert client.api.tensorCreateGraphTensor(graph, with_data) == 7004
    assert client.api.tensorCreateGraphTensor(graph, with_handle) == 7004
    for name, mem_type in (("r", RAW), ("m", MEMHANDLE)):
        given = tensor(name, kind, mem_type=mem_type, version=version)
        before = bytes(given)
        assert client.api.tensorCreateGraphTensor(graph, given) == 0
        after = bytes(given)
        assert [i for i in range(144) if before[i] != after[i]] == [8]


def test_composing_refuses_what_is_wrong(client: Client) -> None:
    context = client.context()
    graph = client.new("graphCreate", context, b"g", None)
    out = ctypes.byref(ctypes.c_void_p())
    assert client.api.graphCreate(context, b"g", None, out) == 6003
    assert client.api.graphRetrieve(context, b"other", out) == 6002
    assert client.api.graphFinalize(graph, None, None) == 6022
    a, n, o = tensor("a", 0), tensor("n", 3), tensor("o", 1)
    for each in (a, n, o):
        assert client.api.tensorCreateGraphTensor(graph, each) == 0
    assert client.api.tensorCreateGraphTensor(graph, tensor("a", 0)) == 7003
    assert client.api.tensorCreateGraphTensor(graph, tensor("z", 0, mem_type=77)) == 7004
    assert client.api.graphAddNode(graph, operation("Relu", [n], [o])) == 6007
    assert client.api.graphAddNode(graph, operation("Relu", [o], [a])) == 6005
    assert client.api.graphAddNode(graph, operation("Relu", [tensor("x", 0)], [o])) == 6005
    assert client.api.graphAddNode(graph, operation("Relu", [a], [n])) == 0
    assert client.api.graphExecute(graph, array([a]), 1, array([o]), 1, None, None) == 6023
    assert client.api.graphFinalize(graph, None, None) == 6020
    assert client.api.graphAddNode(graph, operation("Relu", [n], [o])) == 0
    assert client.api.graphFinalize(graph, None, None) == 0
    assert client.api.graphAddNode(graph, operation("Relu", [n], [o])) == 6024
    assert client.api.tensorCreateGraphTensor(graph, tensor("z", 0)) == 6024


def test_execute_finds_tensors_by_id(client: Client) -> None:
    graph, tensors = client.graph(client.context(), "ElementWiseSubtract")
    output = raw(bytes(8))
    a, b, o = tensors
    assert client.execute(graph, [b, a, o], [raw(b"\1" * 8), raw(b"\5" * 8), output]) == 0
    assert output.raw == b"\4" * 8


def test_execute_refuses_wrong_tensors_and_leaves_outputs_alone(client: Client) -> None:
    graph, (a, b, o) = client.graph(client.context())
    data, short, output = raw(bytes(8)), raw(bytes(7)), raw(b"\xee" * 8)
    stranger = tensor("x", 0)
    for tensors, memory in (
        ([a, o], [data, output]),
        ([a, a, o], [data, data, output]),
        ([a, b, b, o], [data, data, data, output]),
        ([a, stranger, o], [data, data, output]),
        ([a, b, o], [data, short, output]),
        ([a, b, o], [data, data, short]),
        ([a, b, o], [data, None, output]),
        ([a, b, o], [data, BOGUS, output]),
        ([a, b, o], [data, data, None]),
    ):
        assert client.execute(graph, tensors, memory) == 6004
    assert output.raw == b"\xee" * 8
    assert client.api.graphExecute(graph, None, 0, None, 0, None, None) == 6000
    given = array([a, b])
    given[0].v1.memType = 77
    assert client.api.graphExecute(graph, given, 2, array([o]), 1, None, None) == 6004


def test_graphs_of_a_freed_context_are_gone(client: Client) -> None:
    context = client.context()
    graph, tensors = client.graph(context)
    assert client.api.contextFree(context, None) == 0
    assert client.execute(graph, tensors, [raw(bytes(8))] * 3) == 6001


@pytest.mark.parametrize("executed", [RAW, MEMHANDLE], ids=["raw", "memhandle"])
@pytest.mark.parametrize("prepared", [RAW, MEMHANDLE], ids=["raw", "memhandle"])
def test_io_buffers_follow_the_prepare_and_execute_table(
    client: Client, prepared: int, executed: int
) -> None:
    context = client.context()
    graph, tensors = big_graph(client, context, (prepared,) * 3)
    at_prepare = io_regions()
    assert at_prepare == ([0] * 3 if prepared == RAW else [])
    buffers = [Buffer(SIZE) for _ in range(3)]
    data = [raw(bytes([value]) * SIZE) for value in (3, 4, 0)]
    for buffer, value in zip(buffers, data, strict=True):
        buffer.map[:] = value.raw
    code, handles = client.register(context, [ion(buffer.fd, BIG) for buffer in buffers])
    assert code == 0
    for _ in range(2):
        assert client.execute(graph, tensors, data if executed == RAW else handles) == 0
        after = io_regions()
        if executed == RAW:
            assert after == [SIZE] * 3
        else:
            assert after == at_prepare
    result = data[2].raw if executed == RAW else buffers[2].map[:]
    assert result == b"\7" * SIZE
    assert client.api.contextFree(context, None) == 0
    assert io_regions() == []
    for buffer in buffers:
        buffer.close()


def test_the_hint_counts_per_tensor(client: Client) -> None:
    context = client.context()
    graph, tensors = big_graph(client, context, (MEMHANDLE, RAW, MEMHANDLE))
    assert len(io_regions()) == 1
    memory: list[Any] = [raw(b"\1" * SIZE) for _ in range(3)]
    buffer = Buffer(SIZE)
    memory[0] = client.register(context, [ion(buffer.fd, BIG)])[1][0]
    assert client.execute(graph, tensors, memory) == 0
    assert len(io_regions()) == 2
    assert memory[2].raw == b"\1" * SIZE
    buffer.close()


NO_MEMORY = 1002


def written(client: Client, context: int) -> tuple[int, int, Any]:
    """A context's binary: where it lies, its size, and what keeps it there."""
    size, used = ctypes.c_uint64(), ctypes.c_uint64()
    assert client.api.contextGetBinarySize(context, ctypes.byref(size)) == 0
    binary = ctypes.create_string_buffer(size.value)
    assert client.api.contextGetBinary(context, binary, size, ctypes.byref(used)) == 0
    return ctypes.addressof(binary), used.value, binary


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_deferred_context_without_memory_for_its_graphs_is_as_it_was(
    backend: ReferenceBackend, client: Client, nth: int
) -> None:
    context = client.context()
    client.graph(context)
    address, size, _kept = written(client, context)
    entry = layouts.ContextConfig(option=9)
    entry.isGraphInitDeferred = 1
    config = (ctypes.c_void_p * 2)(ctypes.addressof(entry), None)
    out = ctypes.c_void_p()
    place = (address, size, ctypes.byref(out), None)
    assert client.api.contextCreateFromBinary(client.backend, client.device, config, *place) == 0
    made = out.value
    before = set(backend.graphs), set(backend.mappings)
    with backend.refusing.during("mapping", nth, lasting=False):
        assert client.api.contextFinalize(made, None) == NO_MEMORY
    assert (set(backend.graphs), set(backend.mappings)) == before
    assert client.api.contextFinalize(made, None) == 0


def refused(*_: Any, **__: Any) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("personality", ["default", "io-in-one-piece", "arenas"])
def test_a_graph_whose_buffers_the_system_refuses_can_be_finalised_later(
    personality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is counted here, as `Requests` does: the system itself has no descriptor left."""
    made = ReferenceBackend(PERSONALITIES[personality])
    client = Client(made.get_providers)
    context = client.context()
    graph = client.new("graphCreate", context, b"g", None)
    tensors = [tensor("a", TensorType.APP_WRITE), tensor("o", TensorType.APP_READ)]
    for each in tensors:
        assert client.api.tensorCreateGraphTensor(graph, ctypes.byref(each)) == 0
    assert client.api.graphAddNode(graph, operation("Relu", tensors[:1], tensors[1:])) == 0
    with monkeypatch.context() as full:
        full.setattr(mapping, "shared_memory", refused)
        assert client.api.graphFinalize(graph, None, None) == NO_MEMORY
    assert client.api.graphFinalize(graph, None, None) == 0
    assert client.execute(graph, tensors, [raw(bytes(8)), raw(bytes(8))]) == 0
    assert client.api.contextFree(context, None) == 0
    assert made.mappings == set(made.arenas)
    made.close()
    assert made.escaped == []


def test_a_binary_whose_buffers_the_system_refuses_leaves_no_context(
    backend: ReferenceBackend, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = client.context()
    client.graph(context)
    address, size, _kept = written(client, context)
    before = set(backend.contexts), set(backend.graphs), set(backend.mappings)
    monkeypatch.setattr(mapping, "shared_memory", refused)
    out = ctypes.c_void_p()
    place = (address, size, ctypes.byref(out), None)
    assert client.api.contextCreateFromBinary(client.backend, client.device, None, *place) == NO_MEMORY
    assert (set(backend.contexts), set(backend.graphs), set(backend.mappings)) == before


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_executes_go_on_after_one_for_which_there_was_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ReferenceBackend(PERSONALITIES["asynchronous"])
    client = Client(made.get_providers)
    graph, tensors = client.graph(client.context())
    memory = [raw(bytes(8)) for _ in tensors]
    for each, room in zip(tensors, memory, strict=True):
        each.v1.clientBuf.data, each.v1.clientBuf.dataSize = ctypes.addressof(room), 8
    told = threading.Semaphore(0)
    notify = layouts.NotifyFn(lambda *_: told.release())
    given = (graph, array(tensors[:-1]), 2, array(tensors[-1:]), 1, None, None, notify, None)
    with monkeypatch.context() as full:
        without_threads(full)
        assert client.api.graphExecuteAsync(*given) == NO_MEMORY
    assert client.api.graphExecuteAsync(*given) == 0
    assert told.acquire(timeout=10)
    assert not told.acquire(timeout=0.1), "the refused execute was notified"
    made.close()
    assert made.escaped == []


def test_memory_is_given_back_where_there_is_no_thread_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ReferenceBackend(PERSONALITIES["gives-back-later"])
    client, buffer = Client(made.get_providers), Buffer(4096)
    context = client.context()
    with monkeypatch.context() as full:
        without_threads(full)
        _, handles = client.register(context, [ion(buffer.fd)])
        assert client.deregister(*handles) == 0
    assert made.mappings == set()
    _, handles = client.register(context, [ion(buffer.fd)])
    assert client.deregister(*handles) == 0
    ends = time.monotonic() + 10
    while made.mappings and time.monotonic() < ends:
        time.sleep(0.01)
    assert made.mappings == set()
    made.close()
    buffer.close()
    assert made.escaped == []


def test_an_execute_waits_for_those_in_the_queue() -> None:
    """QnnGraph.h: "added to the end of the queue". It read what they had not written yet."""
    made = ReferenceBackend(PERSONALITIES["asynchronous"])
    client = Client(made.get_providers)
    tensors = [tensor("a", TensorType.APP_WRITE, BIG), tensor("o", TensorType.APP_READ, BIG)]
    graph, tensors = client.graph(client.context(), "Relu", tensors)
    rooms = [raw(b"\xff" * SIZE), *(raw(bytes(SIZE)) for _ in range(3))]

    def given(place: int) -> tuple[Any, ...]:
        for each, room in zip(tensors, rooms[place : place + 2], strict=True):
            each.v1.clientBuf.data, each.v1.clientBuf.dataSize = ctypes.addressof(room), SIZE
        return (graph, array(tensors[:1]), 1, array(tensors[1:]), 1, None, None)

    for place in (0, 1):
        assert client.api.graphExecuteAsync(*given(place), None, None) == 0
    assert client.api.graphExecute(*given(2)) == 0
    assert rooms[3].raw == b"\xff" * SIZE
    made.close()
    assert made.escaped == []
