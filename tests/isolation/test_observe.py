from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import (
    REGION_SLACK,
    Spans,
    bytes_beyond,
    descriptors,
    large_blocks_visible,
    regions,
    resident_bytes,
    reuse_freed_memory,
    small_blocks_in_reserve,
    snapshot,
    spans_of,
    written_bytes,
)

ARENA = 1 << 20
"""Bytes that Python maps at a time for small objects."""
SIZE = 3 * 1024 * 1024 + mmap.PAGESIZE


@pytest.fixture
def elsewhere() -> set[int]:
    """Addresses of regions of this size that the process happens to have already."""
    return {address for address, _ in regions(snapshot().lines, SIZE)}


@pytest.fixture
def block(elsewhere: set[int]) -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, SIZE) as mapping:
        assert address_of(mapping) not in elsewhere
        yield mapping


def fresh(elsewhere: set[int], **own: Any) -> tuple[tuple[int, int], ...]:
    """The regions of this size that have come since."""
    return tuple(found for found in regions(snapshot().lines, SIZE, **own) if found[0] not in elsewhere)


def address_of(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def test_an_opened_descriptor_is_counted() -> None:
    before = descriptors()
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        assert descriptors() == before + 1
        assert snapshot().counts()["fds"] == before + 1
    finally:
        os.close(fd)
    assert descriptors() == before


def test_mappings_of_a_memfd_are_counted_under_its_name() -> None:
    fd = os.memfd_create("observed thing")
    os.ftruncate(fd, mmap.PAGESIZE)
    first, second = mmap.mmap(fd, mmap.PAGESIZE), mmap.mmap(fd, mmap.PAGESIZE)
    assert snapshot().counts()["memfd:observed thing"] == 2
    first.close()
    assert snapshot().counts()["memfd:observed thing"] == 1
    second.close()
    os.close(fd)
    assert "memfd:observed thing" not in snapshot().counts()


def test_a_new_mapping_is_a_region_and_its_touched_pages_are_resident(
    block: mmap.mmap, elsewhere: set[int]
) -> None:
    address = address_of(block)
    assert fresh(elsewhere) == ((address, 0),)
    block[0] = 1
    block[SIZE - 1] = 1
    assert fresh(elsewhere) == ((address, 2 * mmap.PAGESIZE),)


def test_resident_bytes_agree_with_smaps(block: mmap.mmap) -> None:
    for page in range(0, SIZE, 7 * mmap.PAGESIZE):
        block[page] = 1
    address = address_of(block)
    with open("/proc/self/smaps") as smaps:
        rows = iter(smaps)
        next(row for row in rows if row.startswith(f"{address:x}-"))
        rss = next(int(row.split()[1]) for row in rows if row.startswith("Rss:"))
    assert resident_bytes(address, SIZE) == rss * 1024


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(SIZE, True), (SIZE + 1, False), (SIZE - REGION_SLACK + 1, True), (SIZE - REGION_SLACK, False)],
)
def test_a_region_is_up_to_64_kib_larger_than_wanted(block: mmap.mmap, wanted: int, found: bool) -> None:
    assert (address_of(block) in dict(regions(snapshot().lines, wanted))) is found


@pytest.mark.parametrize(
    ("before", "after", "beyond"),
    [
        ((), ((10, 20), (30, 35)), 15),
        (((10, 20),), ((10, 20),), 0),
        (((10, 20),), (), 0),  # given back
        (((10, 20), (40, 50)), ((20, 30), (40, 50)), 10),  # as much was given back as came
        (((10, 20),), ((10, 30),), 10),  # one mapping with what was there
        (((20, 30),), ((10, 40),), 20),
        (((10, 20), (30, 40)), ((5, 45),), 20),
        (((10, 40),), ((15, 20), (25, 30), (35, 50)), 10),
    ],
)
def test_what_is_mapped_beyond_another_look_does_not_depend_on_what_is_gone(
    before: Spans, after: Spans, beyond: int
) -> None:
    assert bytes_beyond(before, after) == beyond


def test_the_spans_of_this_process_are_in_order_and_without_the_heap() -> None:
    seen = snapshot()
    spans = spans_of(seen.lines)
    assert list(spans) == sorted(spans)
    assert sum(end - begin for begin, end in spans if end < 1 << 47) <= seen.virtual + (1 << 20)
    assert len(spans) == sum(not line.endswith("[heap]") for line in seen.lines)


@pytest.mark.parametrize("name", ["[heap]", "[stack]"])
def test_the_heap_and_the_stack_are_no_regions(name: str) -> None:
    line = next(line for line in snapshot().lines if line.rstrip().endswith(name))
    start, end = (int(word, 16) for word in line.split()[0].split("-"))
    assert not regions([line], end - start)
    other = line.replace(name, "")
    assert [address for address, _ in regions([other], end - start)] == [start]


