"""How many faults that start late or hide the suite finds: ``python -m benchmarks.late > docs/late.md``.

The faults (`pytest_qnn.qnn.late`, `pytest_qnn.tflite.late`) were written from the documents alone, without
knowledge of the rules and their strategies. Each is judged by the rules of its half, those first that have
found most so far, until one finds it; a fault that none finds has been judged by all.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from datetime import date
from pathlib import Path

import msgspec

from pytest_qnn import effort
from pytest_qnn.core.engine import InternalError, first_failure
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.mutants import opened
from pytest_qnn.qnn.mutants import late as qnn_late
from pytest_qnn.rules import catalogue
from pytest_qnn.session.judging import rule_seed
from pytest_qnn.tflite.mutants import late as delegate_late

PLACES = {"delegate": "tflite_runtime", "memory": "reference"}
_EXPENSIVE = ("LEAK", "OWN", "THR", "QLEAK", "QTHR", "LIFE-14", "RSZ-05", "XNN")
"""Areas and rules that measure, or start processes: asked last."""
_ROW = re.compile(r"^\| `([\w-]+)` \|.*\n", re.MULTILINE)


class Found(msgspec.Struct, frozen=True):
    """What became of one fault."""

    name: str
    rule: str
    """The first rule that found it; empty: none did."""
    examples: int
    """Cases of that rule up to the first violation."""
    seen: str
    judged: int
    """Rules that were asked."""
    seconds: float
    """CPU time, children included."""


def faults(subject: str = "") -> dict[str, Mutant]:
    """The faults of one half or of both, by name."""
    both = qnn_late() | delegate_late()
    return {name: mutant for name, mutant in both.items() if subject in ("", mutant.subject)}


def find(name: str, order: Sequence[str], profile: str, seed: int) -> Found:
    """Judge one fault by the rules in order, until one finds it."""
    mutant = faults()[name]
    started = _cpu()
    judged = 0
    with closing(opened(mutant, PLACES[mutant.subject])) as target:
        for rule_id in order:
            judged += 1
            try:
                own = rule_seed(seed, rule_id)  # as in a run
                failure = first_failure(catalogue()[rule_id], target, effort.profile(profile), own)
            except (NothingToJudge, InternalError):
                continue
            if failure is not None:
                seen = " ".join(failure.violation.seen.split())[:120]
                return Found(name, rule_id, failure.examples, seen, judged, _cpu() - started)
    return Found(name, "", 0, "", judged, _cpu() - started)


def rules_of(subject: str, hits: Counter[str]) -> list[str]:
    """The rules of a half: cheap ones first, and among those the ones that found most so far."""
    own = [rule for rule in catalogue().values() if rule.subject == subject and not rule.self_check]

    def late(rule_id: str, area: str) -> tuple[bool, int]:
        return area in _EXPENSIVE or rule_id in _EXPENSIVE, -hits[rule_id]

    return [rule.id for rule in sorted(own, key=lambda rule: late(rule.id, rule.area))]


def measure(names: Iterable[str], profile: str, seed: int, jobs: int) -> Iterator[Found]:
    """Judge all faults, several at a time."""
    hits: Counter[str] = Counter()
    left = list(names)[::-1]
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Found]] = set()
        while left or running:
            while left and len(running) < jobs:
                name = left.pop()
                order = rules_of(faults()[name].subject, hits)
                running.add(pool.submit(find, name, order, profile, seed))
            done = next(as_completed(running))
            running.remove(done)
            found = done.result()
            hits[found.rule] += bool(found.rule)
            yield found


def document(found: Sequence[Found], profile: str, seed: int, known: str = "") -> str:
    """The table as Markdown; rows of an earlier one stay for what was not measured."""
    rows = {match[1]: match[0] for match in _ROW.finditer(known)}
    rows |= {one.name: _row(one) for one in found}
    parts = [_HEAD.format(profile=profile, seed=seed, day=date.today().isoformat())]
    for subject, title in (("delegate", "TensorFlow Lite delegates"), ("memory", "QNN memory")):
        own = [rows[name] for name in sorted(faults(subject)) if name in rows]
        missed = sum("| - |" in row for row in own)
        parts.append(f"\n## {title}: {len(own) - missed} of {len(own)} found\n\n{_COLUMNS}{''.join(own)}")
    return "".join(parts)


_HEAD = """\
# Faults that start late, or hide

Written by `python -m benchmarks.late > docs/late.md` on {day}: profile `{profile}`, seed {seed}. Faulty
references that conform until their condition holds, written from the documents alone by someone who had not
read the rules. Beside each is the first rule that found it, after how many of its cases, and what it saw.
"""
_COLUMNS = "| fault | what is wrong | found by | cases | seen |\n|---|---|---|---|---|\n"


def _row(found: Found) -> str:
    cells = (
        f"`{found.name}`",
        faults()[found.name].fault,
        found.rule or "-",
        str(found.examples),
        found.seen,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.late", description=__doc__)
    parser.add_argument("--subject", choices=sorted(PLACES), default="", help="one half")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="faults that are judged at a time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="repeatable")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write into this table, not to stdout")
    options = parser.parse_args()
    names = [name for name in faults(options.subject) if name in options.only or not options.only]
    if not names:
        parser.error("there is no such fault")
    found = []
    started = time.perf_counter()
    for one in measure(names, options.profile, options.seed, options.jobs):
        found.append(one)
        sys.stderr.write(
            f"{one.name}: {one.rule or 'NOT FOUND'} ({one.examples} cases, {one.seconds:.1f} s)\n"
        )
    known = options.update.read_text() if options.update else ""
    text = document(found, options.profile, options.seed, known)
    if options.update:
        options.update.write_text(text)
    else:
        sys.stdout.write(text)
    cpu = sum(one.seconds for one in found)
    sys.stderr.write(
        f"{sum(bool(one.rule) for one in found)} of {len(found)} found; "
        f"{time.perf_counter() - started:.0f} s wall, {cpu:.0f} s CPU\n"
    )


if __name__ == "__main__":
    main()
