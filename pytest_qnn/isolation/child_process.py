"""The supervisor's children: started, given their case, waited for.

A forked child is made ahead of its case and waits for it. Meanwhile it makes the copies of memory that it
would make on first use (`pytest_qnn.isolation.warm_start`), most of a case's price, while nobody waits for
them. It does not touch the target until its case begins, and `wire.Slot` says whether that has happened: a
waiting child that was lost has judged nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pytest_qnn.isolation import child, interpreter, processes, warm_start, wire
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
        self._pidfd = os.pidfd_open(pid)

    def own(self) -> list[int]:
        """Descriptors that no other child may keep."""
        return [self._pidfd, *([] if self._start_fd is None else [self._start_fd])]

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

    def ended(self, seconds: float, unless: socket.socket) -> bool:
        """Whether it ends within ``seconds``, and before the other end of ``unless`` is gone."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(unless, select.POLLRDHUP)
        return self._pidfd in dict(poll.poll(seconds * 1000))

    def end(self) -> int:
        """Kill it and its process group; its wait status.

        Also after a good end: nothing that the case started may outlive it.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        processes.kill([self.pid])
        _, status = os.waitpid(self.pid, 0)
        for descriptor in self.own():
            os.close(descriptor)
        return status


def fork(worker: Worker, folder: Path, fds_to_close: Iterable[int], pages: warm_start.Ranges) -> ChildProcess:
    """A copy of this process that waits for its case.

    Args:
        worker: the loaded target.
        folder: the folder to enter when the case begins.
        fds_to_close: descriptors of the supervisor's own, closed in the child.
        pages: the memory that the case will write to.

    Raises:
        OSError: the system has no room for it.

    """
    with contextlib.ExitStack() as undo:
        slot = wire.Slot.make()
        undo.callback(slot.close)
        read_fd, start_fd = os.pipe()
        undo.callback(os.close, start_fd)
        try:
            pid = os.fork()
            if not pid:
                _live(worker, folder, slot, read_fd, [*fds_to_close, start_fd], pages)
        finally:
            os.close(read_fd)
        with contextlib.suppress(OSError):  # whoever is first; the child may have gone already
            os.setpgid(pid, pid)
        slot.close_in_parent()
        undo.pop_all()
        return ChildProcess(pid, slot, start_fd)


def _live(
    worker: Worker,
    folder: Path,
    slot: wire.Slot,
    read_fd: int,
    fds_to_close: list[int],
    pages: warm_start.Ranges,
) -> None:
    """The whole life of a forked child; never returns."""
    try:
        os.setpgid(0, 0)
        processes.die_with_parent()
        for descriptor in fds_to_close:
            os.close(descriptor)
        slot.close_in_child()
        gc.disable()
        child.be_killed_first()
        warm_start.copy(pages)
        if wire.called(read_fd):
            os.chdir(folder)
            child.carry_out(lambda: worker, slot)
    finally:
        # Not even our own failure may run the supervisor's code in the child.
        os._exit(child.FAILED)


def spawn(spec: str, folder: Path, warm: str) -> ChildProcess:
    """A fresh interpreter that loads the target in ``folder`` once its case begins.

    ``warm``: ``1`` for one that runs our own code once before its case.

    Raises:
        OSError: the system has no room for it.

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
        undo.pop_all()
        return ChildProcess(process.pid, slot, start_fd)
