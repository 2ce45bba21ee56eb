"""What an ELF library says of its symbols: addresses of functions, local ones included, exports and needs.

LiteRT exports next to nothing but ships its symbol table, so its C functions can be called at load
address + symbol value. The file is read here, since a fresh machine has no ``nm``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SHT_SYMTAB: Final = 2
_SHT_DYNSYM: Final = 11
_STT_FUNC: Final = 2
_STB_LOCAL: Final = 0
_STB_WEAK: Final = 2
_HIDDEN: Final = (1, 2)
"""STV_INTERNAL and STV_HIDDEN."""


@dataclasses.dataclass(frozen=True)
class DynamicSymbols:
    """The names that a library gives to the loader."""

    exports: frozenset[str]
    """Defined, not local and not hidden: what others may be bound to."""
    undefined: frozenset[str]
    """Needed from others, and not weak."""


def load_address(library: Path) -> int:
    """Where this process has loaded ``library``.

    Raises:
        LookupError: it is not loaded.
    """
    wanted = str(library.resolve())
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(wanted):
            return int(line.partition("-")[0], 16)
    raise LookupError(f"{library} is not loaded")


def function_offsets(library: Path) -> dict[str, int]:
    """Name of each function in .symtab and .dynsym -> its offset from the load address.

    Raises:
        ValueError: the file is not a 64-bit little-endian ELF file, or a damaged one.
    """
    image = _image(library)
    return {
        _text(image, start): value
        for start, info, _, _, value in _symbols(image, (_SHT_SYMTAB, _SHT_DYNSYM))
        if value and info & 15 == _STT_FUNC
    }


def dynamic_symbols(library: Path) -> DynamicSymbols:
    """The names in .dynsym.

    Raises:
        ValueError: the file is not a 64-bit little-endian ELF file, or a damaged one.
    """
    image = _image(library)
    exports, undefined = set(), set()
    for start, info, other, section, _ in _symbols(image, (_SHT_DYNSYM,)):
        binding = info >> 4
        if section and binding != _STB_LOCAL and other & 3 not in _HIDDEN:
            exports.add(_text(image, start))
        elif not section and binding not in (_STB_LOCAL, _STB_WEAK):
            undefined.add(_text(image, start))
    return DynamicSymbols(frozenset(exports), frozenset(undefined))


def _image(library: Path) -> bytes:
    image = library.read_bytes()
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library} is not a 64-bit little-endian ELF file")
    return image


def _text(image: bytes, start: int) -> str:
    return image[start : image.index(b"\0", start)].decode(errors="replace")


def _symbols(image: bytes, kinds: tuple[int, ...]) -> Iterator[tuple[int, int, int, int, int]]:
    """(where its name starts, info, other, section, value) of each symbol in the tables of these kinds.

    Raises:
        ValueError: the file ends before them, or they lead nowhere.
    """
    try:
        yield from _listed(image, kinds)
    except (struct.error, IndexError):
        raise ValueError("its tables of sections and symbols lead out of the file") from None


def _listed(image: bytes, kinds: tuple[int, ...]) -> Iterator[tuple[int, int, int, int, int]]:
    (section_table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [_SECTION.unpack_from(image, section_table + size * index) for index in range(count)]
    for section in sections:
        if section[1] not in kinds:
            continue
        strings = sections[section[6]][4]
        table = memoryview(image)[section[4] : section[4] + section[5]]
        for name, info, other, at, value, _ in _SYMBOL.iter_unpack(table):
            yield strings + name, info, other, at, value
