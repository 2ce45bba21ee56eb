"""Observe this process through /proc: no answer of the target's is needed or trusted.

Resident bytes come from /proc/self/pagemap, which says for each page whether it is present: the Rss of
/proc/self/smaps, without walking every other mapping of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Iterator

from pytest_qnn.isolation import libc

REGION_SLACK = 64 * 1024
"""An allocator may add a header and round up: a region of ``size`` has [size, size + 64 KiB) bytes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 0xC0
"""Top byte of a pagemap entry: bit 63 present, bit 62 swapped."""
_IS_PRESENT = bytes(bool(top & _PRESENT) for top in range(256))

_FLAGS = 6
"""Place of the flags in /proc/self/task/*/stat behind the name: field 9 of proc(5)."""
_EXITING = 0x4
"""PF_EXITING of linux/sched.h: the thread's own code is over."""

_ARENA = 1 << 20
"""Bytes that CPython 3.10 and later map at a time for objects of up to 512 bytes (Objects/obmalloc.c)."""
_SMALL = 400
"""Bytes of an object that is one of them, whatever its header takes."""

_LARGE = 128 * 1024
"""Bytes of a block that glibc maps on its own, unless it was told or has learned otherwise."""
_REUSED = 32 << 20
"""Bytes of the largest block that it may be told to take from its heap (DEFAULT_MMAP_THRESHOLD_MAX)."""
_IS_MAPPED = 0x2
"""IS_MMAPPED of glibc's malloc/malloc.c, in the word before a block."""
_REUSING: list[bool] = []
"""Not empty: this process keeps freed memory."""

_LISTING = 1 << 20
"""Bytes of memory for /proc/self/maps: about 15,000 lines."""
_LISTINGS: list[bytearray] = []
"""Such memory that no thread uses now: it is kept, so that it is the same at each look."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What /proc says of this process."""

    fds: int
    """Open descriptors."""
    lines: tuple[str, ...]
    """/proc/self/maps."""
    virtual: int
    """Bytes mapped."""
    resident: int
    """Bytes resident."""

    def counts(self) -> dict[str, int]:
        """``fds``, ``mappings``, ``memfds`` (mappings of memfds), ``memfd:NAME`` each, ``vm``, ``rss``."""
        found = {
            "fds": self.fds,
            "mappings": len(self.lines),
            "memfds": 0,
            "vm": self.virtual,
            "rss": self.resident,
        }
        for line in self.lines:
            if "/memfd:" in line:
                name = line.partition("/memfd:")[2].removesuffix(" (deleted)")
                found["memfds"] += 1
                found[f"memfd:{name}"] = found.get(f"memfd:{name}", 0) + 1
        return found


def snapshot() -> Snapshot:
    """The state of this process now.

    What the look itself takes is not in it: the text of some thousand mappings, read in the usual way, is a
    block of a tensor's size that comes and goes.
    """
    listing = _LISTINGS.pop() if _LISTINGS else bytearray(_LISTING)
    listing, length = _read_maps(listing)
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = statm.read().split()
    lines = tuple(str(memoryview(listing)[:length], "utf-8", "surrogateescape").splitlines())
    _LISTINGS.append(listing)
    # The listing of descriptors has one open meanwhile.
    return Snapshot(descriptors(), lines, int(pages[0]) * _PAGE, int(pages[1]) * _PAGE)


def malloc_in_use() -> int | None:
    """Bytes that malloc has given out, None where nobody says it.

    Without what `snapshot` keeps for its next look: that is more once there were thousands of mappings.
    """
    used = libc.malloc_in_use()
    return None if used is None else used - sum(map(len, _LISTINGS))


def _read_maps(listing: bytearray) -> tuple[bytearray, int]:
    """/proc/self/maps in ``listing``, or in a larger one where it is too long; and how many bytes it has."""
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        length = 0
        while read := maps.readinto(memoryview(listing)[length:]):
            length += read
            if length == len(listing):
                listing, length = bytearray(2 * length), 0
                maps.seek(0)
    return listing, length


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd")) - 1


def threads() -> int:
    """How many threads this process has.

    One that was joined may still be listed for a moment: the kernel wakes who waits for it before that.
    """
    return sum(map(_is_live, os.listdir("/proc/self/task")))


def _is_live(thread: str) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as stat:
            words = stat.read().rpartition(b")")[2].split()  # behind the name, which may hold anything
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not int(words[_FLAGS]) & _EXITING


def regions(
    lines: Collection[str],
    size: int,
    *,
    own_inodes: Collection[tuple[int, int]] = (),
    own_addresses: Collection[int] = (),
) -> tuple[tuple[int, int], ...]:
    """Writable mappings of ``size`` bytes or up to 64 KiB more, as (address, resident bytes).

    Mappings of the files ``own_inodes`` (device, inode) and mappings that hold one of ``own_addresses``
    are left out: they are the observer's. So are the heap and the stack, which reach any size as they grow;
    large blocks do not lie there (`large_blocks_visible`).
    """
    found = []
    for line in lines:
        span, _, rest = line.partition(" ")
        begin, _, behind = span.partition("-")
        start, end = int(begin, 16), int(behind, 16)
        if not size <= end - start < size + REGION_SLACK:  # most of some hundred lines end here
            continue
        permissions, _, device, inode, *name = rest.split(None, 4)
        if "w" not in permissions or (name and name[0].strip() in ("[heap]", "[stack]")):
            continue
        if inode != "0" and (device_of(device), int(inode)) in own_inodes:
            continue
        if any(start <= address < end for address in own_addresses):
            continue
        found.append((start, resident_bytes(start, end - start)))
    return tuple(found)


