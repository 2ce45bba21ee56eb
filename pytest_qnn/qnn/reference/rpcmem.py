"""An emulation of rpcmem on memfds: real shared memory with real descriptors, no hardware.

The contract is that of the upstream implementation (fastrpc, ``src/rpcmem_linux.c``): the pointer is page
aligned, the size is a C int above 0, ``to_fd`` knows exact base pointers only, and ``free`` ignores what
it does not know: the memory that its caller means stays allocated, which whoever asks is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.host.shared_memory import shared_memory
from pytest_qnn.qnn.abi.rpcmem import INT_MAX


class Block:
    """One live allocation."""

    __slots__ = ("fd", "pointer", "size")

    def __init__(self, pointer: int, size: int, fd: int) -> None:
        self.pointer = pointer
        self.size = size
        self.fd = fd


class EmulatedRpcmem:
    """rpcmem_alloc, rpcmem_free and rpcmem_to_fd as methods.

    The methods with an underscore are the hooks: each is one decision or one system call, and a mutant
    overrides one of them.
    """

    name = "emulated"

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()
        self.on_wrong_free: Callable[[str], None] | None = None
        """Is told in a sentence of each free that frees nothing. Cases of the suite do so on purpose."""

    def alloc(self, heap: int, flags: int, size: int) -> int:  # noqa: ARG002 - rpcmem_alloc has them
        """The address of ``size`` bytes of shared memory, or 0 on failure."""
        return self._allocate(size) if self._acceptable(size) else 0

    def alloc2(self, heap: int, flags: int, size: int) -> int | None:  # noqa: ARG002 - rpcmem_alloc2 has them
        """The same for sizes that no int holds."""
        return self._allocate(self._wide_size(size)) if size > 0 else 0

    def _wide_size(self, size: int) -> int:
        """The size that rpcmem_alloc2 works with."""
        return size

    def _allocate(self, size: int) -> int:
        try:
            fd = self._create(size)
        except OSError:
            return 0
        pointer = self._map(fd, size)
        if not pointer:
            self._close(fd)
            return 0
        with self._lock:
            self._blocks[pointer] = Block(pointer, size, fd)
        return pointer

    def free(self, pointer: int) -> None:
        """Unmap and close a live allocation; anything else is ignored."""
        with self._lock:
            wrong = self._why_nothing(pointer) if self.on_wrong_free and pointer else ""
            block = self._find_to_free(pointer)
            if block is not None:
                self._forget(block)
        if wrong and self.on_wrong_free is not None:
            self.on_wrong_free(f"emulated rpcmem: rpcmem_free({pointer:#x}) frees nothing: {wrong}")
        if block is not None:
            self._unmap(block)
            self._close(block.fd)

    def _why_nothing(self, pointer: int) -> str:
        """Why there is nothing to free, in the words of native/cdsprpc.c; empty: there is."""
        if pointer in self._blocks:
            return ""
        for block in self._blocks.values():
            if block.pointer < pointer < block.pointer + block.size:
                offset = pointer - block.pointer
                return f"it is byte {offset} of an allocation of {block.size} bytes at {block.pointer:#x}"
        return "no live allocation has this address"

    def to_fd(self, pointer: int) -> int:
        """The descriptor of the live allocation that begins at ``pointer``, or -1."""
        with self._lock:
            block = self._find(pointer)
        return self._fd_of(block) if block is not None else -1

    def close(self) -> None:
        """Release what is still allocated."""
        for pointer in list(self._blocks):
            self.free(pointer)

    def _acceptable(self, size: int) -> bool:
        return 0 < size <= INT_MAX

    def _create(self, size: int) -> int:
        return shared_memory("rpcmem", size)

    def _map(self, fd: int, size: int) -> int:
        protection = libc.PROT_READ | libc.PROT_WRITE
        pointer: int | None = libc.mmap(None, size, protection, libc.MAP_SHARED, fd, 0)
        return 0 if pointer in (None, libc.MAP_FAILED) else pointer

    def _find(self, pointer: int) -> Block | None:
        """The allocation that ``to_fd`` is asked for."""
        return self._blocks.get(pointer)

    def _find_to_free(self, pointer: int) -> Block | None:
        """The allocation that ``free`` is to release."""
        return self._find(pointer)

    def _forget(self, block: Block) -> None:
        self._blocks.pop(block.pointer, None)

    def _fd_of(self, block: Block) -> int:
        return block.fd

    def _unmap(self, block: Block) -> None:
        libc.munmap(block.pointer, block.size)

    def _close(self, fd: int) -> None:
        libc.close_given(fd)
