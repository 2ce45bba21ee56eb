"""The supervisor's children: started, given their case, waited for.

The protocol of a forked child. `_Server._carry_out` of the supervisor drives it.

1. The supervisor makes a `wire.Slot` (shared memory) and a start pipe, and forks (`fork`).
2. The child (`_run_child`) leads a session of its own, and with it a process group, closes every descriptor
   that is not its own, copies the pages that it will write to (`pytest_qnn.isolation.warm_start`), and
   blocks in a read of the start pipe. All this happens while the case before it runs. It has not touched
   the target.
3. The supervisor has requests: it writes them to the slot, then one byte to the pipe (`ChildProcess.begin`).
   Where the supervisor is gone instead, the read gives the end of file, and the child exits.
4. The supervisor forks the child of the next case (step 1), which must not keep this child's descriptors.
5. The child takes the requests, which sets the slot's step from "waiting" to -1 (`wire.Slot.begun`), and
   carries out the case; before each step it writes that step's index to the slot.
6. The child writes its reply and then the reply's length, and ends by ``_exit``.
7. The supervisor waits on the pidfd, kills the process group whatever happened, reaps the child, reads step
   and reply from the slot, ends orphans and empties the working directory.
8. A child that never took its request has judged nothing: its case goes to a fresh child. A waiting child is
   thrown away if the case before it died, hung or left a process behind.

A spawned child takes the same steps, without 2 and 4: it loads the target after step 3.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from pytest_qnn.isolation import child, processes, warm_start, wire
from pytest_qnn.isolation.evidence.stderr import Stderr
from pytest_qnn.isolation.host.exit_watch import ExitWatch
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.isolation.worker import Worker


class ChildProcess:
    """A child as the supervisor sees it, alive until `end`.

    Args:
        pid: its process, the leader of a process group.
        slot: where it finds its request and leaves its answer.
        start_fd: the end of a pipe to write to when the request is there.

    """

    def __init__(self, pid: int, slot: wire.Slot, start_fd: int) -> None:
        self.pid = pid
        self.slot = slot
        self._start_fd: int | None = start_fd
        self._watch = ExitWatch(pid)

    def descriptors(self) -> list[int]:
        """The supervisor's descriptors for this child, which no other child may keep.

        As long as another child has the write end of the start pipe, a read of it never gives the end of
        file.
        """
        return [*self._watch.descriptors, *([] if self._start_fd is None else [self._start_fd])]

    def begin(self, request: bytes) -> None:
        """Give it the request; one that is gone already is found out by `ended`.

        Raises:
            ValueError: the request is too large.
        """
        self.slot.write_request(request)
        assert self._start_fd is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._start_fd, b"!")
        os.close(self._start_fd)
        self._start_fd = None

    def ended(self, seconds: float, unless: socket.socket, stderr: Stderr) -> bool:
        """Whether it ends within ``seconds``, and before the other end of ``unless`` is gone.

        What it writes to ``stderr`` meanwhile is taken, so that it waits for nobody.
        """
        others = {unless.fileno(): select.POLLRDHUP, stderr.fileno(): select.POLLIN}
        deadline = time.monotonic() + seconds
        while True:
            woken = self._watch.wait(deadline - time.monotonic(), others)
            if woken.ended or woken.ready != {stderr.fileno()}:
                return woken.ended
            stderr.drain()
            if time.monotonic() >= deadline:
                return False

    def end(self) -> int:
        """Kill it and its process group; its wait status.

        Also after a good end: nothing that the case started may outlive it.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        processes.kill([self.pid])
        # Only now may the kernel give the pid, and with it the group's id, to another process.
        _, status = os.waitpid(self.pid, 0)
        self._watch.close()
        for descriptor in self.descriptors():
            os.close(descriptor)
        return status


def fork(worker: Worker, folder: Path, fds_to_close: Iterable[int], pages: warm_start.Ranges) -> ChildProcess:
    """A fork of this process that waits for its case (steps 1 and 2 of the protocol).

    Args:
        worker: the loaded target.
        folder: the folder to enter when the case begins.
        fds_to_close: descriptors of the supervisor's own, closed in the child.
        pages: the memory that the case will write to.

    Raises:
        OSError: the system has no memory or no process id for it.

    """
    with contextlib.ExitStack() as undo:
        slot = wire.Slot.make()
        undo.callback(slot.close)
        read_fd, start_fd = os.pipe()
        undo.callback(os.close, start_fd)
        try:
            pid = os.fork()
            if not pid:
                _run_child(worker, folder, slot, read_fd, [*fds_to_close, start_fd], pages)
        finally:
            os.close(read_fd)
        slot.close_in_parent()
        made = _watched(pid, slot, start_fd)
        undo.pop_all()
        return made


def _watched(pid: int, slot: wire.Slot, start_fd: int) -> ChildProcess:
    """The child as the supervisor sees it.

    Raises:
        OSError: there is no descriptor to wait for its end with. Nobody would know of it: it is ended.

    """
    try:
        return ChildProcess(pid, slot, start_fd)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _run_child(
    worker: Worker,
    folder: Path,
    slot: wire.Slot,
    read_fd: int,
    fds_to_close: list[int],
    pages: warm_start.Ranges,
) -> None:
    """Steps 2, 5 and 6 of the protocol: everything that a forked child does; never returns."""
    try:
        # Not only a group: where the kernel shares processors out by session (autogroup, sched(7)), the
        # supervisor has its part beside a thousand processes of a case. It need not do this too: the target
        # does not run before.
        os.setsid()
        processes.die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # which the supervisor has blocked
        for descriptor in fds_to_close:
            os.close(descriptor)
        slot.close_in_child()
        # The garbage of one case goes with the process; a case that measures memory collects explicitly.
        gc.disable()
        child.prefer_oom_kill()
        warm_start.copy(pages)
        if wire.wait_for_start(read_fd):
            os.chdir(folder)
            child.carry_out(lambda: worker, slot)
    finally:
        # `_exit`, not `sys.exit`: an exception that left this function would unwind into the supervisor's
        # loop, and the child would answer requests on the supervisor's connection. Nor may atexit functions
        # and destructors run here, which belong to the supervisor.
        os._exit(child.FAILED)


def spawn(spec: str, folder: Path, warm: str) -> ChildProcess:
    """A fresh interpreter that loads the target in ``folder`` once its case begins.

    ``warm``: ``1`` for one that runs our own code once before its case.

    Raises:
        OSError: the system has no memory or no process id for it.

    """
    with contextlib.ExitStack() as undo:
        slot = wire.Slot.make()
        undo.callback(slot.close)
        read_fd, start_fd = os.pipe()
        undo.callback(os.close, start_fd)
        handed_on = (slot.fileno(), read_fd)
        command = interpreter.command("pytest_qnn.isolation.child", spec, warm, *map(str, handed_on))
        try:
            process = subprocess.Popen(command, pass_fds=handed_on, start_new_session=True, cwd=folder)
        finally:
            os.close(read_fd)
        # The status is collected by `ChildProcess.end`; Popen must not want it too.
        process.returncode = 0
        slot.close_in_parent()
        made = _watched(process.pid, slot, start_fd)
        undo.pop_all()
        return made
