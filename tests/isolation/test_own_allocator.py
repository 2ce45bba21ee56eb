"""Whether something lies in memory of malloc's."""

from __future__ import annotations

from pytest_qnn.isolation.own_allocator import OwnAllocator

ARENA = 64 << 20
BASE = 8 * ARENA


def lines(*spans: tuple[int, int]) -> list[str]:
    return [f"{begin:x}-{end:x} rw-p 00000000 00:00 0 \n" for begin, end in spans]


def test_an_arena_of_malloc_may_have_grown_in_pieces() -> None:
    pieces = lines(
        (BASE, BASE + 0x19000), (BASE + 0x19000, BASE + 0x419000), (BASE + 0x419000, BASE + 0x819000)
    )
    for place in (0x100, 0x20000, 0x500000):
        assert OwnAllocator.of(BASE + place, pieces) is None


def test_a_mapping_by_itself_is_an_allocator_of_its_own() -> None:
    assert OwnAllocator.of(BASE + 0x20000, lines((BASE, BASE + 0x19000), (BASE + 0x1A000, BASE + 0x2A000)))
