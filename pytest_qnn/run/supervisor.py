"""The supervisor: a process of its own that starts a child per case and outlives what the child does.

    python -m pytest_qnn.run.supervisor SOCKET_FD MODE TIMEOUT ROOT SPEC_JSON

``fork``: the target is loaded here but never initialised, and every child is a fork. ``spawn``: the
target is loaded in a fresh interpreter per case, for targets that start threads when loaded.

What a case can and cannot do to others: a child shares no descriptor, no group of processes and no
writable memory with the supervisor but its `wire.Slot`; what it leaves behind (processes, files) is
removed; its memory is limited (see `MEMORY_LIMIT`). A child ends by ``_exit`` as soon as it has answered:
functions registered with ``atexit`` and static destructors of the target are not run. So a fault that shows
only when a process exits in good order (a destructor that crashes, a corrupted heap that only ``free``
of a static object would notice) is not seen, and no rule judges it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_qnn.run import child, kin, wire
from pytest_qnn.run.room import Room
from pytest_qnn.run.worker import AnySpec, Unusable, Worker
from pytest_qnn.run.workers import make_worker

MEMORY_LIMIT = 2 << 30
"""Bytes of private writable memory (RLIMIT_DATA) of a child.

Not RLIMIT_AS: drivers and sanitizers reserve far more addresses than they ever use. Four times of what
libQnnHtp.so needs at its first graph (11 arenas of 32 MiB among 447 MiB in all). Shared memory is not
counted by this limit; who exhausts the machine with it is the first that the kernel kills.
"""
_STACK_LIMIT = 64 << 20
"""Bytes of the largest stack: an endless recursion must end where ``ulimit -s`` says unlimited, too."""

_REPLY = msgspec.msgpack.Decoder(wire.Reply)


def main() -> None:
    """Serve requests until the pytest process closes the connection."""
    fd, mode, timeout, root, spec_json = sys.argv[1:6]
    connection = socket.socket(fileno=int(fd))
    spec = msgspec.json.decode(spec_json, type=AnySpec)
    kin.die_with_parent()  # while loading; afterwards a closed connection says it
    kin.adopt_orphans()
    _limit()
    _redirect_standard_streams()
    room = Room(Path(root))
    serve = _Server(connection, float(timeout), room)
    if mode == "spawn":
        serve(wire.Ready(), lambda slot, request: _spawn(spec_json, room.path, slot, request))
        return
    try:
        worker = make_worker(spec)
    except Unusable as error:
        wire.send(connection, msgspec.msgpack.encode(wire.Ready(error=str(error))), None)
        return
    _take_signals_back()
    ready = wire.Ready(threads=len(os.listdir("/proc/self/task")))
    worker.warm()
    gc.collect()
    gc.freeze()
    serve(ready, lambda slot, request: _fork(worker, connection, room.path, slot, request))


Start = Callable[[wire.Slot, bytes], int]


class _Server:
    def __init__(self, connection: socket.socket, timeout: float, room: Room) -> None:
        self._connection = connection
        self._timeout = timeout
        self._room = room

    def __call__(self, ready: wire.Ready, start: Start) -> None:
        """Say that the target is loaded, then answer each request until the other end is gone."""
        wire.send(self._connection, msgspec.msgpack.encode(ready), None)
        kin.outlive_parent()
        os.chdir("/")
        try:
            while True:
                request = wire.receive(self._connection, None)
                wire.send(self._connection, msgspec.msgpack.encode(self._answer(start, request)), None)
        except wire.Closed:
            return
        finally:
            self._room.close()

    def _answer(self, start: Start, request: bytes) -> wire.Reply:
        self._room.prepare()
        slot = wire.Slot.make()
        try:
            status = self._await(start(slot, request))
            step, payload = slot.result()
        finally:
            slot.close()
        self._room.prepare()
        if status is None:
            return wire.Reply(death="hang", detail=f"no answer within {self._timeout:g} s", step=step)
        return judge(status, step, payload)

    def _await(self, pid: int) -> int | None:
        """The child's wait status, or None after it had to be killed."""
        pidfd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            # Nobody waits for the answer any more: the pytest process has closed its end, or is gone.
            poll.register(self._connection, select.POLLRDHUP)
            ended = pidfd in dict(poll.poll(self._timeout * 1000))
        finally:
            os.close(pidfd)
        # Also after a good end: nothing that the case started may outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not ended:
            kin.kill([pid])
        _, status = os.waitpid(pid, 0)
        kin.end_orphans()
        return status if ended else None


def judge(status: int, step: int, payload: bytes | None) -> wire.Reply:
    """What the child's end means."""
    if os.WIFSIGNALED(status):
        return wire.Reply(
            death="signal", detail=f"the process died of {signal_name(os.WTERMSIG(status))}", step=step
        )
    code = os.WEXITSTATUS(status)
    if code or payload is None:
        detail = f"the process ended with exit status {code} before the case was over"
        return wire.Reply(death="exit", detail=detail, step=step)
    try:
        reply = _REPLY.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return wire.Reply(death="garbage", detail="the process left an answer that is none", step=step)
    return msgspec.structs.replace(reply, step=step) if reply.death else reply


def signal_name(number: int) -> str:
    """``SIGSEGV``, or ``signal 40`` for one without a name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _fork(worker: Worker, connection: socket.socket, room: Path, slot: wire.Slot, request: bytes) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # whoever is first; the child may have gone already
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        kin.die_with_parent()
        connection.close()
        os.chdir(room)
        gc.disable()
        child.carry_out(lambda: worker, slot, request)
    finally:
        # Not even our own failure may run the supervisor's code in the child.
        os._exit(child.FAILED)


def _spawn(spec_json: str, room: Path, slot: wire.Slot, request: bytes) -> int:
    request_fd = os.memfd_create("pytest-qnn-request")
    try:
        os.pwrite(request_fd, request, 0)
        command = [sys.executable, "-m", "pytest_qnn.run.child", spec_json]
        process = subprocess.Popen(
            [*command, str(slot.fileno()), str(request_fd)],
            pass_fds=(slot.fileno(), request_fd),
            start_new_session=True,
            cwd=room,
        )
    finally:
        os.close(request_fd)
    # The status is collected by _await; Popen must not want it too.
    process.returncode = 0
    return process.pid


def _limit() -> None:
    """Limits that the children inherit; a stricter one of the user's stays."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, wanted in ((resource.RLIMIT_DATA, MEMORY_LIMIT), (resource.RLIMIT_STACK, _STACK_LIMIT)):
        soft, hard = resource.getrlimit(kind)
        limit = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
        resource.setrlimit(kind, (limit, hard))


def _redirect_standard_streams() -> None:
    """A target that floods stdout floods nothing; what it says is not evidence."""
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    os.close(sink)


def _take_signals_back() -> None:
    """Undo what loading the target may have done: who ignores SIGCHLD never learns how a child ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


if __name__ == "__main__":
    try:
        main()
    finally:
        # Not through the target's destructors, which may do anything.
        os._exit(int(sys.exc_info()[0] is not None))
