"""Processes that a case started: found and ended, however they tried to get away.

A grandchild that leaves its process group becomes a child of the supervisor (a subreaper) once its own
parent is gone. When the supervisor itself was killed, its descendants are recognised by an entry of their
environment, which every fork inherits and no ``setsid`` changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TIMEOUT = 5.0
"""Seconds after which processes that cannot be ended (or that multiply faster) are given up."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends: the thread that forked it (see prctl(2)).

    A process that outlives that thread for good reason takes it back with `outlive_parent`.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def outlive_parent() -> None:
    """Take `die_with_parent` back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


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


def end_orphans(spared: int) -> bool:
    """Kill and reap every child of this process but ``spared`` (0: every one); whether there were any."""
    deadline = time.monotonic() + _TIMEOUT
    found = False
    while (orphans := [child for child in _children() if child != spared]) and time.monotonic() < deadline:
        found = True
        kill(orphans)
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


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
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
