"""Emulated rpcmem with one fault each, for the rules of RPC."""

from __future__ import annotations

import contextlib
import mmap
import os
import time

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.mutants import faulty_rpcmem
from pytest_qnn.qnn.reference.rpcmem import Block, EmulatedRpcmem


@faulty_rpcmem("rpc-unaligned", "Pointers are 16 bytes behind a page.", "RPC-03")
class _Unaligned(EmulatedRpcmem):
    """The pointer is 16 bytes behind the start of a page, as malloc's are."""

    def _map(self, fd: int, size: int) -> int:
        pointer = super()._map(fd, size + 16)
        return pointer + 16 if pointer else 0

    def _unmap(self, block: Block) -> None:
        moved = Block(block.pointer - 16, block.size + 16, block.fd)
        super()._unmap(moved)

    def _create(self, size: int) -> int:
        fd = super()._create(size)
        os.ftruncate(fd, size + 16)
        return fd


@faulty_rpcmem("rpc-cuts-size", "rpcmem_alloc2 uses 31 bits of the size.", "RPC-05")
class _CutsSize(EmulatedRpcmem):
    def _wide_size(self, size: int) -> int:
        return size & 0x7FFFFFFF or 1


@faulty_rpcmem("rpc-failed-map", "rpcmem_alloc2 gives MAP_FAILED where mmap fails.", "RPC-05")
class _FailedMap(EmulatedRpcmem):
    """Tests mmap's answer for NULL, which it never is."""

    def alloc2(self, heap: int, flags: int, size: int) -> int | None:
        return super().alloc2(heap, flags, size) or libc.MAP_FAILED


@faulty_rpcmem("rpc-shared-state", "Threads share the block under way.", "RPC-13")
class _SharedState(EmulatedRpcmem):
    """The descriptor of the block under way is kept where every thread sees it."""

    current = -1

    def _create(self, size: int) -> int:
        self.current = fd = super()._create(size)
        return fd

    def _map(self, fd: int, size: int) -> int:
        pointer = super()._map(fd, size)
        time.sleep(0.002)
        self.late = {**getattr(self, "late", {}), pointer: self.current}
        return pointer

    def _fd_of(self, block: Block) -> int:
        return int(self.late[block.pointer])


_PAGE = os.sysconf("SC_PAGE_SIZE")


@faulty_rpcmem("rpc-short", "Only the first page of an allocation is there.", "RPC-02")
class _ShortFile(EmulatedRpcmem):
    def _create(self, size: int) -> int:
        fd = super()._create(size)
        os.ftruncate(fd, min(size, _PAGE))
        return fd


@faulty_rpcmem("rpc-any-size", "A size of 0 or below gives one page.", "RPC-04")
class _AnySize(EmulatedRpcmem):
    def alloc(self, heap: int, flags: int, size: int) -> int:
        return super().alloc(heap, flags, size if size > 0 else _PAGE)


class _Spare(EmulatedRpcmem):
    """Keeps what a faulty method leaves behind, and releases it at the end of the case."""

    def __init__(self) -> None:
        super().__init__()
        self.spare_fds: list[int] = []
        self.spare_blocks: list[Block] = []

    def close(self) -> None:
        super().close()
        for fd in self.spare_fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        for block in self.spare_blocks:
            libc.munmap(block.pointer, block.size)


@faulty_rpcmem("rpc-dup-per-call", "Each rpcmem_to_fd opens a new descriptor.", "RPC-06")
class _DupPerCall(_Spare):
    def _fd_of(self, block: Block) -> int:
        self.spare_fds.append(os.dup(block.fd))
        return self.spare_fds[-1]


def _containing(blocks: dict[int, Block], pointer: int) -> Block | None:
    return next((b for b in blocks.values() if b.pointer <= pointer < b.pointer + b.size), None)


@faulty_rpcmem("rpc-interior-fd", "Interior pointers have their block's fd.", "RPC-07")
class _InteriorFd(EmulatedRpcmem):
    def _find(self, pointer: int) -> Block | None:
        return _containing(self._blocks, pointer)

    def _find_to_free(self, pointer: int) -> Block | None:
        return self._blocks.get(pointer)


