"""What travels between the pytest process, the supervisor and the children: length-prefixed bytes.

Nothing that a child writes is ever executed or trusted: requests and replies are MessagePack, decoded
into typed structures; lengths are checked before memory is taken; every wait has a deadline.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from typing import Literal

import msgspec

MAX_MESSAGE = 1 << 30
"""Bytes of the largest message that is accepted."""

_LENGTH = struct.Struct("<Q")


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The supervisor's answer to one request."""

    payload: bytes = b""
    """What the child handed over; empty when it died."""
    death: Literal["", "signal", "exit", "hang", "garbage"] = ""
    detail: str = ""
    step: int = -1
    error: str = ""
    """What went wrong in the runner itself, or why the target cannot be used."""


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The supervisor's first message."""

    error: str = ""
    """Why the target cannot be used, in one sentence."""
    threads: int = 1
    """Threads of the process after the target was loaded: more than one makes forking unsafe."""


class Closed(Exception):  # noqa: N818 - the other end is gone, which is information
    """The other end closed the connection or sent something that is no message."""


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message.

    Raises:
        Closed: the other end is gone.
    """
    try:
        connection.sendall(_LENGTH.pack(len(message)) + message)
    except OSError as error:
        raise Closed(str(error)) from None


def receive(connection: socket.socket, deadline: float | None) -> bytes:
    """Receive one message before ``deadline`` (seconds of `time.monotonic`; None waits for ever).

    Raises:
        Closed: the other end is gone, or the length is absurd.
        TimeoutError: nothing (or not everything) came in time.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > MAX_MESSAGE:
        raise Closed(f"a message of {length} bytes was announced")
    return _exactly(connection, length, deadline)


def _exactly(connection: socket.socket, length: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        if deadline is None:
            connection.settimeout(None)
        else:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = connection.recv(min(length - len(parts), 1 << 20))
        except ConnectionError as error:
            raise Closed(str(error)) from None
        if not part:
            raise Closed("the connection was closed")
        parts += part
    return bytes(parts)


class Slot:
    """A piece of shared memory in which a child leaves its progress and its reply.

    Layout: 8 bytes step (signed), 8 bytes length of the reply (0: none yet), then the reply. A file
    rather than a pipe: nothing can block on it, and a grandchild that keeps it open delays nobody.
    """

    _HEADER = struct.Struct("<qQ")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._header = mmap.mmap(fd, mmap.PAGESIZE)

    @classmethod
    def make(cls) -> Slot:
        """A fresh slot: no step begun, no reply."""
        fd = os.memfd_create("pytest-qnn-slot")
        os.ftruncate(fd, mmap.PAGESIZE)
        slot = cls(fd)
        slot._header[: cls._HEADER.size] = cls._HEADER.pack(-1, 0)
        return slot

    def fileno(self) -> int:
        """The descriptor, to hand the slot on to another process."""
        return self._fd

    def step(self, index: int) -> None:
        """Child: step ``index`` begins."""
        struct.pack_into("<q", self._header, 0, index)

    def answer(self, payload: bytes) -> None:
        """Child: leave the reply. The length goes last, so that half a reply is no reply."""
        os.pwrite(self._fd, payload, self._HEADER.size)
        struct.pack_into("<Q", self._header, 8, len(payload))

    def result(self) -> tuple[int, bytes | None]:
        """Supervisor: (last step begun, reply or None)."""
        step, length = self._HEADER.unpack_from(self._header, 0)
        available = os.fstat(self._fd).st_size - self._HEADER.size
        if not 0 < length <= min(available, MAX_MESSAGE):
            return step, None
        return step, os.pread(self._fd, length, self._HEADER.size)

    def close(self) -> None:
        """Unmap and close."""
        self._header.close()
        os.close(self._fd)
