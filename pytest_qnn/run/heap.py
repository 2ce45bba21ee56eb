"""Shared memory of the client's own: from the system's DMA heap where there is one, else a memfd."""

from __future__ import annotations

import ctypes
import fcntl
import os

from pytest_qnn.isolation import libc

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
        fd = _from_heap(size) if os.path.exists(_HEAP) else _from_memfd(size)
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


def _from_memfd(size: int) -> int:
    fd = os.memfd_create("own", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd
