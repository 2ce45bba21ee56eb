"""What the supervisor says of a child that died, from what the child left."""

from __future__ import annotations

import os
import signal
from typing import Final

from pytest_qnn.core.evidence import IN_HEAP, Evidence, Frame
from pytest_qnn.isolation import wire
from pytest_qnn.isolation.evidence import crash_handler
from pytest_qnn.isolation.host import checked_heap

_OURS = ("libffi", "_ctypes", "libpython", "python3")
"""Files whose code is Python's: what is called from there is called by this project."""
_KERNEL = 128
"""SI_KERNEL: of SIGSEGV on x86-64, an address that no pointer can be."""
_CODES: Final[dict[tuple[int, int], str]] = {
    (signal.SIGSEGV, 1): "SEGV_MAPERR",
    (signal.SIGSEGV, 2): "SEGV_ACCERR",
    (signal.SIGSEGV, _KERNEL): "SI_KERNEL",
    (signal.SIGBUS, 1): "BUS_ADRALN",
    (signal.SIGBUS, 2): "BUS_ADRERR",
    (signal.SIGFPE, 1): "FPE_INTDIV",
    (signal.SIGFPE, 2): "FPE_INTOVF",
    (signal.SIGFPE, 3): "FPE_FLTDIV",
    (signal.SIGILL, 1): "ILL_ILLOPC",
    (signal.SIGILL, 2): "ILL_ILLOPN",
}
_FAR_FROM_NULL = 1 << 20
"""Below this address is nothing: what is accessed there is reached through a NULL pointer."""
_STACK_STEP = 1 << 16
"""Bytes between the stack pointer and an address that a growing stack reaches."""


def evidence(slot: wire.Slot, status: int, stderr: str) -> Evidence:
    """What a child left.

    Args:
        slot: that of the child, which has ended.
        status: its wait status.
        stderr: the end of what it wrote.
    """
    crash, calls, during = slot.left()
    found = Evidence(during=during, calls=calls, stderr=stderr)
    # A signal that was recorded may have been survived: the process is dead of the one in its status.
    if crash is None or not os.WIFSIGNALED(status) or os.WTERMSIG(status) != crash.signal:
        return found
    return Evidence(during, _fault(crash), _frames(crash), calls, stderr)


def _frames(crash: crash_handler.Crash) -> tuple[Frame, ...]:
    frames: list[Frame] = []
    for file, offset in crash.frames:
        if frames and os.path.basename(file).startswith(_OURS):
            break
        frames.append(Frame(file, offset))
    return tuple(frames)


def _fault(crash: crash_handler.Crash) -> str:
    """Why the kernel raised the signal, in words that are the same in each run; empty: a process sent it."""
    if crash.code <= 0:
        return ""
    why = _CODES.get((crash.signal, crash.code), f"code {crash.code}")
    return f"{why}{_at(crash)}"


def _at(crash: crash_handler.Crash) -> str:
    if crash.signal not in (signal.SIGSEGV, signal.SIGBUS):
        return ""
    if crash.code == _KERNEL:
        return " at an address that no pointer can be"
    if crash.address < _FAR_FROM_NULL:
        return f" at 0x{crash.address:x}" + (", near NULL" if crash.address < 1 << 16 else "")
    if crash.mapped:
        in_heap = crash.address - checked_heap.BASE in range(checked_heap.SIZE)
        return IN_HEAP if in_heap else f" at {crash.mapped}"
    # Above the stack pointer the stack is mapped, unless the pointer itself has left it.
    is_below = crash.address < crash.stack_pointer or not crash.on_stack
    if is_below and abs(crash.stack_pointer - crash.address) < _STACK_STEP:
        return ", the stack is full"
    return f" at 0x{crash.address:x}, where nothing is mapped"
