"""The supervisor: a process of its own that starts children for cases and outlives what they do.

    python -m pytest_qnn.isolation.supervisor SOCKET_FD MODE WARM APART MEMORY TIMEOUT ROOT SPEC

``fork``: the target is loaded here but never initialised, and every child is a fork, made while the case
before it runs (see `pytest_qnn.isolation.child_process`). ``spawn``: the target is loaded in a fresh
interpreter per case, for targets that start threads when loaded; with WARM (1, else 0) it runs our own code
once before the case, as a supervisor does before it forks. APART (1, else 0): in namespaces of its own.
MEMORY: bytes of private writable memory that each process may have.

What a case can and cannot do to others: a child shares no descriptor, no group of processes and no
writable memory with the supervisor but its `wire.Slot`; what it leaves behind (processes, files) is
removed; its memory is limited (see `sandbox.MEMORY_LIMIT`). A child ends by ``_exit`` as soon as it has
answered: functions registered with ``atexit`` and static destructors of the target are not run. A fault that
shows only when a process ends in good order (a destructor that crashes, a corrupted heap that only ``free``
of a static object notices) is seen by cases that ask for such an end (``ends``; QLEAK-04 and LIFE-14), once
they have answered; no other rule's cases are spoilt by it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from pytest_qnn.isolation import guardian, process_state, processes, wire
from pytest_qnn.isolation.child_process import ChildProcess, fork, spawn
from pytest_qnn.isolation.codec import beside_contents
from pytest_qnn.isolation.evidence import crash_handler
from pytest_qnn.isolation.evidence.post_mortem import evidence
from pytest_qnn.isolation.evidence.stderr import Stderr
from pytest_qnn.isolation.guardian import Handover
from pytest_qnn.isolation.hangs import Calls, Watch
from pytest_qnn.isolation.host.lacks import why_no_process
from pytest_qnn.isolation.namespaces import Leftovers
from pytest_qnn.isolation.observe import cpu_time
from pytest_qnn.isolation.observe.cpu_time import Usage
from pytest_qnn.isolation.process_state import ProcessState
from pytest_qnn.isolation.warm_start import compact, enabled, written_by
from pytest_qnn.isolation.worker import Unusable, make_worker
from pytest_qnn.isolation.working_directory import WorkingDirectory

_STACK_LIMIT = 64 << 20
"""Bytes of the largest stack: an endless recursion must end where ``ulimit -s`` says unlimited, too."""

_LONGEST_TEXT = 1000
"""Characters of what a child says in words."""
_NOT_TAKEN = "it did not take its request"
_OVERWRITTEN = "the process has written over memory that is not its own, its answers among it"
_FULL = "what it has left in its working directory takes too long to remove"
_REMOVING = 5.0
"""Times of a case, in processor time, after which what a case has left is not removed before the next one."""
_REMOVING_ON_THE_CLOCK = 20.0
"""The same by the clock: others may have the processors, or the disk."""
_DESCRIPTORS = 32
"""What the supervisor opens for two children, and a child for an ordinary case, with room to spare."""
_START_TIMEOUT = 2.0
"""Seconds after which a waiting child that has not taken its request is replaced by a fresh one."""

_ANSWER = msgspec.msgpack.Decoder(wire.Answer)
_WORK = msgspec.msgpack.Decoder(wire.Work)


def main() -> None:
    """Serve requests until the pytest process closes the connection."""
    fd, mode, warm, apart, memory, timeout, root, spec = sys.argv[1:9]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the status of a child would be lost
    processes.gain_no_privileges()
    connection = socket.socket(fileno=int(fd))
    try:
        handover = guardian.begin(connection, Path(root), apart=apart == "1")
    except guardian.NoProcess as error:
        wire.send(connection, msgspec.msgpack.encode(wire.Ready(str(error), no_process=True)), None)
        return
    processes.adopt_orphans()
    _limit(int(memory))
    _redirect_standard_streams()
    directory = WorkingDirectory(Path(root))
    if mode == "fork":
        _fork_for_cases(handover, float(timeout), directory, spec)
    else:
        # Not ahead: starting an interpreter takes a hundred times longer than a case, and cannot overlap with
        # it.
        leftovers = Leftovers(handover.queues) if handover.apart else None
        spawning = Loaded(lambda _: spawn(spec, directory.path, warm), False, leftovers)
        _Server(handover.take(), float(timeout), directory, Stderr(), spawning)(
            wire.Ready(apart=handover.apart)
        )


def _fork_for_cases(handover: Handover, timeout: float, directory: WorkingDirectory, spec: str) -> None:
    """Load the target, and serve with forks of this process."""
    before = process_state.look()
    try:
        worker = make_worker(spec)
        _restore(before)
        _check_descriptors()
    except Exception as error:
        told = _why_unusable(error)
        with contextlib.suppress(OSError):  # the connection needs a descriptor, and there may be none left
            os.close(0)
        wire.send(handover.take(), msgspec.msgpack.encode(wire.Ready(error=told)), None)
        return
    leftovers = Leftovers(handover.queues) if handover.apart else None
    # After the target, whose own handlers ours runs before. Forks inherit it.
    crash_handler.install()
    ready = wire.Ready(
        threads=len(os.listdir("/proc/self/task")),
        apart=handover.apart,
        leaves=leftovers is not None and leftovers.there_at_first,
    )
    worker.warm()
    if enabled():
        compact()
    # A process with threads is not forked at all: `Sandbox.start` then starts a spawning supervisor.
    # (Measured: a fork of libQnnHtp 2.51 after its initialisation deadlocks in graphExecute; before, it is
    # safe.)
    ahead = ready.threads == 1 and enabled()
    pages = written_by(worker.rehearse) if ahead else []
    connection = handover.take()
    before.restore()  # what the guardian has made possible
    if before.lowered:
        told = f"it sets {before.lowered} for good while it is loaded, which is too little for cases"
        wire.send(connection, msgspec.msgpack.encode(wire.Ready(error=told)), None)
        return
    # Only now: while the target was loaded, nobody read what it wrote.
    stderr = Stderr()
    # At last, since a process that is to outlive the one that starts it takes its time.
    library = frozenset(processes.descendants())

    def make(fds_to_close: Iterable[int]) -> ChildProcess:
        own = [connection.fileno(), stderr.fileno(), *handover.descriptors()]
        return fork(worker, directory.path, [*own, *fds_to_close], pages)

    loaded = Loaded(make, ahead, leftovers, library)
    _Server(connection, timeout, directory, stderr, loaded)(ready)


def _check_descriptors() -> None:
    """Check that enough descriptors are left for what is made for a case. Raises OSError."""
    with contextlib.ExitStack() as opened:
        for _ in range(_DESCRIPTORS):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _why_unusable(error: Exception) -> str:
    """Why the target was not loaded, or has left its process nothing to work with."""
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"it uses up the descriptors of its process, which may have {most}, while it is loaded"
    return f"a helper process failed while it was loaded:\n{traceback.format_exc()}"


Make = Callable[[Iterable[int]], ChildProcess]
"""Makes a child. Argument: descriptors that it must not keep."""


class Loaded(NamedTuple):
    """How children are made, and what is here besides."""

    make: Make
    ahead: bool
    """That of a case is made while the case before it runs."""
    leftovers: Leftovers | None
    """What cases leave in namespaces of their own; None: they have none."""
    library: frozenset[int] = frozenset()
    """Processes that the target has started while it was loaded. They end with it."""


class _Server:
    """Answers requests: each message, of one request or several, has a child of its own.

    With `Loaded.ahead` the child of the next case is made while a case runs. It is thrown away if that case
    died or left processes behind, since these may have done anything to it.
    """

    def __init__(
        self,
        connection: socket.socket,
        timeout: float,
        directory: WorkingDirectory,
        stderr: Stderr,
        loaded: Loaded,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._directory = directory
        self._stderr = stderr
        self._loaded = loaded
        self._waiting: ChildProcess | None = None
        self._plain_seconds: float | None = None
        """What the plain case takes; None: it was not needed yet."""
        self._said = 0.0
        """When pytest last heard of this process."""
        self._hung = Calls(timeout)

    def __call__(self, ready: wire.Ready) -> None:
        """Say that the target is loaded, then answer each request until the other end is gone."""
        # Whoever sends a signal to all that run here means pytest, which then closes the connection. What a
        # case sends, or a timer of the library, is none of this process's.
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        wire.send(self._connection, msgspec.msgpack.encode(ready), None)
        os.chdir("/")
        try:
            while True:
                if self._waiting is None:
                    self._prefork(())
                requests = wire.receive(self._connection, None)
                wire.send(self._connection, msgspec.msgpack.encode(self._answer(requests)), None)
        except wire.Closed:
            return
        finally:
            self._discard_waiting()
            self._directory.close()

    def _answer(self, message: bytes | bytearray) -> list[wire.Reply]:
        """Have the waiting child carry out the cases, or a fresh one where that one was lost."""
        if len(message) > wire.MAX_REQUEST:
            return [wire.Reply(error=f"the runner itself failed: a request has {len(message)} bytes")]
        work = _WORK.decode(message)
        waiting, self._waiting = self._waiting, None
        if waiting:
            begun, replies = self._carry_out(waiting, work, min(_START_TIMEOUT, self._timeout))
            if begun:
                return replies
        try:
            child = self._loaded.make(())
        except OSError as error:
            return [wire.Reply(error=why_no_process(error), no_process=True)]
        _, replies = self._carry_out(child, work, math.inf)
        return replies

    def _carry_out(
        self, child: ChildProcess, work: wire.Work, start_timeout: float
    ) -> tuple[bool, list[wire.Reply]]:
        """Whether the child began within ``start_timeout`` seconds, and its replies to the requests.

        Steps 3 to 7 of the protocol of `pytest_qnn.isolation.child_process`.
        """
        self._directory.prepare()
        self._stderr.take()
        child.begin(msgspec.msgpack.encode(work.requests))
        self._prefork(child.descriptors())
        hangs = self._watched(child, work, start_timeout)
        # Kill and wait before anything is read: until then the target may still write to the slot.
        status = child.end()
        begun = child.slot.begun and hangs != _NOT_TAKEN
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            hangs = ""  # it has ended by itself since it was looked at
        step, stopped, payloads = child.slot.result()
        wanted = len(work.requests)
        payloads = payloads[:wanted]  # more are none that the child was asked for
        # The waiting child goes with them: it would be thrown away.
        leftovers = self._loaded.leftovers
        alone = leftovers is not None and not self._loaded.library
        left_any = processes.end_orphans(self._not_of_the_case(), alone=alone)
        emptied = self._emptied()
        leaves = leftovers is not None and leftovers.remove()
        whole = bool(payloads) and (stopped or len(payloads) >= wanted)
        replies = judge(status, step, payloads, whole=whole)
        replies = bounded(replies, step)
        if wanted > 1 and (child.slot.overwritten or not emptied):
            replies = [wire.Reply(death="garbage", detail=_OVERWRITTEN, unclear=True)]
        elif hangs:
            late = len(payloads) >= wanted
            replies = [*replies[: len(payloads) - late], _hung(hangs, step, late=late)]
        elif not emptied:
            replies = [wire.Reply(death="hang", detail=_FULL, step=step, late=True)]
        if left_any or replies[-1].death or not begun:
            self._discard_waiting()
        _, call = child.slot.progress()
        replies[-1] = msgspec.structs.replace(replies[-1], call=call, leaves=leaves)
        if replies[-1].death:
            left = evidence(child.slot, 0 if hangs else status, self._stderr.take())
            replies[-1] = msgspec.structs.replace(replies[-1], evidence=left)
        child.slot.close()
        return begun, replies

    def _watched(self, child: ChildProcess, work: wire.Work, start_timeout: float) -> str:
        """Wait until the child ends; why it hangs, if it does not.

        Args:
            child: one that was given its requests.
            work: these requests.
            start_timeout: seconds within which it must take them.
        """
        spared = self._not_of_the_case()
        watch = Watch(
            self._timeout,
            work.cycles,
            lambda: _used(pid for pid in processes.children() if pid not in spared),
            lambda: self._plain(work.plain, child),
        )
        self._said = time.monotonic()
        return self._why_not_ended(child, watch, start_timeout)

    def _not_of_the_case(self) -> frozenset[int]:
        """Children of this process that are neither a case's nor left by one."""
        return self._loaded.library | ({self._waiting.pid} if self._waiting else set())

    def _why_not_ended(self, child: ChildProcess, watch: Watch, start_timeout: float) -> str:
        started = time.monotonic()
        while not child.ended(watch.pause(), self._connection, self._stderr):
            if self._left_alone():
                return "nobody waits for it any more"
            if not child.slot.begun and time.monotonic() - started > start_timeout:
                return _NOT_TAKEN
            progress, call = child.slot.progress()
            patience = self._hung.patience(call)
            if why := watch.hangs(child.slot.answered, progress, patience):
                if watch.is_idle and patience == self._timeout:
                    self._hung.note(call)
                return why
            self._show_life()
        return ""

    def _left_alone(self) -> bool:
        """Whether the other end of the connection is gone."""
        poll = select.poll()
        poll.register(self._connection, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _emptied(self) -> bool:
        """Empty the folder of cases; whether that took no longer than it may."""
        cpu = time.process_time() + _REMOVING * self._timeout
        clock = time.monotonic() + _REMOVING_ON_THE_CLOCK * self._timeout

        def enough() -> bool:
            self._show_life()
            return time.process_time() > cpu or time.monotonic() > clock

        return self._directory.emptied(enough)

    def _show_life(self) -> None:
        """Let pytest know that this process is not what hangs, by an empty message."""
        if time.monotonic() - self._said > self._timeout / 2:
            wire.send(self._connection, b"", None)
            self._said = time.monotonic()

    def _plain(self, request: bytes, running: ChildProcess) -> float:
        """Seconds that the target's plain case takes, learned once, while another child runs.

        0: there is none, it died, or no process could be made for it; infinity: it takes longer than a case
        may.
        """
        if self._plain_seconds is None:
            self._plain_seconds = self._measured(request, running) if request else 0.0
        return self._plain_seconds

    def _measured(self, request: bytes, running: ChildProcess) -> float:
        waiting = self._waiting.descriptors() if self._waiting else []
        try:
            child = self._loaded.make([*running.descriptors(), *waiting])
        except OSError:
            return 0.0
        started = time.monotonic()
        child.begin(msgspec.msgpack.encode([request]))
        # Of which nothing is known: it gets the time of one case.
        watch = Watch(self._timeout, (), lambda: _used([child.pid]), lambda: math.inf)
        hangs = self._why_not_ended(child, watch, math.inf)
        seconds = time.monotonic() - started
        status = child.end()
        _, stopped, _ = child.slot.result()
        child.slot.close()
        if hangs:
            return math.inf
        return seconds if status == 0 and stopped else 0.0

    def _prefork(self, fds_to_close: Iterable[int]) -> None:
        """Make the child of the next case ahead of its request."""
        if self._loaded.ahead:
            with contextlib.suppress(OSError):  # no memory for it now: then it is made when it is needed
                self._waiting = self._loaded.make(fds_to_close)

    def _discard_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.end()
            self._waiting.slot.close()
            self._waiting = None


def _used(pids: Iterable[int]) -> Usage:
    """What the processes of a case have used.

    Where this process had no processor, nobody took what they write to stderr, and they waited for that.
    """
    used = cpu_time.usage(pids)
    return Usage(used.cpu, used.waited + cpu_time.own_wait())


def _hung(why: str, step: int, *, late: bool) -> wire.Reply:
    """The reply of a child that hangs.

    Args:
        why: from `Watch.hangs`.
        step: the step that had begun last.
        late: it had answered everything.
    """
    what = "it answered but did not end" if late else "no answer"
    return wire.Reply(b"", "hang", f"{what}: {why}", step, late)


def judge(status: int, step: int, payloads: Sequence[bytes], *, whole: bool) -> list[wire.Reply]:
    """The replies of a child, at least one; the last says how it ended, if not well.

    Args:
        status: the child's wait status.
        step: the step that had begun last.
        payloads: its answers, in order.
        whole: the child had answered all that it was going to, so that its end is none of a case's.
    """
    died = _death(status, step, late=whole)
    if died is None:
        return [_reply(payload, step) for payload in payloads]
    return [*(_reply(payload, step) for payload in payloads[: len(payloads) - whole]), died]


def bounded(replies: list[wire.Reply], step: int) -> list[wire.Reply]:
    """The replies up to the first that has more bytes than an answer may have; that one is a death.

    Nor do all together have more: those for which there is no room are left out, and asked for again.

    Args:
        replies: at least one.
        step: the step that had begun last.
    """
    left = wire.MOST_TAKEN
    for number, reply in enumerate(replies):
        size = len(reply.payload)
        # Only of large ones it is looked at what they hold: that takes time.
        beside = 0 if size <= wire.ROOM else beside_contents(reply.payload)
        if size > wire.MOST_TAKEN or beside > wire.ROOM:
            said = (
                f"the process left an answer of {size} bytes, and an answer has {wire.MOST_TAKEN} at most, "
                f"{wire.ROOM} of them beside the contents of tensors and buffers"
            )
            return [*replies[:number], wire.Reply(death="garbage", detail=said, step=step)]
        left -= size
        if left < 0:
            return replies[:number]
    return replies


def _death(status: int, step: int, *, late: bool) -> wire.Reply | None:
    """What the child's end means, if it is not a good one."""
    when = "as it ended, after the case" if late else "before the case was over"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        died = f"the process died of {signal_name(number)}" + (f" {when}" if late else "")
        killed = number == signal.SIGKILL
        return wire.Reply(death="signal", detail=died, step=step, late=late, killed=killed)
    code = os.WEXITSTATUS(status)
    if code or not late:
        detail = f"the process ended with exit status {code} {when}"
        return wire.Reply(death="exit", detail=detail, step=step, late=late)
    return None


def _reply(payload: bytes, step: int) -> wire.Reply:
    try:
        answer = _ANSWER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return wire.Reply(death="garbage", detail="the process left an answer that is none", step=step)
    if answer.broken:
        return wire.Reply(death="garbage", detail=_cut(answer.broken), step=step)
    if answer.unusable:
        return wire.Reply(unusable=_cut(answer.unusable))
    if answer.large:
        said = f"what the case gives has {answer.large} bytes, and an answer has {wire.MOST_TAKEN} at most"
        return wire.Reply(death="large", detail=said, step=step)
    return wire.Reply(answer.payload)


def _cut(text: str) -> str:
    """Words of a child, on one line and of bounded length: anybody may have put them there."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}…"


def signal_name(number: int) -> str:
    """``SIGSEGV``, or ``signal 40`` for one without a name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _limit(memory: int) -> None:
    """Limits that the children inherit; a stricter one of the user's stays."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, wanted in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_STACK, _STACK_LIMIT)):
        soft, hard = resource.getrlimit(kind)
        limit = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
        resource.setrlimit(kind, (limit, hard))


def _redirect_standard_streams() -> None:
    """Standard streams to /dev/null: what a target prints is no evidence, and may be too much for a pipe."""
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    os.close(sink)


def _restore(before: ProcessState) -> None:
    """Undo what loading the target may have done to this process.

    SIGCHLD: where it is ignored, the kernel reaps children itself and `os.waitpid` has no status to give
    (wait(2), notes); a handler of the target may do the same. SIGPIPE: a write to the start pipe of a child
    that is gone must not end this process.
    """
    before.restore()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    processes.die_with_parent()
    processes.adopt_orphans()


def run() -> NoReturn:
    """`main`, in a process that is nothing else; its end."""
    try:
        main()
    except BaseException:
        traceback.print_exc()  # `Sandbox` reads it, where the standard streams still lead there
        os._exit(1)
    # Not `sys.exit`: exit(3) would run the target's destructors, which may do anything.
    os._exit(0)


if __name__ == "__main__":
    run()
