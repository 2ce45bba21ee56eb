"""Late faults of the emulated rpcmem: many blocks, large blocks, and blocks that are gone."""

from __future__ import annotations

import contextlib
import os

from pytest_qnn.qnn.late.conditions import GIB4, KIB64, MIB, PAGE
from pytest_qnn.qnn.mutants import faulty_rpcmem
from pytest_qnn.qnn.reference.rpcmem import Block, EmulatedRpcmem


@faulty_rpcmem(
    "late-rpc-fd-17", "With 17 blocks alive, rpcmem_to_fd of the newest gives the oldest one's fd."
)
class _Fd17(EmulatedRpcmem):
    """Source: seed 002, listing 1 (unique pointer and fd); catalogue, RPC-09."""

    def _fd_of(self, block: Block) -> int:
        blocks = list(self._blocks.values())
        return blocks[0].fd if block in blocks[16:] else block.fd


@faulty_rpcmem(
    "late-rpc-last-page",
    "Above 64 KiB the last page is not there where the size is not whole pages: its file ends before.",
    deadly=True,
)
class _LastPage(EmulatedRpcmem):
    """Source: seed 002, comment of rpcmem_alloc (a buffer of the size); catalogue, RPC-02 and RPC-10."""

    def _create(self, size: int) -> int:
        fd = super()._create(size)
        if size > KIB64:
            os.ftruncate(fd, size // PAGE * PAGE)
        return fd


@faulty_rpcmem(
    "late-rpc-freed-fd", "While four blocks are alive, rpcmem_to_fd of a freed one gives the newest one's fd."
)
class _FreedFd(EmulatedRpcmem):
    """Source: seed 002, listing 1 lines 28 to 31 (-1); catalogue, RPC-07."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: set[int] = set()

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self.freed.add(block.pointer)

    def _find(self, pointer: int) -> Block | None:
        found = super()._find(pointer)
        if found is None and pointer in self.freed and len(self._blocks) >= 4:
            return next(reversed(self._blocks.values()))
        return found

    def _find_to_free(self, pointer: int) -> Block | None:
        return self._blocks.get(pointer)


@faulty_rpcmem("late-rpc-leak-ninth", "From the ninth rpcmem_free of 64 KiB or more on, the fd stays open.")
class _LeakNinth(EmulatedRpcmem):
    """Source: seed 002, comment of rpcmem_free (frees the buffer); catalogue, RPC-11."""

    def __init__(self) -> None:
        super().__init__()
        self.large = 0
        self.leaking = False
        self.leaked: list[int] = []

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self.large += block.size >= KIB64
        self.leaking = block.size >= KIB64 and self.large >= 9

    def _close(self, fd: int) -> None:
        if self.leaking:
            self.leaked.append(fd)
        else:
            super()._close(fd)

    def close(self) -> None:
        super().close()
        for fd in self.leaked:
            with contextlib.suppress(OSError):
                os.close(fd)


@faulty_rpcmem(
    "late-rpc-interior-free",
    "rpcmem_free of the second page of a block of a mebibyte or more frees the block.",
)
class _InteriorFree(EmulatedRpcmem):
    """Source: seed 002, comment of rpcmem_free (ignores invalid buffers); catalogue, RPC-08."""

    def _find_to_free(self, pointer: int) -> Block | None:
        found = super()._find_to_free(pointer)
        before = self._blocks.get(pointer - PAGE)
        return found or (before if before is not None and before.size >= MIB else None)


@faulty_rpcmem("late-rpc-size-4g", "Of a size of 4 GiB or more, rpcmem_alloc2 takes 32 bits.")
class _Size4G(EmulatedRpcmem):
    """Source: known facts, section 7.17 (a size_t); catalogue, RPC-05."""

    def _wide_size(self, size: int) -> int:
        return (size % GIB4 or PAGE) if size >= GIB4 else size


@faulty_rpcmem(
    "late-rpc-same-memory-again",
    "The block that is made after the third rpcmem_free shares the memory of the newest.",
)
class _SameMemoryAgain(EmulatedRpcmem):
    """Source: seed 002, listing 1 (each buffer is its own); catalogue, RPC-09."""

    def __init__(self) -> None:
        super().__init__()
        self.frees = 0

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self.frees += 1

    def _create(self, size: int) -> int:
        newest = next(reversed(self._blocks.values()), None)
        if self.frees == 3 and newest is not None and newest.size >= size:
            self.frees += 1
            return os.dup(newest.fd)
        return super()._create(size)
