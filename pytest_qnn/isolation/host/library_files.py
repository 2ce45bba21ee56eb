"""What the headers of a library's file say against it, before the loader is given it.

The loader says of a library of another architecture that there is no such file, and ends the process with
SIGBUS where the file is cut off.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

_HEADERS: Final = {1: struct.Struct("<16sHHIIIIIHHHHHH"), 2: struct.Struct("<16sHHIQQQIHHHHHH")}
"""Elf32_Ehdr and Elf64_Ehdr, by EI_CLASS."""
_BITS: Final = {1: 32, 2: 64}
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
"""Elf64_Phdr."""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr."""
_SHT_NULL, _SHT_NOBITS = 0, 8
_MACHINES: Final = {
    3: "x86",
    40: "32-bit Arm",
    62: "x86-64",
    164: "Hexagon",
    183: "AArch64",
    243: "RISC-V",
}
"""e_machine. Those of System V's registry that QNN and TensorFlow Lite are built for."""
_LITTLE_ENDIAN = 1


class _Header(NamedTuple):
    """What an ELF header says."""

    bits: int
    machine: int
    programs: int
    sections: int
    program_size: int
    program_count: int
    section_size: int
    section_count: int

    @property
    def built_for(self) -> str:
        """The architecture in words."""
        name = _MACHINES.get(self.machine, f"the machine {self.machine} of ELF")
        return name if self.bits == _BITS[2] or "32" in name else f"{name} ({self.bits}-bit)"


def flaw(path: str) -> str:
    """What is wrong with a library, to stand behind its path; empty: nothing that its headers show.

    Of a file that is no ELF file, or cannot be read, the loader says it better. Called where the library is
    to be loaded: with --qnn-on that is another machine.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _header(file)
            if header is None:
                return ""
            here = _own()
            if here is not None and (header.bits, header.machine) != (here.bits, here.machine):
                return f"is for {header.built_for}, and this machine is {here.built_for}"
            need = max(_ends(file, header, size), default=0) if header.bits == _BITS[2] else 0
    except OSError:
        return ""
    except EOFError:
        return f"is cut off: it has {size} bytes, and an ELF file has more"
    if need > size:
        return f"is cut off: its ELF headers speak of {need} bytes, and it has {size}"
    return ""


def _own() -> _Header | None:
    """The header of this program, whose architecture libraries must have."""
    try:
        with open("/proc/self/exe", "rb") as file:
            return _header(file)
    except (OSError, EOFError):
        return None


def _header(file: BinaryIO) -> _Header | None:
    """The ELF header; None: it has none, or is of a machine with the other order of bytes.

    Raises:
        EOFError: it ends within it.
    """
    ident = file.read(16)
    if ident[:4] != b"\x7fELF":
        return None
    if len(ident) < 16:
        raise EOFError
    form = _HEADERS.get(ident[4])
    if form is None or ident[5] != _LITTLE_ENDIAN:
        return None
    fields = form.unpack(_read(file, 0, form.size))
    return _Header(_BITS[ident[4]], fields[2], fields[5], fields[6], *fields[9:13])


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """Raises EOFError where the file ends before."""
    file.seek(at)
    content = file.read(size)
    if len(content) < size:
        raise EOFError
    return content


def _ends(file: BinaryIO, header: _Header, size: int) -> Iterator[int]:
    """Where each thing ends that the headers of a 64-bit file speak of: tables, segments and sections."""
    programs_end = header.programs + header.program_size * header.program_count
    sections_end = header.sections + header.section_size * header.section_count
    yield programs_end
    yield sections_end
    if header.program_size == _PROGRAM.size and programs_end <= size:
        table = _read(file, header.programs, programs_end - header.programs)
        yield from (offset + held for _, _, offset, _, _, held, _, _ in _PROGRAM.iter_unpack(table))
    if header.section_size == _SECTION.size and sections_end <= size:
        table = _read(file, header.sections, sections_end - header.sections)
        for _, kind, _, _, offset, held, *_ in _SECTION.iter_unpack(table):
            if kind not in (_SHT_NULL, _SHT_NOBITS):
                yield offset + held
