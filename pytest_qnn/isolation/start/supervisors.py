"""How supervisors are started: forked from a fork server, or, where there can be none, as fresh interpreters.

There is a fork server for each environment and each half of what is judged, made when the first supervisor is
wanted. Those of the last few environments are kept until this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

import msgspec

from pytest_qnn.isolation.host.exit_watch import ExitWatch
from pytest_qnn.isolation.start import fork_server, interpreter
from pytest_qnn.isolation.worker import Spec

SWITCH: Final = "PYTEST_QNN_FORK_SERVER"
"""Environment variable: with 0 every supervisor is a fresh interpreter."""
_SUPERVISOR: Final = "pytest_qnn.isolation.supervisor"
_SERVER: Final = "pytest_qnn.isolation.start.fork_server"
_OWN: Final = "pytest_qnn."
"""How the names of modules begin that a fork server may import: nobody else's code runs in it."""
_CHANGES: Final = "PYTEST_CURRENT_TEST"
"""A variable that pytest sets anew for each test, and that nothing reads as a process starts."""
_MOST_SERVERS: Final = 6
"""Two halves on two runtimes, with and without `GLIBC_TUNABLES`."""
_MOST_FAILURES: Final = 3
"""Of fork servers in a row, before no other one is tried in this process: one that somebody ends is none."""
_SECONDS: Final = 30.0
"""Within which a fork server answers. The first answer waits for its imports."""
_END_SECONDS: Final = 1.0
_INHERITED: Final = (
    *("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed"),
)
"""Of /proc/PID/status: what a new process has from the one that starts it."""
_MADE = msgspec.msgpack.Decoder(fork_server.Made)


class Process(Protocol):
    """A child of this process: of `subprocess.Popen` what a sandbox needs."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, or the negative number of the signal that it died of.

        Raises:
            subprocess.TimeoutExpired: it has not ended within ``timeout`` seconds.
        """

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it is known to have ended."""

    def kill(self) -> None:
        """Send it SIGKILL, unless it is known to have ended."""


class _Child:
    """A child that `subprocess` has not made, or is to know nothing of."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """See `Process.wait`."""
        if self._status is None:
            with contextlib.closing(ExitWatch(self.pid)) as watch:
                if timeout is not None and not watch.wait(timeout, {}).ended:
                    raise subprocess.TimeoutExpired(_SUPERVISOR, timeout)
            _, status = os.waitpid(self.pid, 0)
            self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def send_signal(self, sig: int) -> None:
        """See `Process.send_signal`."""
        if self._status is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """See `Process.kill`."""
        self.send_signal(signal.SIGKILL)


class _Key(NamedTuple):
    """What is the same for all supervisors of one fork server."""

    module: str
    ahead: str | None
    variables: tuple[tuple[str, str], ...]
    mark: int
    """Bytes of the value of `fork_server.MARK`."""
    path: tuple[str, ...]
    inherited: str


class _Server:
    """A fork server.

    Raises:
        OSError: there is no process for it.
    """

    def __init__(self, key: _Key) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ahead = () if key.ahead is None else (key.ahead,)
        with theirs:
            process = subprocess.Popen(
                interpreter.command(_SERVER, str(theirs.fileno()), key.module, *ahead),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # The folder of no case: this process is not ended with what a case has left.
                env={**dict(key.variables), fork_server.MARK: "/" * key.mark},
                start_new_session=True,
            )
        process.returncode = 0  # it is waited for here
        self.process = _Child(process.pid)

    def make(self, wanted: fork_server.Wanted, connection: int, stderr: int) -> int:
        """The process number of a supervisor.

        Raises:
            OSError: the server is gone, does not answer, or makes none.
            msgspec.DecodeError: what it answers is no answer.
        """
        self._connection.settimeout(_SECONDS)
        folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            message = msgspec.msgpack.encode(wanted)
            if len(message) > fork_server.MOST:
                raise OSError("the request is too long")
            socket.send_fds(self._connection, [message], [connection, stderr, folder])
        finally:
            os.close(folder)
        return self._answered()

    def _answered(self) -> int:
        """The process number that it answers with; raises as `make`."""
        made = _MADE.decode(self._connection.recv(fork_server.MOST))
        if made.error or made.pid <= 0:
            raise OSError(made.error)
        return made.pid

    def give_up(self) -> None:
        """End it, and the supervisor that it may have made: nobody waits for that any more.

        It has a second to answer after all: of one that is killed while it makes a supervisor, which ends by
        itself then, the number is not known, and so nobody collects its status.
        """
        self._connection.settimeout(_END_SECONDS)
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._connection.shutdown(socket.SHUT_WR)
            unknown = _Child(self._answered())
            unknown.kill()
            unknown.wait()
        self.end()

    def leave(self) -> None:
        """It is another process's: this one is a fork of that."""
        self._connection.close()

    def fileno(self) -> int:
        """The descriptor of the connection."""
        return self._connection.fileno()

    def end(self) -> None:
        """It ends when its connection does."""
        self._connection.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Servers:
    """Those of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._servers: dict[_Key, _Server] = {}
        self._failures = 0

    def make(
        self, spec: Spec, arguments: Sequence[str], environment: Mapping[str, str], files: tuple[int, int]
    ) -> Process | None:
        """A supervisor; None: no fork server has made one. ``files``: its connection and stderr."""
        module = spec.text().partition(" ")[0]
        wanted = os.environ.get(SWITCH) != "0" and sys.platform == "linux"
        if not wanted or platform.machine() not in fork_server.MACHINES:
            return None
        if not module.startswith(_OWN) or self._failures >= _MOST_FAILURES:
            return None
        with self._lock:
            self._leave_to_parent()
            key = _key(module, spec.ahead, environment)
            try:
                made = _Child(self._server(key).make(_wanted(arguments, environment), *files))
            except BaseException as error:
                # Its answer would be taken for that to the next request, as in `Sandbox._replies`.
                if server := self._servers.pop(key, None):
                    server.give_up()
                if not isinstance(error, OSError | msgspec.DecodeError):
                    raise
                self._failures += 1
                return None
            self._failures = 0
            return made

    def _leave_to_parent(self) -> None:
        """In a fork of the process that has made them they are not this one's."""
        if self._pid != os.getpid():
            for server in self._servers.values():
                server.leave()
            self._servers.clear()
            self._pid = os.getpid()

    def _server(self, key: _Key) -> _Server:
        server = self._servers.pop(key, None) or _Server(key)
        while len(self._servers) >= _MOST_SERVERS:
            self._servers.pop(next(iter(self._servers))).end()
        self._servers[key] = server  # the last one that was used is the last
        return server

    def known(self) -> dict[int, int]:
        """Their process numbers, and the descriptors here of their connections."""
        self._leave_to_parent()
        return {server.process.pid: server.fileno() for server in self._servers.values()}

    def end(self) -> None:
        """End all of them."""
        self._leave_to_parent()
        while self._servers:
            self._servers.popitem()[1].end()


