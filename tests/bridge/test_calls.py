"""The calls of a QNN backend, seen from between it and a delegate."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_libraries
from real_libraries import real_library

from pytest_qnn.isolation.libc import PROT_READ, PROT_WRITE
from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import API_VERSION, DataType, TensorMemType
from pytest_qnn.qnn.abi.table import PROTOTYPES
from pytest_qnn.qnn.runner.client import Operator, QnnClient, Session
from pytest_qnn.qnn.runner.graphs import create_tensors
from pytest_qnn.qnn.runner.library import QnnEntry, chosen, providers
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.tflite.qnn_delegate import calls
from pytest_qnn.tflite.qnn_delegate.custom_tensors import shared_buffer
from pytest_qnn.tflite.qnn_delegate.delegate import QnnDelegate
from pytest_qnn.tflite.qnn_delegate.shared_memory import SharedMemory

SIZE = 8


@pytest.fixture
def entry() -> Iterator[QnnEntry]:
    with MemorySource("reference", "emulated").open() as (found, _):
        yield found


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory()
    yield made
    made.rpcmem.close()


class Delegate:
    """What a delegate does with a backend: one graph, whose tensors lie in one block of shared memory."""

    def __init__(self, entry: QnnEntry, memory: SharedMemory) -> None:
        self.client = QnnClient(entry)
        session = Session(self.client)
        assert session.open()
        _, self.context = self.client.create("contextCreate", session.backend, session.device, None)
        _, self.graph = self.client.create("graphCreate", self.context, b"g", None)
        self.operator = Operator("Relu", "UFIXED_POINT_8", (SIZE,))
        create_tensors(self.client, self.graph, self.operator, watch=False)
        assert not self.client.call("graphAddNode", self.graph, self.operator.config())
        assert not self.client.call("graphFinalize", self.graph, None, None)
        self.pointers = [memory.alloc(SIZE, 64) for _ in range(2)]
        self.blocks = [memory.find(pointer, SIZE) for pointer in self.pointers]

    def register(self) -> list[int]:
        handles = []
        for block, pointer in zip(self.blocks, self.pointers, strict=True):
            assert block is not None
            shape = layouts.MemShape(numDim=1, dimSize=(ctypes.c_uint32 * 1)(SIZE))
            descriptor, _kept = shared_buffer(shape, DataType.UFIXED_POINT_8, block, pointer - block.base)
            code, handle = self.client.create("memRegister", self.context, ctypes.byref(descriptor), 1)
            assert not code
            handles.append(handle)
        return handles

    def execute(self, handles: list[int], *, later: bool = False) -> int:
        for tensor, handle, pointer in zip(self.operator.io, handles, self.pointers, strict=True):
            tensor.v1.memType = TensorMemType.MEMHANDLE if handle else TensorMemType.RAW
            tensor.v1.clientBuf.data, tensor.v1.clientBuf.dataSize = pointer, SIZE
            if handle:
                tensor.v1.memHandle = handle
        given: tuple[Any, ...] = (self.operator.inputs, 1, self.operator.outputs, 1)
        if later:
            return self.client.call("graphExecuteAsync", self.graph, *given, *[None] * 4)
        return self.client.call("graphExecute", self.graph, *given, None, None)


def test_memory_counts_once_an_execute_has_used_its_handle(entry: QnnEntry, memory: SharedMemory) -> None:
    seen = calls.Calls(entry)
    delegate = Delegate(entry, memory)
    assert delegate.execute([0, 0]) == 0
    handles = delegate.register()
    assert [seen.used(pointer) for pointer in delegate.pointers] == [False, False]
    assert delegate.execute([handles[0], 0]) == 0
    assert [seen.used(pointer) for pointer in delegate.pointers] == [True, False]
    seen.forget()
    assert delegate.execute([0, handles[1]]) == 0
    assert [seen.used(pointer) for pointer in delegate.pointers] == [False, True]


def test_an_asynchronous_execute_has_used_handles_too(memory: SharedMemory) -> None:
    with MemorySource("reference:asynchronous", "emulated").open() as (entry, _):
        seen = calls.Calls(entry)
        delegate = Delegate(entry, memory)
        assert delegate.execute(delegate.register(), later=True) == 0
        assert [seen.used(pointer) for pointer in delegate.pointers] == [True, True]
        assert delegate.client.call("contextFree", delegate.context, None) == 0


def test_an_execute_without_tensors_is_the_backends_to_answer(entry: QnnEntry, memory: SharedMemory) -> None:
    seen = calls.Calls(entry)
    delegate = Delegate(entry, memory)
    given: tuple[Any, ...] = (None, 1, None, 1)
    assert delegate.client.call("graphExecute", delegate.graph, *given, None, None) == 6000
    assert [seen.used(pointer) for pointer in delegate.pointers] == [False, False]


def test_an_execute_that_fails_has_used_nothing(entry: QnnEntry, memory: SharedMemory) -> None:
    seen = calls.Calls(entry)
    delegate = Delegate(entry, memory)
    handles = delegate.register()
    assert delegate.client.call("memDeRegister", (ctypes.c_void_p * 1)(handles[0]), 1) == 0
    assert delegate.execute(handles) != 0
    assert [seen.used(pointer) for pointer in delegate.pointers] == [False, False]


def test_a_table_that_is_read_only_is_written_to(
    entry: QnnEntry, memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int, int]] = []
    monkeypatch.setattr(calls.libc, "protect", lambda *arguments: made.append(arguments))
    calls.Calls(entry)
    assert [protection for _, _, protection in made] == [PROT_READ | PROT_WRITE]


def test_a_backend_is_watched_once_however_often_it_is_asked(entry: QnnEntry, memory: SharedMemory) -> None:
    seen = calls.of_backend(entry)
    delegate = Delegate(entry, memory)
    assert delegate.execute(delegate.register()) == 0
    assert seen.used(delegate.pointers[0])
    assert calls.of_backend(entry) is seen
    assert not seen.used(delegate.pointers[0])


def test_who_has_read_a_table_before_it_was_written_anew_is_still_seen(
    entry: QnnEntry, memory: SharedMemory
) -> None:
    """A library may fill its table at each call of getProviders."""
    table = chosen(providers(entry)[1]).implementation
    filled = bytes(table)
    seen = calls.of_backend(entry)
    delegate = Delegate(entry, memory)
    handles = delegate.register()
    assert delegate.execute(handles) == 0
    ctypes.memmove(ctypes.addressof(table), filled, len(filled))
    assert calls.of_backend(entry) is seen
    gc.collect()
    assert delegate.execute(handles) == 0
    assert seen.used(delegate.pointers[0])


def test_the_watch_of_a_backend_in_python_goes_with_it() -> None:
    with MemorySource("reference", "emulated").open() as (entry, _):
        seen = weakref.ref(calls.of_backend(entry))
        assert seen() is not None
    del entry, _
    gc.collect()  # the backend
    gc.collect()  # its watch
    assert seen() is None


def test_a_backend_without_registrations_is_watched_once_too(entry: QnnEntry) -> None:
    """A delegate's execute would go through as many watches as there were delegates before it."""
    table = chosen(providers(entry)[1]).implementation
    table.memRegister, table.memDeRegister = PROTOTYPES["memRegister"](), PROTOTYPES["memDeRegister"]()
    seen = calls.of_backend(entry)
    assert calls.of_backend(entry) is seen
    for name in ("graphExecute", "graphExecuteAsync"):
        setattr(table, name, PROTOTYPES[name]())
    assert calls.of_backend(entry) is calls.of_backend(entry)


