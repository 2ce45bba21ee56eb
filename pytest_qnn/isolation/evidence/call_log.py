"""The calls of a case, in memory that outlives its process: what each returned, and which was at work.

A child notes each call of a target's function, and each callback by the runtime, before and after it: a
struct in shared memory, a microsecond for both. Where no log is active, as in pytest's own process, nothing
is noted. While the child runs, the supervisor sees there whether it goes on (`progress`).
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from pytest_qnn.core.evidence import Call
from pytest_qnn.core.printable import cut
from pytest_qnn.isolation.evidence import crash_handler

_HEAD: Final = struct.Struct("<QQ")
"""How many steps and calls have begun; the number of the last call."""
_NAME: Final = 96
"""Bytes of a name that are kept."""
_ENTRY: Final = struct.Struct(f"<QqqQ{_NAME}s")
"""Number (0: none), status, step, thread, name."""
_NUMBER: Final = struct.Struct("<Q")
_RESULT: Final = struct.Struct("<q")
_ENTRIES: Final = 512
"""The last so many calls are kept."""
SIZE: Final = _HEAD.size + _ENTRY.size * _ENTRIES
_CUT: Final = "…".encode()
"""In place of what does not fit, as in `one_line`."""
_OPEN: Final = -(1 << 63)
"""In place of a status: the call has not returned."""


class CallLog:
    """Writes calls to `SIZE` bytes of memory.

    Args:
        memory: a writable buffer.
        at: where in it.
    """

    def __init__(self, memory: Any, at: int) -> None:
        self._memory = memory
        self._at = at
        self._numbers = itertools.count(1)
        self._begun = itertools.count(1)
        self._last = 0
        self._step = -1
        self._process = os.getpid()

    def end_copy(self) -> None:
        """End this process where a target has forked it, and goes on in both.

        The copy would carry out the rest of the cases too, fork at each further call, and answer in the place
        of the one that it is a copy of.
        """
        if os.getpid() != self._process:
            os._exit(0)

    def restart(self) -> None:
        """Forget everything: the next case begins."""
        # Entries with smaller numbers are those of cases before.
        number = next(self._numbers)
        _ENTRY.pack_into(self._memory, _place(self._at, number), number, 0, -1, 0, b"")
        self._last = number
        self.begin_step(-1)

    def begin_step(self, step: int) -> None:
        """A step begins: the calls from now on are its."""
        self.end_copy()
        self._step = step
        _HEAD.pack_into(self._memory, self._at, next(self._begun), self._last)

    def begin(self, name: bytes) -> int:
        """A call begins; what `end` is to be given. A name that does not fit ends with the mark of a cut."""
        if len(name) > _NAME:
            name = cut(name, _NAME - len(_CUT)) + _CUT
        self._last = number = next(self._numbers)
        place = _place(self._at, number)
        _ENTRY.pack_into(self._memory, place, number, _OPEN, self._step, get_ident(), name)
        _HEAD.pack_into(self._memory, self._at, next(self._begun), number)
        return number

    def end(self, number: int, status: int) -> None:
        """A call has returned; its status, 64 bits, signed or not."""
        self.end_copy()
        crash_handler.forget_survived()
        place = _place(self._at, number)
        # As many calls of another thread, or within this one, have taken its place: that is not this call's.
        if _NUMBER.unpack_from(self._memory, place) == (number,):
            _RESULT.pack_into(self._memory, place + _NUMBER.size, (status & _ALL ^ _SIGN) - _SIGN)


def _place(at: int, number: int) -> int:
    return at + _HEAD.size + number % _ENTRIES * _ENTRY.size


_ALL: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class _Active:
    log: CallLog | None = None


def activate(log: CallLog | None) -> None:
    """Note the calls of this process there from now on."""
    _Active.log = log


def active() -> CallLog | None:
    """Where calls are noted; None: nowhere."""
    return _Active.log


def call(name: bytes, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function, which returns a status or nothing, and note that."""
    log = _Active.log
    if log is None:
        return function(*arguments)
    number = log.begin(name)
    status = function(*arguments)
    log.end(number, status or 0)
    return status


def noted(name: str, function: Callable[..., Any], *, pointer: bool = False) -> Callable[..., Any]:
    """The function, whose calls are noted; of a ``pointer`` only whether there is one: its value varies."""
    label = name.encode()

    def noting(*arguments: Any) -> Any:
        log = _Active.log
        if log is None:
            return function(*arguments)
        number = log.begin(label)
        result = function(*arguments)
        log.end(number, bool(result) if pointer else result or 0)
        return result

    return noting


def progress(memory: Any, at: int) -> tuple[int, str]:
    """How many steps and calls have begun, and the name of the case's last call, which may have returned.

    Args:
        memory: as `CallLog` has it; it may hold anything.
        at: where in it.
    """
    begun, number = _HEAD.unpack_from(memory, at)
    return begun, _text(_ENTRY.unpack_from(memory, _place(at, number))[4])


def read(memory: bytes, thread: int = 0) -> tuple[tuple[Call, ...], str]:
    """The calls in these bytes in order, and the name of the one at work last; empty: none was.

    Args:
        memory: `SIZE` bytes, which may hold anything.
        thread: of the process's threads, the one that is asked about; 0: any.
    """
    entries = sorted(entry for entry in _ENTRY.iter_unpack(memory[_HEAD.size :]) if entry[0])
    starts = [place for place, entry in enumerate(entries) if not entry[4].strip(b"\0")]
    entries = entries[starts[-1] + 1 if starts else 0 :]
    calls = []
    during = other = ""
    for _, status, step, owner, text in entries:
        name = _text(text)
        calls.append(Call(name, None if status == _OPEN else status & _ALL, step))
        if status == _OPEN:
            other = name
            during = name if owner == thread else during
    return tuple(calls), during or other


def _text(name: bytes) -> str:
    """Without control characters, of which a terminal would make something else."""
    text = name.rstrip(b"\0").decode(errors="replace")
    return text if text.isprintable() else "?"
