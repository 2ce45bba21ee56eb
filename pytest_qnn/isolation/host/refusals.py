"""Has requests of a library for memory, mappings, descriptors or threads refused, in this process.

A library calls malloc, mmap, dup, pthread_create and their like through a table of its own
(`pytest_qnn.isolation.host.imports`). Here other addresses are put there: machine code that refuses the nth
request and else goes on to the function (`pytest_qnn/native/refusals.c`). So what other libraries, Python and
this suite ask for is never refused, nor is what a library reaches by another way: a system call of its own,
or a function of another library that asks in its place (std::thread of libstdc++).

Nothing is put back: the tables stay as they are until the process ends, and let every request through outside
of `Refusals.during`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from binascii import a2b_base64
from collections.abc import Iterator
from errno import EAGAIN, EMFILE, ENOMEM
from typing import Final, NamedTuple, Protocol

from pytest_qnn.core.target import Resource
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.host.imports import Loaded, address, imports, loaded, put

CODE: Final = a2b_base64(
    "agDp+QEAAGYPH4QAAAAAAGoB6ekBAABmDx+EAAAAAABqAunZAQAAZg8fhAAAAAAAagPpyQEAAGYPH4QAAAAAAGoE6bkBAABmDx+E"
    "AAAAAABqBempAQAAZg8fhAAAAAAAagbpmQEAAGYPH4QAAAAAAGoH6YkBAABmDx+EAAAAAABqCOl5AQAAZg8fhAAAAAAAagnpaQEA"
    "AGYPH4QAAAAAAGoK6VkBAABmDx+EAAAAAABqC+lJAQAAZg8fhAAAAAAAagzpOQEAAGYPH4QAAAAAAGoN6SkBAABmDx+EAAAAAABq"
    "DukZAQAAZg8fhAAAAAAAag/pCQEAAGYPH4QAAAAAAGoQ6fkAAABmDx+EAAAAAABqEenpAAAAZg8fhAAAAAAAahLp2QAAAGYPH4QA"
    "AAAAAGoT6ckAAABmDx+EAAAAAABqFOm5AAAAZg8fhAAAAAAAahXpqQAAAGYPH4QAAAAAAGoW6ZkAAABmDx+EAAAAAABqF+mJAAAA"
    "Zg8fhAAAAAAAahjrfGZmLg8fhAAAAAAAkGoZ62xmZi4PH4QAAAAAAJBqGutcZmYuDx+EAAAAAACQahvrTGZmLg8fhAAAAAAAkGoc"
    "6zxmZi4PH4QAAAAAAJBqHessZmYuDx+EAAAAAACQah7rHGZmLg8fhAAAAAAAkGof6wxmZi4PH4QAAAAAAJBQV1ZSUUFQQVFIg+wI"
    "SIt8JEDoMQAAAEmJw0iDxAhBWUFYWVpeX1hBWk2F23QDQf/jSIsFCAAAAEqLRNAww2aQUkVIRVRBVFNVU1FIiwXu////SIn5SItQ"
    "IEiNHPhIi7swBAAASNPqgOIBdFJIg7swAgAAAHQMgf4GBAAAdASF9nU88Ej/QBBIg8r/8EgPwRBI/8pIhdJ/JnQHSIN4CAB0HfBI"
    "/0AYSIurMAEAAEiF7XQF/1AoiShIi7swAwAAWkiJ+Ftdww=="
)
_MARK: Final = struct.pack("<Q", 0x5354415445484552)
"""Replaced by the address of the state."""
_ENTRY: Final = 16
"""Bytes of the code for one function."""
_MOST: Final = 32
"""Functions that the code has room for."""
_BAD_ALLOC: Final = "_ZSt17__throw_bad_allocv"
"""Throws std::bad_alloc: libstdc++ and libc++ have it, each for its own exceptions."""


class _Function(NamedTuple):
    """A function that may refuse, and what it answers then (its manual page, or the C++ standard)."""

    name: str
    wanted: Resource
    result: int = 0
    error: int = 0
    """The errno that it sets; 0: it sets none."""
    by_command: bool = False
    """It is fcntl: only F_DUPFD and F_DUPFD_CLOEXEC make a descriptor."""
    throws: bool = False


_FUNCTIONS: Final = (
    *(
        _Function(name, "memory", error=ENOMEM)
        for name in ("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "memalign", "valloc")
    ),
    *(_Function(name, "memory", error=ENOMEM) for name in ("strdup", "__strdup", "strndup", "__strndup")),
    _Function("posix_memalign", "memory", ENOMEM),
    # operator new, plain, of arrays and aligned; and those that do not throw (nothrow)
    *(
        _Function(name, "new", throws=True)
        for name in ("_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t")
    ),
    *(_Function(name, "memory") for name in ("_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t")),
    *(_Function(name, "mapping", -1, ENOMEM) for name in ("mmap", "mmap64", "mremap")),
    *(_Function(name, "descriptor", -1, EMFILE) for name in ("dup", "dup3", "memfd_create")),
    *(_Function(name, "descriptor", -1, EMFILE, by_command=True) for name in ("fcntl", "fcntl64")),
    _Function("pthread_create", "thread", EAGAIN),
)
assert len(_FUNCTIONS) <= _MOST


class _State(ctypes.Structure):
    """`State` of the code's source."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("left", "lasting", "asked", "refused")),
        ("counted", ctypes.c_uint64),
        ("errno_location", ctypes.c_void_p),
        *((name, ctypes.c_int64 * _MOST) for name in ("results", "errors", "commands")),
        *((name, ctypes.c_void_p * _MOST) for name in ("instead", "real")),
    ]


