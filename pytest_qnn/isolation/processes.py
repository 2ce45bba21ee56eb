"""Processes that a case started: found and ended, however they tried to get away.

A grandchild that leaves its process group becomes a child of the supervisor (a subreaper) once its own
parent is gone. When the supervisor itself was killed, its descendants are recognised by an entry of their
environment, which every fork inherits and no ``setsid`` changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import time
from collections.abc import Set

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_TIMEOUT = 5.0
"""Seconds after which processes that cannot be ended (or that multiply faster) are given up."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends: the thread that forked it (see prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def gain_no_privileges() -> None:
    """Let no program that this process or a descendant starts have more rights than it has (prctl(2))."""
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def be_readable() -> None:
    """Let what is in /proc of this process belong to its user, whatever somebody in it has set (prctl(2))."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def ended_for_memory() -> int:
    """How many processes the kernel has ended for want of memory, of the machine or of a cgroup (proc(5)).

    Since the machine was started; 0 where the kernel does not say.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as counts:
        return next((int(line.split()[1]) for line in counts if line.startswith("oom_kill ")), 0)
    return 0


def end_in_order() -> None:
    """End this process by exit(3): what libraries registered for its end is run. Never returns."""
    _LIBC.exit(0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(spared: Set[int], *, alone: bool = False) -> bool:
    """Kill and reap every child of this process but those ``spared``; whether there were any.

    ``alone``: no process that this one may signal is of others, so that they are killed at once, however fast
    they multiply; and those spared with them.
    """
    deadline = time.monotonic() + _TIMEOUT
    found = False
    while (orphans := [child for child in children() if child not in spared]) and (
        time.monotonic() < deadline
    ):
        found = True
        kill([-1] if alone else orphans)
        if not sum(map(_reap, orphans)):
            time.sleep(0.001)
    return found


def end_marked(mark: str) -> None:
    """Kill every process with the entry ``mark`` (``NAME=value``) in the environment it was started with."""
    deadline = time.monotonic() + _TIMEOUT
    while (found := _marked(mark)) and time.monotonic() < deadline:
        kill(found)
        time.sleep(0.01)


def kill(processes: list[int]) -> None:
    """SIGKILL for each; one that is gone already is no error."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _reap(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(process, os.WNOHANG)[0] == process
    return False


def children(pid: int | str = "self") -> list[int]:
    """Processes whose parent this process is, by the threads that started them or took them over."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it is gone
        return []
    if not _kernel_lists_children():
        return _with_parent(os.getpid() if pid == "self" else int(pid))
    for thread in threads:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
            found += map(int, file.read().split())
    return found


@functools.cache
def _kernel_lists_children() -> bool:
    """Whether the kernel was built with CONFIG_PROC_CHILDREN."""
    return os.path.exists("/proc/thread-self/children")


def _with_parent(parent: int) -> list[int]:
    """The same by a look at each process there is, which takes ten times as long."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            # Behind the name, which may hold anything: state, parent, ...
            if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
    return found


def descendants(pid: int | str = "self") -> list[int]:
    """The living children of a process, theirs, and so on."""
    found: list[int] = []
    left = children(pid)
    while left:
        found.append(left.pop())
        left += children(found[-1])
    return found


def _marked(mark: str) -> list[int]:
    entry = os.fsencode(mark)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        # A zombie's environment reads empty: it is dead already.
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if entry in file.read().split(b"\0"):
                found.append(int(name))
    return found
