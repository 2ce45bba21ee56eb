"""Custom memory of the QNN delegate: shared memory that tensors are placed in (seed 000).

The two functions have the contract of TfLiteQnnDelegateAllocCustomMem and TfLiteQnnDelegateFreeCustomMem:
they belong to the process, not to one delegate, and the client owns what it gets.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from pytest_qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.run.rpcmem import Rpcmem

_HEAP, _FLAGS = 25, 1
"""RPCMEM_HEAP_ID_SYSTEM and RPCMEM_DEFAULT_FLAGS."""


@dataclasses.dataclass(frozen=True)
class Block:
    """One allocation."""

    base: int
    """What rpcmem gave, and gets back."""
    total: int
    """Bytes from there."""
    pointer: int
    """What the client has: aligned as it asked."""
    size: int
    """Bytes that it asked for."""
    fd: int


class SharedMemory:
    """Blocks of rpcmem, found again by any address inside them."""

    def __init__(self, rpcmem: Rpcmem | None = None) -> None:
        self._rpcmem = rpcmem or EmulatedRpcmem()
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()
        self.leaving: list[Callable[[Block], None]] = []
        """Called with each block before it is given back: whoever has registered it lets go of it."""

    def alloc(self, size: int, alignment: int) -> int:
        """``size`` bytes at a multiple of ``alignment`` (a power of two), or 0 on failure."""
        if size <= 0 or alignment <= 0 or alignment & (alignment - 1):
            return 0
        total = size + alignment
        base = self._rpcmem.alloc(_HEAP, _FLAGS, total)
        if not base:
            return 0
        pointer = -(-base // alignment) * alignment
        with self._lock:
            self._blocks[pointer] = Block(base, total, pointer, size, self._rpcmem.to_fd(base))
        return pointer

    def free(self, pointer: int) -> None:
        """Give a block back; a pointer that is NULL or not from `alloc` is ignored."""
        with self._lock:
            block = self._blocks.pop(pointer, None)
        if block is None:
            return
        for tell in list(self.leaving):
            tell(block)
        self._rpcmem.free(block.base)

    def find(self, address: int, size: int) -> Block | None:
        """The block in which ``size`` bytes at ``address`` lie."""
        with self._lock:
            for block in self._blocks.values():
                if block.pointer <= address and address + size <= block.pointer + block.size:
                    return block
        return None


CUSTOM_MEMORY = SharedMemory()
"""That of this process."""
