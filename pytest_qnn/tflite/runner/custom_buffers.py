"""Custom memory that a delegate offers: the two functions, and what is seen of what they give."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from pytest_qnn.core.contents import hashed
from pytest_qnn.isolation.observe.process import snapshot
from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.runner.delegates import DelegateFactory, LibraryFactory
from pytest_qnn.tflite.runtime.symbols import dynamic_symbols
from pytest_qnn.tflite.trace import InspectCounts

ALLOC: Final = "TfLiteQnnDelegateAllocCustomMem"
FREE: Final = "TfLiteQnnDelegateFreeCustomMem"
_MOST_FILLED: Final = 1 << 20
"""Bytes at each end of a buffer that are written and read; what is between them is looked up only."""


class CustomMemory(Protocol):
    """The two functions, which belong to the process and not to one delegate."""

    def alloc(self, size: int, alignment: int) -> int:
        """The pointer, or 0."""

    def free(self, pointer: int) -> None:
        """Give memory back."""


class NativeMemory:
    """The functions of a library (QnnTFLiteDelegate.h).

    Raises:
        AttributeError: it has not both of them.
        OSError: it cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._alloc: Any = getattr(library, ALLOC)
        self._alloc.restype, self._alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
        self._free: Any = getattr(library, FREE)
        self._free.restype, self._free.argtypes = None, (ctypes.c_void_p,)

    def alloc(self, size: int, alignment: int) -> int:
        """TfLiteQnnDelegateAllocCustomMem."""
        return self._alloc(size, alignment) or 0

    def free(self, pointer: int) -> None:
        """TfLiteQnnDelegateFreeCustomMem."""
        self._free(pointer)


def custom_memory(factory: DelegateFactory) -> CustomMemory | None:
    """What a delegate offers; None: nothing. Nothing of a library is called yet."""
    own: CustomMemory | None = getattr(factory, "custom_memory", None)
    if own is not None:
        return own
    return _native(factory.path) if isinstance(factory, LibraryFactory) else None


@functools.lru_cache(maxsize=8)
def _native(name: str) -> CustomMemory | None:
    try:
        return NativeMemory(name) if {ALLOC, FREE} <= dynamic_symbols(Path(name)).exports else None
    except (AttributeError, OSError, ValueError):  # none that can be loaded
        return None


def offering(chain: Sequence[DelegateFactory]) -> int:
    """Position of the first delegate that offers custom memory; -1: none does."""
    return next((at for at, factory in enumerate(chain) if custom_memory(factory) is not None), -1)


class CustomBuffer:
    """One allocation, as the client knows it; used like `guard_pages.Guarded`, with no guards.

    Args:
        memory: where it comes from.
        address: of it; 0: there is none.
        size: bytes.
        seed: contents to fill it with.
    """

    readonly = False

    def __init__(self, memory: CustomMemory, address: int, size: int, seed: int) -> None:
        self._memory = memory
        self.address = address
        self.size = size
        self.used = size
        self.given_back = False
        self._contents = hashed(min(size, _MOST_FILLED) // 4 + 1, seed).view(np.uint8)
        self.usable, self.shared = _mapped(address, size)
        if self.usable:
            for part in self._ends():
                part[:] = self._contents[: part.size]

    def look(self) -> InspectCounts:
        """How the memory is mapped, and whether it keeps its contents."""
        usable, shared = _mapped(self.address, self.size)
        kept = usable and all(bool((part == self._contents[: part.size]).all()) for part in self._ends())
        return InspectCounts(usable, shared, kept)

    def data(self) -> npt.NDArray[np.uint8]:
        """The buffer as bytes, without copying."""
        return peek.array(self.address, np.uint8, (self.size,))

    def overlaps(self, other: CustomBuffer) -> bool:
        """A byte is in both."""
        return self.address < other.address + other.size and other.address < self.address + self.size

    def give_back(self) -> None:
        """Free it. From now on it has no byte."""
        if not self.given_back:
            self.given_back, self.size, self.used = True, 0, 0
            self._memory.free(self.address)

    def open(self) -> None:
        """The client may always write."""

    def arm(self) -> None:
        """There is nothing to close."""

    def changed(self) -> int | None:
        """Bytes beside the data are not compared."""
        return None

    def _ends(self) -> tuple[npt.NDArray[np.uint8], ...]:
        whole = peek.array(self.address, np.uint8, (self.size,))
        if self.size <= 2 * _MOST_FILLED:
            return (whole[:_MOST_FILLED], whole[max(_MOST_FILLED, self.size - _MOST_FILLED) :])
        return (whole[:_MOST_FILLED], whole[-_MOST_FILLED:])


def _mapped(address: int, size: int) -> tuple[bool, bool]:
    """Whether every byte is mapped to be read and written; and that, in shared mappings only."""
    if not address:
        return False, False
    at, end, shared = address, address + max(size, 1), True
    for line in snapshot().lines:
        span, rights = line.split(maxsplit=2)[:2]
        first, last = (int(bound, 16) for bound in span.split("-"))
        if first <= at < last and rights.startswith("rw"):
            at = last
            shared = shared and rights[3] == "s"
        if at >= end:
            return True, shared
    return False, False