@faulty_rpcmem("rpc-freed-fd", "Freed pointers keep their fd.", "RPC-07")
class _RemembersFds(EmulatedRpcmem):
    """A freed pointer still has a descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: dict[int, int] = {}

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self.freed[block.pointer] = block.fd

    def to_fd(self, pointer: int) -> int:
        fd = super().to_fd(pointer)
        return self.freed.get(pointer, -1) if fd < 0 else fd


@faulty_rpcmem("rpc-interior-free", "Freeing an interior pointer frees its block.", "RPC-08")
class _InteriorFree(EmulatedRpcmem):
    def _find_to_free(self, pointer: int) -> Block | None:
        return _containing(self._blocks, pointer)


@faulty_rpcmem("rpc-unknown-free", "Freeing an unknown pointer frees the last.", "RPC-08")
class _UnknownFreesLast(EmulatedRpcmem):
    def _find_to_free(self, pointer: int) -> Block | None:
        return super()._find_to_free(pointer) or next(reversed(self._blocks.values()), None)


@faulty_rpcmem("rpc-closes-again", "A second free closes a number used again.", "RPC-08")
class _ClosesAgain(EmulatedRpcmem):
    """A pointer that is freed again closes its old descriptor number, which may be used again by then."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}
        self.closed: set[int] = set()

    def _forget(self, block: Block) -> None:
        super()._forget(block)
        self.numbers[block.pointer] = block.fd

    def _find_to_free(self, pointer: int) -> Block | None:
        block = super()._find_to_free(pointer)
        number = self.numbers.get(pointer, -1)
        if block is None and number in {each.fd for each in self._blocks.values()} - self.closed:
            os.close(number)
            self.closed.add(number)
        return block

    def _close(self, fd: int) -> None:
        if fd in self.closed:
            self.closed.discard(fd)
        else:
            super()._close(fd)


@faulty_rpcmem("rpc-one-fd", "Every allocation has the first one's descriptor.", "RPC-09")
class _OneFd(EmulatedRpcmem):
    def _fd_of(self, block: Block) -> int:
        del block
        return next(iter(self._blocks.values())).fd


@faulty_rpcmem("rpc-private", "The client's mapping is a private copy.", "RPC-10")
class _Private(EmulatedRpcmem):
    def _map(self, fd: int, size: int) -> int:
        protection = libc.PROT_READ | libc.PROT_WRITE
        pointer: int | None = libc.mmap(None, size, protection, mmap.MAP_PRIVATE, fd, 0)
        return 0 if pointer in (None, libc.MAP_FAILED) else pointer


@faulty_rpcmem("rpc-leaks-fds", "rpcmem_free does not close the descriptor.", "RPC-11")
class _LeaksFds(_Spare):
    def _close(self, fd: int) -> None:
        self.spare_fds.append(fd)


@faulty_rpcmem("rpc-failure-keeps-fd", "An allocation that cannot be mapped keeps its descriptor.", "RPC-11")
class _FailureKeepsFd(EmulatedRpcmem):
    """The descriptor of memory that no address space has room for is not closed."""

    def _allocate(self, size: int) -> int:
        pointer = super()._allocate(size)
        if not pointer:
            self._create(1)
        return pointer


@faulty_rpcmem("rpc-leaks-mappings", "rpcmem_free does not unmap.", "RPC-11")
class _LeaksMappings(_Spare):
    def _unmap(self, block: Block) -> None:
        self.spare_blocks.append(block)


@faulty_rpcmem("rpc-other-heap-short", "Of heaps other than 25, only the first page is there.", "RPC-14")
class _OtherHeapShort(EmulatedRpcmem):
    _heap = 25

    def alloc(self, heap: int, flags: int, size: int) -> int:
        self._heap = heap
        return super().alloc(heap, flags, size)

    def _create(self, size: int) -> int:
        fd = super()._create(size)
        os.ftruncate(fd, size if self._heap == 25 else min(size, _PAGE))
        return fd


@faulty_rpcmem("rpc-flags-without-fd", "Memory with flags other than 1 has no descriptor.", "RPC-14")
class _FlagsWithoutFd(EmulatedRpcmem):
    def __init__(self) -> None:
        super().__init__()
        self._other: set[int] = set()

    def alloc(self, heap: int, flags: int, size: int) -> int:
        pointer = super().alloc(heap, flags, size)
        (self._other.discard if flags == 1 else self._other.add)(pointer)
        return pointer

    def to_fd(self, pointer: int) -> int:
        return -1 if pointer in self._other else super().to_fd(pointer)
