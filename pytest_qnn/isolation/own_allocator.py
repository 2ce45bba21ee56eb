"""Memory of a library that does not take it from malloc: measured by the pages of its mappings."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe import resident_bytes

_MALLOC_ARENA = 64 << 20
"""Bytes: arenas of malloc for further threads begin at multiples of it (glibc, HEAP_MAX_SIZE)."""
_LARGE = 64 * 1024
"""Bytes of a mapping that is no single chunk of an allocator that maps more when it needs more."""

Spans = list[tuple[int, int]]


class OwnAllocator:
    """What it holds: the mapping in which something of the library lies, and those that come later.

    Args:
        address: of what lies there.
        lines: /proc/self/maps.
    """

    def __init__(self, address: int, lines: Sequence[str]) -> None:
        self._address = address
        self._others: Spans | None = None
        begin, end = self._home(lines)
        self.full = end - begin >= _LARGE and resident_bytes(begin, end - begin) == end - begin
        """All of a large mapping is present: which part of it is in use does not show."""

    @classmethod
    def of(cls, address: int, lines: Sequence[str]) -> OwnAllocator | None:
        """That in whose memory the address lies; None: it is malloc's, or a variable of a library."""
        lies = any(begin <= address < end for begin, end in _anonymous(lines))
        return cls(address, lines) if lies and not libc.in_library(address) else None

    def resident(self, lines: Sequence[str]) -> int:
        """Bytes that are present. Mappings that were there at the first call are others'."""
        home = self._home(lines)
        if self._others is None:
            self._others = [span for span in _anonymous(lines) if span != home]
        spans = [home, *_without([span for span in _anonymous(lines) if span != home], self._others)]
        return sum(resident_bytes(begin, end - begin) for begin, end in spans)

    def _home(self, lines: Sequence[str]) -> tuple[int, int]:
        found = (span for span in _anonymous(lines) if span[0] <= self._address < span[1])
        return next(found, (self._address, self._address))


def _anonymous(lines: Sequence[str]) -> Spans:
    """Private writable mappings without a name that may be an allocator's, but not malloc's.

    An arena of malloc's has its `_MALLOC_ARENA` bytes of addresses to itself, and may be several mappings,
    one right behind the other: it grows in pieces.
    """
    spans, arena = [], 0
    for line in lines:
        span, permissions, *_, name = [*line.split(None, 5), ""][:6]
        if permissions != "rw-p" or name.strip():
            continue
        begin, end = (int(word, 16) for word in span.split("-"))
        if begin % _MALLOC_ARENA == 0 or begin == arena:
            arena = end
        else:
            spans.append((begin, end))
    return spans


def _without(spans: Spans, others: Spans) -> Spans:
    """The parts of the spans that are in none of the others."""
    for first, last in others:
        spans = [
            part
            for begin, end in spans
            for part in ((begin, min(end, first)), (max(begin, last), end))
            if part[0] < part[1]
        ]
    return spans