class Refusing(Protocol):
    """Who refuses what a target asks the system for: `Refusals`, or a reference's `Requests`."""

    asked: int
    refused: int

    def during(self, wanted: Resource, nth: int, *, lasting: bool) -> contextlib.AbstractContextManager[None]:
        """See `Refusals`."""


class Lacking(Exception):  # noqa: N818 - what a machine lacks, as a sentence
    """Nothing can be refused here; the text says why."""


class Refusals:
    """What one library asks for, with those of its folder that it has loaded.

    Attributes:
        asked: requests during the last `during`.
        refused: those that were refused.

    Raises:
        Lacking: this machine has no way to refuse.
    """

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        """``path``: where the library was loaded from."""
        self._handle: int = library._handle
        self._folder = os.path.dirname(path)
        self._seen: set[int] = set()
        self.asked = self.refused = 0
        _install()
        _throw_as(library)

    @contextlib.contextmanager
    def during(self, wanted: Resource, nth: int, *, lasting: bool) -> Iterator[None]:
        """Refuse the ``nth`` request for what is ``wanted`` meanwhile, and each after it if ``lasting``."""
        self._patch_new()
        _STATE.asked = _STATE.refused = 0
        _STATE.left, _STATE.lasting = nth, lasting
        _STATE.counted = sum(1 << i for i, each in enumerate(_FUNCTIONS) if _is_wanted(each, wanted))
        try:
            yield
        finally:
            _STATE.counted = 0
            self.asked, self.refused = _STATE.asked, _STATE.refused

    def _patch_new(self) -> None:
        """Have what is loaded by now ask here."""
        for object_ in loaded(self._handle):
            # Not pathlib: it keeps every part of a path for ever, and memory may be measured here.
            if object_.address not in self._seen and os.path.dirname(object_.path) == self._folder:
                self._seen.add(object_.address)
                _patch(object_)


def _is_wanted(function: _Function, wanted: Resource) -> bool:
    return function.wanted == wanted or (wanted == "any" and not function.throws)


_STATE: Final = _State()
_CODE_AT: list[int] = []
"""Where the code is, once it is anywhere."""


def _install() -> None:
    """Make the code ready, once for the process."""
    if _CODE_AT:
        return
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise Lacking("what a library asks the system for can be refused on Linux on x86-64 only")
    here = ctypes.CDLL(None)
    for i, function in enumerate(_FUNCTIONS):
        _STATE.real[i] = address(here, function.name)
        _STATE.results[i], _STATE.errors[i] = function.result, function.error
        _STATE.commands[i] = function.by_command
    _STATE.errno_location = address(here, "__errno_location")
    code = libc.executable(CODE.replace(_MARK, struct.pack("<Q", ctypes.addressof(_STATE))))
    if not code or not _STATE.errno_location:
        raise Lacking("what a library asks the system for cannot be refused: no memory may be executable")
    _CODE_AT.append(code)


def _throw_as(library: ctypes.CDLL) -> None:
    """Have exceptions thrown by the C++ runtime that the library was built with.

    An exception of another one passes by its handlers, as a foreign one: the library could not catch it. So
    the function is looked up among what the library depends on; of one that names no runtime, in the process.
    """
    here = ctypes.CDLL(None)
    bad_alloc = address(library, _BAD_ALLOC) or address(here, _BAD_ALLOC)
    for i, function in enumerate(_FUNCTIONS):
        if function.throws:
            _STATE.instead[i] = bad_alloc
            real = address(library, function.name) or address(here, function.name)
            _STATE.real[i] = real if bad_alloc else 0


_NUMBERS: Final = {function.name: i for i, function in enumerate(_FUNCTIONS)}


def _patch(loaded: Loaded) -> None:
    """Put the code's entries where this object has the addresses of the functions."""
    for each in imports(loaded, _NUMBERS):
        number = _NUMBERS[each.name]
        real = _STATE.real[number]
        # A variable that the library has changed since is left alone.
        if real and (not each.direct or each.value == real):
            put(each.place, _CODE_AT[0] + _ENTRY * number)
