"""How many faults that start late or hide the suite finds: ``python -m benchmarks.late --results FILE``.

The faults (`pytest_qnn.qnn.late`, `pytest_qnn.tflite.late`) were written from the documents alone, without
knowledge of the rules and their strategies. Each is judged by the rules of its half, until one finds it:
first by those that its source names, then by those that have found most so far. The order changes what it
costs, and not whether it is found: a fault that none finds has been judged by all.

Results are added to the file as they come, one JSON object a line, and what is there is not measured again
(one name, profile and seed). ``--document`` writes a table of what the file holds.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from datetime import date
from pathlib import Path

import msgspec

from benchmarks.late.document import Found, document
from benchmarks.timing import cpu_seconds
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
_RULE = re.compile(r"\b[A-Z]+-\d\d\b")


def faults(subject: str = "") -> dict[str, Mutant]:
    """The faults of one half or of both, by name."""
    both = qnn_late() | delegate_late()
    return {name: mutant for name, mutant in both.items() if subject in ("", mutant.subject)}


def find(name: str, order: Sequence[str], profile: str, seed: int) -> Found:
    """Judge one fault by the rules in order, until one finds it."""
    mutant = faults()[name]
    result = Found(name, mutant.subject, profile, seed, date.today().isoformat())
    started = cpu_seconds()
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
                result = msgspec.structs.replace(result, rule=rule_id, examples=failure.examples, seen=seen)
                break
    return msgspec.structs.replace(result, judged=judged, seconds=round(cpu_seconds() - started, 2))


def rules_of(mutant: Mutant, hits: Counter[str]) -> list[str]:
    """The rules of a half: those that the fault's source names, then cheap ones, by what they have found."""
    own = [rule for rule in catalogue().values() if rule.subject == mutant.subject and not rule.self_check]
    named = set(_RULE.findall(mutant.made.__doc__ or ""))

    def late(rule_id: str, area: str) -> tuple[bool, bool, int]:
        return rule_id not in named, area in _EXPENSIVE or rule_id in _EXPENSIVE, -hits[rule_id]

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
                order = rules_of(faults()[name], hits)
                running.add(pool.submit(find, name, order, profile, seed))
            done = next(as_completed(running))
            running.remove(done)
            found = done.result()
            hits[found.rule] += bool(found.rule)
            yield found


def read(path: Path | None) -> list[Found]:
    """The results of a file; none where there is no file."""
    if path is None or not path.exists():
        return []
    return [msgspec.json.decode(line, type=Found) for line in path.read_bytes().splitlines() if line]


def _add(path: Path | None, found: Found) -> None:
    if path is not None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")
    what = f"{found.rule} ({found.examples} cases)" if found.rule else "NOT FOUND"
    sys.stderr.write(f"{found.name}: {what}, {found.seconds:.1f} s\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.late", description=__doc__)
    parser.add_argument("--subject", choices=sorted(PLACES), default="", help="one half")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="faults that are judged at a time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="repeatable")
    parser.add_argument("--missed", action="store_true", help="those that the file has, and no rule found")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON lines, which are added to")
    parser.add_argument(
        "--document", action="store_true", help="write the table of the file, measure nothing"
    )
    options = parser.parse_args()
    known = read(options.results)
    if options.document:
        sys.stdout.write(document(known, faults(options.subject)))
        return
    done = {one.name for one in known if (one.profile, one.seed) == (options.profile, options.seed)}
    wanted = set(options.only)
    if options.missed:
        wanted |= {one.name for one in known if not one.rule}
    names = [
        name for name in faults(options.subject) if name in wanted or not (options.only or options.missed)
    ]
    if not names:
        parser.error("there is no such fault")
    found = []
    started = time.perf_counter()
    for one in measure(
        (name for name in names if name not in done), options.profile, options.seed, options.jobs
    ):
        found.append(one)
        _add(options.results, one)
    cpu = sum(one.seconds for one in found)
    sys.stderr.write(
        f"{sum(bool(one.rule) for one in found)} of {len(found)} found; "
        f"{time.perf_counter() - started:.0f} s wall, {cpu:.0f} s CPU\n"
    )
