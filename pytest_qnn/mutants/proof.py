"""The proof of the plan, on other seeds than those that it was made from.

Each rule is to find each of its mutants, within the plan's examples, in 99 of 100 searches; and in 95 of 100
within the examples that it would get if the mutant were not in the plan (leave one out), as a fault is that
nobody has thought of.

A change of the controls, or of what a half's strategies share, makes all results stale and alters few: a
search draws the same cases, and takes as many of them. So a pair that was tried with all seeds on an earlier
tree is first tried with some of them. Where each takes as many examples as then, the others stand too.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.effort import Planned
from pytest_qnn.mutants import PLACES, Task, in_processes, measured, planning, table
from pytest_qnn.mutants.digests import pair_digest

SEEDS = 100
FIRST_SEED = 1001
"""The plan is made from the seeds 1 to 20."""
SAMPLE = 10
"""Seeds of a pair that an earlier tree has all of."""
_BATCH = 25
"""Seeds of one task: what is lost when a proof is stopped."""
_SHARE = 0.01
_SHARE_WITHOUT = 0.05
"""Of the searches, which may miss a mutant; one always may."""


class Tried(msgspec.Struct, frozen=True):
    """A line of the file: a rule on a mutant in one place, with some seeds."""

    mutant: str
    rule: str
    place: str
    digest: str
    limit: int
    """Examples of the plan."""
    first: int
    """The first seed; the others follow it."""
    counts: tuple[int | None, ...]
    """By seed: examples up to the first failure; None: none within the plan's."""
    seconds: float
    """CPU time."""

    @property
    def key(self) -> tuple[str, ...]:
        """What was tried: the same pair under another plan, or of other sources, is another one."""
        return (self.mutant, self.rule, self.place, self.digest, str(self.limit))


def tasks(
    plan: Mapping[str, Planned], wanted: Sequence[tuple[Mutant, list[str]]], seeds: int, part: str = "0/1"
) -> list[Task]:
    """One for each rule, mutant and place that the plan has, in an order that mixes all areas.

    Args:
        plan: by rule.
        wanted: mutants with rules.
        seeds: how many.
        part: ``K/N``, the part K of N.
    """
    number, parts = map(int, part.split("/"))
    tried = range(FIRST_SEED, FIRST_SEED + seeds)
    found = [
        (zlib.crc32(f"{mutant.name} {rule}".encode()), Task(mutant.name, place, limit, tuple(tried)))
        for mutant, rules in wanted
        for rule in rules
        if rule in plan and mutant.name in plan[rule].pairs
        for limit in ({rule: plan[rule].examples},)
        for place in PLACES[mutant.subject]
    ]
    own = [each for each in found if each[0] % parts == number]
    return [task for _, task in sorted(own, key=lambda each: (each[0], each[1].place))]


def known(file: Path) -> dict[tuple[str, ...], dict[int, int | None]]:
    """By what was tried (`Tried.key`): the count of each seed."""
    counts: dict[tuple[str, ...], dict[int, int | None]] = {}
    for tried in _lines(file):
        counts.setdefault(tried.key, {}).update(enumerate(tried.counts, tried.first))
    return counts


class Known:
    """What a file has of tasks.

    Args:
        file: JSON lines.
    """

    def __init__(self, file: Path) -> None:
        self._counts = known(file)
        self._of_pair: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for key in self._counts:
            self._of_pair.setdefault(_without_digest(key), []).append(key)

    def own(self, task: Task) -> Mapping[int, int | None]:
        """By seed: the count, of these sources."""
        return self._counts.get(key_of(task), {})

    def earlier(self, task: Task) -> list[Mapping[int, int | None]]:
        """The same of earlier sources, those that have each seed."""
        key = key_of(task)
        others = [other for other in self._of_pair.get(_without_digest(key), ()) if other != key]
        return [self._counts[other] for other in others if self._counts[other].keys() >= set(task.seeds)]

    def stands(self, task: Task) -> Mapping[int, int | None] | None:
        """The counts of earlier sources, if those of the first `SAMPLE` seeds are the same now; else None.

        None too where they missed the mutant: seeds that found it show nothing of what was changed for that.
        """
        own = self.own(task)
        if not own.keys() >= set(task.seeds[:SAMPLE]):
            return None
        same = (
            each
            for each in self.earlier(task)
            if None not in each.values() and all(each[seed] == own[seed] for seed in own if seed in each)
        )
        return next(same, None)


