"""Memory of a library that does not take it from malloc: measured by the pages of its mappings."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import resident_bytes

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
    """Private writable mappings without a name that may be an allocator's, but not malloc's."""
    spans, heap_end = [], 0
    split = [[*line.split(None, 5), ""] for line in lines]
    mappings = [(*_span(words[0]), words[1], words[5].strip()) for words in split]
    for at, (begin, end, permissions, name) in enumerate(mappings):
        if permissions != "rw-p" or name:
            continue
        if begin % _MALLOC_ARENA == 0 and _reserved_until(mappings[at:]) >= begin + _MALLOC_ARENA:
            heap_end = begin + _MALLOC_ARENA
        if begin >= heap_end:
            spans.append((begin, end))
    return spans


def _span(text: str) -> tuple[int, int]:
    begin, end = (int(word, 16) for word in text.split("-"))
    return begin, end


def _reserved_until(mappings: Sequence[tuple[int, int, str, str]]) -> int:
    """Where the addresses end that the first mapping and those right behind it have reserved, as malloc does.

    An arena of malloc's has its `_MALLOC_ARENA` bytes of addresses to itself, of which the first can be
    written, perhaps as several mappings (it grows in pieces), and the others cannot be read. That it begins
    at a multiple is no sign of it: Linux puts each mapping of 2 MiB or more at a multiple of 2 MiB, so that
    one of 32 of an allocator's own does, too.
    """
    until = mappings[0][0]
    for begin, end, permissions, name in mappings:
        if begin != until or permissions not in ("rw-p", "---p") or name:
            break
        until = end
    return until


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
