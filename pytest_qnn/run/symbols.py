"""Addresses of functions in a loaded ELF library, local ones included.

LiteRT exports next to nothing but ships its symbol table, so its C functions can be called at load
address + symbol value.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SHT_SYMTAB: Final = 2
_SHT_DYNSYM: Final = 11
_STT_FUNC: Final = 2


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
        ValueError: the file is not a 64-bit little-endian ELF file.
    """
    image = library.read_bytes()
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library} is not a 64-bit little-endian ELF file")
    (section_table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    sections = [_SECTION.unpack_from(image, section_table + size * index) for index in range(count)]
    found: dict[str, int] = {}
    for section in sections:
        if section[1] not in (_SHT_SYMTAB, _SHT_DYNSYM):
            continue
        strings = sections[section[6]][4]
        table = memoryview(image)[section[4] : section[4] + section[5]]
        for name, info, _, _, value, _ in _SYMBOL.iter_unpack(table):
            if value and info & 15 == _STT_FUNC:
                start = strings + name
                found[image[start : image.index(b"\0", start)].decode()] = value
    return found
