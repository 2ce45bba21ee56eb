"""Shared mappings of descriptors, kept by address: no file descriptor and no Python buffer stays open."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation.host.shared_memory import shared_memory

_LIBC = ctypes.CDLL(None, use_errno=True)
_MMAP: Any = _LIBC.mmap
_MMAP.restype = ctypes.c_void_p
_MMAP.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_MUNMAP: Any = _LIBC.munmap
_MUNMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class ReleasedError(RuntimeError):
    """Memory was used that is not, or no longer, mapped."""


class Mapping:
    """A shared, writable mapping of a whole descriptor.

    `mmap.mmap` would duplicate the descriptor and refuse to close while a view exists; a backend
    written in C does neither, and tests count descriptors. A mapping is in ``live`` until its release.

    Raises:
        OSError: the kernel refuses (not mappable, opened read-only, no memory).
    """

    __slots__ = ("_live", "address", "length")

    def __init__(self, fd: int, length: int, live: set[Mapping]) -> None:
        address = _MMAP(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self.address: int = address
        self.length = length
        self._live = live
        live.add(self)

    def view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes [offset, offset + size) as a uint8 array without a copy; drop it before `release`.

        Raises:
            ReleasedError: the range is not inside a live mapping. C would crash; Python must not.
        """
        if not self.address or offset < 0 or offset + size > self.length:
            raise ReleasedError(f"bytes {offset}..{offset + size} are not mapped")
        return at(self.address + offset, size)

    def release(self) -> None:
        """Unmap; a second release does nothing."""
        if self.address:
            _MUNMAP(self.address, self.length)
            self.address = 0
            self._live.discard(self)


def at(address: int, size: int) -> npt.NDArray[np.uint8]:
    """``size`` bytes of this process as a uint8 array without a copy."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


def anonymous(name: str, size: int, live: set[Mapping]) -> Mapping:
    """Fresh zeroed memory of ``size`` bytes that /proc/self/maps shows under ``memfd:name``."""
    # The mapping outlives its descriptor, so tests that count descriptors do not see the backend's own.
    fd = shared_memory(name, size)
    try:
        return Mapping(fd, size, live)
    finally:
        os.close(fd)
