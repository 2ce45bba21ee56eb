"""What a child leaves when a signal kills it: the kernel's account, its mappings and a native backtrace.

The handler is machine code and not a Python function: the heap, the interpreter or its lock may be what is
broken, and a handler that waited for them would make a hang of a crash. Its source is
`pytest_qnn/native/crash_handler.c`. It runs first, and then whoever had the signal before: a library's own
handler is called with the same siginfo as without ours. A library that installs its handler later replaces
ours, as it would replace the default.

On other machines than Linux on x86-64, and where executable memory is refused, nothing is installed; all else
that is said of a death does not depend on it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import struct
import sys
from binascii import a2b_base64
from threading import get_ident
from typing import Final

import msgspec

from pytest_qnn.isolation import libc

CODE: Final = a2b_base64(
    "SIPsCOg/AAAASIPECEiFwHUBw0iLBRYAAABIizhIg8dAvkAAAABIi0AY/+APH0AAUkVIRVRBVFMvcHJvYy9zZWxmL21hcHMAQVdB"
    "VkFVQYn9QVRVSIn1U1FIix3Q////RItmCEiDOwAPhPwAAABBuAEAAABMh0MoTYXAD4XpAAAATIsLSWPESYlBCEiLdhBJiXEQSIuK"
    "qAAAAEmJSRhIi4KgAAAASYlBIEWF5H4MSDnOdQdIiwBJiUEoZEiLBCUQAAAARTHSSYlBMEiNPWf///8x0rgCAAAAvgAACAAPBUiJ"
    "x0iFwHg8SItTEEk50HMWSItzCEwpwkUx0jHATAHGDwVIhcB/GDHSRTHSuAMAAABIidYPBUiLA0yJQDjrBUkBwOvETWP1SIN7GABN"
    "iTF0P0WF5A+PhQAAADHSRTHSuCcAAABIiddIidYPBUmJwLi6AAAADwVIicZJieq4KQEAAEyJx0yJ8g8F61RFMfbrBkG+AQAAAE1j"
    "/THSRInvSot0+zD/UyBFheR/LzHSRTHSuCcAAABIiddIidYPBUmJwLi6AAAADwVIicZJieq4KQEAAEyJx0yJ+g8FRYX2dAxFMfZI"
    "g3sYAEEPlcZaSWPGW11BXEFdQV5BX8M="
)
_MARK: Final = struct.pack("<Q", 0x5354415445484552)
"""Replaced by the address of the state."""
SIGNALS: Final = (
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
)
_HEADER: Final = struct.Struct("<qqQQQQQQ")
_FRAMES: Final = 64
_MAPS_AT: Final = _HEADER.size + _FRAMES * 8
SIZE: Final = 640 << 10
"""Bytes of a record, /proc/self/maps included; what is longer is cut off."""
_STACK: Final = 64 << 10
"""Bytes of the alternate stack: the unwinder takes some kilobytes, the kernel up to 11 for the registers."""
_ADDRESSES: Final = 1 << 64
_LONGEST_NAME: Final = 4096 + len(" (deleted)")
"""Bytes of a mapping's name: PATH_MAX, and what the kernel says of a file that is gone."""
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000


class _Action(ctypes.Structure):
    """Struct sigaction of glibc on 64-bit Linux."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class _State(ctypes.Structure):
    """`State` of the handler's source."""

    _fields_ = [
        ("record", ctypes.c_void_p),
        ("maps", ctypes.c_void_p),
        ("maps_size", ctypes.c_uint64),
        ("backtrace", ctypes.c_void_p),
        ("sigaction", ctypes.c_void_p),
        ("stage", ctypes.c_int64),
        ("previous", ctypes.c_void_p * 65),
    ]


