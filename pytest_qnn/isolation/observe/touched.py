"""Which memory the process touches while something runs: pages that are new to it, and pages that it uses.

New pages are counted by the kernel as minor faults (getrusage(2)), also those of memory that is given back
before the end. Used ones carry the mark that ``/proc/self/clear_refs`` takes away and ``/proc/self/smaps``
shows as Referenced (proc(5)), also those that were there before. What a device touches shows in neither.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import os
import re
import resource
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import device_of

_PAGE = os.sysconf("SC_PAGE_SIZE")
_REFERENCED = "1"
"""What takes the marks away, of all pages of the process."""
_MOST = 1 << 26
"""Bytes of a mapping that is made resident beforehand."""
_MANY = 128
"""Pages: more than the kernel forgets one by one."""
_LISTING = 1 << 21
"""Bytes of /proc/self/smaps, of some two thousand mappings."""
Files = Collection[tuple[int, int]]
"""(device, inode) of each."""


_NO_FILE = (0, 0)


class _Mapping(NamedTuple):
    begin: int
    end: int
    file: tuple[int, int]
    """(device, inode); an inode of 0 is none."""
    used: int
    """Bytes; 0 where the listing does not say."""


_HEAD = re.compile(rb"\n([0-9a-f]+)-([0-9a-f]+) .w\S+ \S+ (\S+) (\d+)")
"""The line of a mapping that can be written to, in maps and in smaps. Each line has a newline in front of it,
the first one too: of a literal beginning, unlike ``^``, the expression finds the next one at once."""
_USED = re.compile(rb"\nReferenced: +(\d+)")


class Touched(NamedTuple):
    """Memory that was touched, in bytes of whole pages."""

    new: int
    """Of pages that were new."""
    used: int
    """Of pages that were used and are still there."""
    own: dict[tuple[int, int], int]
    """The same of each of the client's files, in all its mappings."""
    mapped: dict[tuple[int, int], int]
    """Bytes of the writable mappings of each of those files at the beginning."""


@functools.cache
def _listing() -> tuple[mmap.mmap, int]:
    """What listings are read into, with its address: a mapping that is no other's, and is not counted."""
    memory = mmap.mmap(-1, _LISTING)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _forget_translations() -> None:
    """Let the processor look pages up again, which is when it marks them.

    A page whose translation it remembers is not marked, and taking the marks away leaves translations as they
    are (clear_refs_pte_range in fs/proc/task_mmu.c). Unmapping more than 33 pages that were used makes Linux
    on x86 forget all of the process (tlb_single_page_flush_ceiling).
    """
    with mmap.mmap(-1, _MANY * _PAGE) as many:
        for page in range(_MANY):
            many[page * _PAGE] = 1


class Watch:
    """One watch over the process, from `begin` to `end`. Mappings of ``files`` are not counted.

    They are made resident at the beginning, as far as there are any: their first use is no news.
    """

    def __init__(self, files: Files, addresses: Collection[int] = ()) -> None:
        """``addresses``: what lies in mappings that are not counted either."""
        self._files = files
        self._listing, listing = _listing()
        self._addresses = (*addresses, listing)
        self._mapped: dict[tuple[int, int], int] = {}
        self._faults = 0
        self._collects = False

    def begin(self) -> bool:
        """Whether the kernel lets the process see what it uses."""
        for begin, end, file, _ in [each for each in self._writable("maps") if self._is_own(each)]:
            if file in self._files:
                self._mapped[file] = self._mapped.get(file, 0) + end - begin
            if end - begin <= _MOST:
                libc.madvise(begin, end - begin, libc.MADV_POPULATE_WRITE)
        # Free blocks of the heap would serve some calls and not others, without a new page.
        libc.trim()
        # Looking for garbage, Python touches all of its objects.
        self._collects = gc.isenabled()
        gc.disable()
        # A huge page is one fault, whatever of it is needed.
        libc.huge_pages(allowed=False)
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
                marks.write(_REFERENCED)
        except OSError:
            self._leave()
            return False
        _forget_translations()
        self._faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return True

    def end(self) -> Touched:
        """What was touched since the beginning."""
        new = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - self._faults
        mappings = list(self._writable("smaps"))
        self._leave()
        own: dict[tuple[int, int], int] = {}
        for each in mappings:
            if each.file in self._files:
                own[each.file] = own.get(each.file, 0) + each.used
        used = sum(each.used for each in mappings if not self._is_own(each))
        return Touched(new * _PAGE, used, own, self._mapped)

    def _leave(self) -> None:
        libc.huge_pages(allowed=True)
        if self._collects:
            gc.enable()

    def _writable(self, listing: str) -> Iterator[_Mapping]:
        """The mappings that can be written to, as ``maps`` lists them, or ``smaps``, which takes its time.

        Pages of files that nobody writes to are marked by other processes as well, and hold no copies.
        """
        with open(f"/proc/self/{listing}", "rb", buffering=0) as file:
            rest, length = memoryview(self._listing), 1
            rest[:1] = b"\n"
            while read := file.readinto(rest[length:]):
                length += read
        for head in _HEAD.finditer(self._listing, 0, length):
            begin, end, device, inode = head.groups()
            used = _USED.search(self._listing, head.end(), length) if listing == "smaps" else None
            name = _NO_FILE if inode == b"0" else (device_of(device.decode()), int(inode))
            used_bytes = int(used[1]) * 1024 if used is not None else 0
            yield _Mapping(int(begin, 16), int(end, 16), name, used_bytes)

    def _is_own(self, mapping: _Mapping) -> bool:
        if mapping.file[1] and mapping.file in self._files:
            return True
        return any(mapping.begin <= address < mapping.end for address in self._addresses)
