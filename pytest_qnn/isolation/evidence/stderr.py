"""What the children of a supervisor write to stderr: its end is kept, for those that die."""

from __future__ import annotations

import contextlib
import fcntl
import os

from pytest_qnn.core.printable import printable

KEPT = 1 << 14
"""Bytes of the end that are kept: an ``assert`` has one line, a sanitizer's report some hundred."""
_PIECE = 1 << 16
_PIECES = 17
"""More than the pipe holds."""
_STDERR = 2
_HELD = 1 << 20
"""Bytes that the pipe holds, where the kernel lets it (64 KiB else): what anybody may have (pipe(7))."""


class Stderr:
    """The read end of a pipe whose write end becomes stderr of this process, and of its children.

    Somebody has to `drain` it while a child is at work: a child that writes more than it holds (`_HELD`)
    waits for that. Nobody waits for its end: a process that escaped may hold it open.
    """

    def __init__(self) -> None:
        self._read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, _HELD)
        os.dup2(write_fd, _STDERR)
        os.close(write_fd)
        self._end = b""

    def fileno(self) -> int:
        """The read end."""
        return self._read_fd

    def drain(self) -> None:
        """Take what there is, without waiting, and keep the end of it."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIECES):  # not until there is nothing: a child may write without end
                self._end = (self._end + os.read(self._read_fd, _PIECE))[-KEPT:]

    def take(self) -> str:
        """What was kept since the last time, as lines of printable text."""
        self.drain()
        end, self._end = self._end, b""
        lines = end.decode(errors="backslashreplace").expandtabs().splitlines()
        return printable("\n".join(lines))
