"""The guardian: the parent of a supervisor. It is never alone in a process with what is judged.

It is forked off before the target is loaded, and does three things until the supervisor has ended:

* It keeps the connection to pytest. The supervisor is given it when the target is loaded: what a library
  writes to descriptors that are not its own while it is loaded, or a process that it starts then, does not
  reach pytest. Before, it lifts the limits that the library has lowered for good, if it may: in namespaces of
  its own the supervisor has no right to.
* It continues a supervisor that was stopped.
* It is the parent of every process whose own parents are gone (a subreaper, see prctl(2)), whatever that one
  did to its group, its session and its environment. When the supervisor has ended, they are ended too.

Then it ends as the supervisor did. Who ends both at once, with SIGKILL, is left to `processes.end_marked`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import struct
import time
from pathlib import Path

from pytest_qnn.isolation import namespaces, process_state, processes, working_directory
from pytest_qnn.isolation.host import confined
from pytest_qnn.isolation.host.lacks import why_no_process

_GRACE = 0.5
"""Seconds in which a supervisor ends by itself once pytest is gone, or no longer wants it."""
_MOST_STOPS = 100
"""Times that a supervisor is continued. It takes no time, but somebody may stop it without end."""
_CREDENTIALS = struct.Struct("3i")
"""Struct ucred of unix(7): process, user and group id."""


class NoProcess(Exception):  # noqa: N818 - the host's lack, in one sentence
    """There is no process for the supervisor."""


class Handover:
    """Where the supervisor gets the connection when it may have it."""

    def __init__(self, name: bytes, *, apart: bool, queues: namespaces.Queues | None = None) -> None:
        self._name = name
        self._link = socket.socket(socket.AF_UNIX)
        # Later there may be no descriptor left. It leads nowhere before the target is loaded.
        self.apart = apart
        """In `pytest_qnn.isolation.namespaces` of their own: the supervisor and its children."""
        self.queues = queues
        """The message queues there."""

    def take(self) -> socket.socket:
        """The connection to pytest. The guardian lifts the limits of this process before, as far as it may.

        Raises:
            OSError: the guardian is gone.
        """
        with self._connected() as link:
            _, descriptors, _, _ = socket.recv_fds(link, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise OSError("the guardian handed over nothing")
        return socket.socket(fileno=descriptors[0])

    def descriptors(self) -> list[int]:
        """What is open here for as long as there are cases."""
        return [] if self.queues is None else [self.queues.fd]

    def _connected(self) -> socket.socket:
        try:
            self._link.connect(self._name)
        except OSError:  # the target has closed it, and may have another file by this number
            self._link.detach()
            self._link = socket.socket(socket.AF_UNIX)
            self._link.connect(self._name)
        return self._link


def begin(connection: socket.socket, root: Path, *, apart: bool) -> Handover:
    """Fork: the parent becomes the guardian and never returns, the child is to be the supervisor.

    Args:
        connection: to pytest; closed in the child.
        root: the folder to remove in the end.
        apart: in namespaces of its own, if that is allowed here.

    Raises:
        NoProcess: the system has no memory or no process id for it.
        OSError: not all of the namespaces is allowed.
    """
    processes.adopt_orphans()
    listener = socket.socket(socket.AF_UNIX)
    # An abstract name (unix(7)): no file, whose path may be longer than an address can be.
    name = b"\0pytest-qnn-" + secrets.token_hex(16).encode()
    listener.bind(name)
    listener.listen(1)
    guardian = os.getpid()
    apart = apart and namespaces.separate_children()
    try:
        supervisor = os.fork()
    except OSError as error:
        raise NoProcess(why_no_process(error)) from None
    if supervisor:
        _Guardian(supervisor, connection, listener).run_and_end(root)
    connection.close()
    listener.close()
    processes.die_with_parent()
    if os.getppid() not in (guardian, 0):  # it was gone before; 0: its id is none here
        os._exit(1)
    if apart:
        return Handover(name, apart=True, queues=namespaces.enter())
    confined.confine()
    return Handover(name, apart=False)


class _Guardian:
    """Watches the supervisor, to its end."""

    def __init__(self, supervisor: int, connection: socket.socket, listener: socket.socket) -> None:
        self._supervisor = supervisor
        self._connection = connection
        self._listener: socket.socket | None = listener
        self._stops = 0
        self._deadline: float | None = None
        """When a supervisor that nobody wants any more is ended; None: it is wanted."""

    def run_and_end(self, root: Path) -> None:
        """Wait until it has ended, end all that it left, and end in the same way."""
        status = 1 << 8
        try:
            status = self._wait()
            processes.end_orphans(frozenset())
            working_directory.remove(root)
        finally:
            _end_as(status)

    def _wait(self) -> int:
        """The wait status of the supervisor."""
        woken = self._wake_on_change()
        while True:
            pid, status = os.waitpid(self._supervisor, os.WNOHANG | os.WUNTRACED)
            if pid and not os.WIFSTOPPED(status):
                return status
            if pid:
                self._continue()
            else:
                self._serve(woken)

    @staticmethod
    def _wake_on_change() -> int:
        """A descriptor that can be read when a child ended or was stopped; no other signal has any effect."""
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return read_fd

    def _continue(self) -> None:
        self._stops += 1
        if self._stops > _MOST_STOPS:
            # First those that may do it: when the supervisor is gone, this process is the one they stop.
            processes.kill([*processes.descendants(self._supervisor), self._supervisor])
        os.kill(self._supervisor, signal.SIGCONT)

    def _serve(self, woken: int) -> None:
        """Wait for what comes next: the supervisor changed, it wants the connection, or pytest is gone."""
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        if self._deadline is None:
            poll.register(self._connection, select.POLLRDHUP)
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000
        ready = dict(poll.poll(left))
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1 << 12)
        if self._listener is not None and self._listener.fileno() in ready:
            self._hand_over(self._listener)
        if self._deadline is None and self._connection.fileno() in ready:
            self._deadline = time.monotonic() + _GRACE
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            processes.kill([self._supervisor])
            self._deadline = time.monotonic() + _GRACE

    def _hand_over(self, listener: socket.socket) -> None:
        """Give the connection to the supervisor, and to nobody else that found the name."""
        link, _ = listener.accept()
        with link, contextlib.suppress(OSError):
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[0] == self._supervisor:
                process_state.lift_limits(self._supervisor)
                socket.send_fds(link, [b"!"], [self._connection.fileno()])
                listener.close()
                self._listener = None


def _end_as(status: int) -> None:
    """End this process with the wait status of another one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
