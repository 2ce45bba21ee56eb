"""Native frames by name: from the symbols of ELF files, and from ``addr2line`` where it is installed."""

from __future__ import annotations

import bisect
import functools
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pytest_qnn.core import regular_file
from pytest_qnn.core.evidence import Evidence, Frame

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
"""Elf64_Ehdr."""
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
"""Elf64_Phdr."""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr."""
_SYMBOL: Final = struct.Struct("<IBBHQQ")
"""Elf64_Sym."""
_PT_LOAD, _SHT_SYMTAB, _SHT_DYNSYM, _STT_FUNC, _STT_GNU_IFUNC = 1, 2, 11, 2, 10
_MOST_SYMBOLS: Final = 2 << 20
"""Of one table: twice as many as the largest libraries have."""
_LONGEST_NAMES: Final = 1 << 28
"""Bytes of all names of a table."""
_LONGEST_NAME: Final = 1 << 12
"""Bytes of one name that are kept."""
_LARGEST_PART: Final = 1 << 23
"""Bytes of all headers of one kind, of which there are 65,535 at most."""
_PIECE: Final = 1 << 20
_LINE_SECONDS = 20.0
_RETURN = 1
"""A frame of a caller holds the address before the one that it goes on at: shown is where it goes on."""


def symbolised(evidence: Evidence) -> Evidence:
    """The same with the frames' texts, and lines where they are known."""
    return msgspec.structs.replace(evidence, frames=named(evidence.frames))


