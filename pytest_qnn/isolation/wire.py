"""What travels between the pytest process, the supervisor and the children: length-prefixed bytes.

Nothing that a child writes is ever executed or trusted: requests and replies are MessagePack, decoded
into typed structures; lengths are checked before memory is taken; every wait has a deadline.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from typing import Literal

import msgspec

from pytest_qnn.core.evidence import Call, Evidence
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.evidence import call_log, crash_handler
from pytest_qnn.isolation.host.shared_memory import shared_memory

_SLOT_SIZE = (256 << 20) - (128 << 10)
"""Bytes mapped for a child's answer. Not a size that a case would search the mappings for."""
_EVIDENCE_SIZE = crash_handler.SIZE + call_log.SIZE
_EVIDENCE_AT = _SLOT_SIZE - _EVIDENCE_SIZE
_CALLS_AT = _EVIDENCE_AT + crash_handler.SIZE
"""The end of the slot is for what a child leaves that dies: pages that hardly any child touches."""
MAX_ANSWER = _EVIDENCE_AT - 48
"""Bytes of the largest answer that a child has room for, beside its header and the answer's length."""
MAX_REQUEST = MAX_ANSWER - (1 << 10)
"""Bytes of the largest request that a child can be given."""
MAX_TOGETHER = 1 << 26
"""Bytes of requests that are given to a child together, where there is more than one."""
MAX_MESSAGE = 256 << 20
"""Bytes of the largest message that is accepted."""
MOST_TAKEN = 17 << 19
"""Bytes that the answers of one child may have together, and so one answer. They are held twice while they
are read, in memory that has holes of their size: that takes less than 32 MiB."""
ROOM = 4 << 20
"""Bytes that they may have beside contents of tensors and buffers. Of one case they have 30 KB at most, of
thirty cases together not yet one megabyte."""
MAX_WORDS = 1 << 20
"""Bytes that a supervisor's message may have beside the answers: how a child died, and the evidence of it."""
MAX_REPLIES = 1000
"""Replies of one child, and so requests that it may be given."""
_MAX_STEPS = 1 << 20
_WAITING = -2
"""In place of a step: the child has not taken its request."""

_LENGTH = struct.Struct("<Q")
_SMALL = 1 << 16
"""Bytes of a message that is sent together with its length: to copy it takes less than a further call."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child says of one request. The target is in its process, and may say it in its place.

    So a child cannot say that this project has failed: a target could hide its own doing behind that.
    """

    payload: bytes = b""
    """What was asked for."""
    broken: str = ""
    """Why there is none: what the target did to the process, or an exception in it."""
    unusable: str = ""
    """Why the target cannot be loaded, in one sentence."""
    large: int = 0
    """Bytes that the payload would have, which is left out: more than `MOST_TAKEN`."""


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The supervisor's answer to one request."""

    payload: bytes = b""
    """What the child handed over; empty when it died."""
    death: Literal["", "signal", "exit", "hang", "garbage", "large"] = ""
    detail: str = ""
    step: int = -1
    late: bool = False
    """The child had answered before it died."""
    killed: bool = False
    """It, or the supervisor, died of a SIGKILL that nobody here sent."""
    supervisor_lost: bool = False
    """Pytest's own word: there was no reply of the supervisor."""
    call: str = ""
    """The call that the child had begun last; empty but in its last reply."""
    unusable: str = ""
    """Why the target cannot be loaded, as the child says, in whose words the target may have a part."""
    error: str = ""
    """What went wrong in the supervisor: in no word of it has a child a part."""
    no_process: bool = False
    """That is the host's lack of processes."""
    evidence: Evidence = Evidence()
    """What a child left that died."""
    unclear: bool = False
    """The child had several requests, and has written over its answers: nobody knows which of them it was."""
    leaves: bool = False
    """In namespaces of its own the child left shared memory, a semaphore or a message queue behind."""


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the supervisor is given: the requests for one child."""

    requests: list[bytes]
    cycles: list[int] = []
    """Of each request: how often it does what the plain case does once; 1 where there is none."""
    plain: bytes = b""
    """The request of the plain case; empty: there is none."""


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The supervisor's first message."""

    error: str = ""
    """Why the target cannot be used, in one sentence."""
    no_process: bool = False
    """That is the host's lack of processes."""
    threads: int = 1
    """Threads of the process after the target was loaded: more than one makes forking unsafe."""
    apart: bool = False
    """It is in namespaces of its own."""
    leaves: bool = False
    """The target has made shared memory, a semaphore or a message queue in them while it was loaded."""


