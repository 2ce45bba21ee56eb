"""Each rule that a fault blocks, selected alone: nothing wrong that was seen ends in exit 0.

``python -m benchmarks.blame.alone [--jobs N] [--sample K] [--minutes M]``. A pair is a fault and a rule of
which the matrix says that nothing was left to judge. Each is a run of its own, ``pytest --qnn-rule=ID`` in
profile ``quick``: none in which something wrong was seen may end with 0. The pairs are tried in an order that
a fixed seed shuffles, so that any beginning of it is a sample. ``--keep FILE`` appends a line for each.

Runs have other cases than the matrix, twelve causes for each rule where it has six, and the rules as they are
now: a rule may pass in its run around what blocked it there, or meet nothing wrong ("nothing seen").
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from benchmarks import blame
from benchmarks.blame import WILD, Fault
from benchmarks.timing import cpu_seconds
from pytest_qnn.qnn.mutants import table as qnn_mutants
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.mutants import table as delegate_mutants
from tests.faults import faults as in_c

SUITE = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-profile=quick")
SEED = 1
PASSING = ("pass", "unsupported", None)
"""Verdicts that say nothing against the target; none: the rule was not judged."""
ENDED = (0, 1)
"""What a run may end with; anything else is told by itself."""
_LETTERS = {"passed": ".", "failed": "F", "skipped": "s", "xfailed": "x", "error": "E"}
_LIMIT = 300.0
"""Seconds of wall time after which a run is ended."""


class Pair(NamedTuple):
    """What is tried."""

    fault: str
    rule: str


class Tried(msgspec.Struct, frozen=True):
    """How the run of one pair ended."""

    fault: str
    rule: str
    status: int
    """Of pytest; negative: the signal that ended it."""
    letters: str
    """Of the reports, in their order; what other rules own comes last."""
    verdict: str
    """On the rule; empty: there is no report."""
    wrong: list[str]
    """What was seen, as `seen` has it."""
    is_quiet: bool
    """Status 0 although something wrong was seen, and not by a SHOULD alone."""
    seconds: float
    """CPU time, children included."""


def blocked(rows: Mapping[str, blame.Row] | None = None) -> dict[str, list[str]]:
    """By fault, the rules that it blocks; ``rows``: of the matrix, if they are read already."""
    both, rules = blame.faults(), catalogue()
    return {
        name: [rule for rule in row.blocked if rule in rules]
        for name, row in (blame.known() if rows is None else rows).items()
        if name in both and row.blocked
    }


def pairs(seed: int = SEED) -> list[Pair]:
    """All of them, shuffled."""
    found = sorted(Pair(name, rule) for name, rules in blocked().items() for rule in rules)
    random.Random(seed).shuffle(found)
    return found


def options(fault: Fault, folder: Path) -> list[str]:
    """Those that make the fault a run's target; its library is built into the folder, unless it is there.

    Args:
        fault: the target.
        folder: for libraries.
    """
    option = "--tflite-delegate" if fault.subject == "delegate" else "--qnn-backend"
    if not fault.is_mutant:
        library = folder / f"lib{fault.name}.so"
        if not library.exists():
            in_c.built(fault.name, folder)
        timeout = in_c.FAULTS[fault.name].timeout
        return [f"{option}={library}", "--qnn-sandbox=fork", f"--qnn-timeout={timeout:g}"]
    mutant = (qnn_mutants() | delegate_mutants())[fault.name]
    given = [f"{option}=mutant:{fault.name}"]
    if fault.name in WILD:
        return [*given, "--qnn-sandbox=fork", "--qnn-timeout=1"]
    if mutant.deadly:
        return [*given, "--qnn-sandbox=fork", f"--qnn-timeout={mutant.timeout:g}"]
    return given


def seen(document: Mapping[str, Any], judged: Sequence[str]) -> list[str]:
    """What a JSON report has against the target: rules with their levels and verdicts, and what blocked them.

    Args:
        document: the report.
        judged: ids of the rules that were selected; one without a verdict is told, too.
    """
    found = []
    for target in document["targets"]:
        for rule in target["rules"]:
            if rule["verdict"] not in PASSING:
                found.append(f"{rule['id']} {rule['level']} {rule['verdict']}")
            elif rule["verdict"] is not None and rule["blocked_by"]:
                found.append(f"{rule['id']} around {' '.join(rule['blocked_by'])}")
    ids = {rule["id"] for target in document["targets"] for rule in target["rules"] if rule["verdict"]}
    missing = {*judged} - ids
    return [*found, *(f"{rule} missing" for rule in sorted(missing))]


def is_quiet(status: int, document: Mapping[str, Any] | None, judged: Sequence[str]) -> bool:
    """Whether a run ended with 0 although something wrong was seen.

    What only a SHOULD or a MAY has against the target fails no run, if the judged rules passed.

    Args:
        status: of pytest.
        document: the JSON report; none: there is none.
        judged: ids of the rules that were selected.
    """
    if status != 0:
        return False
    if document is None:
        return True
    rows = {rule["id"]: rule for target in document["targets"] for rule in target["rules"]}
    levels = {rule["level"] for rule in rows.values() if rule["verdict"] not in PASSING}
    owners = {rows[owner]["level"] for rule in rows.values() for owner in rule.get("blocked_by") or ()}
    passed = all(rule in rows and rows[rule]["verdict"] in PASSING[:2] for rule in judged)
    return "MUST" in levels | owners or not passed


class _Letters:
    """A plugin that keeps a letter for each report, also for those to which the terminal gives none."""

    def __init__(self) -> None:
        self.letters = ""
        self.config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        assert self.config
        category = self.config.hook.pytest_report_teststatus(report=report, config=self.config)[0]
        self.letters += _LETTERS.get(category, category)


def _run(arguments: Sequence[str], folder: Path) -> None:
    """In a child: pytest, with what it writes in the folder; the exit status is the child's."""
    os.chdir(folder)
    with Path("out.txt").open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    letters = _Letters()
    status = 70
    try:
        status = int(pytest.main([*arguments], plugins=[letters]))
    finally:
        Path("letters").write_text(letters.letters)
        sys.stdout.flush()
        os._exit(status)


