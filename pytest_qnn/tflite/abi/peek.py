"""Read C values at an address, quickly.

The whole address space is one ctypes buffer, never touched as such: `struct` and numpy then read single
values from it in about 0.1 us, where a ctypes object per value takes a microsecond. As in C, a wrong
address ends the process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MEMORY: Final[Any] = (ctypes.c_char * (1 << 56)).from_address(0)
"""All user-space memory of a 64-bit Linux process: 47 bits of addresses on x86-64, 48 or 52 on AArch64."""

_INT: Final = struct.Struct("=i")
_POINTER: Final = struct.Struct("=Q")


@functools.lru_cache(maxsize=1024)
def _layout(count: int, code: str) -> struct.Struct:
    return struct.Struct(f"={count}{code}")


def integer(address: int) -> int:
    """The C int at ``address``."""
    value: int = _INT.unpack_from(MEMORY, address)[0]
    return value


def pointer(address: int) -> int:
    """The pointer at ``address``; 0 for NULL."""
    value: int = _POINTER.unpack_from(MEMORY, address)[0]
    return value


def set_pointer(address: int, value: int) -> None:
    """Store a pointer at ``address``."""
    _POINTER.pack_into(MEMORY, address, value)


def replace_pointer(address: int, value: int) -> None:
    """Store a pointer at ``address``, also in a page that is only read, as what a library declares const.

    By the file of this process's memory, to which the rights of a page do not apply.
    """
    try:
        memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(memory, _POINTER.pack(value), address)
        finally:
            os.close(memory)
    except OSError:  # there is no such file, or a kernel that is set so refuses it
        set_pointer(address, value)


def integers(address: int) -> tuple[int, ...]:
    """A TfLiteIntArray; empty for NULL."""
    if not address:
        return ()
    return _layout(_INT.unpack_from(MEMORY, address)[0], "i").unpack_from(MEMORY, address + 4)


def all_integers(addresses: Iterable[int]) -> list[tuple[int, ...]]:
    """The TfLiteIntArray at each of the addresses, as `integers`."""
    return [integers(address) for address in addresses]


def floats(address: int) -> tuple[float, ...]:
    """A TfLiteFloatArray of the form {int size; float data[]}; empty for NULL."""
    if not address:
        return ()
    return _layout(_INT.unpack_from(MEMORY, address)[0], "f").unpack_from(MEMORY, address + 4)


def vector(address: int, code: str) -> tuple[int, ...]:
    """A std::vector at ``address`` of elements with the struct code ``i`` (int) or ``Q`` (pointer)."""
    begin, end = _layout(2, "Q").unpack_from(MEMORY, address)
    return _layout((end - begin) // struct.calcsize(code), code).unpack_from(MEMORY, begin)


def text(address: int) -> str:
    """A C string; empty for NULL."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def array(address: int, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A writable view, without copying, of a dense array at ``address``."""
    count = 1
    for length in shape:
        count *= length
    if not count:
        return np.empty(shape, dtype)
    return np.frombuffer(MEMORY, dtype, count, address).reshape(shape)


@functools.lru_cache(maxsize=1024)
def array_type(element: Any, length: int) -> Any:
    """The ctypes array type, made once and kept.

    ctypes forgets one that nobody holds. To make it again for each delegate fills tables of Python's, which
    grow by a thousand bytes then, now and then: in the middle of what a rule measures.
    """
    return element * length


def int_array(values: tuple[int, ...]) -> Any:
    """A TfLiteIntArray of our own (a ctypes object to keep alive while C reads it)."""
    return array_type(ctypes.c_int, len(values) + 1)(len(values), *values)