class Closed(Exception):  # noqa: N818 - the other end is gone, which is information
    """The other end closed the connection or sent something that is no message."""


def send(connection: socket.socket, message: bytes, deadline: float | None) -> None:
    """Send one message before ``deadline`` (seconds of `time.monotonic`; None waits for ever).

    Raises:
        Closed: the other end is gone.
        TimeoutError: it did not take the message in time.
    """
    connection.settimeout(_left(deadline))
    try:
        if len(message) < _SMALL:
            connection.sendall(_LENGTH.pack(len(message)) + message)
        else:
            connection.sendall(_LENGTH.pack(len(message)))
            connection.sendall(message)
    except TimeoutError:
        raise
    except OSError as error:
        raise Closed(str(error)) from None


def receive(connection: socket.socket, deadline: float | None, most: int = MAX_MESSAGE) -> bytearray:
    """Receive one message of at most ``most`` bytes before ``deadline``.

    That is in seconds of `time.monotonic`; None waits for ever.

    Raises:
        Closed: the other end is gone, or the length is absurd.
        TimeoutError: nothing (or not everything) came in time.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > most:
        raise Closed(f"a message of {length} bytes was announced")
    return _exactly(connection, length, deadline)


def _exactly(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
    """So many bytes, held once."""
    found = bytearray(length)
    done = 0
    with memoryview(found) as room:
        while done < length:
            connection.settimeout(_left(deadline))
            try:
                size = connection.recv_into(room[done:])
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(str(error)) from None
            if not size:
                raise Closed("the connection was closed")
            done += size
    return found


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def wait_for_start(read_fd: int) -> bool:
    """Child: wait until its request is in its slot; False if there will be none, or nobody to want it."""
    try:
        return bool(os.read(read_fd, 1))
    finally:
        os.close(read_fd)


class Slot:
    """A piece of shared memory in which a child finds its requests and leaves its progress and its replies.

    Layout: 8 bytes step (signed), 8 bytes that say whether the child stopped by itself, 8 bytes number of
    replies, 8 bytes length of all replies, 8 bytes of a number that only the supervisor knows, then the
    replies, each behind 8 bytes of its length; until the first of them the requests are in their place,
    behind their own length. At the end of the memory there is
    what a child leaves that dies (`crash_handler`), and the calls of its case (`call_log`). Memory rather
    than a pipe: nothing can block on it, and a grandchild that keeps it delays nobody. A child needs no
    descriptor for it (see `close_in_child`), so that none can be closed or written to by the target.

    Raises:
        OSError: the memory cannot be mapped.
    """

    _HEADER = struct.Struct("<qQQQQ")
    _SEAL_AT = 32

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Not mmap.mmap: that would keep a descriptor of its own.
        protection = libc.PROT_READ | libc.PROT_WRITE
        address = libc.mmap(None, _SLOT_SIZE, protection, libc.MAP_SHARED, fd, 0)
        if address in (None, libc.MAP_FAILED):
            raise OSError("the memory for a child's answer cannot be mapped")
        self._address: int = address
        self._memory = (ctypes.c_char * _SLOT_SIZE).from_address(address)
        self._seal = 0

    @classmethod
    def make(cls) -> Slot:
        """A fresh slot: no step begun, no reply. Pages of it that nobody touches take no memory."""
        # Memory, not a pipe or a socket: a target may fork a process that keeps every descriptor open, and a
        # reader of a pipe would wait for that one too; and a reply of any size needs nobody to read it.
        # Fixed: a read of a mapping beyond the end of its file is SIGBUS, and a target that truncated this
        # one would kill the supervisor. Where that cannot be forbidden (no memfd), no target gets so far by
        # accident: a child closes the descriptor before it runs or loads the target, the file has no name,
        # and to open a mapping in /proc/PID/map_files takes CAP_CHECKPOINT_RESTORE.
        fd = shared_memory("pytest-qnn-slot", _SLOT_SIZE, fixed=True)
        try:
            slot = cls(fd)
        except OSError:
            os.close(fd)
            raise
        slot.step(_WAITING)
        slot._seal = int.from_bytes(os.urandom(8), "little")
        struct.pack_into("<Q", slot._memory, cls._SEAL_AT, slot._seal)
        return slot

    def fileno(self) -> int:
        """The descriptor, to hand the slot on to another process."""
        return self._fd

    def close_in_parent(self) -> None:
        """Supervisor: hand the slot on to no later child. The one that has it keeps it."""
        os.close(self._fd)
        self._fd = -1
        # The next child is forked while this one runs, and must not be able to write to its slot.
        libc.madvise(self._address, _SLOT_SIZE, libc.MADV_DONTFORK)

    def write_request(self, request: bytes) -> None:
        """Supervisor: leave the request.

        Raises:
            ValueError: it is larger than MAX_REQUEST.
        """
        if len(request) > MAX_REQUEST:
            raise ValueError(f"the request has {len(request)} bytes, more than {MAX_REQUEST}")
        self._put(self._HEADER.size, request)

    def _put(self, at: int, message: bytes) -> None:
        """Leave a message behind its length."""
        _LENGTH.pack_into(self._memory, at, len(message))
        ctypes.memmove(self._address + at + _LENGTH.size, message, len(message))

    def close_in_child(self) -> None:
        """Child: close the descriptor; the memory stays."""
        os.close(self._fd)

    def read_request(self) -> bytes:
        """Child: the request. From now on the case has begun."""
        (length,) = _LENGTH.unpack_from(self._memory, self._HEADER.size)
        self.step(-1)
        return ctypes.string_at(self._address + self._HEADER.size + _LENGTH.size, length)

    @property
    def begun(self) -> bool:
        """Supervisor: the child has taken its request."""
        step: int = self._HEADER.unpack_from(self._memory, 0)[0]
        return step != _WAITING

    @property
    def answered(self) -> int:
        """How many replies there are."""
        count: int = self._HEADER.unpack_from(self._memory, 0)[2]
        return count

    def call_log(self) -> call_log.CallLog:
        """Child: where to note the steps and calls of its cases."""
        return call_log.CallLog(self._memory, _CALLS_AT)

    def progress(self) -> tuple[int, str]:
        """Supervisor: see `call_log.progress`."""
        return call_log.progress(self._memory, _CALLS_AT)

    def record_crash(self) -> None:
        """Child: have a signal that kills it recorded here."""
        crash_handler.record_to(self._address + _EVIDENCE_AT)

    def left(self) -> tuple[crash_handler.Crash | None, tuple[Call, ...], str]:
        """Supervisor: the signal, the calls, and the one that was at work; see `call_log.read`."""
        memory = ctypes.string_at(self._address + _EVIDENCE_AT, _EVIDENCE_SIZE)
        crash = crash_handler.read(memory[: crash_handler.SIZE])
        calls, during = call_log.read(memory[crash_handler.SIZE :], crash.thread if crash else 0)
        return crash, calls, during

    def step(self, index: int) -> None:
        """Child: step ``index`` begins; -1: the next case does."""
        struct.pack_into("<q", self._memory, 0, index)

    def stop(self) -> None:
        """Child: it ends by its own will, whether or not all requests are answered."""
        struct.pack_into("<Q", self._memory, 8, 1)

    def answer(self, payload: bytes) -> bool:
        """Child: leave the next reply, if there is room for it beside the others.

        The number goes last, so that half a reply is no reply.

        Raises:
            ValueError: the first reply is larger than MAX_ANSWER.
        """
        _, _, count, length, _ = self._HEADER.unpack_from(self._memory, 0)
        end = length + _LENGTH.size + len(payload)
        if end > _EVIDENCE_AT - self._HEADER.size:
            if not count:
                raise ValueError(f"the answer has {len(payload)} bytes, more than {MAX_ANSWER}")
            return False
        self._put(self._HEADER.size + length, payload)
        struct.pack_into("<QQ", self._memory, 16, count + 1, end)
        return True

    def result(self) -> tuple[int, bool, list[bytes]]:
        """Supervisor: (last step begun, -1 if it is no step's number; whether it stopped itself; replies)."""
        step, stopped, count, _, _ = self._HEADER.unpack_from(self._memory, 0)
        replies = []
        at = self._HEADER.size
        # The target may have written anything here: no length is believed beyond the slot's end.
        for _ in range(min(count, MAX_REPLIES)):
            if at + _LENGTH.size > _EVIDENCE_AT:
                break
            (length,) = _LENGTH.unpack_from(self._memory, at)
            at += _LENGTH.size
            if length > _EVIDENCE_AT - at:
                break
            replies.append(ctypes.string_at(self._address + at, length))
            at += length
        return step if 0 <= step < _MAX_STEPS else -1, bool(stopped), replies

    @property
    def overwritten(self) -> bool:
        """Supervisor: somebody has written over what is not the child's to write, and so over its replies."""
        seal: int = self._HEADER.unpack_from(self._memory, 0)[4]
        return seal != self._seal

    def close(self) -> None:
        """Unmap and close."""
        libc.munmap(self._address, _SLOT_SIZE)
        if self._fd >= 0:
            os.close(self._fd)