def tried(pair: Pair, libraries: str) -> Tried:
    """Carry one pair out, in a child of this process."""
    fault = blame.faults()[pair.fault]
    folder = Path(tempfile.mkdtemp(prefix="alone-"))
    given = [*options(fault, Path(libraries)), f"--qnn-rule={pair.rule}", f"--qnn-seed={SEED}"]
    before = cpu_seconds()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _run([*SUITE, "-n", "0", "--qnn-report=out.json", "-rs", *given], folder)
    status = _ended(child)
    report = folder / "out.json"
    document = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    letters = folder / "letters"
    rules = {
        rule["id"]: rule for target in (document or {"targets": ()})["targets"] for rule in target["rules"]
    }
    found = Tried(
        *pair,
        status,
        letters.read_text() if letters.exists() else "",
        str(rules.get(pair.rule, {}).get("verdict") or ""),
        seen(document, [pair.rule]) if document else [],
        is_quiet(status, document, [pair.rule]),
        round(cpu_seconds() - before, 2),
    )
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _ended(child: int) -> int:
    """The status of a child that is waited for; one that takes too long is ended with its group."""
    end = time.monotonic() + _LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def trials(wanted: Sequence[Pair], jobs: int, minutes: float, folder: Path) -> Iterator[Tried]:
    """How the runs of these pairs end, as they do, until so much processor time was spent."""
    both = blame.faults()
    for name in {pair.fault for pair in wanted}:
        options(both[name], folder)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.blame.preloaded"])
    left, spent = list(wanted), 0.0
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        while left and spent < 60 * minutes:
            some, left = left[: 8 * jobs], left[8 * jobs :]
            for done in as_completed([pool.submit(tried, pair, str(folder)) for pair in some]):
                spent += done.result().seconds
                yield done.result()


def main() -> int:
    """Try pairs, print the count and whatever ended with 0; 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blame.alone", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--sample", type=int, metavar="K", help="only the first K pairs (default: all)")
    parser.add_argument("--minutes", type=float, default=15.0, help="CPU time after which none is begun")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="repeatable")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="append a JSON line for each")
    asked = parser.parse_args()
    every = [pair for pair in pairs() if not asked.only or pair.fault in asked.only]
    done: list[Tried] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in trials(every[: asked.sample], asked.jobs, asked.minutes, Path(folder)):
            done.append(one)
            if asked.keep:
                with asked.keep.open("ab") as file:
                    file.write(msgspec.json.encode(one) + b"\n")
            if one.is_quiet or one.status not in ENDED:
                print(
                    f"{one.fault} {one.rule}: ended with {one.status} {one.letters!r}: {', '.join(one.wrong)}"
                )
    print(summary(done, len(every)))
    return any(one.is_quiet or one.status not in ENDED for one in done)


def summary(done: Sequence[Tried], of: int) -> str:
    """The figures in a few lines."""
    ends = Counter(one.status for one in done)
    nothing = [one for one in done if not one.wrong]
    advice = [one for one in done if one.wrong and one.status == 0 and not one.is_quiet]
    verdicts = Counter(one.verdict or "no report" for one in done)
    return (
        f"{len(done)} of {of} pairs of {len({one.fault for one in done})} faults, "
        f"{sum(one.seconds for one in done):.0f} s CPU\n"
        f"exit status: {', '.join(f'{status} in {count}' for status, count in sorted(ends.items()))}\n"
        f"verdicts on the rules: {', '.join(f'{count} {name}' for name, count in verdicts.most_common())}\n"
        f"ended with 0 although something wrong was seen: {sum(one.is_quiet for one in done)}\n"
        f"ended with 0, findings of a SHOULD alone: {len(advice)}; nothing seen: {len(nothing)}"
        f"{''.join(f'{chr(10)}  nothing seen: {one.fault} {one.rule}' for one in nothing)}"
    )


if __name__ == "__main__":
    sys.exit(main())
