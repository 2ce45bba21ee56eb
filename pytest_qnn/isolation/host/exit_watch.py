"""Waiting for the end of a child process and for descriptors at once, with a pidfd or without."""

from __future__ import annotations

import errno
import math
import os
import select
import time
from collections.abc import Mapping
from typing import NamedTuple

_REFUSED = (errno.ENOSYS, errno.EPERM)
"""From pidfd_open: a kernel before Linux 5.3, or a container's profile that does not know it."""
_SHORTEST, _LONGEST = 0.001, 0.01
"""Seconds between two looks at a child, where no descriptor tells of its end."""


class Woken(NamedTuple):
    """Why a wait was over; neither: its time was."""

    ended: bool
    """The child is no more, or a zombie."""
    ready: frozenset[int]
    """Descriptors on which something has happened, an error among others."""


class ExitWatch:
    """The end of one child of this process, to be waited for beside descriptors.

    Not by a pipe whose write end the child holds: a process that the child starts inherits it. Without a
    pidfd the child is looked at, first after 1 ms and then at intervals of up to 10 ms; no thread is started,
    since a process with threads cannot be forked.

    Args:
        pid: a child that was not waited for yet. Only then is the number no other process'.

    Raises:
        OSError: no descriptor for it; ProcessLookupError: there is no such process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = _pidfd(pid)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of this process that the watch holds: a fork may close them."""
        return () if self._pidfd is None else (self._pidfd,)

    def wait(self, seconds: float, others: Mapping[int, int]) -> Woken:
        """Wait until the child ends or something happens on a descriptor, whichever is first. Reaps nothing.

        Args:
            seconds: at most so many; infinity waits for ever.
            others: what to wait for on descriptors, as ``select.POLLIN`` and the like.
        """
        poll = select.poll()
        for fd, events in others.items():
            poll.register(fd, events)
        if self._pidfd is None:
            return self._look(poll, seconds)
        poll.register(self._pidfd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds == math.inf else max(0.0, seconds) * 1000)}
        return Woken(self._pidfd in ready, frozenset(ready - {self._pidfd}))

    def _look(self, poll: select.poll, seconds: float) -> Woken:
        """As `wait`, without a pidfd."""
        deadline = time.monotonic() + seconds
        pause = 0.0
        while True:
            left = deadline - time.monotonic()
            ready = frozenset(fd for fd, _ in poll.poll(max(0.0, min(pause, left)) * 1000))
            ended = _has_ended(self._pid)
            if ended and not ready:  # what it did last it may have done after the look at descriptors
                ready = frozenset(fd for fd, _ in poll.poll(0))
            if ended or ready or left <= pause:
                return Woken(ended, ready)
            pause = min(max(2 * pause, _SHORTEST), _LONGEST)

    def close(self) -> None:
        """Give up the descriptor, if there is one; a second time does nothing."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _pidfd(pid: int) -> int | None:
    """A pidfd; None: there are none here."""
    if not hasattr(os, "pidfd_open"):  # a Python that was built with headers of an old kernel
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _REFUSED:
            return None
        raise


def _has_ended(pid: int) -> bool:
    """Whether the child is a zombie, or was one: somebody else may have reaped it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
