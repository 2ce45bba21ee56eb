"""What a figure is, and how it is measured: repetitions of the same work, in CPU time and in wall time."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from pytest_qnn.core.search import Search

T = TypeVar("T")


class Closable(Protocol):
    """A target, as far as it matters here."""

    def close(self) -> None:
        """End its children."""


TargetT = TypeVar("TargetT", bound=Closable)


class Spread(msgspec.Struct, frozen=True):
    """Of several repetitions. The minimum is what load disturbs least."""

    minimum: float
    median: float


class Figure(msgspec.Struct, frozen=True):
    """What something costs, per case or per run, in seconds."""

    cpu: Spread
    """User and system time of this process, and of children that have ended within."""
    wall: Spread
    repetitions: int

    def times(self, factor: float) -> Figure:
        """Every number times ``factor``."""
        return self._each(lambda value: value * factor)

    def inverse(self) -> Figure:
        """How many a second: 1 over each number."""
        return self._each(lambda value: 1 / value)

    def over(self, other: Figure) -> Figure:
        """Ratios: of the minima, and of the medians."""
        return _both(self, other, lambda one, two: one / two)

    def plus(self, other: Figure) -> Figure:
        """Sums: of the minima, and of the medians."""
        return _both(self, other, lambda one, two: one + two)

    def minus(self, other: Figure) -> Figure:
        """Differences: of the minima, and of the medians."""
        return _both(self, other, lambda one, two: one - two)

    def _each(self, change: Callable[[float], float]) -> Figure:
        return _both(self, self, lambda one, _: change(one))


def _both(one: Figure, two: Figure, combine: Callable[[float, float], float]) -> Figure:
    def spread(first: Spread, second: Spread) -> Spread:
        return Spread(combine(first.minimum, second.minimum), combine(first.median, second.median))

    repetitions = min(one.repetitions, two.repetitions)
    return Figure(spread(one.cpu, two.cpu), spread(one.wall, two.wall), repetitions)


class Row(msgspec.Struct, frozen=True):
    """One line of the output."""

    subject: str
    """What is measured: a runtime and a number of nodes, a half and a profile, ..."""
    what: str
    unit: str
    figure: Figure | None = None
    """In the unit."""
    value: float | None = None
    """What is counted once, and has no time."""


class Effort(msgspec.Struct, frozen=True):
    """How often each figure is measured."""

    least: int
    most: int
    seconds: float
    """Of wall time: no further repetition of a figure is begun after it."""


FULL = Effort(least=5, most=50, seconds=2.0)
QUICK = Effort(least=3, most=10, seconds=0.4)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended and were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def cpu_seconds_with_living() -> float:
    """The same, and what children that live have used, in steps of 10 ms."""
    tick = os.sysconf("SC_CLK_TCK")
    total = cpu_seconds()
    for threads in Path("/proc/self/task").iterdir():
        for child in (threads / "children").read_text().split():
            with contextlib.suppress(OSError):
                # Behind the name, which may hold anything: utime, stime, cutime, cstime (proc(5), 14 to 17).
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / tick
    return total


def figure(cpu: Sequence[float], wall: Sequence[float]) -> Figure:
    """Of the repetitions' seconds."""
    spreads = [Spread(min(values), statistics.median(values)) for values in (cpu, wall)]
    return Figure(spreads[0], spreads[1], len(cpu))


def repeated(function: Callable[[int], object], effort: Effort, per: int = 1) -> Figure:
    """Seconds of the function, divided by ``per``; it is given the number of the repetition.

    Repetition 0 is not counted: it imports modules and fills caches.
    """
    function(0)
    cpu: list[float] = []
    wall: list[float] = []
    began = time.perf_counter()
    while len(cpu) < effort.least or (
        len(cpu) < effort.most and time.perf_counter() - began < effort.seconds
    ):
        cpu_then, wall_then = cpu_seconds(), time.perf_counter()
        function(len(cpu) + 1)
        cpu.append((cpu_seconds() - cpu_then) / per)
        wall.append((time.perf_counter() - wall_then) / per)
    return figure(cpu, wall)


def each(function: Callable[[T], object], items: Sequence[T], effort: Effort) -> Figure:
    """Seconds of the function for one of the items, all of which are in each repetition."""

    def once(_: int) -> None:
        for item in items:
            function(item)

    return repeated(once, effort, len(items))


def drawn(strategy: Any, count: int, seed: int = 1) -> list[Any]:
    """``count`` cases, as the engine draws them."""
    return list(Search(strategy, count, seed))


def in_children(
    open_target: Callable[[], TargetT], run: Callable[[TargetT, int], object], effort: Effort, per: int
) -> Figure:
    """Seconds of ``run``, divided by ``per``, on a target whose cases run in children.

    The CPU time of children counts once they have ended: so each repetition has a target of its own, and what
    opening and closing one costs is taken off, minimum from minimum and median from median. The wall time is
    that of ``run`` alone.
    """
    walls: list[float] = []

    def once(number: int) -> None:
        with contextlib.closing(open_target()) as target:
            began = time.perf_counter()
            run(target, number)
            walls.append((time.perf_counter() - began) / per)

    empty = repeated(lambda _: open_target().close(), effort, per)
    whole = repeated(once, effort, per).minus(empty)
    return msgspec.structs.replace(whole, wall=figure(walls[1:], walls[1:]).wall)


def process(command: Sequence[str | Path], effort: Effort, folder: str | Path) -> Figure:
    """Seconds of a command as a process of its own; its children count as soon as it has waited for them.

    Raises:
        RuntimeError: it did not end with 0, or 5 (pytest: no tests), with the end of its output.
    """

    def once(_: int) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 5}:
            output = done.stdout + done.stderr
            raise RuntimeError(f"{command} ended with {done.returncode}: {output[-2000:]}")

    return repeated(once, effort)
