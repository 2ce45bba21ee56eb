"""When a case that has not ended hangs.

A process that uses no processor time and begins no step and no call for the time of a case waits for
something that does not come: it hangs, and more time would not help. One that computes, or whose calls come
back one after another, may only be slow: it gets what the target's own plain case costs, times the cycles of
its case, times `_MARGIN`, and at least the time of one case and at most `_MOST` of them. Time in which its
threads had no processor, because others used them all, is not counted, up to `_ON_THE_CLOCK` times of a case.
Nor is time in which whoever looks stood still himself: then the child did too (Ctrl-Z, a machine that slept).
Of a call in which the target has hung `_SHOWN` times for all of that time, a further hang is told sooner: a
target that hangs in most cases would take an hour.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from pytest_qnn.isolation.observe.cpu_time import Usage

_MARGIN = 10.0
_MOST = 5.0
_ON_THE_CLOCK = 20.0
"""Times of a case after which even one that others leave no processor is given up."""
_STARVED = 0.9
"""Part of the time in which a thread that always has something to do runs, or waits for a processor."""
_IDLE = 0.01
"""Part of the time in which a thread that only looks again and again whether something came may run."""
_NOISE = 0.02
"""Seconds of processor time that are none: /proc counts in units of 0.01 s."""
_NEAR = 0.5
"""Part of the time of a case, after which it is found out how much time the case gets."""
_WAITED = 0.9
"""Part of its time that a case waits of which nothing else need be found out."""
_FIRST_LOOK = 0.05
"""Seconds. Most cases take a tenth of it, and cost nothing here."""
_LOOKS = 10
"""In the time of a case."""
STOOD_STILL = 1.0
"""Seconds by which whoever waits is woken too late, if he was not stopped."""
_LOOKING = 0.05
"""Part of the time that looks may take: each at a thousand processes takes tenths of a second."""
_SHOWN = 3
"""Hangs in a call that were waited for as long as any, before it is one that hangs."""
_SOON, _SOON_AT_LEAST = 0.1, 1.0
"""Part of the time of a case after which a further one is told, and seconds that this has at least."""


class Calls:
    """The calls in which children of one target have hung."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._times: Counter[str] = Counter()

    def note(self, call: str) -> None:
        """A child has hung in it, without any processor time.

        Args:
            call: what it was in; of a kernel the callback counts, whichever nodes it has.
        """
        self._times[_kind(call)] += 1

    def patience(self, call: str) -> float:
        """Seconds without processor time, step or call after which a child that is in it hangs."""
        if not call or self._times[_kind(call)] < _SHOWN:
            return self._timeout
        return min(self._timeout, max(_SOON * self._timeout, _SOON_AT_LEAST))


def _kind(call: str) -> str:
    return call.partition(" kernel ")[0]