_SERVERS: Final = _Servers()
atexit.register(_SERVERS.end)


def fork_servers() -> dict[int, int]:
    """The process numbers of this process's fork servers, and the descriptors that lead to them."""
    return _SERVERS.known()


def start(
    spec: Spec,
    arguments: Sequence[str],
    connection: socket.socket,
    stderr: IO[bytes],
    environment: Mapping[str, str],
) -> Process:
    """Start a supervisor; see `pytest_qnn.isolation.supervisor`.

    A Ctrl-C in the terminal goes to every process of the foreground group: pytest must get it, and the
    supervisor, in a session of its own, must live on to end the children and remove their files.

    Args:
        spec: what the supervisor loads.
        arguments: of the supervisor, but for the first (its connection's descriptor) and the last (``spec``).
        connection: the supervisor's end of it.
        stderr: what it writes there.
        environment: all of it; `fork_server.MARK` is set.

    Raises:
        OSError: there is no process for it.
    """
    _collect_children()
    files = connection.fileno(), stderr.fileno()
    arguments = (*arguments, spec.text())
    forked = _SERVERS.make(spec, arguments, environment, files)
    return forked or subprocess.Popen(
        interpreter.command(_SUPERVISOR, str(files[0]), *arguments),
        pass_fds=files[:1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    )


def _collect_children() -> None:
    """Have the kernel keep the status of children, also where whoever started pytest ignores SIGCHLD.

    A program keeps what is ignored when it starts another one. Only the main thread can change it.
    """
    ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _key(module: str, ahead: str | None, environment: Mapping[str, str]) -> _Key:
    apart = (fork_server.MARK, _CHANGES)
    variables = tuple(sorted(item for item in environment.items() if item[0] not in apart))
    mark = len(os.fsencode(environment[fork_server.MARK]))
    return _Key(module, ahead, variables, mark, tuple(sys.path), _inherited())


def _inherited() -> str:
    """What a new process has from this one, besides its environment, the folder that it is in, and files."""
    status, *files = map(_told, ("status", "limits", "cgroup", "oom_score_adj"))
    lines = [line for line in status.splitlines() if line.split(":")[0] in _INHERITED]
    return "\n".join([*lines, *files, str(os.getpriority(os.PRIO_PROCESS, 0))])


def _told(name: str) -> str:
    """What the system tells of this thread; empty where it does not."""
    with contextlib.suppress(OSError):
        return Path("/proc/thread-self", name).read_text()
    return ""


def _wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> fork_server.Wanted:
    names = [name for name in (fork_server.MARK, _CHANGES) if name in environment]
    return fork_server.Wanted(
        list(map(os.fsencode, arguments)),
        {os.fsencode(name): os.fsencode(environment[name]) for name in names},
    )