@pytest.mark.parametrize("minor", [API_VERSION[1], 17])
def test_a_delegate_is_seen_that_has_read_the_table_before(
    entry: QnnEntry, memory: SharedMemory, minor: int
) -> None:
    """Of an older table a client has a copy, and of each function that it has called one."""
    chosen(providers(entry)[1]).apiVersion.coreApiVersion.minor = minor

    class Source:
        @contextlib.contextmanager
        def open(self) -> Iterator[tuple[QnnEntry, None]]:
            yield entry, None

    made: Any = Source()
    delegate = QnnDelegate(made, memory)
    assert delegate.registers()
    seen = delegate.watch()
    other = Delegate(entry, memory)
    other.client = delegate.client
    assert other.execute(other.register()) == 0
    assert [seen.used(pointer) for pointer in other.pointers] == [True, True]
    delegate.close()


_ON_A_LIBRARY = """
import sys
import test_calls
from pytest_qnn.qnn.runner.library import open_library, providers
from pytest_qnn.tflite.qnn_delegate import calls
from pytest_qnn.tflite.qnn_delegate.shared_memory import SharedMemory

seen = calls.of_library(sys.argv[1])
entry = open_library(sys.argv[1])
assert seen.stands_before(providers(entry)[1][0].contents)
delegate = test_calls.Delegate(entry, SharedMemory())
assert delegate.execute([0, 0]) == 0
assert not seen.used(delegate.pointers[0])
"""


def test_the_table_of_a_real_library_is_stood_in_front_of_and_works() -> None:
    library = real_library("libQnnHtp.so")
    path = os.pathsep.join((str(Path(__file__).parent), str(Path(real_libraries.__file__).parent)))
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-c", _ON_A_LIBRARY, str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_memory_of_no_file_has_no_place() -> None:
    own = ctypes.create_string_buffer(SIZE)
    assert calls.place_of(ctypes.addressof(own)) is None


def test_no_library_is_watched_where_there_is_none() -> None:
    assert calls.of_library("/nowhere/libQnnHtp.so") is None
