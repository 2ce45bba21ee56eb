"""What loading a library may change of its process, which cases are to find as it was before."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import NamedTuple

from pytest_qnn.isolation import processes

_TWICE = "RLIMIT_OFILE"
"""Another name of RLIMIT_NOFILE."""
_NAMES = tuple(name for name in sorted(dir(resource)) if name.startswith("RLIMIT_") and name != _TWICE)
_KINDS = tuple(getattr(resource, name) for name in _NAMES)
_NEEDED = {"RLIMIT_FSIZE": 256 << 20, "RLIMIT_NOFILE": 64, "RLIMIT_DATA": 256 << 20, "RLIMIT_AS": 1 << 30}
"""What a supervisor and its children need: files as large as their shared memory, descriptors, bytes."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessState(NamedTuple):
    """The file mode mask, the limits and the ignored signals of this process.

    Not the handlers of signals: these are code of the library, which it has in every program that loads it,
    and each child inherits them.
    """

    umask: int
    limits: tuple[tuple[int, int], ...]
    """Soft and hard, in the order of `_KINDS`."""
    ignored: frozenset[int]

    def restore(self) -> None:
        """Make it so again, stop all interval timers, unblock all signals, and let /proc be read.

        A hard limit that was lowered stays, where the process may not raise it (setrlimit(2)): then the soft
        one is raised as far.
        """
        os.umask(self.umask)
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for kind, (soft, hard) in zip(_KINDS, self.limits, strict=True):
            _set_limit(kind, soft, hard)
        changed = _ignored() ^ self.ignored
        for number in changed - _caught():
            signal.signal(number, signal.SIG_IGN if number in self.ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        processes.be_readable()

    @property
    def lowered(self) -> str:
        """Limits that are lower now, too low for cases, and that this process may not raise; or empty.

        As ``RLIMIT_FSIZE to 0``.
        """
        now = map(resource.getrlimit, _KINDS)
        changed = zip(_NAMES, self.limits, now, strict=True)
        return ", ".join(
            f"{name} to {new[1]}"
            for name, old, new in changed
            if _is_lower(new[1], old[0]) and _is_lower(new[1], _NEEDED.get(name, 0))
        )


def _set_limit(kind: int, soft: int, hard: int) -> None:
    """Soft and hard, as far as this process may."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (soft, hard))
        return
    most = resource.getrlimit(kind)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (most if _is_lower(most, soft) else soft, most))


def _is_lower(one: int, other: int) -> bool:
    """Of two limits, of which -1 is none."""
    return one != resource.RLIM_INFINITY and (other == resource.RLIM_INFINITY or one < other)


def lift_limits(pid: int) -> None:
    """Give a process the hard limits of this one, where this one may; its soft ones stay."""
    for kind in _KINDS:
        if kind == resource.RLIMIT_CORE:
            continue  # 0 for whoever runs a target
        with contextlib.suppress(ValueError, OSError):
            soft, hard = resource.prlimit(pid, kind)
            own = resource.getrlimit(kind)[1]
            if _is_lower(hard, own):
                resource.prlimit(pid, kind, (soft, own))


def look() -> ProcessState:
    """The state of this process now."""
    umask = os.umask(0o077)
    os.umask(umask)
    return ProcessState(umask, tuple(map(resource.getrlimit, _KINDS)), _ignored())


def _ignored() -> frozenset[int]:
    return _signals("SigIgn")


def _caught() -> frozenset[int]:
    return _signals("SigCgt")


def _signals(name: str) -> frozenset[int]:
    """The signals in a mask of /proc/self/status (proc(5)); those that Python can set."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith(f"{name}:"))
    return frozenset(number for number in signal.valid_signals() if mask >> (number - 1) & 1)
