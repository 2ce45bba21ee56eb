"""A process from which supervisors are forked: what each of them imports was imported once.

    python -m pytest_qnn.isolation.start.fork_server SOCKET_FD MODULE [AHEAD]

A fresh interpreter takes 0.4 to 0.8 s of processor time before it loads a target, nearly all of it for our
own modules, numpy and a runtime. This process imports them, runs them once (AHEAD: see
`pytest_qnn.isolation.worker.WorkerSpec`) and waits; it never loads a target. A supervisor that is forked from
it (`pytest_qnn.isolation.start.supervisors`) differs from a fresh one in one thing: the addresses of its
libraries are those of the others of the same run.

The new process is a child of pytest's, not of this one (CLONE_PARENT, clone(2)): it is waited for, stopped,
continued and killed as a fresh one, and does not end with this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import itertools
import os
import platform
import signal
import socket
import sys
import tempfile
import traceback
from typing import Final, NoReturn

import msgspec

from pytest_qnn.isolation import supervisor, wire

MARK: Final = "TMPDIR"
"""The variable by which a supervisor and its descendants are recognised in /proc/PID/environ."""
_CLONE_PARENT: Final = 0x8000
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
"""Numbers of the system call, by machine."""
MACHINES: Final = tuple(_CLONE)
"""Where there may be such a process."""


MOST: Final = 1 << 17
"""Bytes of a message."""


class Wanted(msgspec.Struct, frozen=True):
    """A supervisor to be made. With it come three descriptors: its connection, stderr, the folder to be in.

    All text is as the system has it.
    """

    arguments: list[bytes]
    """Behind the descriptor of its connection; see `pytest_qnn.isolation.supervisor`."""
    variables: dict[bytes, bytes]
    """Of the environment, what this process has not, or otherwise. `MARK` is among them, as long as here."""


class Made(msgspec.Struct, frozen=True):
    """The answer."""

    pid: int
    error: str = ""


_WANTED = msgspec.msgpack.Decoder(Wanted)


def main() -> None:
    """Serve until pytest closes the connection."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    module = importlib.import_module(sys.argv[2])
    for ahead in sys.argv[3:]:
        module.make_ready(ahead)
    mark = _address_of_mark()
    gc.collect()
    gc.freeze()  # no collection in a fork visits, and so copies, what is here
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MOST, 3)
        if not message:
            return
        try:
            _make(connection, _WANTED.decode(message), descriptors, mark)
        except (OSError, msgspec.DecodeError) as error:
            connection.send(msgspec.msgpack.encode(Made(0, str(error))))
        for descriptor in descriptors:
            os.close(descriptor)


def _make(connection: socket.socket, wanted: Wanted, descriptors: list[int], mark: int) -> None:
    """Make a supervisor and answer with its number; it begins once pytest can know of it.

    Raises:
        OSError: the system makes no process.
    """
    read_fd, begin_fd = os.pipe()
    with contextlib.ExitStack() as ending:
        ending.callback(os.close, begin_fd)
        try:
            pid = _fork_sibling()
            if not pid:
                os.close(begin_fd)
                connection.close()
                _become_supervisor(wanted, descriptors, mark, read_fd)
        finally:
            os.close(read_fd)
        connection.send(msgspec.msgpack.encode(Made(pid)))
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            os.write(begin_fd, b"!")


def _become_supervisor(wanted: Wanted, descriptors: list[int], mark: int, read_fd: int) -> NoReturn:
    """What `subprocess.Popen` and a fresh interpreter do otherwise."""
    try:
        if wire.wait_for_start(read_fd):
            _take_over(wanted, descriptors, mark)
            supervisor.run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _take_over(wanted: Wanted, descriptors: list[int], mark: int) -> None:
    """Have the session, standard streams, folder, environment and arguments of a supervisor."""
    fd, stderr, folder = descriptors
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream, source in ((0, null), (1, null), (2, stderr)):
        os.dup2(source, stream)
    os.fchdir(folder)
    for descriptor in (null, stderr, folder):
        os.close(descriptor)
    entry = os.fsencode(MARK) + b"=" + wanted.variables[os.fsencode(MARK)]
    if len(entry) != len(ctypes.string_at(mark)):
        raise ValueError("the folder's name has another length")
    ctypes.memmove(mark, entry, len(entry))  # what /proc/PID/environ shows
    for name, value in wanted.variables.items():
        os.environb[name] = value
    tempfile.tempdir = None  # which somebody may have asked for here
    sys.argv[:] = [supervisor.__file__, str(fd), *map(os.fsdecode, wanted.arguments)]


def _address_of_mark() -> int:
    """Where the system has put the variable `MARK` when this process was started.

    Raises:
        OSError: it is not among the variables.
    """
    libc = ctypes.CDLL(None)
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    for number in itertools.count():
        address: int | None = entries[number]
        if address is None:
            break
        if ctypes.string_at(address).startswith(f"{MARK}=".encode()):
            return address
    raise OSError(f"{MARK} is not set")


def _fork_sibling() -> int:
    """As `os.fork`, but the new process is a child of this one's parent.

    The C library's own fork cannot do that. What it does besides, for threads and for its locks, is not
    needed: there is one thread. Its record of the thread's number is out of date in the new process until
    that forks again, which is the first thing that a guardian does.

    Raises:
        OSError: the system makes no process.
    """
    # With the interpreter's lock held, as `os.fork` does it (https://docs.python.org/3/c-api/sys.html).
    ctypes.pythonapi.PyOS_BeforeFork()
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    nothing = [ctypes.c_void_p()] * 4
    pid: int = call(_CLONE[platform.machine()], ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD), *nothing)
    if not pid:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


if __name__ == "__main__":
    main()