Spans = tuple[tuple[int, int], ...]
"""Begin and end of each mapping, in order."""


def spans_of(lines: Collection[str]) -> Spans:
    """The mappings but for the heap, which grows by more than small blocks need."""
    found = []
    for line in lines:
        if not line.endswith("[heap]"):
            begin, _, end = line.partition(" ")[0].partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return tuple(found)


def bytes_beyond(before: Spans, after: Spans) -> int:
    """Bytes that are mapped afterwards and were not before, whatever was given back meanwhile.

    The kernel lists mappings by address, and neighbours that are alike as one.
    """
    found = sum(end - begin for begin, end in after)
    one = other = 0
    while one < len(before) and other < len(after):
        found -= max(0, min(before[one][1], after[other][1]) - max(before[one][0], after[other][0]))
        if before[one][1] < after[other][1]:
            one += 1
        else:
            other += 1
    return found


def resident_bytes(address: int, size: int) -> int:
    """How many bytes of whole pages in [address, address + size) are present or swapped out."""
    first, last = address // _PAGE, -(-(address + size) // _PAGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        entries = os.pread(pagemap.fileno(), (last - first) * 8, first * 8)
    return entries[7::8].translate(_IS_PRESENT).count(1) * _PAGE


def written_bytes() -> int | None:
    """Bytes of this process's private memory that were written to, swapped out or not; None: nobody says.

    Unlike resident memory they hold no page of a library's file that was only read, and a page that this
    process shares with one that it was forked from stays one page when it is written to.
    """
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
            sizes = dict(line.split(":", 1) for line in rollup if ":" in line and line[0].isupper())
    except OSError:
        return None
    return sum(int(sizes[name].split()[0]) << 10 for name in ("Anonymous", "Swap") if name in sizes)


def private_mappings(*, anonymous: bool) -> list[tuple[int, int]]:
    """Address and bytes of each private writable mapping; ``anonymous``: of the heap and its like only."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            span, permissions, *_, name = [*line.split(None, 5), ""][:6]
            if permissions == "rw-p" and not (anonymous and name.strip() not in ("", "[heap]")):
                begin, end = (int(word, 16) for word in span.split("-"))
                found.append((begin, end - begin))
    return found


def mappings_of(file: tuple[int, int]) -> int:
    """How many mappings of this file, (device, inode), the process has."""
    return mappings_by_file()[file]


def mappings_by_file() -> Counter[tuple[int, int]]:
    """How many mappings of each file, (device, inode), the process has; memory without a file is none."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        words = [line.split(None, 5) for line in maps]
    named = ((device, inode) for _, _, _, device, inode, *_ in words if inode != "0")
    return Counter((device_of(device), int(inode)) for device, inode in named)


def reuse_freed_memory() -> None:
    """Have glibc keep the memory of blocks of up to 32 MiB when they are freed, for the next ones.

    By default it gives a megabyte's array back to the system, which hands out the next one page by page: a
    third of the processor time of judging the reference backend. This is for a process without a
    foreign target: what such a one uses after it is freed shows best where it is gone.
    """
    if libc.mallopt is not None:
        libc.mallopt(libc.M_MMAP_THRESHOLD, _REUSED)
        libc.mallopt(libc.M_TRIM_THRESHOLD, 2 * _REUSED)
        _REUSING.append(True)


@contextlib.contextmanager
def large_blocks_visible() -> Iterator[None]:
    """Have glibc map each large block on its own meanwhile.

    By default its threshold rises whenever a mapped block is freed, and later blocks hide in the heap. So do
    those that fit into a free part of it: nothing large is left free meanwhile.
    """
    if libc.mallopt is None:
        yield
        return
    libc.mallopt(libc.M_MMAP_THRESHOLD, _LARGE)
    blocks = list(_free_parts())
    try:
        yield
    finally:
        for block in blocks:
            libc.free(block)
        if _REUSING:
            libc.mallopt(libc.M_MMAP_THRESHOLD, _REUSED)


def _free_parts() -> Iterator[int]:
    """Large parts of the heap that were free, as blocks of malloc's, which the caller frees."""
    size = _REUSED
    while size >= _LARGE:
        block = libc.malloc(size)
        if block is None:
            return
        if ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MAPPED:
            libc.free(block)
            size //= 2
        else:
            yield block


def small_blocks_in_reserve() -> object:
    """Reserve a mebibyte for Python's small objects, as long as what is returned is kept.

    Python maps memory for them a mebibyte at a time, whenever the last is full: where that happens between
    two snapshots, it hides a library's buffer, or is taken for memory that a target keeps.
    """
    blocks = [bytes(_SMALL) for _ in range(2 * _ARENA // _SMALL)]
    return blocks[-1]  # the arena that it is in came last, and is used last


def file_of(fd: int) -> tuple[int, int] | None:
    """(device, inode) of an open descriptor; None: it is none."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def device_of(text: str) -> int:
    """The number of a device that a line of /proc/self/maps writes as ``MAJOR:MINOR`` in hexadecimal."""
    major, minor = text.split(":")
    return os.makedev(int(major, 16), int(minor, 16))
