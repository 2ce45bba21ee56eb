"""The client's shared memory: any rpcmem, a real libcdsprpc.so, and memory of the client's own."""

from __future__ import annotations

import ctypes
import fcntl
import os
from typing import Any, Protocol

from pytest_qnn.core.forms import is_soname
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import library_files
from pytest_qnn.isolation.host.shared_memory import shared_memory
from pytest_qnn.qnn.abi.rpcmem import ALLOC2, INT_MAX, PROTOTYPES

_POINTERS = ("rpcmem_alloc", "rpcmem_alloc2")
"""Functions that return an address."""


class RpcmemUnusable(Exception):  # noqa: N818 - a finding about a named file, not an error of ours
    """The named library is no rpcmem; the text is one clear sentence."""


class Rpcmem(Protocol):
    """rpcmem_alloc, rpcmem_free, rpcmem_to_fd."""

    @property
    def name(self) -> str:
        """``emulated``, or the library's path."""

    def alloc(self, heap: int, flags: int, size: int) -> int:
        """The address of ``size`` bytes of shared memory, or 0 on failure."""

    def alloc2(self, heap: int, flags: int, size: int) -> int | None:
        """As ``alloc`` with a size_t; None where the provider has no rpcmem_alloc2."""

    def free(self, pointer: int) -> None:
        """Release an allocation by its base address; anything else is ignored."""

    def to_fd(self, pointer: int) -> int:
        """The descriptor of the allocation that begins at ``pointer``, or -1."""

    def close(self) -> None:
        """Let go of the provider."""


class LibraryRpcmem:
    """rpcmem out of a loaded library."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name = name
        self._functions: dict[str, Any] = {}
        for symbol, (result, arguments) in PROTOTYPES.items():
            function = getattr(library, symbol)
            function.restype, function.argtypes = result, arguments
            self._functions[symbol] = call_log.noted(symbol, function, pointer=symbol in _POINTERS)
        self._wide: Any = getattr(library, "rpcmem_alloc2", None)
        if self._wide is not None:
            self._wide.restype, self._wide.argtypes = ALLOC2
            self._wide = call_log.noted("rpcmem_alloc2", self._wide, pointer=True)

    def alloc(self, heap: int, flags: int, size: int) -> int:
        """The address, or 0. A size that no C int holds cannot be asked for and gives 0 as well."""
        if not -INT_MAX - 1 <= size <= INT_MAX:
            return 0
        return self._functions["rpcmem_alloc"](heap, flags, size) or 0

    def alloc2(self, heap: int, flags: int, size: int) -> int | None:
        """rpcmem_alloc2; None where the library does not export it."""
        return None if self._wide is None else self._wide(heap, flags, size) or 0

    def free(self, pointer: int) -> None:
        """rpcmem_free."""
        self._functions["rpcmem_free"](pointer)

    def to_fd(self, pointer: int) -> int:
        """rpcmem_to_fd."""
        fd: int = self._functions["rpcmem_to_fd"](pointer)
        return fd

    def close(self) -> None:
        """Nothing: a loaded library stays."""


def open_rpcmem(path: str) -> LibraryRpcmem:
    """Load ``libcdsprpc.so``, or any library with its three symbols, by its path or by its name alone.

    Raises:
        RpcmemUnusable: the file is missing, is no library or lacks a symbol.
    """
    if not is_soname(path) and not os.path.isfile(path):
        raise RpcmemUnusable(f"the rpcmem library {path} does not exist")
    flaw = "" if is_soname(path) else library_files.flaw(path)
    if flaw:
        raise RpcmemUnusable(f"{path} {flaw}")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise RpcmemUnusable(f"{path} cannot be loaded as a shared library: {reason}") from None
    missing = [symbol for symbol in PROTOTYPES if not hasattr(library, symbol)]
    if missing:
        raise RpcmemUnusable(f"{path} is no rpcmem library: it does not export {', '.join(missing)}")
    return LibraryRpcmem(path, library)


_HEAP = "/dev/dma_heap/system"
_IOCTL_ALLOC = 0xC0184800
"""DMA_HEAP_IOCTL_ALLOC of linux/dma-heap.h."""


class _Request(ctypes.Structure):
    """struct dma_heap_allocation_data, 24 bytes."""

    _fields_ = (
        ("len", ctypes.c_uint64),
        ("fd", ctypes.c_uint32),
        ("fd_flags", ctypes.c_uint32),
        ("heap_flags", ctypes.c_uint64),
    )


def own_memory(size: int) -> tuple[int, int]:
    """(pointer, descriptor) of ``size`` bytes; (0, -1) on failure."""
    if size <= 0:
        return 0, -1
    try:
        fd = _from_heap(size) if os.path.exists(_HEAP) else shared_memory("own", size)
    except OSError:
        return 0, -1
    pointer = libc.mmap(None, size, libc.PROT_READ | libc.PROT_WRITE, libc.MAP_SHARED, fd, 0)
    if pointer in (None, libc.MAP_FAILED):
        os.close(fd)
        return 0, -1
    return pointer, fd


def _from_heap(size: int) -> int:
    heap = os.open(_HEAP, os.O_RDWR | os.O_CLOEXEC)
    try:
        request = _Request(len=size, fd_flags=os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(heap, _IOCTL_ALLOC, request)
        return int(request.fd)
    finally:
        os.close(heap)
