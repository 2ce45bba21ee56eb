"""What this host does not offer, in words for its user: none of it is a target's doing."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from pytest_qnn.isolation import libc

_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""An attempt that fails so was made at a bad moment, and says nothing of the host."""
_WAYS_OUT = {
    errno.EAGAIN: (
        "the user's limit of processes (ulimit -u) or the container's (pids limit) is too low: "
        "raise it, or run fewer workers (-n)"
    ),
    errno.ENOMEM: (
        "the machine or the container has no memory left for it: give it more, or run fewer workers (-n)"
    ),
    errno.EMFILE: "the process' limit of open files (ulimit -n) is too low: raise it",
    errno.ENFILE: "the machine's limit of open files (fs.file-max) is too low: raise it",
    errno.EPERM: "the container's profile (seccomp) or a security policy forbids it: allow fork and exec",
    errno.E2BIG: "the environment is too large for a command: make it smaller",
}


def why_no_process(error: OSError) -> str:
    """One sentence: why fork or exec failed, and what to do. It is the host's lack, not the program's."""
    said = error.strerror or str(error)
    way_out = _WAYS_OUT.get(error.errno or 0)
    return f"no process could be started ({said})" + (f": {way_out}" if way_out else "")


class _Need(NamedTuple):
    """Something that most hosts have."""

    name: str
    attempt: Callable[[], object]
    """Raises OSError, or AttributeError where Python does not have it."""
    instead: str
    """What is done without it, or left undone."""


@functools.cache
def lacks() -> tuple[str, ...]:
    """What this host does not offer: a sentence for each, with its consequence. Tried once for a process.

    Nothing that is tried changes anything.
    """
    return tuple(
        f"{need.name} is {why}: {need.instead}" for need in _NEEDS if (why := _refusal(need.attempt))
    )


def _refusal(attempt: Callable[[], object]) -> str:
    """Why it fails; empty: it does not."""
    try:
        attempt()
    except AttributeError:
        return "not in this Python"
    except OSError as error:
        return "" if error.errno in _OWN else f"refused ({error.strerror})"
    return ""


def _memfd() -> None:
    os.close(os.memfd_create("pytest-qnn-host", os.MFD_CLOEXEC))


def _pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _children() -> None:
    open("/proc/thread-self/children", "rb").close()


def _child_subreaper() -> None:
    libc.set_as_it_is(libc.PR_GET_CHILD_SUBREAPER, libc.PR_SET_CHILD_SUBREAPER)


def _parent_death_signal() -> None:
    libc.set_as_it_is(libc.PR_GET_PDEATHSIG, libc.PR_SET_PDEATHSIG)


_NEEDS = (
    _Need(
        "memfd_create",
        _memfd,
        "memory that processes share is in unlinked files in /dev/shm or the temporary folder",
    ),
    _Need("pidfd_open", _pidfd, "whether a child process has ended is looked up every 10 ms"),
    _Need(
        "/proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)",
        _children,
        "child processes are looked for among all processes, which takes longer",
    ),
    _Need(
        "prctl(PR_SET_CHILD_SUBREAPER)",
        _child_subreaper,
        "a process that a case leaves behind in a session of its own is not found, and goes on",
    ),
    _Need(
        "prctl(PR_SET_PDEATHSIG)",
        _parent_death_signal,
        "where pytest or a supervisor is killed (SIGKILL), processes that it has started may go on",
    ),
)
