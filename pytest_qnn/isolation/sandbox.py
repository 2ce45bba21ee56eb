"""The pytest side of isolation: a supervisor process that runs each case in a child of its own."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from pytest_qnn.core import activity
from pytest_qnn.core.target import Death
from pytest_qnn.isolation import processes, wire, working_directory
from pytest_qnn.isolation.codec import decoded
from pytest_qnn.isolation.hangs import STOOD_STILL
from pytest_qnn.isolation.host.exit_watch import ExitWatch
from pytest_qnn.isolation.host.lacks import why_no_process
from pytest_qnn.isolation.start import interpreter, supervisors
from pytest_qnn.isolation.worker import Spec, Unusable

_REPLIES = msgspec.msgpack.Decoder(list[wire.Reply])
_READY = msgspec.msgpack.Decoder(wire.Ready)

MEMORY_LIMIT = 2 << 30
"""Bytes of private writable memory (RLIMIT_DATA) of a child.

Not RLIMIT_AS: drivers and sanitizers reserve far more addresses than they ever use. Four times of what
libQnnHtp.so needs at its first graph (11 arenas of 32 MiB among 447 MiB in all). Shared memory is not
counted by this limit; who exhausts the machine with it is the first that the kernel kills.
"""
_LOAD_TIMEOUT = 60.0
"""Seconds that loading a library may take."""
_GRACE = 10.0
"""Seconds beyond a case's own time after which the supervisor itself is taken for hung."""
_LOOK_INTERVAL = 0.5
"""Seconds after which a guardian that somebody stopped is continued."""
_EXIT_TIMEOUT = 1.0
"""Seconds for the supervisor to end by itself once its connection is closed."""
_MAX_STDERR = 1 << 16
"""Bytes of a supervisor's standard error that are shown."""
_KILLED_AGAIN = 2
"""Times that a case is tried again, in fresh supervisors, before a kill from outside counts as its doing.

A user's ``kill -9``, the kernel where memory runs out, and a cgroup's limit end whom they like.
"""


