"""A native delegate's log: what is written to stderr while a script that asks for it is carried out.

The runtimes' own logger, which a delegate in C or C++ reports through, writes to stderr
(tflite/minimal_logging_default.cc).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from pytest_qnn.tflite.cases.script import ReadLog, ScriptCase, flat

_STDERR = 2
_CAPACITY = 1 << 20
"""Bytes that are kept at a time, if the system allows so many; what is beyond is lost, and blocks nobody."""


class StderrCapture:
    """Reads what is written to stderr. Both ends of its pipe do not block: nobody waits for it."""

    def __init__(self, read_fd: int) -> None:
        self._read_fd = read_fd

    def lines(self) -> tuple[str, ...]:
        """What was written since the last time."""
        parts: list[bytes] = []
        with contextlib.suppress(OSError):  # there is no more, or the target has closed it
            while part := os.read(self._read_fd, _CAPACITY):
                parts.append(part)
        return tuple(b"".join(parts).decode(errors="replace").splitlines())


@contextlib.contextmanager
def capture_stderr(case: ScriptCase) -> Iterator[StderrCapture | None]:
    """Capture stderr in a case that reads a log; None for any other case, and where stderr is closed."""
    if not any(isinstance(step, ReadLog) for step in flat(case.steps)):
        yield None
        return
    try:
        before = fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:
        yield None
        return
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, _CAPACITY)
    os.dup2(write_fd, _STDERR)
    os.close(write_fd)
    try:
        yield StderrCapture(read_fd)
    finally:
        # A target may have closed what is not its own; the case has shown then what it can.
        with contextlib.suppress(OSError):
            os.dup2(before, _STDERR)
        for each in (before, read_fd):
            with contextlib.suppress(OSError):
                os.close(each)