def _without_digest(key: tuple[str, ...]) -> tuple[str, ...]:
    return (*key[:3], key[4])


def _lines(file: Path) -> Iterator[Tried]:
    """Whole lines: the last one may have been cut off."""
    text = file.read_bytes() if file.exists() else b""
    for line in text.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Tried)


def key_of(task: Task) -> tuple[str, ...]:
    """The `Tried.key` of a task, which has one rule."""
    ((rule, limit),) = task.limits.items()
    return (task.mutant, rule, task.place, pair_digest(rule, table()[task.mutant], controls=True), str(limit))


def run(file: Path, wanted: Sequence[Task], jobs: int = 1, minutes: float | None = None) -> None:
    """Try what the file does not have yet, and append it.

    Args:
        file: JSON lines.
        wanted: tasks of one rule each.
        jobs: processes.
        minutes: of CPU time, after which nothing new is begun.
    """
    if file.exists() and not file.read_bytes().endswith(b"\n"):
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in list(_lines(file))))
    seconds = 0.0
    with file.open("ab") as output:
        for part in (_samples, _left):
            for task, (found,) in in_processes(measured, list(part(wanted, Known(file))), jobs):
                mutant, rule, place, digest, limit = key_of(task)
                first, seconds_of_task = task.seeds[0], round(found.seconds, 2)
                line = Tried(mutant, rule, place, digest, int(limit), first, found.counts, seconds_of_task)
                output.write(msgspec.json.encode(line) + b"\n")
                output.flush()
                seconds += found.seconds
                if minutes is not None and seconds > 60 * minutes:
                    return


def _samples(wanted: Sequence[Task], so_far: Known) -> Iterator[Task]:
    """The first seeds of what an earlier tree has all of."""
    for task in wanted:
        done = so_far.own(task)
        if len(task.seeds) > SAMPLE and not done.keys() >= set(task.seeds) and so_far.earlier(task):
            seeds = tuple(seed for seed in task.seeds[:SAMPLE] if seed not in done)
            if seeds:
                yield dataclasses.replace(task, seeds=seeds)


def _left(wanted: Sequence[Task], so_far: Known) -> Iterator[Task]:
    for task in wanted:
        done = so_far.own(task)
        if not done.keys() >= set(task.seeds) and so_far.stands(task) is not None:
            continue
        for batch in range(0, len(task.seeds), _BATCH):
            # What is done of a batch is its beginning.
            seeds = tuple(seed for seed in task.seeds[batch : batch + _BATCH] if seed not in done)
            if seeds:
                yield dataclasses.replace(task, seeds=seeds)


@dataclasses.dataclass(frozen=True)
class Row:
    """A rule on a mutant, in the place where it is missed most."""

    mutant: str
    rule: str
    place: str
    seeds: int
    examples: int
    missed: int
    without: int
    """Examples had nobody thought of the mutant."""
    missed_without: int
    sampled: bool = False
    """Most counts are those of an earlier tree (`Known.stands`)."""

    @property
    def short(self) -> bool:
        """The plan does not suffice for it."""
        return self.missed > max(1, _SHARE * self.seeds)

    @property
    def short_without(self) -> bool:
        """It would not, had nobody thought of the mutant."""
        return self.missed_without > max(1, _SHARE_WITHOUT * self.seeds)

    def text(self) -> str:
        """A line of the table."""
        cells = (f"`{self.mutant}`", self.rule, self.place, self.examples, self._share(self.missed))
        return "| " + " | ".join(map(str, (*cells, self.without, self._share(self.missed_without)))) + " |\n"

    def _share(self, missed: int) -> str:
        return f"{self.seeds - missed} of {self.seeds}"


