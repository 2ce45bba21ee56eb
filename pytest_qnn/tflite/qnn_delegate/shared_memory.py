"""Custom memory of the QNN delegate: shared memory that tensors are placed in (seed 000).

The two functions have the contract of TfLiteQnnDelegateAllocCustomMem and TfLiteQnnDelegateFreeCustomMem:
they belong to the process, not to one delegate, and the client owns what it gets.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem

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
    """Blocks of rpcmem, found again by any address inside them.

    The methods with an underscore are the hooks: each is one decision, and a mutant overrides one of them.
    """

    def __init__(self, rpcmem: EmulatedRpcmem | None = None) -> None:
        self.rpcmem = rpcmem or EmulatedRpcmem()
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()
        self.leaving: list[Callable[[Block], None]] = []
        """Called with each block before it is given back: whoever has registered it lets go of it."""

    def alloc(self, size: int, alignment: int) -> int:
        """``size`` bytes at a multiple of ``alignment`` (a power of two), or 0 on failure."""
        if size <= 0 or alignment <= 0 or alignment & (alignment - 1):
            return 0
        total = self._total(size, alignment)
        base = self.rpcmem.alloc(_HEAP, _FLAGS, total)
        if not base:
            return 0
        pointer = self._align(base, alignment)
        with self._lock:
            self._blocks[pointer] = Block(base, total, pointer, size, self.rpcmem.to_fd(base))
        return pointer

    def free(self, pointer: int) -> None:
        """Give a block back; a pointer that is NULL or not from `alloc` is ignored."""
        with self._lock:
            block = self._find_to_free(pointer)
            if block is not None:
                del self._blocks[block.pointer]
        if block is None:
            return
        for tell in list(self.leaving):
            tell(block)
        self._give_back(block)

    def find(self, address: int, size: int) -> Block | None:
        """The block in which ``size`` bytes at ``address`` lie."""
        with self._lock:
            for block in self._blocks.values():
                if block.pointer <= address and address + size <= block.pointer + block.size:
                    return block
        return None

    def retire(self) -> None:
        """A delegate is destroyed: the client keeps what it has."""

    def _total(self, size: int, alignment: int) -> int:
        """Bytes to ask rpcmem for, so that ``size`` are left behind the first multiple of the alignment."""
        return size + alignment

    def _align(self, base: int, alignment: int) -> int:
        return -(-base // alignment) * alignment

    def _find_to_free(self, pointer: int) -> Block | None:
        return self._blocks.get(pointer)

    def _give_back(self, block: Block) -> None:
        self.rpcmem.free(block.base)


CUSTOM_MEMORY = SharedMemory()
"""That of this process."""