class Watch:
    """Looks at a child from time to time, from the beginning of its first case to its end.

    Args:
        timeout: seconds for a case.
        cycles: of each of its cases, how often it does what the plain case does once.
        usage: what the child and all that it started have used so far.
        plain: seconds that the plain case takes: 0 where it died, infinity where it does not end.
    """

    def __init__(
        self,
        timeout: float,
        cycles: Sequence[int],
        usage: Callable[[], Usage],
        plain: Callable[[], float],
    ) -> None:
        self._timeout = timeout
        self._cycles = cycles
        self._usage = usage
        self._plain = plain
        self._began = time.monotonic()
        """When the case began, or was first seen."""
        self._at_first: Usage | None = None
        """What was used before."""
        self._due = math.inf
        """When the next look is to be."""
        self._answered = 0
        self._active = self._began
        """When it was last seen at work."""
        self._at_active = Usage()
        self._progress = -1
        self._cost = 0.0
        """Seconds of processor time that the last look took."""
        self._limit = 0.0
        """Seconds for this case; 0: not known yet."""
        self._patience = timeout
        """Seconds without processor time, step or call after which it hangs."""
        self.is_idle = False
        """Whether it hung so, and not for the time that it took."""

    def pause(self) -> float:
        """Seconds until the next look."""
        now = time.monotonic()
        taken, left = now - self._began, self._active + self._patience - now
        interval = max(min(max(taken, _FIRST_LOOK), self._timeout / _LOOKS), self._cost / _LOOKING)
        pause = max(0.001, min(interval, left))
        self._due = now + pause
        return pause

    def hangs(self, answered: int, progress: int, patience: float | None = None) -> str:
        """Why the child hangs; empty: it does not, as far as can be seen.

        Args:
            answered: cases that it has answered.
            progress: steps and calls that it has begun.
            patience: see `Calls.patience`; None: the time of a case.
        """
        self._patience = self._timeout if patience is None else patience
        before = time.thread_time()
        now, used = time.monotonic(), self._usage()
        self._cost = time.thread_time() - before
        self._pass_over(now - self._due)
        if self._at_first is None or answered != self._answered:
            self._next_case(answered, progress, now, used)
        elif progress != self._progress or self._worked(now, used):
            self._active, self._at_active, self._progress = now, used, progress
        elif now - self._active >= self._patience:
            self.is_idle = True
            known = f", as the call had hung {_SHOWN} times" if self._patience < self._timeout else ""
            return f"used no processor time for {self._patience:g} s{known}"
        taken = now - self._began
        if not self._limit:
            worked = (
                now - self._active < _WAITED * taken
            )  # else it is soon known to wait, whatever others cost
            if taken >= self._timeout * _NEAR and worked:
                self._limit = self._allowed()  # which takes its time: the child is looked at once more
        elif taken >= self._timeout:
            return self._too_long(taken, now, used)
        return ""

    def _pass_over(self, late: float) -> None:
        """Leave out of the clock what a look came too late by."""
        if late > STOOD_STILL:
            self._began += late
            self._active += late

    def _next_case(self, answered: int, progress: int, now: float, used: Usage) -> None:
        if answered != self._answered:
            self._began, self._limit = now, 0.0
        self._answered, self._progress = answered, progress
        self._at_first = self._at_active = used
        self._active = now

    def _worked(self, now: float, used: Usage) -> bool:
        """Whether threads of it ran, or others left them no processor, since it was last seen at work."""
        time_since = now - self._active
        ran = used.cpu - self._at_active.cpu
        if ran < 0:
            return True  # processes have ended for which nobody waited: what they used is counted no more
        if ran > _IDLE * time_since + _NOISE:
            return True
        wanted = ran + used.waited - self._at_active.waited
        return time_since >= self._patience and wanted > _STARVED * time_since

    def _too_long(self, taken: float, now: float, used: Usage) -> str:
        assert self._at_first is not None
        cpu = max(0.0, used.cpu - self._at_first.cpu)
        spent = max(min(cpu, taken), taken - max(0.0, used.waited - self._at_first.waited))
        if taken < _ON_THE_CLOCK * self._timeout and spent < self._limit:
            return ""
        idle = now - self._active
        if idle > self._timeout / 2:
            last = "" if _seconds(idle) == _seconds(taken) else f", the last of {_seconds(taken)}"
            return f"used no processor time for {_seconds(idle)}{last}"
        return f"still computing after {_seconds(taken)}, of which {_seconds(cpu)} of processor time"

    def _allowed(self) -> float:
        """Seconds for this case."""
        plain = self._plain()
        if math.isinf(plain):
            wanted = 0.0  # a target that does not end its plain case has nothing to show with more time
        elif plain:
            wanted = _MARGIN * plain * self._cycles_now()
        else:
            wanted = math.inf
        return min(max(wanted, self._timeout), _MOST * self._timeout)

    def _cycles_now(self) -> int:
        return self._cycles[self._answered] if self._answered < len(self._cycles) else 1


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f}".removesuffix(".0") + " s"
