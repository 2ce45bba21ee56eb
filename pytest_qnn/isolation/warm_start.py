"""The warm start of a forked child: a heap that is cheap to fork, and pages copied ahead of the case.

A fork copies one page table entry per page of memory, and its end frees them: `compact` makes them fewer.

A forked child shares all memory with the supervisor (copy on write) and gets its own copy of a page by a page
fault, on the first write: for a process with Python in it these are some 1,500 pages a case, at 3 us each,
twice the time of the case itself. MADV_POPULATE_WRITE copies the same pages in half of that. `written_by`
finds out which pages these are, from one child that carries out a case on our own code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import struct
from collections.abc import Callable, Iterator

import msgspec

from pytest_qnn.isolation import libc, processes
from pytest_qnn.isolation.observe.process import private_mappings, resident_bytes

SWITCH = "PYTEST_QNN_WARM_START"
"""Environment variable: 0 turns off what this module does, and the fork ahead of a case's request, so that
``python -m benchmarks --only isolation`` can tell what they bring."""

Ranges = list[tuple[int, int]]
"""Address and bytes, whole pages each."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _OWN = 1 << 63, 1 << 56
"""Bits of an entry of /proc/PID/pagemap: the page is there; no other process maps it (since Linux 4.2)."""
_HUGE = 2 << 20
"""Bytes of a huge page (x86-64, arm64 with pages of 4 KiB)."""
_TIMEOUT = 5.0
"""Seconds for the child; without its answer cases copy their pages themselves."""


def enabled() -> bool:
    """Whether children are forked ahead, from a compact heap, with their pages copied."""
    return os.environ.get(SWITCH) != "0"


def compact() -> None:
    """Collect garbage for the last time, and gather small pages into huge ones.

    Kernels before Linux 6.1 refuse the second, which costs time and nothing else.
    """
    gc.collect()
    # Before a fork: objects in the permanent generation are not visited by a collection in the child, which
    # would write to, and so copy, their pages (https://docs.python.org/3/library/gc.html#gc.freeze).
    gc.freeze()
    for begin, size in private_mappings(anonymous=True):
        for address in range(-(-begin // _HUGE) * _HUGE, begin + size - _HUGE + 1, _HUGE):
            # Not a library's large table that hardly anybody uses: all of it would become resident.
            if resident_bytes(address, _HUGE) >= _HUGE // 2:
                libc.madvise(address, _HUGE, libc.MADV_COLLAPSE)


def written_by(work: Callable[[], None]) -> Ranges:
    """The ranges of this process' private memory that a fork of it must copy to do ``work``.

    A page that this child maps alone (bit 56 of its pagemap entry) has been written to since the fork. Empty
    where the kernel does not say or allows no further process, or ``work`` fails or takes longer than some
    seconds. This process must have a single thread.
    """
    shared = private_mappings(anonymous=False)
    read_fd, write_fd = os.pipe()
    try:
        pid = os.fork()
    except OSError:  # it costs time; who needs a process for a case will say that there is none
        os.close(read_fd)
        os.close(write_fd)
        return []
    if not pid:
        try:
            processes.die_with_parent()
            work()
            with open(write_fd, "wb") as answer_to:
                answer_to.write(msgspec.msgpack.encode(list(_own_pages(shared))))
        finally:
            os._exit(0)
    os.close(write_fd)
    answer = _read_all(read_fd)
    processes.kill([pid])
    os.waitpid(pid, 0)
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.msgpack.decode(answer, type=Ranges)
    return []


def copy(ranges: Ranges) -> None:
    """Make the ranges this process' own; kernels before Linux 5.14 refuse, which costs time only."""
    for address, size in ranges:
        if libc.madvise(address, size, libc.MADV_POPULATE_WRITE):
            return


def _own_pages(mappings: Ranges) -> Iterator[tuple[int, int]]:
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for begin, size in mappings:
            entries = os.pread(pagemap.fileno(), size // _PAGE * 8, begin // _PAGE * 8)
            first: int | None = None
            for number, (entry,) in enumerate((*struct.iter_unpack("<Q", entries), (0,))):
                own = entry & _PRESENT and entry & _OWN
                if own and first is None:
                    first = number
                elif not own and first is not None:
                    yield begin + first * _PAGE, (number - first) * _PAGE
                    first = None


def _read_all(read_fd: int) -> bytes:
    """What the child wrote until it closed its end, or nothing where it took too long."""
    received = b""
    poll = select.poll()
    poll.register(read_fd, select.POLLIN)
    with open(read_fd, "rb", buffering=0) as pipe:
        while poll.poll(_TIMEOUT * 1000):
            piece = pipe.read(1 << 16)
            if not piece:
                return received
            received += piece
    return b""
