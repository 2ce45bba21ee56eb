"""The control words of the floating-point unit, which a call has to leave as it found them.

x86-64 only (System V ABI, AMD64 supplement, 3.2.1: the control bits of MXCSR and the x87 control word belong
to the caller). Elsewhere nothing is watched.

What a call has changed is written down and put back: the next call is not blamed for it, and what is computed
afterwards is what it would have been.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_qnn.core.evidence import ControlChange, ControlWords

_SIZE: Final = 32
"""Bytes of ``fenv_t`` on x86-64: 28 of the x87 unit, then MXCSR."""
_STORED: Final = struct.Struct("<H26xI")
"""The x87 control word and MXCSR."""
_MXCSR_CONTROL: Final = 0xFFC0
"""The other bits say what has happened."""
_X87_CONTROL: Final = 0x0F7F
"""Masks of exceptions, a bit that is always set, precision and rounding; the other bits mean nothing."""
_MOST: Final = 64
"""Changes that are kept of a case: one is enough to accuse."""


class _Unit:
    """The two functions of the C library, and the words with which this process began."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._get, self._set = library.fegetenv, library.fesetenv
        self._own = _Own()
        self.at_start: Final = self.read()
        """Before a target is loaded."""

    def read(self) -> tuple[int, int]:
        """The x87 control word and MXCSR of this thread, without what is no control."""
        words = self._own.words
        self._get(words)
        x87, mxcsr = _STORED.unpack_from(words)
        return x87 & _X87_CONTROL, mxcsr & _MXCSR_CONTROL

    def write(self, x87: int, mxcsr: int) -> None:
        """Set them, and leave the rest of the unit's state as it is."""
        words = self._own.words
        self._get(words)
        _STORED.pack_into(words, 0, x87, mxcsr)
        self._set(words)


class _Own(threading.local):
    """Memory of one thread for what is read."""

    def __init__(self) -> None:
        self.words = ctypes.create_string_buffer(_SIZE)


@functools.cache
def _unit() -> _Unit | None:
    """None: control words are not watched here.

    Not made when this module is imported: whoever verifies a certification imports it, and loads no library.
    """
    if platform.machine() not in {"x86_64", "AMD64"}:
        return None
    try:
        # It keeps Python's lock: such a call takes less time than to give that up.
        return _Unit(ctypes.PyDLL("libm.so.6"))
    except (OSError, AttributeError):
        return None


def leave(*, mxcsr: int = 0x1F80, x87: int = 0x037F) -> None:
    """Set the control words of this thread, for faults; nothing where they are not watched.

    Without arguments they are those that the ABI gives to a new process.
    """
    if unit := _unit():
        unit.write(x87, mxcsr)


def put_back() -> None:
    """Give this thread the words of the process's start: what a case has left is not the next one's."""
    unit = _unit()
    if unit and unit.read() != unit.at_start:
        unit.write(*unit.at_start)


class Watch:
    """Control words since it was made. Every thread is to have those of the process's start.

    A new thread begins with those of the one that has made it.

    Args:
        paths: of the libraries that are watched.
    """

    def __init__(self, *paths: str) -> None:
        self.step = -1
        """Of the case, which has begun."""
        self._unit = _unit()
        put_back()
        self._at_loading = [change for path in paths for change in _LOADING.get(path, ())]
        self._changes: list[ControlChange] = []

    def look(self, where: str) -> None:
        """Note what has changed since the last look, and put it back."""
        if self._unit is None:
            return
        now, at_start = self._unit.read(), self._unit.at_start
        if now != at_start:
            if len(self._changes) < _MOST:
                self._changes.append(ControlChange(where, self.step, _words(at_start), _words(now)))
            self._unit.write(*at_start)

    @property
    def changes(self) -> tuple[ControlChange, ...] | None:
        """What loading the libraries has changed, then what was noted; None: nothing is watched."""
        return (*self._at_loading, *self._changes) if self._unit else None


_LOADING: Final[dict[str, Sequence[ControlChange]]] = {}
"""By path of a library: what has changed when it was loaded, once for all cases of this process."""


@contextlib.contextmanager
def loading(path: str) -> Iterator[None]:
    """The library at this path is loaded in it. Where it is loaded already, nothing of it runs."""
    watch = Watch()
    try:
        yield
    finally:
        watch.look(f"loading {path.rpartition('/')[2]}")
        if watch.changes:
            _LOADING.setdefault(path, watch.changes)


def _words(read: tuple[int, int]) -> ControlWords:
    return ControlWords(mxcsr=read[1], x87=read[0])
