"""Processor time of processes and of all that they started, from /proc: no answer of theirs is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from pytest_qnn.isolation import processes

_TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds of the unit of /proc/PID/stat."""
_TIMES = slice(11, 15)
"""Fields 14 to 17 of proc(5), utime, stime, cutime and cstime, behind the name."""


_LITTLE = 0.01
"""Seconds of processor time, of which nothing is concluded."""


class Usage(NamedTuple):
    """What processes took of the processors, in seconds."""

    cpu: float = 0.0
    """In user and kernel mode, with threads that ended and children that were waited for."""
    waited: float = 0.0
    """In which threads that could have run had no processor; 0 where the kernel does not count it."""


def usage(pids: Iterable[int]) -> Usage:
    """Of these processes and all their living descendants; one that is gone has used nothing.

    How long threads and children waited that have ended is not told. They are taken to have waited as long
    for each second of processor time as the threads that are there.
    """
    cpu = waited = 0.0
    for pid in [each for one in pids for each in (one, *processes.descendants(one))]:
        taken, (ran, lacked) = _cpu(pid), _schedules(pid)
        cpu += taken
        waited += lacked * max(1.0, taken / ran) if ran > _LITTLE else lacked
    return Usage(cpu, waited)


def own_wait() -> float:
    """Seconds in which threads of this process that could have run had no processor."""
    return _schedules("self")[1]


def _schedules(pid: int | str) -> tuple[float, float]:
    """Seconds in which the threads of a process ran, and in which they waited for a processor."""
    found = [_schedule(pid, thread) for thread in _threads(pid)]
    return sum(ran for ran, _ in found), sum(waited for _, waited in found)


def _threads(pid: int | str) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _cpu(pid: int) -> float:
    return sum(map(int, _stat(pid)[_TIMES])) * _TICK


def _stat(pid: int) -> list[bytes]:
    """What /proc/PID/stat says behind the name, which may hold anything; empty of one that is gone."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _schedule(pid: int | str, thread: str) -> tuple[float, float]:
    """The first numbers of schedstat: nanoseconds that a thread ran, and was on a run queue.

    Documentation/scheduler/sched-stats.
    """
    words = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
    return (int(words[0]) * 1e-9, int(words[1]) * 1e-9) if len(words) > 1 else (0.0, 0.0)


def _read(path: str) -> bytes:
    """What is in the file; empty of a process or thread that is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