def test_a_mapping_that_cannot_be_written_is_no_region(elsewhere: set[int]) -> None:
    with mmap.mmap(-1, SIZE, prot=mmap.PROT_READ):
        assert fresh(elsewhere) == ()


def test_memory_of_the_observer_is_no_region(block: mmap.mmap, elsewhere: set[int]) -> None:
    assert fresh(elsewhere, own_addresses=[address_of(block) + SIZE - 1]) == ()


def test_a_file_of_the_observer_is_no_region(elsewhere: set[int]) -> None:
    fd = os.memfd_create("own")
    os.ftruncate(fd, SIZE)
    status = os.fstat(fd)
    with mmap.mmap(fd, SIZE):
        assert len(fresh(elsewhere)) == 1
        assert fresh(elsewhere, own_inodes={(status.st_dev, status.st_ino)}) == ()
    os.close(fd)


def _nearly_full() -> list[bytes]:
    """Small objects that leave some 64 KiB of the memory that Python has mapped for their like."""
    held: list[bytes] = []
    before = after = snapshot().virtual
    while after - before < ARENA:
        before = after
        held.extend(bytes(400) for _ in range(40))
        after = snapshot().virtual
    held.extend(bytes(400) for _ in range((ARENA - 64 * 1024) // 448))
    return held


@pytest.mark.full
@pytest.mark.parametrize("reserved", [False, True])
def test_python_maps_memory_for_small_objects_only_without_a_reserve(reserved: bool) -> None:
    held: list[object] = [_nearly_full()]
    if reserved:
        held.append(small_blocks_in_reserve())
    before = snapshot().virtual
    held += (bytes(400) for _ in range(1000))
    grown = snapshot().virtual - before
    assert (grown < ARENA) is reserved


def in_heap(address: int) -> bool:
    """In one of its lines: the kernel may list a heap with two sorts of pages in several."""
    spans = [line.split()[0].split("-") for line in snapshot().lines if line.endswith("[heap]")]
    return any(int(start, 16) <= address < int(end, 16) for start, end in spans)


def made(size: int) -> int:
    """A block of malloc's that is freed at once; where it was."""
    block = libc.malloc(size)
    libc.free(block)
    return block


@pytest.mark.skipif(libc.mallopt is None, reason="it is not glibc that allocates memory")
def test_freed_memory_is_used_again_but_where_large_blocks_are_looked_for() -> None:
    reuse_freed_memory()  # as conftest.py has done
    room = libc.malloc(8 * SIZE)
    wall = libc.malloc(100)  # behind it: what is free does not reach the heap's end
    libc.free(room)
    try:
        assert in_heap(made(SIZE))
        with large_blocks_visible():
            assert not in_heap(made(SIZE))
            assert in_heap(made(1000))
        assert in_heap(made(SIZE))
    finally:
        libc.free(wall)


@pytest.fixture
def many_mappings() -> Iterator[int]:
    """Thousands of mappings, one page each; the bytes of their listing."""
    pages = 6000
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as block:
        first = address_of(block)
        for page in range(0, pages, 2):
            address = ctypes.c_void_p(first + page * mmap.PAGESIZE)
            assert ctypes.CDLL(None).mprotect(address, mmap.PAGESIZE, mmap.PROT_READ) == 0
        yield sum(len(line) + 1 for line in snapshot().lines)


def test_a_look_does_not_see_what_it_takes_itself(many_mappings: int) -> None:
    """A few hundred KiB of text: read in the usual way, it was a region in one look and none in the next."""
    sizes = range(REGION_SLACK, 2 * many_mappings, REGION_SLACK)
    with large_blocks_visible():
        reserve = small_blocks_in_reserve()
        assert [_new_regions(size) for size in sizes] == [1 for _ in sizes]
        del reserve


def _new_regions(size: int) -> int:
    """How many regions of this size are new when one block was mapped, where the look's own may have been."""
    before = {address for address, _ in regions(snapshot().lines, size)}
    with mmap.mmap(-1, size):
        return len({address for address, _ in regions(snapshot().lines, size)} - before)


def test_of_memory_only_what_was_written_to_counts(tmp_path: Path) -> None:
    size = 8 << 20
    read = tmp_path / "read"
    read.write_bytes(bytes(size))
    before = written_bytes()
    assert before is not None
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        assert (written_bytes() or 0) - before < size // 2
        with read.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
            assert mapped[:: mmap.PAGESIZE].count(0) == size // mmap.PAGESIZE
            assert (written_bytes() or 0) - before < size // 2
        block.write(bytes(size))
        assert (written_bytes() or 0) - before >= size
    assert (written_bytes() or 0) - before < size // 2
