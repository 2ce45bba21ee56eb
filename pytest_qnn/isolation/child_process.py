"""The supervisor's children: started, given their case, waited for.

A forked child is made ahead of its case and waits for it. Meanwhile it makes the copies of memory that it
would make on first use (`pytest_qnn.isolation.prefault`), most of a case's price, while nobody waits for
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

from pytest_qnn.isolation import child, interpreter, prefault, processes, wire
from pytest_qnn.isolation.worker import Worker


class Offspring:
    """A child as the supervisor sees it, alive until `end`.

    Args:
        pid: its process, the leader of a process group.
        slot: where it finds its request and leaves its answer.
        bell: the end of a pipe to write to when the request is there.

    """

    def __init__(self, pid: int, slot: wire.Slot, bell: int) -> None:
        self.pid = pid
        self.slot = slot
        self._bell: int | None = bell
        self._pidfd = os.pidfd_open(pid)

    def own(self) -> list[int]:
        """Descriptors that no other child may keep."""
        return [self._pidfd, *([] if self._bell is None else [self._bell])]

    def begin(self, request: bytes) -> None:
        """Give it the request; one that is gone already is found out by `ended`.

        Raises:
            ValueError: the request is too large.
        """
        self.slot.ask(request)
        assert self._bell is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._bell, b"!")
        os.close(self._bell)
        self._bell = None

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


def fork(worker: Worker, room: Path, alien: Iterable[int], pages: prefault.Ranges) -> Offspring:
    """A copy of this process that waits for its case.

    Args:
        worker: the loaded target.
        room: the folder to enter when the case begins.
        alien: descriptors of the supervisor's own, closed in the child.
        pages: the memory that the case will write to.

    Raises:
        OSError: the system has no room for it.

    """
    with contextlib.ExitStack() as undo:
        slot = wire.Slot.make()
        undo.callback(slot.close)
        ear, bell = os.pipe()
        undo.callback(os.close, bell)
        try:
            pid = os.fork()
            if not pid:
                _live(worker, room, slot, ear, [*alien, bell], pages)
        finally:
            os.close(ear)
        with contextlib.suppress(OSError):  # whoever is first; the child may have gone already
            os.setpgid(pid, pid)
        slot.keep()
        undo.pop_all()
        return Offspring(pid, slot, bell)


def _live(
    worker: Worker, room: Path, slot: wire.Slot, ear: int, alien: list[int], pages: prefault.Ranges
) -> None:
    """The whole life of a forked child; never returns."""
    try:
        os.setpgid(0, 0)
        processes.die_with_parent()
        for descriptor in alien:
            os.close(descriptor)
        slot.hide()
        gc.disable()
        child.be_killed_first()
        prefault.copy(pages)
        if wire.called(ear):
            os.chdir(room)
            child.carry_out(lambda: worker, slot)
    finally:
        # Not even our own failure may run the supervisor's code in the child.
        os._exit(child.FAILED)


def spawn(spec: str, room: Path, warm: str) -> Offspring:
    """A fresh interpreter that loads the target in ``room`` once its case begins.

    ``warm``: ``1`` for one that runs our own code once before its case.

    Raises:
        OSError: the system has no room for it.

    """
    with contextlib.ExitStack() as undo:
        slot = wire.Slot.make()
        undo.callback(slot.close)
        ear, bell = os.pipe()
        undo.callback(os.close, bell)
        handed_on = (slot.fileno(), ear)
        command = interpreter.command("pytest_qnn.isolation.child", spec, warm, *map(str, handed_on))
        try:
            process = subprocess.Popen(command, pass_fds=handed_on, start_new_session=True, cwd=room)
        finally:
            os.close(ear)
        # The status is collected by `Offspring.end`; Popen must not want it too.
        process.returncode = 0
        slot.keep()
        undo.pop_all()
        return Offspring(process.pid, slot, bell)