_NO_TCACHE = "glibc.malloc.tcache_count=0"
"""Has glibc (2.26 and later) keep no freed blocks in a thread's cache, which mallinfo2 counts as in use.

How many are there differs from run to run by more than a small leak. But glibc's check for a block that is
freed twice is in that cache too: so this is for processes that measure memory, and for no others. A tunable
is read once, when a process starts: it cannot be set in a fork.
https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""


class RunnerFailure(Exception):  # noqa: N818 - carries the child's traceback
    """The runner (not the target) failed in the child: a defect of this project."""


class Sandbox:
    """Starts the supervisor on first use and again whenever a target managed to kill it.

    Args:
        spec: the worker to load in the children.
        mode: ``fork`` or ``spawn`` (see `pytest_qnn.isolation.supervisor`).
        timeout: seconds for one case.
        exact: malloc of the children counts as in use what is in use (see `_NO_TCACHE`).
        plain: the request of the case that slow ones are compared with (see `pytest_qnn.isolation.hangs`).
        passed: environment variables that children get though their names look like credentials'.
        apart: in namespaces of its own (`pytest_qnn.isolation.namespaces`), if it may.
        memory: bytes of private writable memory that each process may have.

    Attributes:
        apart: once it is started, whether it is.
        leaves: in these the target was seen to leave shared memory, a semaphore or a message queue behind,
            or made it while it was loaded: outside it would stay.

    """

    def __init__(
        self,
        spec: Spec,
        mode: str,
        timeout: float,
        *,
        exact: bool = False,
        plain: bytes = b"",
        passed: Collection[str] = (),
        apart: bool = False,
        memory: int = MEMORY_LIMIT,
    ) -> None:
        self.mode = mode
        self._memory = memory
        self.last_call = ""
        """The call that the last child had begun last."""
        self._plain = plain
        self._passed = passed
        self._spec = spec
        self._timeout = timeout
        self._exact = exact
        self._process: supervisors.Process | None = None
        self._connection: socket.socket | None = None
        self._stderr: IO[bytes] | None = None
        self._root: Path | None = None
        self._ended_for_memory = 0
        """Processes that the kernel had ended for want of memory when the supervisor was started."""
        self._tried_again = _KILLED_AGAIN
        """Times that a case is tried again; once for a target that is known to kill its supervisor."""
        self.apart = apart
        self.leaves = False
        self._most_together = wire.MAX_REPLIES
        """Requests that are given to one child."""

    def load(self, spec: Spec) -> None:
        """Have the next supervisor load this; one that runs ends."""
        self.close()
        self._spec = spec

    def start(self) -> None:
        """Load the target in the supervisor; a target that starts threads when loaded is spawned.

        Raises:
            Unusable: it cannot be loaded; the text is one sentence.
        """
        ready = self._start_despite_kills()
        if self.mode == "fork" and ready.threads > 1:
            self.close()
            self.mode = "spawn"
            ready = self._start_despite_kills()
        self.apart = ready.apart
        self.leaves |= ready.leaves

    def call(self, request: bytes, cycles: int = 1) -> bytes | Death:
        """The child's answer to one request, or how the child died.

        Args:
            request: what the child is asked.
            cycles: how often the request does what the plain case does once.

        Raises:
            Unusable: the target cannot be loaded (any more).
            RunnerFailure: this project's code failed in the child.
        """
        ((answer, _),) = self.call_all([request], [cycles])
        return answer

    def call_all(
        self, requests: Sequence[bytes], cycles: Sequence[int]
    ) -> Iterator[tuple[bytes | Death, bool]]:
        """The answers to the requests, in order, each with whether it was the first that its child had.

        A child carries out one request after another. After a death the rest goes to a fresh child.

        Args:
            requests: what the children are asked.
            cycles: of each request, as for `call`.

        Raises:
            Unusable: the target cannot be loaded (any more).
            RunnerFailure: this project's code failed in the child.
        """
        left, counts = list(requests), list(cycles)
        while left:
            first = True
            together = fitting(left)[: self._most_together]
            answers = self._answers(together, counts[: len(together)])
            while answers:
                yield answers.pop(0), first  # it is not held while the next one is waited for
                first = False
                del left[0], counts[0]

    def _answers(self, requests: list[bytes], cycles: list[int]) -> list[bytes | Death]:
        """The answers of one child: at least one, and no more than requests.

        Where somebody kills the child or the supervisor, the first request without an answer is tried again.
        With the supervisor it is lost which request it was: then fewer are sent together. Where answers were
        written over, it is lost too: then each request gets a child of its own.
        """
        before: int | None = None
        killed = 0
        while True:
            replies = self._replies(requests, cycles)
            last = replies[-1]
            if before is None:  # not earlier: there may have been no supervisor, which counts as it starts
                before = self._ended_for_memory
            if last.unclear and len(requests) > 1:
                self._most_together = 1
                requests = requests[:1]
                continue
            if last.supervisor_lost and len(requests) > 1:
                requests = requests[: len(requests) // 2]
                continue
            if last.killed and len(replies) > 1:  # the one that was killed begins the next child
                self.close()
                del replies[-1]
                break
            killed += last.killed
            if not last.killed or killed > self._tried_again:
                replies[-1] = self._for_good(last, killed, processes.ended_for_memory() - before)
                break
            self.close()
        self.last_call = replies[-1].call or self.last_call
        self.leaves |= replies[-1].leaves
        return [_answer(reply) for reply in replies]

    def _for_good(self, reply: wire.Reply, times: int, ended_for_memory: int) -> wire.Reply:
        """The last reply; of a case with which its child or the supervisor was lost each time, it says so.

        With as many processes, of whoever, that the kernel has ended for want of memory in the meantime, want
        of memory is the likely reason.
        """
        if not reply.killed:
            return reply
        if reply.supervisor_lost and not ended_for_memory:
            self._tried_again = 1
        detail = f"{reply.detail}; so it was {times} times, each in a fresh supervisor"
        if ended_for_memory >= times:
            detail += f", while the kernel ended {ended_for_memory} processes for want of memory"
        return msgspec.structs.replace(reply, detail=detail)

    def _replies(self, requests: list[bytes], cycles: list[int]) -> list[wire.Reply]:
        work = wire.Work(requests, cycles[: len(requests)], self._plain)
        message = msgspec.msgpack.encode(work)
        if self._connection is None:
            self.start()
        assert self._connection is not None
        try:
            wire.send(self._connection, message, time.monotonic() + self._timeout + _GRACE)
            return replies_in(self._reply(wire.MAX_WORDS + wire.MOST_TAKEN), len(requests))
        except TimeoutError:
            self.close()
            hang = f"no answer within {self._timeout:g} s, not even of the supervisor"
            return [wire.Reply(death="hang", detail=hang, supervisor_lost=True)]
        except (wire.Closed, msgspec.DecodeError):
            killed = self._status() == -signal.SIGKILL
            self.last_call = ""  # which it was went with the supervisor
            self.close()
            detail = "the case brought down the process that watched over it"
            return [wire.Reply(death="garbage", detail=detail, killed=killed, supervisor_lost=True)]
        except BaseException:
            # Whatever a signal's handler raises, such as a time limit of the test's, or Ctrl-C: the answer
            # that is on its way would be taken for that to the next request.
            self.close()
            raise

    def _reply(self, most: int) -> bytearray:
        """The supervisor's next message that is not empty: empty ones say that it waits for a slow child.

        Raises:
            Closed: it is gone, or the message has more than ``most`` bytes, which the target has sent then.
            TimeoutError: it said nothing in time.
        """
        message = bytearray()
        while not message:
            message = self._receive(time.monotonic() + self._timeout + _GRACE, most)
        return message

    def close(self) -> None:
        """End the supervisor and whatever it still runs, and remove its folder."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        in_order = True
        if self._process is not None:
            in_order = self._status() == 0
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._root is not None:
            if not in_order:  # it could not clean up itself
                processes.end_marked(_mark(self._root))
            working_directory.remove(self._root)
            self._root = None

    def _status(self) -> int | None:
        """The supervisor's exit status; None if it does not end by itself."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=_EXIT_TIMEOUT)
        return None

    def _traceback(self) -> str:
        """Of a supervisor that failed before anything was loaded: what Python said; else empty."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        text = self._stderr.read(_MAX_STDERR).decode(errors="replace")
        return text if "Traceback (most recent call last)" in text else ""

    def _receive(self, deadline: float, most: int) -> bytearray:
        """The supervisor's next message, of at most ``most`` bytes.

        Raises:
            Closed: it is gone, also where a process that the target started holds the connection open.
            TimeoutError: it said nothing in time.
        """
        assert self._process is not None
        assert self._connection is not None
        # The end of file alone would not do: a process that the target started may have inherited the
        # supervisor's end of the connection and keep it open. A pidfd (Linux 5.3) is readable on its exit.
        ours = {self._connection.fileno(): select.POLLIN}
        with contextlib.closing(ExitWatch(self._process.pid)) as watch:
            while (left := deadline - time.monotonic()) > 0:
                activity.still()
                pause, began = min(left, _LOOK_INTERVAL), time.monotonic()
                woken = watch.wait(pause, ours)
                late = time.monotonic() - began - pause
                if late > STOOD_STILL:
                    deadline += late
                if woken.ready:
                    return wire.receive(self._connection, deadline, most)
                if woken.ended:
                    raise wire.Closed("the supervisor is gone")
                if os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG):
                    self._process.send_signal(signal.SIGCONT)
        raise TimeoutError

    def _start_despite_kills(self) -> wire.Ready:
        """Start the supervisor, and again where somebody killed it while it loaded the target.

        Raises:
            Unusable: the target cannot be loaded.
        """
        for _ in range(_KILLED_AGAIN):
            with contextlib.suppress(KilledLoading):
                return self._start()
        return self._start()

    def _start(self) -> wire.Ready:
        """Start the supervisor; what there is of one that was not started to its end is ended."""
        try:
            return self._started()
        except OSError as error:
            self.close()
            raise NoProcess(why_no_process(error)) from None
        except BaseException:
            self.close()
            raise

    def _started(self) -> wire.Ready:
        self._make_files()
        ours, theirs = socket.socketpair()
        self._connection = ours
        self._ended_for_memory = processes.ended_for_memory()
        assert self._root is not None
        assert self._stderr is not None
        # A first call allocates (imports, caches): a process that measures memory runs everything once
        # before.
        warm = str(int(self._exact))
        switches = (warm, str(int(self.apart)), str(self._memory))
        arguments = (self.mode, *switches, str(self._timeout), str(self._root))
        with theirs:
            self._process = supervisors.start(
                self._spec,
                arguments,
                theirs,
                self._stderr,
                _environment(self._root, self._passed) | (_exact_malloc() if self._exact else {}),
            )
        try:
            ready = decoded(_READY, self._receive(time.monotonic() + _LOAD_TIMEOUT, wire.MAX_WORDS))
        except (wire.Closed, msgspec.DecodeError):
            status, own = self._status(), self._traceback()
            if own:
                raise Unusable(f"a helper process failed before it was loaded:\n{own}") from None
            kind = KilledLoading if status == -signal.SIGKILL else Unusable
            raise kind(f"the process {_ended(status)} while loading it") from None
        except TimeoutError:
            raise LoadingTakesTooLong(f"loading it took more than {_LOAD_TIMEOUT:g} s") from None
        if ready.error:
            raise (NoProcess if ready.no_process else Unusable)(ready.error)
        return ready

    def _make_files(self) -> None:
        """Make the supervisor's folder, and the file for what it says before it is connected.

        Raises:
            NoProcess: they cannot be made where files are to be.
            OSError: this process, or the host, has nothing left for them.
        """
        try:
            self._root = Path(tempfile.mkdtemp(prefix="pytest-qnn-"))
            working_directory.WorkingDirectory(self._root).prepare()
            # For a traceback of the supervisor before it is connected: later its standard streams are
            # /dev/null. A file, not a pipe: nobody reads while it runs, and a full pipe would block it.
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the sandbox
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            raise NoProcess(
                f"no folder for temporary files could be made, in TMPDIR or /tmp: {error.strerror or error}"
            ) from None


