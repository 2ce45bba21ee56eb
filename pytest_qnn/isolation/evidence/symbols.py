"""Native frames by name: from the symbols of ELF files, and from ``addr2line`` where it is installed."""

from __future__ import annotations

import bisect
import functools
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

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


class Symbols:
    """The functions of an ELF file, by address.

    Args:
        content: the file.

    Raises:
        ValueError: it is no 64-bit little-endian ELF file, or is cut off.
        struct.error: the same.
    """

    def __init__(self, content: bytes | mmap.mmap) -> None:
        if content[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit ELF file")
        header = _HEADER.unpack_from(content)
        programs, sections = header[5], header[6]
        program_size, program_count, section_size, section_count = header[9:13]
        self._loads = [
            _Load(offset, address, size)
            for kind, _, offset, address, _, size, _, _ in (
                _PROGRAM.unpack_from(content, programs + number * program_size)
                for number in range(program_count)
            )
            if kind == _PT_LOAD
        ]
        table = [
            _SECTION.unpack_from(content, sections + number * section_size) for number in range(section_count)
        ]
        found: dict[int, tuple[int, str]] = {}
        # The whole table, where it was not stripped, overrules the names for the loader.
        for wanted in (_SHT_DYNSYM, _SHT_SYMTAB):
            for section in table:
                if section[1] == wanted:
                    names = table[section[6]]
                    found |= _functions(content, section[4], section[5], names[4], names[5])
        self._starts = sorted(found)
        self._found = found

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
        size, name = self._found[start]
        return (name, start) if address < start + max(size, 1) else None


def _functions(
    content: bytes | mmap.mmap, at: int, size: int, names_at: int, names_size: int
) -> dict[int, tuple[int, str]]:
    """Size and name by address. Of several names the first in the alphabet: the same in each run."""
    names = content[names_at : names_at + names_size]
    table = content[at : at + size - size % _SYMBOL.size]
    found: dict[int, tuple[int, str]] = {}
    for name_at, info, _, section, value, length in _SYMBOL.iter_unpack(table):
        if info & 15 not in (_STT_FUNC, _STT_GNU_IFUNC) or not section or not value:
            continue
        end = names.find(b"\0", name_at)
        one = (length, names[name_at:end].decode(errors="replace"))
        if value not in found or one[1] < found[value][1]:
            found[value] = one
    return found


@functools.lru_cache(maxsize=32)
def _symbols(file: str) -> Symbols | None:
    try:
        with (
            Path(file).open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return Symbols(content)
    except (OSError, ValueError, IndexError, struct.error):
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in done.stdout.splitlines():
        place = line.partition(" (")[0]
        yield "" if place.startswith("??") or place.endswith((":?", ":0")) else place
