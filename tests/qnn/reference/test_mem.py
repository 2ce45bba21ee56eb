"""QnnMem of the reference backend, driven through its interface table."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from qnn_mini import F32, SENTINEL, Buffer, Client, ion, raw, shared

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import MemType
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES

BOGUS = 0xB0605
SHAPE = (1, 2, 2, 2)


@pytest.fixture
def backend() -> Iterator[ReferenceBackend]:
    made = ReferenceBackend()
    yield made
    made.close()
    assert made.escaped == []


@pytest.fixture
def client(backend: ReferenceBackend) -> Client:
    return Client(backend.get_providers)


@pytest.fixture
def buffers() -> Iterator[list[Buffer]]:
    made = [Buffer(4096) for _ in range(3)]
    yield made
    for buffer in made:
        buffer.close()


def mapped(buffer: Buffer) -> int:
    """Mappings of the buffer's file in this process, the client's own excluded."""
    inode = str(os.fstat(buffer.fd).st_ino)
    with open("/proc/self/maps") as maps:
        return sum(line.split()[4] == inode and "rpcmem" in line for line in maps) - 1


def test_each_descriptor_gets_its_own_handle_in_order(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    graph, tensors = client.graph(context)
    code, handles = client.register(context, [ion(each.fd) for each in buffers])
    assert code == 0
    assert len({*handles} - {None}) == 3
    buffers[0].map[:8], buffers[1].map[:8] = bytes(range(8)), b"\1" * 8
    assert client.execute(graph, tensors, handles) == 0
    assert buffers[2].map[:10] == bytes(range(1, 9)) + b"\0\0"
    buffers[0].map[:8] = bytes(8)
    assert client.execute(graph, tensors, handles) == 0
    assert buffers[2].map[:8] == b"\1" * 8


def test_raw_and_registered_memory_mix_in_one_execute(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    graph, tensors = client.graph(context)
    handle = client.register(context, [ion(buffers[0].fd)])[1][0]
    buffers[0].map[:8] = b"\2" * 8
    output = raw(bytes(8))
    assert client.execute(graph, tensors, [handle, raw(b"\3" * 8), output]) == 0
    assert output.raw == b"\5" * 8


def test_null_arguments_and_a_count_of_zero_are_refused(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    given, handles = (layouts.MemDescriptor * 1)(ion(buffers[0].fd)), (ctypes.c_void_p * 1)(SENTINEL)
    assert client.api.memRegister(context, given, 0, handles) == 8000
    assert handles[0] == SENTINEL
    assert client.api.memRegister(context, None, 1, handles) == 8000
    assert handles[0] is None
    assert client.api.memRegister(context, given, 1, None) == 8000
    assert client.api.memDeRegister(None, 1) == 8000
    assert client.api.memDeRegister(handles, 0) == 8000
    assert mapped(buffers[0]) == 0


def test_null_unknown_and_freed_contexts_are_refused(client: Client, buffers: list[Buffer]) -> None:
    freed = client.context()
    assert client.api.contextFree(freed, None) == 0
    for context in (None, BOGUS, freed, client.backend):
        assert client.register(context, [ion(buffers[0].fd)]) == (8001, [None])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda each: setattr(each, "memType", 0), 8005),
        (lambda each: setattr(each, "memType", 0x7FFFFFFF), 8005),
        (lambda each: setattr(each, "memType", MemType.DMA_BUF), 8005),
        (lambda each: setattr(each, "dataType", 0x7FFFFFFF), 8000),
        (lambda each: setattr(each.memShape, "dimSize", None), 8000),
        (lambda each: setattr(each.memShape, "numDim", 0), 8004),
        (lambda each: setattr(each.memShape, "numDim", 0xFFFFFFFF), 8004),
        (lambda each: each.memShape.dimSize.__setitem__(1, 0), 8004),
        (lambda each: each.memShape.dimSize.__setitem__(0, 513), 8000),
        (lambda each: setattr(each.memShape, "shapeConfig", b"odd"), 8004),
    ],
)
def test_descriptors_that_describe_no_memory_are_refused(
    client: Client, buffers: list[Buffer], change: Any, code: int
) -> None:
    descriptor = ion(buffers[0].fd)
    change(descriptor)
    assert client.register(client.context(), [descriptor]) == (code, [None])
    assert mapped(buffers[0]) == 0


def test_descriptors_of_files_that_are_no_memory_are_refused(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    reader, writer = os.pipe()
    with socket.socket() as sock:
        folder = os.open("/", os.O_RDONLY)
        readonly = os.open(f"/proc/self/fd/{buffers[0].fd}", os.O_RDONLY)
        os.close(writer)
        for fd in (-1, writer, reader, sock.fileno(), folder, readonly, 1 << 30):
            assert client.register(context, [ion(fd)]) == (8003, [None])
            assert client.register(context, [shared(fd, 4096, 0)]) == (8003, [None])
        for fd in (reader, folder, readonly):
            os.close(fd)


def test_a_batch_is_all_or_nothing(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    batch = [ion(buffers[0].fd), ion(buffers[1].fd), ion(-1)]
    assert client.register(context, batch) == (8003, [None] * 3)
    twice = [ion(buffers[0].fd), ion(buffers[0].fd)]
    assert client.register(context, twice) == (8002, [None] * 2)
    assert [mapped(buffer) for buffer in buffers[:2]] == [0, 0]
    assert client.register(context, batch[:2])[0] == 0


def test_the_same_memory_counts_once_per_context(client: Client, buffers: list[Buffer]) -> None:
    one, other = client.context(), client.context()
    duplicate = os.dup(buffers[0].fd)
    handle = client.register(one, [ion(buffers[0].fd)])[1][0]
    assert client.register(one, [ion(buffers[0].fd)])[0] == 8002
    assert client.register(one, [ion(duplicate)])[0] == 8002
    assert client.register(one, [shared(buffers[0].fd, 4096, 64)])[0] == 8002
    assert client.register(other, [ion(buffers[0].fd)])[0] == 0
    assert client.deregister(handle) == 0
    assert client.register(one, [ion(buffers[0].fd)])[0] == 0
    os.close(duplicate)


def test_a_new_file_with_an_old_number_is_new_memory(client: Client) -> None:
    context = client.context()
    first = Buffer(4096)
    assert client.register(context, [ion(first.fd)])[0] == 0
    number = first.fd
    first.close()
    second = Buffer(64)
    assert second.fd == number
    assert client.register(context, [ion(second.fd)])[0] == 0
    second.close()


def test_deregistering_takes_the_valid_handles_and_reports_the_others(
    client: Client, buffers: list[Buffer]
) -> None:
    context = client.context()
    descriptors = [ion(each.fd) for each in buffers]
    first, second, third = client.register(context, descriptors)[1]
    assert client.deregister(first, BOGUS, second, None, context) == 8001
    assert [mapped(buffer) for buffer in buffers] == [0, 0, 1]
    assert client.deregister(first) == 8001
    assert client.deregister(third, third) == 8001
    assert client.register(context, descriptors)[0] == 0


def test_nothing_but_the_mapping_comes_and_goes(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    buffers[0].map[:] = b"\xa5" * 4096
    before = len(os.listdir("/proc/self/fd"))
    handle = client.register(context, [ion(buffers[0].fd)])[1][0]
    assert mapped(buffers[0]) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    assert client.deregister(handle) == 0
    assert mapped(buffers[0]) == 0
    assert buffers[0].map[:] == b"\xa5" * 4096


@pytest.mark.parametrize(
    ("size", "offset", "code"),
    [
        (4096, 4096 - 8, 0),
        (4096, 4096 - 7, 8000),
        (4096, 1 << 32, 8000),
        (4096, (1 << 64) - 4, 8000),
        (4096, (1 << 64) - 8, 8000),
        (8192, 0, 8000),
        (16, 9, 8000),
        (7, 0, 8000),
        (8, 0, 0),
    ],
)
def test_shared_buffer_ranges_are_checked_in_64_bits(
    client: Client, buffers: list[Buffer], size: int, offset: int, code: int
) -> None:
    seen, handles = client.register(client.context(), [shared(buffers[0].fd, size, offset)])
    assert seen == code
    assert (handles == [None]) == bool(code)


def test_one_shared_buffer_carries_many_tensors(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    graph, tensors = client.graph(context)
    buffer = buffers[0]
    buffer.map[:] = b"\xee" * 4096
    offsets = (101, 3, 50)
    code, handles = client.register(context, [shared(buffer.fd, 4096, offset) for offset in offsets])
    assert code == 0
    assert mapped(buffer) == 1
    buffer.map[101:109], buffer.map[3:11] = b"\1" * 8, b"\2" * 8
    assert client.execute(graph, tensors, handles) == 0
    assert buffer.map[49:59] == b"\xee" + b"\3" * 8 + b"\xee"
    assert client.register(context, [shared(buffer.fd, 4095, 200)])[0] == 8000
    assert client.register(context, [shared(buffer.fd, 4096, 50)])[0] == 8002
    assert client.deregister(handles[1]) == 0
    assert client.execute(graph, tensors, [handles[0], raw(b"\4" * 8), handles[2]]) == 0
    assert buffer.map[50:58] == b"\5" * 8
    assert client.deregister(handles[0], handles[2]) == 0
    assert mapped(buffer) == 0


def test_custom_descriptors_of_another_kind_are_refused(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    missing = shared(buffers[0].fd, 4096, 0)
    missing.customInfo = None
    assert client.register(context, [missing])[0] == 8000
    # External memory needs a context whose initialisation is deferred.
    codes = {0: 8005, 2: 1005, 3: 1005, 4: 8005, 0x7FFFFFFF: 8005}
    for kind, code in codes.items():
        descriptor = shared(buffers[0].fd, 4096, 0)
        descriptor.keep.type = kind
        assert client.register(context, [descriptor])[0] == code


def test_stale_unknown_and_foreign_handles_do_not_execute(client: Client, buffers: list[Buffer]) -> None:
    context, other = client.context(), client.context()
    graph, tensors = client.graph(context)
    stale = client.register(context, [ion(buffers[0].fd)])[1][0]
    assert client.deregister(stale) == 0
    foreign = client.register(other, [ion(buffers[0].fd)])[1][0]
    output = raw(b"\xee" * 8)
    for handle in (stale, foreign, BOGUS, None, context):
        assert client.execute(graph, tensors, [raw(bytes(8)), handle, output]) == 6004
    assert output.raw == b"\xee" * 8


def test_a_registration_may_be_larger_than_the_tensor_but_not_smaller(
    client: Client, buffers: list[Buffer]
) -> None:
    context = client.context()
    graph, tensors = client.graph(context)
    small, large = client.register(context, [ion(buffers[0].fd, (7,)), ion(buffers[1].fd, (9,), F32)])[1]
    assert client.execute(graph, tensors, [raw(bytes(8)), small, raw(bytes(8))]) == 6004
    assert client.execute(graph, tensors, [raw(bytes(8)), large, raw(bytes(8))]) == 0


def test_context_free_ends_its_registrations_and_no_others(client: Client, buffers: list[Buffer]) -> None:
    context, other = client.context(), client.context()
    graph, tensors = client.graph(other)
    gone = client.register(context, [ion(buffers[0].fd)])[1][0]
    kept = client.register(other, [ion(buffers[0].fd)])[1][0]
    assert mapped(buffers[0]) == 2
    assert client.api.contextFree(context, None) == 0
    assert mapped(buffers[0]) == 1
    assert client.deregister(gone) == 8001
    buffers[0].map[:8] = b"\3" * 8
    output = raw(bytes(8))
    assert client.execute(graph, tensors, [kept, raw(b"\1" * 8), output]) == 0
    assert output.raw == b"\4" * 8


def test_registered_memory_survives_the_clients_free(client: Client) -> None:
    context = client.context()
    buffer = Buffer(4096)
    graph, tensors = client.graph(context)
    handle = client.register(context, [ion(buffer.fd)])[1][0]
    buffer.close()
    assert client.execute(graph, tensors, [handle, raw(b"\1" * 8), raw(bytes(8))]) == 0
    assert client.deregister(handle) == 0


def test_without_the_memory_functions_everything_answers_1000(buffers: list[Buffer]) -> None:
    client = Client(ReferenceBackend(PERSONALITIES["no-memory"]).get_providers)
    context = client.context()
    assert [client.api.propertyHasCapability(key) for key in (502, 1101, 1102, 1103)] == [1000] * 4
    assert client.register(context, [ion(buffers[0].fd)]) == (1000, [SENTINEL])
    assert client.api.memRegister(None, None, 0, None) == 1000
    assert client.api.memDeRegister(None, 0) == 1000
    assert client.deregister(BOGUS) == 1000


@pytest.mark.parametrize(
    ("name", "ion_code", "shared_code", "dma_code"),
    [
        ("default", 0, 0, 8005),
        ("no-ion", 8005, 0, 8005),
        ("no-custom", 0, 8005, 8005),
        ("dma-buf", 0, 0, 0),
    ],
)
def test_what_the_keys_say_is_what_registering_does(
    buffers: list[Buffer], name: str, ion_code: int, shared_code: int, dma_code: int
) -> None:
    backend = ReferenceBackend(PERSONALITIES[name])
    client = Client(backend.get_providers)
    dma = ion(-1)
    dma.memType, dma.dmaBufInfo.fd = MemType.DMA_BUF, buffers[2].fd
    dma.dmaBufInfo.data = ctypes.addressof(ctypes.c_char.from_buffer(buffers[2].map))
    context = client.context()
    given = (ion(buffers[0].fd), shared(buffers[1].fd, 4096, 0), dma)
    codes = [client.register(context, [each])[0] for each in given]
    assert codes == [ion_code, shared_code, dma_code]
    answers = [client.api.propertyHasCapability(key) for key in (1102, 1103, 1104)]
    assert [bool(answer) for answer in answers] == [bool(code) for code in codes]
    backend.close()


def test_register_and_deregister_leave_nothing_behind(client: Client, buffers: list[Buffer]) -> None:
    context = client.context()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(500):
        code, handles = client.register(context, [ion(each.fd) for each in buffers])
        assert code == 0
        assert client.deregister(*handles) == 0
        assert client.register(context, [ion(buffers[0].fd), ion(-1)])[0] == 8003
    assert len(os.listdir("/proc/self/fd")) == before
    assert [mapped(buffer) for buffer in buffers] == [0, 0, 0]


def test_sibling_contexts_work_in_parallel(client: Client) -> None:
    failures: list[Any] = []

    def work(value: int) -> None:
        context, buffer = client.context(), Buffer(4096)
        graph, tensors = client.graph(context)
        for _ in range(50):
            code, (handle,) = client.register(context, [ion(buffer.fd)])
            output = raw(bytes(8))
            buffer.map[:8] = bytes([value]) * 8
            codes = (
                code,
                client.execute(graph, tensors, [handle, handle, output]),
                client.deregister(handle),
            )
            if codes != (0, 0, 0) or output.raw != bytes([2 * value]) * 8:
                failures.append((codes, output.raw))
        buffer.close()

    threads = [threading.Thread(target=work, args=(value,)) for value in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_closing_releases_what_a_faulty_backend_leaks(buffers: list[Buffer]) -> None:
    class Leaking(ReferenceBackend):
        def unmap(self, context: Any, identity: Any) -> None:
            context.shared.pop(identity)

    backend = Leaking()
    client = Client(backend.get_providers)
    handle = client.register(client.context(), [ion(buffers[0].fd)])[1][0]
    assert client.deregister(handle) == 0
    assert mapped(buffers[0]) == 1
    backend.close()
    assert mapped(buffers[0]) == 0


def test_memory_used_after_an_early_unmap_is_an_error_and_no_crash(buffers: list[Buffer]) -> None:
    class Hasty(ReferenceBackend):
        def drop_user(self, registration: Any) -> None:
            self.unmap(registration.context, registration.request.identity)

    backend = Hasty()
    client = Client(backend.get_providers)
    context = client.context()
    graph, tensors = client.graph(context)
    pair = [shared(buffers[0].fd, 4096, offset) for offset in (0, 8)]
    first, second = client.register(context, pair)[1]
    assert client.deregister(first) == 0
    assert client.execute(graph, tensors, [second, raw(bytes(8)), raw(bytes(8))]) == 1100
    assert [name for name, _ in backend.escaped] == ["graphExecute"]
    backend.close()
