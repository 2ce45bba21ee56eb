"""Whether something lies in memory of malloc's."""

from __future__ import annotations

import ctypes
import mmap

from pytest_qnn.isolation.observe.own_allocator import OwnAllocator

ARENA = 64 << 20
BASE = 8 * ARENA


def lines(*spans: tuple[int, int]) -> list[str]:
    return [f"{begin:x}-{end:x} rw-p 00000000 00:00 0 \n" for begin, end in spans]


def reserved(begin: int, end: int) -> list[str]:
    return [f"{begin:x}-{end:x} ---p 00000000 00:00 0 \n"]


def test_an_arena_of_malloc_may_have_grown_in_pieces() -> None:
    pieces = lines(
        (BASE, BASE + 0x19000), (BASE + 0x19000, BASE + 0x419000), (BASE + 0x419000, BASE + 0x819000)
    )
    for place in (0x100, 0x20000, 0x500000):
        assert OwnAllocator.of(BASE + place, pieces + reserved(BASE + 0x819000, BASE + ARENA)) is None


def test_an_arena_of_malloc_may_be_full_and_have_another_behind_it() -> None:
    both = lines((BASE, BASE + ARENA), (BASE + ARENA, BASE + ARENA + 0x19000))
    both += reserved(BASE + ARENA + 0x19000, BASE + 2 * ARENA)
    for place in (0x100, ARENA + 0x100):
        assert OwnAllocator.of(BASE + place, both) is None


def test_a_mapping_where_an_arena_could_begin_is_an_allocator_of_its_own() -> None:
    """Linux puts what has 2 MiB at a multiple of 2 MiB: one of 32 begins at one of 64 MiB."""
    alone = lines((BASE, BASE + 0x400000))
    assert OwnAllocator.of(BASE, alone) is not None
    assert OwnAllocator.of(BASE, alone + lines((BASE + 0x500000, BASE + ARENA))) is not None


def test_a_mapping_by_itself_is_an_allocator_of_its_own() -> None:
    assert OwnAllocator.of(BASE + 0x20000, lines((BASE, BASE + 0x19000), (BASE + 0x1A000, BASE + 0x2A000)))


def test_what_was_mapped_before_is_no_part_of_a_mapping_that_has_grown_to_it() -> None:
    memory, page = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), 4096
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    own, end = begin + (2 << 20), begin + (4 << 20)
    ctypes.memset(own, 1, end - own)
    both, before = lines((begin, end)), lines((begin, own))
    found = OwnAllocator.of(own + page, both, before)
    assert found is not None
    assert found.full
    assert found.resident(both) == end - own
    merged = OwnAllocator.of(own + page, both)
    assert merged is not None
    assert not merged.full
    known = OwnAllocator.of(own + page, both, both)
    assert known is not None
    assert not known.full, "the library had it already: all of it counts"
