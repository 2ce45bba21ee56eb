"""How soon each rule finds the mutants that it must find.

``python -m pytest_qnn.mutants`` measures it: docs/measured/mutants.md is the table that it printed last, and
pytest_qnn/effort.json the plan that follows from the same numbers. ``--proof`` tries the plan on other seeds.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

from pytest_qnn.core.engine import first_failure
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import Profile
from pytest_qnn.qnn.mutants import table as qnn_mutants
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.mutants import table as delegate_mutants
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

TaskT = TypeVar("TaskT")
DoneT = TypeVar("DoneT")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
REFERENCE = "reference"
"""What memory mutants run on: they are copies of the reference backend."""
PLACES = {"delegate": RUNTIMES, "memory": (REFERENCE,)}
"""By subject: where a mutant can be judged."""
SEEDS = 5
MORE_SEEDS = 20
"""Seeds of a pair that with `SEEDS` took more than `_SOON` examples in the mean."""
_SOON = 1.5
LIMIT = 100
"""Examples after which a measurement gives up."""
MOST = 20
"""Examples by which a rule should have found its mutant in the median."""
_TIMEOUT = 10.0


def table() -> dict[str, Mutant]:
    """Every mutant of both halves, by name."""
    return qnn_mutants() | delegate_mutants()


@dataclasses.dataclass(frozen=True)
class Kill:
    """One rule on one mutant in one place."""

    mutant: Mutant
    rule: str
    place: str
    """The runtime; `REFERENCE` for memory."""
    examples: tuple[int | None, ...]
    """By seed: cases run up to the first violation; None: there was none."""
    seconds: float = 0.0
    """CPU time of measuring."""

    @property
    def missed(self) -> int:
        """Seeds with which the rule did not find the mutant."""
        return self.examples.count(None)

    @property
    def median(self) -> float:
        """Examples to the first kill; infinite where most seeds find nothing."""
        return statistics.median(float("inf") if count is None else count for count in self.examples)

    @property
    def weak(self) -> bool:
        """The strategy of the rule is to be strengthened."""
        return bool(self.missed) or self.median > MOST

    def cell(self) -> str:
        """What the table says."""
        if self.missed:
            return f"**missed {self.missed} of {len(self.examples)}**"
        return f"**{self.median:g}**" if self.weak else f"{self.median:g}"

    def line(self) -> str:
        """Every seed's number, for the progress output."""
        counts = " ".join("-" if count is None else str(count) for count in self.examples)
        return f"{self.mutant.name}/{self.rule} on {self.place}: {counts} ({self.seconds:.1f} s)"


@dataclasses.dataclass(frozen=True)
class Task:
    """Several rules on one mutant in one place, which is opened once; data, for another process."""

    mutant: str
    place: str
    limits: Mapping[str, int]
    """By rule: examples after which its search gives up."""
    seeds: tuple[int, ...]
    more_seeds: tuple[int, ...] = ()
    """Further seeds of a pair that is found late."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a task gave for one rule."""

    rule: str
    counts: tuple[int | None, ...]
    seconds: float
    """CPU time, of children that have ended included."""


def measured(task: Task) -> list[Measured]:
    """Measure, without shrinking anything."""
    found = []
    profile = Profile("measurement", LIMIT, LIMIT, plan=task.limits)
    begun = _cpu_seconds()
    with closing(opened(table()[task.mutant], task.place)) as target:
        for rule_id in task.limits:
            started = _cpu_seconds()
            counts = _counts(rule_id, target, profile, task.seeds)
            if any(count is None for count in counts) or sum(filter(None, counts)) > _SOON * len(counts):
                counts += _counts(rule_id, target, profile, task.more_seeds)
            found.append(Measured(rule_id, counts, _cpu_seconds() - started))
    # Processes that ended with the target count only now, and opening it is shared by all of its rules.
    rest = (_cpu_seconds() - begun - sum(each.seconds for each in found)) / len(found)
    return [dataclasses.replace(each, seconds=each.seconds + rest) for each in found]


def _counts(
    rule_id: str, target: DelegateTarget | MemoryTarget, profile: Profile, seeds: Sequence[int]
) -> tuple[int | None, ...]:
    rules = catalogue()
    found = [first_failure(rules[rule_id], target, profile, seed, rules.__getitem__) for seed in seeds]
    return tuple(None if each is None else each.examples for each in found)


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def opened(mutant: Mutant, place: str) -> DelegateTarget | MemoryTarget:
    """The mutant as a target, to be closed; one whose fault may end its process is run in children."""
    spec = f"mutant:{mutant.name}"
    sandbox = "fork" if mutant.deadly else "auto"
    if mutant.subject == "delegate":
        return open_delegate_target([(spec, {})], place, sandbox, mutant.timeout)
    return open_memory_target(spec, "emulated", sandbox, _TIMEOUT)


def measure(
    wanted: Sequence[tuple[Mutant, list[str]]], seeds: int = SEEDS, limit: int = LIMIT, jobs: int = 1
) -> Iterator[Kill]:
    """Measure mutants in all their places, in their order.

    Args:
        wanted: mutants with rules.
        seeds: of a pair that is found soon; where it is `SEEDS`, one that is found late has `MORE_SEEDS`.
        limit: examples after which a search gives up.
        jobs: processes.
    """
    more = tuple(range(seeds + 1, MORE_SEEDS + 1)) if seeds == SEEDS else ()
    mutants = {mutant.name: mutant for mutant, _ in wanted}
    tasks = [
        Task(mutant.name, place, dict.fromkeys(rules, limit), tuple(range(1, seeds + 1)), more)
        for mutant, rules in wanted
        for place in PLACES[mutant.subject]
    ]
    for task, found in in_processes(measured, tasks, jobs):
        for each in found:
            yield Kill(mutants[task.mutant], each.rule, task.place, each.counts, each.seconds)


def in_processes(
    do: Callable[[TaskT], DoneT], tasks: Sequence[TaskT], jobs: int
) -> Iterator[tuple[TaskT, DoneT]]:
    """Tasks with what they gave, in their order; with one job in this process.

    The processes are started anew, not forked: a fork of a process with a runtime's threads may hang.
    """
    if jobs == 1:
        yield from ((task, do(task)) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            yield from zip(tasks, pool.map(do, tasks), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def chosen(only: Sequence[str], subject: str) -> list[tuple[Mutant, list[str]]]:
    """The mutants with their rules that the words of ``--only`` name (none: all), those of one half first.

    Each word is ``NAME``, ``/RULE`` or ``NAME/RULE``.
    """
    pairs = [tuple(word.partition("/")[::2]) for word in only] or [("", "")]
    found = []
    for mutant in sorted(table().values(), key=lambda mutant: (mutant.subject, mutant.kills, mutant.name)):
        rules = [
            rule
            for rule in mutant.kills
            if any(name in ("", mutant.name) and wanted in ("", rule) for name, wanted in pairs)
        ]
        if rules and subject in ("", mutant.subject):
            found.append((mutant, rules))
    return found