def _of_sampled(count: int) -> str:
    if not count:
        return ""
    return (
        f"{count} of them were tried so on an earlier tree, and with the first {SAMPLE} seeds on this one,\n"
        "where each search took as many examples as then.\n"
    )


@dataclasses.dataclass(frozen=True)
class Result:
    """What is proved so far."""

    rows: list[Row]
    """Of the pairs that were tried with every seed in every place."""
    pairs: int
    """All that were to be tried."""
    seeds: int
    seconds: float

    @property
    def short(self) -> list[Row]:
        """Pairs for which the plan does not suffice."""
        return [row for row in self.rows if row.short]

    @property
    def short_without(self) -> list[Row]:
        """Pairs that would not be found had nobody thought of the mutant."""
        return [row for row in self.rows if row.short_without]

    def text(self) -> str:
        """The totals, and a table of what falls short."""
        searches = sum(row.seeds for row in self.rows)
        missed = sum(row.missed for row in self.rows)
        last = FIRST_SEED + self.seeds - 1
        tried, found, found_without = len(self.rows), len(self.short), len(self.short_without)
        sampled = sum(row.sampled for row in self.rows)
        lines = [
            f"{tried} of {self.pairs} pairs of a rule and a mutant were tried with the {self.seeds} seeds\n",
            f"{FIRST_SEED} to {last}, in {self.seconds / 60:.1f} minutes of CPU time.\n",
            _of_sampled(sampled),
            "\n",
            f"* Found within the plan's examples in 99 of 100: {tried - found} pairs\n",
            f"  (missed in {missed} of {searches} searches).\n",
            f"* Found in 95 of 100 if planned without the mutant: {tried - found_without} pairs.\n",
        ]
        short = [row for row in self.rows if row.short or row.short_without]
        if short:
            columns = ("mutant", "rule", "place", "examples", "found", "without the mutant", "found then")
            lines.append(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n")
            lines += [row.text() for row in sorted(short, key=lambda row: (row.rule, row.mutant))]
        return "".join(lines)


def result(file: Path, wanted: Sequence[Task], plan: Mapping[str, Planned]) -> Result:
    """What the file says of these tasks; of a pair with two places, the worse one."""
    so_far = Known(file)
    keys = {key_of(task) for task in wanted}
    rows = []
    pairs = itertools.groupby(wanted, key=lambda task: (task.mutant, *task.limits))
    whole = [list(of_pair) for _, of_pair in pairs]
    for of_pair in whole:
        places = [row for task in of_pair if (row := _row(task, so_far, plan)) is not None]
        if len(places) == len(of_pair):
            worst = max(places, key=lambda row: (row.missed, row.missed_without))
            rows.append(dataclasses.replace(worst, sampled=any(row.sampled for row in places)))
    seconds = sum(tried.seconds for tried in _lines(file) if tried.key in keys)
    return Result(rows, len(whole), len(wanted[0].seeds) if wanted else 0, seconds)


def _row(task: Task, so_far: Known, plan: Mapping[str, Planned]) -> Row | None:
    """None: it was not tried with each seed."""
    ((rule, examples),) = task.limits.items()
    seen = so_far.own(task)
    sampled = not seen.keys() >= set(task.seeds)
    if sampled:
        stands = so_far.stands(task)
        if stands is None:
            return None
        seen = stands
    own = [seen[seed] for seed in task.seeds]
    without = planning.without(plan[rule], task.mutant)
    late = sum(count is None or count > without for count in own)
    return Row(task.mutant, rule, task.place, len(own), examples, own.count(None), without, late, sampled)
