"""What loaded libraries import, and where they have the addresses of it, in this process.

A library calls functions of others through a table of its own (the global offset table of the ELF
specification), which the loader fills in. Who puts another address there stands in the place of a function
for that library alone. Nothing here puts anything back.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from pytest_qnn.isolation import libc


class Loaded(NamedTuple):
    """Something that the loader has loaded: the begin of its struct link_map (dlinfo(3))."""

    address: int
    """Of the struct."""
    base: int
    path: str
    dynamic: int
    """Where its table of what the loader needs to know is."""


class Import(NamedTuple):
    """A place where a library has the address of a function that it imports."""

    place: int
    name: str
    direct: bool
    """It is a variable, which the library may have changed since."""
    own: bool
    """The library has a function of this name too, which it may mean."""

    @property
    def value(self) -> int:
        """What is there; before the first call of a function that is a place in the library itself."""
        return ctypes.c_uint64.from_address(self.place).value


def loaded(handle: int) -> Iterator[Loaded]:
    """All that is loaded: before and behind what dlopen gave this handle for."""
    at = handle
    while previous := _words(at, 5)[4]:
        at = previous
    while at:
        base, name, dynamic, following, _ = _words(at, 5)
        path = ctypes.string_at(name).decode(errors="surrogateescape") if name else ""
        yield Loaded(at, base, path, dynamic)
        at = following


def _words(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", ctypes.string_at(address, 8 * count))


_NULL, _PLT_SIZE, _STRINGS, _SYMBOLS, _RELA, _RELA_SIZE, _STRINGS_SIZE, _PLT = 0, 2, 5, 6, 7, 8, 10, 23
"""DT_*: tags of the dynamic table."""
_DIRECT = 1
_KINDS: Final = (_DIRECT, 6, 7)
"""R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT."""
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION: Final = np.dtype([("place", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])


def imports(of: Loaded, names: Collection[str]) -> Iterator[Import]:
    """Where an object has the addresses of the functions of these names."""
    tags: dict[int, int] = {}
    at = of.dynamic
    while (entry := _words(at, 2))[0] != _NULL:
        tags[entry[0]] = entry[1]
        at += 16
    # The loader has added the base to addresses; the kernel's own object (vdso) it leaves as it is.
    if tags.get(_SYMBOLS, 0) < of.base or not {_STRINGS, _STRINGS_SIZE} <= tags.keys():
        return
    known = _places(ctypes.string_at(tags[_STRINGS], tags[_STRINGS_SIZE]), names)
    for table, size in ((_RELA, _RELA_SIZE), (_PLT, _PLT_SIZE)):
        content = ctypes.string_at(tags[table], tags[size]) if table in tags and size in tags else b""
        found = np.frombuffer(content, _RELOCATION)
        # A library may have a hundred thousand, nearly all of them of no symbol.
        found = found[np.isin(found["kind"], _KINDS) & (found["symbol"] > 0) & (found["addend"] == 0)]
        if not found.size:
            continue
        most = int(found["symbol"].max())
        symbols = np.frombuffer(ctypes.string_at(tags[_SYMBOLS], (most + 1) * _SYMBOL.itemsize), _SYMBOL)
        found = found[np.isin(symbols["name"][found["symbol"]], list(known))]
        for offset, kind, symbol, _ in found.tolist():
            name, own = symbols["name"][symbol], symbols["section"][symbol] != 0
            yield Import(of.base + offset, known[int(name)], kind == _DIRECT, bool(own))


def _places(strings: bytes, names: Collection[str]) -> dict[int, str]:
    """Where names are in a table of strings; the end of a longer one serves as a shorter one too."""
    found: dict[int, str] = {}
    for name in names:
        text = name.encode() + b"\0"
        at = strings.find(text)
        while at >= 0:
            found[at] = name
            at = strings.find(text, at + 1)
    return found


def address(library: ctypes.CDLL, name: str) -> int:
    """Of a function that the library has, or that it depends on; 0: there is none."""
    found = getattr(library, name, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


def put(place: int, value: int) -> None:
    """Put an address there."""
    page = place & -mmap.PAGESIZE
    # The loader makes such pages read-only where a library asks for it (RELRO).
    libc.protect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.c_uint64.from_address(place).value = value
