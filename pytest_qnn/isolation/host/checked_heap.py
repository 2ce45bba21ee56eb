"""Checks what a library does with the memory that it requests, in this process: misuse ends the process.

A block that the library requests while its heap is checked lies in pages of its own, ends (but for what its
alignment leaves) where a page begins that nobody may use, and is never given out again. So an access behind
its end, or after it was freed, ends the process in the function that makes it; what was written just before
it, or in what its alignment leaves, and a block that is freed twice, end it where the block is freed.
Mappings that the library unmaps stay taken, so that one that is unmapped twice is told from what was mapped
there since. It is what AddressSanitizer does, without a compiler (`pytest_qnn/native/checked_heap.c`). Behind
the first 4,096 requests one in sixteen is chosen: a graph's compilation makes a hundred thousand.

The addresses of malloc and its like are exchanged in the library's own table
(`pytest_qnn.isolation.host.imports`), those of free and its like in each library's, since a block may be
freed by another one than that which requested it. Nothing is put back: the tables stay as they are until the
process ends. Not seen is what a library reaches by another way: a heap of its own, or a function of the C
library that frees what it is given (getline). A library that is loaded later must be known before blocks come
to it: carry out what is checked once before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.host.imports import Loaded, address, imports, loaded, put
from pytest_qnn.isolation.host.refusals import Lacking

CODE: Final = a2b_base64(
    "agDp+QEAAGYPH4QAAAAAAGoB6ekBAABmDx+EAAAAAABqAunZAQAAZg8fhAAAAAAAagPpyQEAAGYPH4QAAAAAAGoE6bkBAABmDx+EAAAA"
    "AABqBempAQAAZg8fhAAAAAAAagbpmQEAAGYPH4QAAAAAAGoH6YkBAABmDx+EAAAAAABqCOl5AQAAZg8fhAAAAAAAagnpaQEAAGYPH4QA"
    "AAAAAGoK6VkBAABmDx+EAAAAAABqC+lJAQAAZg8fhAAAAAAAagzpOQEAAGYPH4QAAAAAAGoN6SkBAABmDx+EAAAAAABqDukZAQAAZg8f"
    "hAAAAAAAag/pCQEAAGYPH4QAAAAAAGoQ6fkAAABmDx+EAAAAAABqEenpAAAAZg8fhAAAAAAAahLp2QAAAGYPH4QAAAAAAGoT6ckAAABm"
    "Dx+EAAAAAABqFOm5AAAAZg8fhAAAAAAAahXpqQAAAGYPH4QAAAAAAGoW6ZkAAABmDx+EAAAAAABqF+mJAAAAZg8fhAAAAAAAahjrfGZm"
    "Lg8fhAAAAAAAkGoZ62xmZi4PH4QAAAAAAJBqGutcZmYuDx+EAAAAAACQahvrTGZmLg8fhAAAAAAAkGoc6zxmZi4PH4QAAAAAAJBqHess"
    "ZmYuDx+EAAAAAACQah7rHGZmLg8fhAAAAAAAkGof6wxmZi4PH4QAAAAAAJBXVlJRQVBBUUiLfCQwTItEJBBIi0wkGEiLVCQgSIt0JCjo"
    "3AEAAEmJw0iJ0EFZQVhZWl5fSI1kJAhNhdt0A0H/48O6AQAAAEiJ0EiHR0hIhcB0BPOQ6/DDU0hj9kmJ0UUxwEiD7EhIi3T3WEKKFAZM"
    "icBJ/8CE0nQISYP4ZHXs6wNJicBIjVwkqEyJwUiJ3/OkuQEAAABIjXQkj78KAAAATInIMdJNicpI9/eDwjBJicGIFA5IicpIjUkBSYP6"
    "CXffSGPCSo0MA0CKPAZI/8hI/8FAiHn/hcB17v/KRTHSRTHJvwIAAABIY8JIid5JjRQASIPASEgB4EHGhABh////IEmDyP+4AQAAAMZE"
    "FKpCxkQUqwpIg8IEDwVIg8RIW8NIifBTSInySCtXIEjB4AhJifBIweoMSIn5JQD/DwBIweIESANXOEiJxkiDyAFIg84C8EgPsXIIdAwx"
    "20g5xg+Uw//D60pIiwJJjXjASYn5To0UAEyJ1kj33oHm/w8AAEGAOaV1D0n/wU05yHXyuwEAAADrAjHbRTHJTDnOdCBDgDwKpXUFSf/B"
    "6++7AwAAAEiLEoneSInP6Jz+///rQIPzAcHjAnUxSAHGSIHnAPD//0Ux0kUxyUwBxrgcAAAASYPI/7oEAAAASCn+DwW4CgAAADHSDwXr"
    "B7sEAAAA67GJ2FvDQVdBVkFVQVRJifRVU0iD7BhIix1uBQAATIu0+4gAAABIg/8UD4ejAAAASYn9SInVD4SqAgAASIP/EA+H6gIAAEiD"
    "/woPhJYCAAB3WUiD/wUPhLsCAAB3H0iD/wQPhIMCAABIg/8BD4foAQAAD4QtAgAA6bMCAABIg/8GD4Q1AgAASI1H+UiD+AEPh5sCAABI"
    "g/8ISMfA/////0gPRegxwOkgAgAASIP/DXR0dwhIg/8LdUbrGEiD/w4PhEkBAABIhfYPhZEBAADpygEAAEyJ4EgrQyBIO0MoD4O5AQAA"
    "TInmSInfRTH26DL+//+FwA+EowEAAOlaBAAATCtjIEUxwEw7YygPg2IEAABJwewMScHkBEwDYzhNiwQk6UoEAABIi4PwAAAASI2y/w8A"
    "AEiB5gDw//9IiQQkTY08NEH3xP8PAAB1BU05/HIJTIs0JOlEAQAASInf6OX8//9Mi2tATInoSY2VAAABAEmJxkw5OHMGTDtgCHIZSIPA"
    "EEg50HXpRTH26wtJg30IAHQJSYPFEEw56nXwTYX2dB1Iieq+BQAAAEiJ30jHQ0gAAAAA6KT8///pnAMAAEiDOwB0Pkk51XM5QboyQAAA"
    "SYPI/0UxyUyJ57gJAAAATInyDwVJOcR1Gk2JZQBNiX0ISMdDSAAAAADwSP9DGOmcAAAASMdDSAAAAADpQv///0H3wBAAEAAPhIIAAABI"
    "id9IAfXoIPz//0iLU0BIjYoAAAEASInQSDkocw5MO2AIcwgx9kiJcAjr6kiDwBBIOch15EjHQ0gAAAAA60NIhfZ0DUyJ4EgrQyBIO0Mo"
    "czFFMf9NheRBD5XHSYP9A3QKSYP9EA+FwgAAAEiJ6Ej34UiJxQ+BswAAAE2F5HQDRTH2RTHA6c0CAABIidBI9+ZIicUPkMAPtsBIiQQk"
    "cVXr4UiD+gd3L+vZQYA8PAB0EEiJBCRIizwkSP/ASDn9delIgzsAdLxIicXrd0yJ4esGSInRSIn1SI1F/0gh6EiJBCR1n0iDOwB0mUiJ"
    "7kUx/0iJzetWSIM7AHSI60ZIgzsAdIAx0kiJ9UUx/74AEAAASIkUJOs1SIM7AA+EY////zHATInlRTH/SIkEJOsYSIM7AEjHBCQAAAAA"
    "vhAAAAB0MesIRTH/vhAAAAC4AQAAAPBID8FDEEg9/w8AAHY9SLoVfEp/uXk3nkgPr8JIweg8dClFhf8PhAj///9Igf4AEAAAD4f4/v//"
    "uAEAAABIweAgSDnocyTp5f7//7gBAAAASMHgIEg56A+CAgEAAEiB/gAQAAAPh/UAAAC4EAAAAEg5xkgPQvBIjUQu/0j33kgh8EiNsD8Q"
    "AABIiUQkCEiB5gDw//9Ijb4AEAAA8EgPwXswSI0EPkiJRCQQSAUAEAAASDlDKA+CpQAAAEgDeyBFMdJJg8j/RTHJuAoAAAC6AwAAAA8F"
    "SIXAD4WCAAAASItEJAhIi1QkELlAAAAASCnCSANTILilAAAASI16wPOqSIH9AAAQAHcNSInXSInpuMsAAADzqkiLTCQISI08KrilAAAA"
    "SCnp86pIidFIidBIK0MgSYnQSMHhCEjB6AyB4QD/DwBIweAESANDOEiDyQFIiShIiUgI8Ej/QwhIhdJ1CEWF/+nH/f//SYP9AXVbSInX"
    "SInpMcDzqkWF/w+EhQAAAEyJ4EgrQyBMiUQkCEiJ10jB6AxIiRQkTInmSMHgBEgDQzhIiwhIOc1ID0bN86RMieZIid/oAfr//0iLFCRM"
    "i0QkCIXAdDLrJ0mNRflIg/gBdxZIiwwkSInXTInm86RIiwQkxgQCAOuPRYX/dAvrkUyLc1DpO/3//0mD/QZ1B0mJFCRFMcBFMfZIg8QY"
    "TInwTInCW11BXEFdQV5BX8MPH0QAAENLRURIRUFU"
)
_MARK: Final = struct.pack("<Q", 0x5441454844454B43)
"""Replaced by the address of the state."""
_ENTRY: Final = 16
"""Bytes of the code for one function."""
_MOST: Final = 32
"""Functions that the code has room for."""
_PAGE: Final = 4096
_RANGES: Final = 4096
"""Mappings that are kept."""
BASE: Final = 0x2000_0000_0000
"""Where blocks are, if nothing else is there: far from where Linux puts anything on x86-64."""
SIZE: Final = 1 << 34

_NUMBERED: Final = (
    *("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "valloc", "posix_memalign"),
    *("strdup", "strndup", "_Znwm", "_ZnwmSt11align_val_t"),
    *("free", "malloc_usable_size", "munmap", "mmap", "realloc", "reallocarray"),
    *("_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnamSt11align_val_t"),
    *(f"_Zd{one}Pv{how}" for how in ("", "m", "RKSt9nothrow_t") for one in "la"),
    *(f"_Zd{one}Pv{size}St11align_val_t" for size in ("", "m") for one in "la"),
)
"""The functions of the code, in its order."""
_REALLOC_ELSEWHERE, _DELETE = 15, 21
_OTHER_NAMES: Final = {
    "memalign": "aligned_alloc",
    "mmap64": "mmap",
    "__strdup": "strdup",
    "__strndup": "strndup",
}
_REQUESTS: Final = {name: _NUMBERED.index(name) for name in _NUMBERED} | {
    name: _NUMBERED.index(same) for name, same in _OTHER_NAMES.items()
}
"""What is exchanged in the library's own tables."""
_ENDS: Final = {
    **{name: number for number, name in enumerate(_NUMBERED) if number >= _DELETE},
    **{name: _NUMBERED.index(name) for name in ("free", "malloc_usable_size")},
    "realloc": _REALLOC_ELSEWHERE,
    "reallocarray": _REALLOC_ELSEWHERE + 1,
}
"""What is exchanged in all others."""
_TEXTS: Final = (
    "",
    "checked heap: what is freed is no beginning of a block; that of the same page has ",
    "checked heap: a block is freed twice; it has ",
    "checked heap: something was written behind the end of a block; it has ",
    "checked heap: something was written before the beginning of a block; it has ",
    "checked heap: a mapping is unmapped twice; it has ",
)


