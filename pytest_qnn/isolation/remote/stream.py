"""A command's standard input and output as a connection that carries messages."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from pytest_qnn.isolation import wire
from pytest_qnn.isolation.remote import messages

_MOST_BEFORE = 1 << 16
"""Bytes before the mark that are passed over: what a login shell prints."""
_EXIT_SECONDS = 2.0
"""For the command to end by itself once its standard input is closed."""
_LONGEST = 300
"""Characters of what the command wrote to its standard error that are shown."""
_PIECE = 1 << 18
"""Bytes that are read at once."""


class Stream:
    """A running command. It gets no signal from the terminal, and has none to ask for a password.

    Args:
        command: words; no shell is between.

    Raises:
        OSError: it cannot be started.

    """

    def __init__(self, command: Sequence[str]) -> None:
        # A file, not a pipe: nobody reads it while the command runs, and a full pipe would block it.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stream
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            self._stderr.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._write_fd, self._read_fd = self._process.stdin.fileno(), self._process.stdout.fileno()
        for fd in (self._write_fd, self._read_fd):
            os.set_blocking(fd, False)
        self._read = bytearray()
        """What was read and not yet taken."""

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._process.pid

    def send(self, message: bytes, seconds: float) -> None:
        """Send one message, of which a part must go each ``seconds``.

        Raises:
            wire.Closed: the command has closed its standard input.
            TimeoutError: it takes nothing.
        """
        left = memoryview(messages.LENGTH.pack(len(message)) + message)
        while left:
            self._wait(self._write_fd, select.POLLOUT, seconds)
            try:
                left = left[os.write(self._write_fd, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise wire.Closed(str(error)) from None

    def receive(self, seconds: float, most: int = wire.MAX_MESSAGE) -> bytes:
        """The next message, of ``most`` bytes; a part of it, or an empty one, must come each ``seconds``.

        Raises:
            wire.Closed: the standard output has ended, or what comes is no such message.
            TimeoutError: nothing came.
        """
        size = messages.LENGTH.size
        self._at_least(size, seconds)
        (length,) = messages.LENGTH.unpack_from(self._read)
        if length > most:
            raise wire.Closed(f"a message of {length} bytes was announced")
        self._at_least(size + length, seconds)
        with memoryview(self._read) as read:
            message = bytes(read[size : size + length])
        del self._read[: size + length]
        return message

    def skip_to_mark(self, seconds: float) -> str:
        """Pass over what stands before the mark, and it; why that is not possible, else empty.

        Raises:
            wire.Closed: the standard output has ended before it.
            TimeoutError: it has not come in time.
        """
        deadline = time.monotonic() + seconds
        while (at := self._read.find(messages.MARK)) < 0:
            text = self._read.find(messages.MARK_AS_TEXT)
            if 0 <= text <= len(self._read) - 2 * len(messages.MARK):
                return "bytes are changed on the way (line ends?): both directions must be binary"
            if len(self._read) > _MOST_BEFORE:
                return "its output does not begin as that of pytest_qnn.isolation.remote does"
            self._at_least(len(self._read) + 1, max(0.001, deadline - time.monotonic()))
        del self._read[: at + len(messages.MARK)]
        return ""

    def end(self) -> str:
        """End the command; how it ended and what it said last, for a sentence."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        killed = False
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            killed = True
            self._process.kill()
        status = self._process.wait()
        self._process.stdout.close()
        said = self._said()
        self._stderr.close()
        how = "did not end by itself" if killed else _ended(status)
        return f"{how} ({said})" if said else how

    def _said(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - (1 << 16)))
        lines = self._stderr.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return last if len(last) <= _LONGEST else f"{last[:_LONGEST]}…"

    def _at_least(self, count: int, seconds: float) -> None:
        while len(self._read) < count:
            self._wait(self._read_fd, select.POLLIN, seconds)
            try:
                part = os.read(self._read_fd, _PIECE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise wire.Closed(str(error)) from None
            if not part:
                raise wire.Closed("the standard output has ended")
            self._read += part

    @staticmethod
    def _wait(fd: int, event: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(seconds * 1000):
            raise TimeoutError


def _ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
