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
        before: the same from before the library's first call, if that is known. Linux makes one mapping of
            two that touch: what was there is no part of what the library has mapped.
    """

    def __init__(self, address: int, lines: Sequence[str], before: Sequence[str] = ()) -> None:
        self._address = address
        known = _anonymous(before)
        self._known = [] if _at(known, address) else known
        self._others: Spans | None = None
        home = self._home(lines)
        size = sum(end - begin for begin, end in home)
        self.full = size >= _LARGE and _resident(home) == size
        """All of a large mapping is present: which part of it is in use does not show."""

    @classmethod
    def of(cls, address: int, lines: Sequence[str], before: Sequence[str] = ()) -> OwnAllocator | None:
        """That in whose memory the address lies; None: it is malloc's, or a variable of a library."""
        lies = _at(_anonymous(lines), address) and not libc.in_library(address)
        return cls(address, lines, before) if lies else None

    def resident(self, lines: Sequence[str]) -> int:
        """Bytes that are present. Mappings that were there at the first call are others'."""
        spans = _anonymous(lines)
        around = _at(spans, self._address)
        rest = [span for span in spans if span not in around]
        if self._others is None:
            self._others = rest
        return _resident([*self._home(lines), *_without(rest, self._others)])

    def _home(self, lines: Sequence[str]) -> Spans:
        return _without(_at(_anonymous(lines), self._address), self._known)


def _at(spans: Spans, address: int) -> Spans:
    """The span in which the address lies, if there is one."""
    return [(begin, end) for begin, end in spans if begin <= address < end]


def _resident(spans: Spans) -> int:
    return sum(resident_bytes(begin, end - begin) for begin, end in spans)


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