class _Stack(ctypes.Structure):
    """stack_t."""

    _fields_ = [("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


class Crash(msgspec.Struct, frozen=True, gc=False):
    """What the kernel and the unwinder said."""

    signal: int
    code: int
    """si_code."""
    address: int
    """si_addr; of a signal that was sent no address."""
    mapped: str
    """What is mapped at the address; empty: nothing."""
    stack_pointer: int
    on_stack: bool
    """The stack pointer is in something that is mapped."""
    thread: int
    """`threading.get_ident` of it."""
    frames: tuple[tuple[str, int], ...]
    """Where the signal came, then its callers: (file, offset in it), or ("", address) outside of files."""


_STATE: Final = _State()
_PREVIOUS: Final = {number: _Action() for number in SIGNALS}
_OURS: Final = _Action()
# A block of the heap, not a mapping of its own: cases look at what is mapped.
_ALTERNATE: Final = ctypes.create_string_buffer(_STACK)


def install() -> bool:
    """Install the handler in this process and its forks, for this thread on a stack of its own.

    Nothing is recorded before `record_to`. Whether it was installed. Python's own handler, which the user's
    environment may have asked for, is removed: what it writes would be taken for the target's words.
    """
    faulthandler.disable()
    if os.uname().machine != "x86_64" or sys.platform != "linux" or _STATE.sigaction:
        return False
    library = ctypes.CDLL(None, use_errno=True)
    entry = libc.executable(CODE.replace(_MARK, struct.pack("<Q", ctypes.addressof(_STATE))))
    if not entry:
        return False
    backtrace = getattr(library, "backtrace", None)
    if backtrace is not None:
        # The first call loads libgcc_s, which a signal handler must not do.
        backtrace((ctypes.c_void_p * 4)(), 4)
        _STATE.backtrace = ctypes.cast(backtrace, ctypes.c_void_p).value
    _STATE.sigaction = ctypes.cast(library.sigaction, ctypes.c_void_p).value
    stack = _Stack(ctypes.addressof(_ALTERNATE), 0, _STACK)
    library.sigaltstack(ctypes.byref(stack), None)
    _OURS.handler, _OURS.flags = entry, _SA_SIGINFO | _SA_ONSTACK
    for number, before in _PREVIOUS.items():
        _STATE.previous[number] = ctypes.addressof(before)
        library.sigaction(int(number), ctypes.byref(_OURS), ctypes.byref(before))
    return True


def forget_survived() -> None:
    """Record the next fault again: a call has returned, so that what was recorded did not end the process.

    A library may have a handler of its own, and look with it which addresses or instructions there are. Where
    ours has handed a signal over to that one, ours is installed before it again. A call of this thread says
    nothing of another thread, which may be about to end the process.
    """
    if not _STATE.stage or _recorded_thread() != get_ident():
        return
    library = ctypes.CDLL(None, use_errno=True)
    for number, before in _PREVIOUS.items():
        now = _Action()
        library.sigaction(int(number), None, ctypes.byref(now))
        if now.handler == before.handler:
            library.sigaction(int(number), ctypes.byref(_OURS), None)
    ctypes.memset(_STATE.record, 0, _MAPS_AT)
    _STATE.stage = 0


def _recorded_thread() -> int:
    """The thread of the record; 0: it is not written yet."""
    *_, thread, _maps = _HEADER.unpack(ctypes.string_at(_STATE.record, _HEADER.size))
    return int(thread)


def record_to(address: int) -> None:
    """Record to `SIZE` zeroed bytes at this address from now on."""
    _STATE.maps = address + _MAPS_AT
    _STATE.maps_size = SIZE - _MAPS_AT
    _STATE.record = address


def read(memory: bytes) -> Crash | None:
    """The record in these bytes; None: there is none. They may hold anything."""
    number, code, address, pc, sp, caller, thread, size = _HEADER.unpack_from(memory)
    if not 0 < number < 65:
        return None
    maps = _Maps(memory[_MAPS_AT : _MAPS_AT + min(size, SIZE - _MAPS_AT)])
    found = [frame for frame in struct.unpack_from(f"<{_FRAMES}Q", memory, _HEADER.size) if frame]
    # The first frames are the kernel's signal frame; the interrupted instruction comes behind it.
    callers = found[found.index(pc) + 1 :] if pc in found else []
    callers = callers or [caller] * bool(caller)
    # What a frame holds is where it goes on: the call is before that.
    frames = (maps.place(pc), *(maps.place(frame - 1) for frame in callers))
    return Crash(number, code, address, maps.what(address), sp, bool(maps.what(sp)), thread, frames)


class _Maps:
    """/proc/self/maps as text, maybe cut off, or written by somebody else."""

    def __init__(self, text: bytes) -> None:
        self._mappings: list[tuple[int, int, int, str, str]] = []
        for line in text.decode(errors="replace").splitlines():
            words = line.split(None, 5)
            try:
                begin, end = (int(word, 16) for word in words[0].split("-"))
                name, offset = words[5] if len(words) == 6 else "", int(words[2], 16)
                if 0 <= offset < _ADDRESSES and end <= _ADDRESSES and len(name.encode()) <= _LONGEST_NAME:
                    self._mappings.append((begin, end, offset, words[1], name))
            except (ValueError, IndexError):
                continue  # cut off, or not written by the kernel

    def what(self, address: int) -> str:
        """What is mapped at an address, in words that are the same in each run; empty: nothing."""
        for begin, end, offset, permissions, name in self._mappings:
            if begin <= address < end:
                if name.startswith("/"):
                    return f"{name.rpartition('/')[2]}+0x{address - begin + offset:x} ({permissions})"
                return f"an address of {name or 'an anonymous mapping'} ({permissions})"
        return ""

    def place(self, address: int) -> tuple[str, int]:
        """The file that is mapped there and the offset in it."""
        for begin, end, offset, _, path in self._mappings:
            if begin <= address < end and path.startswith("/"):
                return path, (address - begin + offset) % _ADDRESSES
        return "", address