def named(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of one backtrace with their texts, and lines where they are known."""
    texts = [
        msgspec.structs.replace(frame, text=_text(frame, _RETURN if number else 0))
        for number, frame in enumerate(frames)
    ]
    lines = _lines(texts)
    return tuple(msgspec.structs.replace(frame, line=line) for frame, line in zip(texts, lines, strict=True))


def _text(frame: Frame, shift: int) -> str:
    """``libfoo.so+0x1234 (name+0x12)``; the addresses are those that the file's own symbols have."""
    if not frame.file:
        return "no code (a call to NULL)" if frame.offset < 1 << 12 else f"0x{frame.offset:x}, in no file"
    name = os.path.basename(frame.file)
    symbols = _symbols(frame.file)
    if symbols is None:
        return f"{name}+0x{frame.offset + shift:x}"
    address = symbols.address(frame.offset)
    symbol = symbols.at(address)
    inside = f" ({symbol[0]}+0x{address - symbol[1] + shift:x})" if symbol else ""
    return f"{name}+0x{address + shift:x}{inside}"


class _Load(NamedTuple):
    """A PT_LOAD program header."""

    offset: int
    address: int
    size: int


class _Table(NamedTuple):
    """A table of symbols as bytes, and their names behind one another, each with a zero byte at its end."""

    entries: bytes
    names: bytes


class Symbols:
    """The functions of an ELF file, by address.

    Nothing that the file says is believed: a target may have written it, or put another one in its place.
    What is taken of it into memory is bounded, however large it says that its parts are, and it may become
    shorter meanwhile, as where it is linked again.

    Args:
        fd: of the file.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, is cut off, or has larger tables than any.
        struct.error: the same.
        OSError: it cannot be read.
    """

    def __init__(self, fd: int) -> None:
        begin = _read(fd, 0, _HEADER.size)
        if begin[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit ELF file")
        header = _HEADER.unpack(begin)
        self._loads = [
            _Load(offset, address, size)
            for kind, _, offset, address, _, size, _, _ in _entries(fd, _PROGRAM, header[5], *header[9:11])
            if kind == _PT_LOAD
        ]
        sections = _entries(fd, _SECTION, header[6], *header[11:13])
        # The whole table, where it was not stripped, overrules the names for the loader.
        self._tables: list[_Table] = []
        self._found: dict[int, tuple[int, int, int]] = {}
        """By address size, table and where in its names its name begins."""
        for wanted in (_SHT_DYNSYM, _SHT_SYMTAB):
            # A file has one of each at most (gABI).
            section = next((section for section in sections if section[1] == wanted), None)
            if section is not None:
                names = sections[section[6]]
                table = _Table(
                    _read(fd, section[4], section[5], _MOST_SYMBOLS * _SYMBOL.size),
                    _read(fd, names[4], names[5], _LONGEST_NAMES),
                )
                self._found |= self._functions(table.entries, len(self._tables), table.names)
                self._tables.append(table._replace(entries=b""))
        self._starts = sorted(self._found)

    def address(self, offset: int) -> int:
        """The address, as the file's symbols count, of what is at this offset of the file."""
        for load in self._loads:
            if load.offset <= offset < load.offset + load.size:
                return offset - load.offset + load.address
        return offset

    def at(self, address: int) -> tuple[str, int] | None:
        """Name and address of the function that has this address; None: there is none."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start = self._starts[place]
        size, table, name_at = self._found[start]
        if address >= start + max(size, 1):
            return None
        return _name(self._tables[table].names, name_at).decode(errors="replace"), start

    @staticmethod
    def _functions(entries: bytes, table: int, names: bytes) -> dict[int, tuple[int, int, int]]:
        """As `_found`. Of several names the first in the alphabet: the same in each run."""
        found: dict[int, tuple[int, int, int]] = {}
        whole = memoryview(entries)[: len(entries) - len(entries) % _SYMBOL.size]
        for name_at, info, _, section, value, size in _SYMBOL.iter_unpack(whole):
            if info & 15 not in (_STT_FUNC, _STT_GNU_IFUNC) or not section or not value:
                continue
            other = found.get(value)
            if other is None or _name(names, name_at) < _name(names, other[2]):
                found[value] = (size, table, name_at)
        return found


def _name(names: bytes, at: int) -> bytes:
    """The name that begins there; of a very long one the beginning."""
    end = names.find(b"\0", at, at + _LONGEST_NAME)
    return names[at : end if end >= 0 else at + _LONGEST_NAME]


def _entries(fd: int, structure: struct.Struct, at: int, size: int, count: int) -> list[tuple[int, ...]]:
    """So many structures that are ``size`` bytes apart; raises as `Symbols`."""
    content = _read(fd, at, size * count)
    return [structure.unpack_from(content, number * size) for number in range(count)]


def _read(fd: int, at: int, size: int, most: int = _LARGEST_PART) -> bytes:
    """So many bytes of the file from there on, fewer at its end; raises as `Symbols`."""
    if size > most:
        raise ValueError(f"a part of it has {size} bytes")
    pieces = []
    while size and (piece := os.pread(fd, min(size, _PIECE), at)):
        pieces.append(piece)
        at += len(piece)
        size -= len(piece)
    return b"".join(pieces)


@functools.lru_cache(maxsize=32)
def _symbols(file: str) -> Symbols | None:
    try:
        with regular_file.opened(Path(file)) as fd:
            return Symbols(fd)
    except (OSError, OverflowError, ValueError, IndexError, struct.error):
        return None  # it is gone, or is no program


def _lines(frames: Sequence[Frame]) -> list[str]:
    """Source and line of each frame; empty: not known."""
    tool = shutil.which("addr2line")
    lines = [""] * len(frames)
    files = {frame.file for frame in frames if frame.file} if tool else ()
    for file in sorted(files):
        symbols = _symbols(file)
        mine = [number for number, frame in enumerate(frames) if frame.file == file]
        if symbols is not None:
            addresses = [symbols.address(frames[number].offset) for number in mine]
            for number, line in zip(mine, _asked(str(tool), file, addresses), strict=False):
                lines[number] = line
    return lines


def _asked(tool: str, file: str, addresses: Sequence[int]) -> Iterator[str]:
    """What ``addr2line`` says of these addresses."""
    command = [tool, "-e", file, *(f"0x{address:x}" for address in addresses)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    # A name of a source file may be in any encoding.
    for line in done.stdout.decode(errors="backslashreplace").split("\n")[:-1]:
        place = line.partition(" (")[0]
        yield "" if place.startswith("??") or place.endswith((":?", ":0")) else place
