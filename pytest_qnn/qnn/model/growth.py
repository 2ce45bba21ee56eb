"""By how much a process may grow over many rounds of the same calls, of which each gives back what it took.

A leak is the same for each round. What grows once, whatever the number of rounds, is none: memory that an
allocator keeps, and what a worker of a library's has still to give back.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_qnn.qnn.trace import GrowthCounts

RESIDENT = "resident bytes"
MALLOC = "bytes of malloc in use"
_FDS = 4
"""Descriptors that may be opened once, whatever the number of rounds."""
_MAPPINGS = 16
"""The same for mappings: an allocator's arenas."""
_RESIDENT = 1 << 20
"""Bytes by which the process may grow, whatever the number of rounds: allocators keep what they are given."""
_HEAP = 1 << 16
"""The same for what malloc has given out, which is counted exactly."""
_PER_ROUND = 64
"""Resident bytes for each round on top: less than what any table needs for an entry with a descriptor."""
_HEAP_PER_ROUND = 8
"""The same of malloc's, exact as it is: glibc's smallest block takes 32 bytes where pointers have eight. In
10,000 rounds it shows beside `_HEAP` also where only each second round keeps one."""


FIRST_KEPT = 4 << 20
"""Bytes of written memory that a process may keep of its first session: tables and pools that are made once.
The reference, its personalities and the libraries of tests/gallery keep at most 32 KiB (one with a pool).
Where the kernel makes huge pages of all mappings that are large enough, two of them may count in whole."""


class Growth(NamedTuple):
    """One quantity that grew by more than it may."""

    what: str
    """In the plural."""
    most: int
    seen: int


def beyond(counts: GrowthCounts) -> Growth | None:
    """The first quantity that grew by more than it may over ``counts.rounds``."""
    quantities = (
        Growth("open descriptors", _FDS, counts.fds),
        Growth("mappings", _MAPPINGS, counts.mappings),
        Growth(MALLOC, _HEAP + _HEAP_PER_ROUND * counts.rounds, counts.heap),
        Growth(RESIDENT, _RESIDENT + _PER_ROUND * counts.rounds, counts.rss),
    )
    return next((each for each in quantities if each.seen > each.most), None)
