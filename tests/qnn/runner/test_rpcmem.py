from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import native
import pytest

from pytest_qnn.isolation.observe.process import descriptors, snapshot
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM, INT_MAX
from pytest_qnn.qnn.cases.case import Alloc, MemoryCase
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.rpcmem import RpcmemUnusable, open_rpcmem
from pytest_qnn.qnn.runner.run import run_memory_case

LIBRARY_SOURCE = """
#include <stdlib.h>
static char block[64];
void *rpcmem_alloc(int heap, unsigned flags, int size) {
    return heap == 25 && flags == 1 && size > 0 && size <= 64 ? block : NULL;
}
void rpcmem_free(void *pointer) { block[0] = pointer == block ? 'f' : '?'; }
int rpcmem_to_fd(void *pointer) { return pointer == block ? 7 : -1; }
"""


@pytest.fixture
def rpcmem() -> Iterator[EmulatedRpcmem]:
    provider = EmulatedRpcmem()
    yield provider
    provider.close()


def alloc(rpcmem: EmulatedRpcmem, size: int) -> int:
    return rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, size)


def test_a_second_mapping_of_the_descriptor_sees_what_the_pointer_wrote(rpcmem: EmulatedRpcmem) -> None:
    pointer = alloc(rpcmem, 5000)
    ctypes.memmove(pointer + 4990, b"0123456789", 10)
    with mmap.mmap(rpcmem.to_fd(pointer), 5000, access=mmap.ACCESS_READ) as second:
        assert second[4990:] == b"0123456789"


def test_pointers_are_page_aligned_and_descriptors_distinct(rpcmem: EmulatedRpcmem) -> None:
    pointers = [alloc(rpcmem, size) for size in (1, 4096, 4097)]
    assert [pointer % mmap.PAGESIZE for pointer in pointers] == [0, 0, 0]
    assert len({rpcmem.to_fd(pointer) for pointer in pointers}) == 3


@pytest.mark.parametrize("size", [0, -1, -(2**31), INT_MAX + 1])
def test_a_size_that_is_no_positive_int_gives_null(rpcmem: EmulatedRpcmem, size: int) -> None:
    assert alloc(rpcmem, size) == 0


def test_only_the_base_of_a_live_allocation_has_a_descriptor(rpcmem: EmulatedRpcmem) -> None:
    pointer = alloc(rpcmem, 4096)
    fd = rpcmem.to_fd(pointer)
    assert fd >= 0
    assert rpcmem.to_fd(pointer) == fd
    assert [rpcmem.to_fd(other) for other in (0, pointer + 1, pointer - 4096)] == [-1, -1, -1]
    rpcmem.free(pointer)
    assert rpcmem.to_fd(pointer) == -1


def test_free_ignores_what_it_does_not_know(rpcmem: EmulatedRpcmem) -> None:
    pointer = alloc(rpcmem, 4096)
    other = alloc(rpcmem, 4096)
    rpcmem.free(pointer)
    for unknown in (pointer, other + 64, 0, 12345):
        rpcmem.free(unknown)
    assert os.fstat(rpcmem.to_fd(other)).st_size == 4096
    assert ctypes.string_at(other, 4096) == bytes(4096)


def test_who_asks_is_told_of_frees_that_free_nothing(rpcmem: EmulatedRpcmem) -> None:
    told: list[str] = []
    pointer = alloc(rpcmem, 4096)
    rpcmem.on_wrong_free = told.append
    for given in (pointer + 64, pointer + 4096, 0, pointer, pointer):
        rpcmem.free(given)
    assert [text.removeprefix("emulated rpcmem: rpcmem_free") for text in told] == [
        f"({pointer + 64:#x}) frees nothing: it is byte 64 of an allocation of 4096 bytes at {pointer:#x}",
        f"({pointer + 4096:#x}) frees nothing: no live allocation has this address",
        f"({pointer:#x}) frees nothing: no live allocation has this address",
    ]


def test_free_gives_back_descriptor_and_mapping(rpcmem: EmulatedRpcmem) -> None:
    before = descriptors(), snapshot().counts()["memfds"]
    pointers = [alloc(rpcmem, 4096) for _ in range(10)]
    assert (descriptors(), snapshot().counts()["memfds"]) == (before[0] + 10, before[1] + 10)
    for pointer in pointers:
        rpcmem.free(pointer)
    assert (descriptors(), snapshot().counts()["memfds"]) == before


def test_close_releases_what_is_left() -> None:
    before = descriptors()
    provider = EmulatedRpcmem()
    alloc(provider, 4096)
    provider.close()
    assert descriptors() == before


def test_a_library_is_called_with_the_c_signatures(tmp_path: Path) -> None:
    rpcmem = open_rpcmem(str(native.build(tmp_path, LIBRARY_SOURCE)))
    pointer = rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, 64)
    assert pointer
    assert rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, 65) == 0
    assert (rpcmem.to_fd(pointer), rpcmem.to_fd(pointer + 1)) == (7, -1)
    rpcmem.free(pointer)
    assert ctypes.string_at(pointer, 1) == b"f"


def test_a_size_that_no_c_int_holds_is_not_truncated(tmp_path: Path) -> None:
    assert (
        open_rpcmem(str(native.build(tmp_path, LIBRARY_SOURCE))).alloc(
            HEAP_ID_SYSTEM, DEFAULT_FLAGS, 2**32 + 64
        )
        == 0
    )


def test_a_library_is_found_by_its_name_alone(tmp_path: Path) -> None:
    """As dlopen("libcdsprpc.so") finds it: where the loader looks."""
    native.build(tmp_path, LIBRARY_SOURCE, "libcdsprpc-test.so")
    code = (
        "from pytest_qnn.qnn.runner.rpcmem import RpcmemUnusable, open_rpcmem\n"
        "print(open_rpcmem('libcdsprpc-test.so').alloc(25, 1, 64) != 0)\n"
        "try: open_rpcmem('libno-such.so')\n"
        "except RpcmemUnusable as error: print(error)"
    )
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    found, missing = done.stdout.splitlines()
    assert found == "True"
    assert missing.startswith("libno-such.so cannot be loaded as a shared library: cannot open shared object")


@pytest.mark.parametrize("name", ["absent.so", "absent" * 50 + ".so"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    """Also where no file can have the name, since it is longer than 255 bytes."""
    with pytest.raises(RpcmemUnusable, match=r"absent\.so does not exist$"):
        open_rpcmem(str(tmp_path / name))


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(RpcmemUnusable, match="cannot be loaded as a shared library: "):
        open_rpcmem(str(text))


def test_missing_symbols_are_named(tmp_path: Path) -> None:
    library = native.build(tmp_path, "void rpcmem_free(void *p) { (void)p; }")
    with pytest.raises(RpcmemUnusable, match=r"does not export rpcmem_alloc, rpcmem_to_fd$"):
        open_rpcmem(str(library))


def test_a_step_says_heap_and_flags() -> None:
    asked = []

    class Asked(EmulatedRpcmem):
        def alloc(self, heap: int, flags: int, size: int) -> int:
            asked.append((heap, flags, size))
            return super().alloc(heap, flags, size)

    steps = (Alloc("b", 8), Alloc("c", 9, heap=-1, flags=0), Alloc("d", 8, own=True))
    backend = ReferenceBackend()
    trace = run_memory_case(MemoryCase(steps), QnnEntry(backend.get_providers, backend), Asked())
    assert asked == [(25, 1, 8), (-1, 0, 9)]
    assert all(step.values[0] for step in trace.steps)
