"""The blame matrix: who fails for each fault, ``python -m benchmarks.blame --update docs/blame.md``.

Each fault is judged by all rules of its half (profile ``quick``, nothing shrunk, with owners as in a run).
Its own rules should find it; any other MUST rule that fails accuses the target of what is not wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from datetime import date
from pathlib import Path

import msgspec

from pytest_qnn.core.engine import InternalError, judge_with_owners
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.core.verdict import Level, Outcome
from pytest_qnn.mutants import opened
from pytest_qnn.qnn.mutants import table as qnn_mutants
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.mutants import table as delegate_mutants

PLACES = {"delegate": "tflite_runtime", "memory": "reference"}
_QUIET = (Outcome.PASS, Outcome.UNSUPPORTED)
_ROW = re.compile(r"^\| `([\w-]+)` \|.*\n", re.MULTILINE)


class Blamed(msgspec.Struct, frozen=True):
    """What all rules say of one fault; each list holds ids in order."""

    name: str
    owners: list[str]
    """Rules that it breaks, of those that failed."""
    missed: list[str]
    """Rules that it breaks and that saw nothing in so few cases."""
    accused: list[str]
    """Other MUST rules that failed."""
    advised: list[str]
    """Other SHOULD and MAY rules that failed."""
    blocked: list[str]
    """Rules of which nothing was left to judge."""
    seconds: float
    """CPU time, children included."""


def faults(subject: str = "") -> dict[str, Mutant]:
    """The mutants of one half or of both, by name."""
    both = qnn_mutants() | delegate_mutants()
    return {name: mutant for name, mutant in both.items() if subject in ("", mutant.subject)}


def blamed(name: str, seed: int) -> Blamed:
    """Judge one fault by all rules of its half."""
    mutant = faults()[name]
    started = _cpu()
    failed: set[str] = set()
    blocked: list[str] = []
    rules = catalogue()
    profile = dataclasses.replace(PROFILES["quick"], shrink_seconds=0.0, repeats=1)
    with closing(opened(mutant, PLACES[mutant.subject])) as target:
        for rule in rules.values():
            if rule.subject != mutant.subject or rule.self_check:
                continue
            try:
                verdict, handed_over = judge_with_owners(rule, target, profile, seed, rules.__getitem__)
            except (NothingToJudge, InternalError):
                continue
            failed |= {each.rule for each in handed_over}
            if verdict.is_blocked:
                blocked.append(rule.id)
            elif verdict.outcome not in _QUIET and verdict.outcome is not Outcome.INCONCLUSIVE:
                failed.add(rule.id)
    others = sorted(failed.difference(mutant.kills))
    return Blamed(
        name=name,
        owners=sorted(failed.intersection(mutant.kills)),
        missed=sorted(set(mutant.kills) - failed),
        accused=[rule for rule in others if rules[rule].level is Level.MUST],
        advised=[rule for rule in others if rules[rule].level is not Level.MUST],
        blocked=sorted(blocked),
        seconds=_cpu() - started,
    )


def measure(names: Iterable[str], seed: int, jobs: int) -> Iterator[Blamed]:
    """Judge all faults, several at a time."""
    left = list(names)[::-1]
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Blamed]] = set()
        while left or running:
            while left and len(running) < jobs:
                running.add(pool.submit(blamed, left.pop(), seed))
            done = next(as_completed(running))
            running.remove(done)
            yield done.result()


def document(found: Sequence[Blamed], seed: int, known: str = "") -> str:
    """The matrix as Markdown; rows of an earlier one stay for what was not judged."""
    rows = {match[1]: match[0] for match in _ROW.finditer(known)}
    rows |= {one.name: _row(one) for one in found}
    parts = [_HEAD.format(seed=seed, day=date.today().isoformat())]
    for subject, title in (("delegate", "TensorFlow Lite delegates"), ("memory", "QNN memory")):
        own = [rows[name] for name in sorted(faults(subject)) if name in rows]
        false = sum(row.split(" | ")[3] != "-" for row in own)
        whole = len(faults(subject))
        parts.append(
            f"\n## {title}: {len(own)} of {whole} faults, {false} with a MUST rule that they do not break\n\n"
            f"{_COLUMNS}{''.join(own)}"
        )
    return "".join(parts)


_HEAD = """\
# The blame matrix

Written by `python -m benchmarks.blame --update docs/blame.md`, last on {day}: each mutant judged by all
rules of its half, profile `quick`, seed {seed}, nothing shrunk. The columns: the mutant's own rules that
failed; those of them that need more cases than `quick` has; other MUST rules that failed, each an accusation
to be explained or mended; other SHOULD and MAY rules; rules that could not be judged for it.
"""
_COLUMNS = (
    "| fault | own rules | need more cases | other MUST rules | other SHOULD rules | blocked |\n"
    "|---|---|---|---|---|---|\n"
)


def _row(one: Blamed) -> str:
    lists = (one.owners, one.missed, one.accused, one.advised, one.blocked)
    return "| " + " | ".join([f"`{one.name}`", *(", ".join(each) or "-" for each in lists)]) + " |\n"


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blame", description=__doc__)
    parser.add_argument("--subject", choices=sorted(PLACES), default="", help="one half")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="faults that are judged at a time")
    parser.add_argument("--slice", default="0/1", metavar="K/N", help="every N-th fault, from K on")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="repeatable")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write into this matrix as rows come")
    options = parser.parse_args()
    first, step = map(int, options.slice.split("/"))
    names = [name for name in sorted(faults(options.subject)) if name in options.only or not options.only]
    found = []
    started = time.perf_counter()
    for one in measure(names[first::step], options.seed, options.jobs):
        found.append(one)
        sys.stderr.write(f"{_row(one).strip()} {one.seconds:.1f} s\n")
        if options.update:
            known = options.update.read_text() if options.update.exists() else ""
            options.update.write_text(document(found, options.seed, known))
    if not options.update:
        sys.stdout.write(document(found, options.seed))
    cpu = sum(one.seconds for one in found)
    sys.stderr.write(f"{len(found)} faults; {time.perf_counter() - started:.0f} s wall, {cpu:.0f} s CPU\n")


if __name__ == "__main__":
    main()
