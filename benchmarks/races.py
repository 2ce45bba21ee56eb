"""How soon QTHR-06 finds mistakes of threading, and that it finds none in libraries that have none.

python -m benchmarks.races [--only NAME]... [--seconds 60] [--seed 1] [--conforming MINUTES]
                           [--update docs/measured/races.md]

Each mutant (`pytest_qnn/qnn/races.py`) and each fault in C (tests/faults/races.py) is judged, search after
search with seed after seed, until one finds it or the seconds are over. Conforming targets are judged for so
many minutes together.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import machine
from benchmarks.timing import cpu_seconds
from pytest_qnn.core import engine
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.target import Target
from pytest_qnn.qnn.mutants import races
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from tests.faults import faults
from tests.faults import races as in_c

RULE: Final = "QTHR-06"
SECONDS: Final = 60.0
CASES: Final = 100
"""Of one search."""
_PROFILE: Final = Profile("races", CASES, CASES, plan={RULE: CASES})
_TIMEOUT: Final = 3.0
_REFERENCE: Final = "reference"
_EXAMPLE: Final = "the example"
CONFORMING: Final = (_REFERENCE, _EXAMPLE, *in_c.CONFORMING)


class Row(NamedTuple):
    """What searches with one target gave."""

    name: str
    what: str
    seconds: float
    """Of the clock, up to the first finding or to the end."""
    cpu: float
    """Seconds of processor time, children included."""
    searches: int
    cases: int
    found: str
    """What was seen first; empty: nothing."""


def names() -> list[str]:
    """All with a mistake."""
    return [*races(), *in_c.RACES]


@contextlib.contextmanager
def opened(name: str) -> Iterator[Target[Any, Any]]:
    """The target with the mistake, or one that conforms; its cases run in children."""
    with tempfile.TemporaryDirectory() as folder:
        if name == _REFERENCE or name in races():
            backend = name if name == _REFERENCE else f"mutant:{name}"
        elif name == _EXAMPLE:
            backend = str(faults.build(Path(folder), "memory", "example", faults.conforming("memory")))
        else:
            backend = str(in_c.built(name, Path(folder)))
        target = open_memory_target(backend, "emulated", "fork", _TIMEOUT)
        try:
            yield target
        finally:
            target.close()


def what(name: str) -> str:
    """The sentence of a mistake, or of a target that conforms."""
    if name in races():
        return races()[name].fault
    fault = in_c.RACES.get(name) or in_c.CONFORMING.get(name)
    return fault.what if fault is not None else "No fault."


def searched(name: str, seconds: float, seed: int) -> Row:
    """Judge the target by the rule, with other cases each time, until it fails or the time is over."""
    cases = done = 0
    found = ""
    with opened(name) as target:
        started, cpu = time.monotonic(), cpu_seconds()
        while not found and time.monotonic() - started < seconds:
            rule = catalogue()[RULE]
            failure = engine.first_failure(rule, target, _PROFILE, seed + done, catalogue().__getitem__)
            done += 1
            cases += CASES if failure is None else failure.examples
            found = failure.violation.seen if failure is not None else ""
        passed = time.monotonic() - started
    return Row(name, what(name), passed, cpu_seconds() - cpu, done, cases, found)


def document(rows: Iterable[Row], quiet: Iterable[Row], facts: dict[str, str], command: str) -> str:
    """The whole page."""
    rows, quiet = list(rows), list(quiet)
    late = [row.name for row in rows if not row.found]
    lines = [
        "# Races",
        "",
        "How soon QTHR-06 finds a mistake of threading, and how long it was tried on libraries without one.",
        f"A search has {CASES} cases; the next one has others. What is found depends on how threads meet:",
        "another run has other figures. No mutant has a delay in its window.",
        "",
        f"    {command}",
        "",
        *(f"* {name}: {facts[name]}" for name in ("date", "processor", "cores", "load", "yardstick")),
        "",
        f"## {len(rows) - len(late)} of {len(rows)} found",
        "",
        "| mutant | mistake | seconds | processor time | searches | cases | seen first |",
        "|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
        "",
        f"## {sum(row.seconds for row in quiet) / 60:.0f} minutes on targets without a mistake",
        "",
        "| target | what it is | seconds | processor time | searches | cases | seen |",
        "|---|---|---|---|---|---|---|",
        *(_line(row) for row in quiet),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    seen = row.found.replace("|", "\\|").partition(" (in ")[0] or "-"
    return (
        f"| `{row.name}` | {row.what} | {row.seconds:.1f} | {row.cpu:.1f} s | {row.searches} | {row.cases} "
        f"| {seen} |"
    )


def main() -> None:
    """Judge, print a line for each, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each mistake")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conforming", type=float, default=0.0, metavar="MINUTES", help="for all together")
    parser.add_argument("--update", type=Path, metavar="FILE")
    options = parser.parse_args()
    facts = machine.facts()
    rows = list(_told(options.only or names(), lambda name: searched(name, options.seconds, options.seed)))
    share = options.conforming * 60 / len(CONFORMING)
    conforming = CONFORMING if share else ()
    quiet = list(_told(conforming, lambda name: searched(name, share, options.seed)))
    if options.update:
        command = f"python -m benchmarks.races --conforming {options.conforming:g} --update {options.update}"
        options.update.write_text(document(rows, quiet, facts, command), encoding="utf-8")


def _told(chosen: Iterable[str], judge: Callable[[str], Row]) -> Iterator[Row]:
    for row in map(judge, chosen):
        print(
            f"{row.name:28}{row.seconds:7.1f} s{row.cpu:7.1f} s CPU{row.cases:6} cases  {row.found or '-'}"[
                :160
            ],
            flush=True,
        )
        yield row


if __name__ == "__main__":
    main()