class _State(ctypes.Structure):
    """`State` of the code's source."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("checked", "blocks", "asked", "mappings")),
        ("arena", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("size", "used")),
        *((name, ctypes.c_void_p) for name in ("pages", "ranges")),
        ("lock", ctypes.c_int64),
        ("abort", ctypes.c_void_p),
        ("texts", ctypes.c_char_p * len(_TEXTS)),
        ("real", ctypes.c_void_p * _MOST),
    ]


_STATE: Final = _State()
_CODE_AT: list[int] = []
"""Where the code is, once it is anywhere."""
_SEEN: Final[set[int]] = set()
"""What is loaded and has had its table changed: of the structs, the addresses."""


class Heap(Protocol):
    """What a target does with its heap: a `CheckedHeap`, or an embedded reference's `OwnHeap`."""

    def during(self) -> contextlib.AbstractContextManager[None]:
        """Check what is requested meanwhile, for as long as it lives."""


class CheckedHeap:
    """The heap of one library, with those of its folder that it has loaded.

    Args:
        library: a handle of it.
        path: where it was loaded from.

    Raises:
        Lacking: this machine has no way to check it.
    """

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._handle: int = library._handle
        self._folder = os.path.dirname(path)
        _install()
        # Of C++ those of the runtime that the library depends on: the process may have none.
        for number, name in enumerate(_NUMBERED):
            _STATE.real[number] = _STATE.real[number] or address(library, name)

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Check what is requested meanwhile, for as long as it lives."""
        for each in loaded(self._handle):
            if each.address not in _SEEN:
                _SEEN.add(each.address)
                # Not pathlib: it keeps every part of a path for ever, and memory may be measured here.
                _patch(each, _REQUESTS if os.path.dirname(each.path) == self._folder else _ENDS)
        with _checked():
            yield


class OwnHeap:
    """Blocks and mappings of a reference written in Python, which uses them as a library in C does.

    It has them only while they are checked: the misuse of a mutant would else damage this process.
    """

    is_checked = False

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Check what is requested meanwhile, for as long as it lives. Raises Lacking."""
        _install()
        self.is_checked = True
        try:
            with _checked():
                yield
        finally:
            self.is_checked = False

    def request(self, size: int) -> int:
        """The address of a new block."""
        return int(_function("malloc", ctypes.c_void_p, ctypes.c_size_t)(size))

    def give_back(self, block: int) -> None:
        """Free a block; ends the process if it is none, or was written beside."""
        _function("free", None, ctypes.c_void_p)(block)

    def map(self, size: int) -> int:
        """The address of new pages."""
        return _reserved(0, size, libc.PROT_READ | libc.PROT_WRITE)

    def unmap(self, address: int, size: int) -> None:
        """Unmap them; ends the process if they are unmapped already."""
        _function("munmap", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(address, size)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """The code that stands for a function."""
    return ctypes.CFUNCTYPE(result, *arguments)(_CODE_AT[0] + _ENTRY * _NUMBERED.index(name))


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    _STATE.blocks = _STATE.mappings = _STATE.asked = 0
    _STATE.checked = 1
    try:
        yield
    finally:
        _STATE.checked = 0


def seen() -> tuple[int, int]:
    """Blocks that were requested, and mappings that were unmapped, while they were checked the last time."""
    return int(_STATE.blocks), int(_STATE.mappings)


def _install() -> None:
    """Make the code ready, once for the process. Raises Lacking."""
    if _CODE_AT:
        return
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise Lacking("what a library does with its heap can be checked on Linux on x86-64 only")
    writable = libc.PROT_READ | libc.PROT_WRITE
    arena = _reserved(BASE, SIZE, 0)
    pages = _reserved(0, SIZE // _PAGE * 16, writable)
    ranges = _reserved(0, _RANGES * 16, writable)
    code = libc.executable(CODE.replace(_MARK, struct.pack("<Q", ctypes.addressof(_STATE))))
    if not (arena and pages and ranges and code):
        raise Lacking("what a library does with its heap cannot be checked: there is no space for it")
    here = ctypes.CDLL(None)
    for number, name in enumerate(_NUMBERED):
        _STATE.real[number] = address(here, name)
    for number, text in enumerate(_TEXTS):
        _STATE.texts[number] = text.encode()
    _STATE.abort = address(here, "abort")
    _STATE.arena, _STATE.size, _STATE.pages, _STATE.ranges = arena, SIZE, pages, ranges
    _CODE_AT.append(code)


_NO_RESERVE: Final = 0x4000
"""MAP_NORESERVE"""


def _reserved(hint: int, size: int, protection: int) -> int:
    """Address space; 0: there is none."""
    at = libc.mmap(hint, size, protection, libc.MAP_PRIVATE_ANONYMOUS | _NO_RESERVE, -1, 0)
    return 0 if at in (None, libc.MAP_FAILED) else int(at)


def _patch(of: Loaded, numbers: Mapping[str, int]) -> None:
    """Put the code's entries where this object has the addresses of the functions."""
    for each in imports(of, numbers):
        number = numbers[each.name]
        real = _STATE.real[number]
        # It may mean a function of its own, or have changed a variable.
        if real and (each.value == real or not (each.own or each.direct)):
            put(each.place, _CODE_AT[0] + _ENTRY * number)