class NoProcess(Unusable):
    """The host has none left: nothing is known of the target."""


class LoadingTakesTooLong(Unusable):
    """It will in any other process, too."""


class KilledLoading(Unusable):
    """SIGKILL ended the process while it loaded the target."""


def replies_in(message: bytes | bytearray, requests: int) -> list[wire.Reply]:
    """The replies to so many requests, at least one.

    A target is loaded in the supervisor, and may have sent them in its place.

    Raises:
        msgspec.DecodeError: they are none, or as many as nobody asked for.
    """
    replies = decoded(_REPLIES, message)
    if not 1 <= len(replies) <= requests:
        raise msgspec.DecodeError(f"there are {len(replies)} replies to {requests} requests")
    return replies


def _answer(reply: wire.Reply) -> bytes | Death:
    if reply.unusable:
        raise Unusable(reply.unusable)
    if reply.no_process:
        raise NoProcess(reply.error)
    if reply.error:
        raise RunnerFailure(reply.error)
    if reply.death:
        return Death(reply.death, reply.detail, reply.step, reply.late, reply.evidence)
    return reply.payload


def fitting(requests: list[bytes]) -> list[bytes]:
    """The first request, and of those behind it as many as fit into one message together."""
    totals = itertools.accumulate(map(len, requests[: wire.MAX_REPLIES]))
    return requests[: max(1, sum(total <= wire.MAX_TOGETHER for total in totals))]


def _mark(root: Path) -> str:
    """The environment entry by which a supervisor and all its descendants are recognised.

    It is TMPDIR, so that temporary files go to the folder of the case.
    """
    return f"TMPDIR={working_directory.WorkingDirectory(root).path}"


def _environment(root: Path, passed: Collection[str]) -> dict[str, str]:
    """The children's environment: ours without credentials, with little thread noise."""
    environment = interpreter.environment(passed)
    # numpy's BLAS would start threads in the supervisor. A fork copies only the thread that calls it: a lock
    # that another one holds is never released in the child (and Python 3.12 warns of it, gh-100228).
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    name, _, folder = _mark(root).partition("=")
    return environment | {name: folder}


def _exact_malloc() -> dict[str, str]:
    """The user's glibc tunables, with `_NO_TCACHE` last: glibc takes the last value of a name."""
    given = os.environ.get("GLIBC_TUNABLES", "")
    return {"GLIBC_TUNABLES": f"{given}:{_NO_TCACHE}" if given else _NO_TCACHE}


def _ended(status: int | None) -> str:
    if status is None:
        return "closed descriptors that are not its own, or wrote to them,"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
