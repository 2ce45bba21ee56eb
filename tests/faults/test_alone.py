"""Nothing wrong that was seen ends in exit 0: rules that a fault blocks are selected alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fast_run import turn

from benchmarks import blame
from benchmarks.blame import alone
from benchmarks.blame import rows as blame_rows
from tests.faults import faults

ROOT = Path(__file__).resolve().parents[2]
needs_a_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

WAYS = ("alone", "xdist", "x", "beside")
"""How the rule is selected: also spread over two processes, with ``-x``, and beside a rule that passes."""
_ONE_IN = 4
_RULES = 3
"""Of a fault so many are tried until one sees something: a run has other cases than the matrix."""


def some_faults() -> list[Any]:
    """One in four of those that block a few rules, as a checksum chooses them."""
    rows = blame_rows.known(blame.RESULTS)
    names = sorted(name for name, each in rows.items() if each.blocks >= _RULES)
    chosen = [name for name in names if turn(name, "alone") % _ONE_IN == 0]
    return [pytest.param(name, marks=needs_a_compiler if name in faults.FAULTS else ()) for name in chosen]


def beside(name: str) -> str:
    """A rule that saw nothing in the fault, as a checksum chooses it."""
    fault, row = blame.faults()[name], blame.known()[name]
    told = {*row.blocked, *row.by, *row.owners, *row.accused, *row.advised, *row.missed}
    told |= {text.partition(" ")[0] for text in row.unjudged}
    quiet = [each.id for each in blame.rules_of(fault.subject) if each.id not in told]
    return min(
        (each for each in quiet if not each.startswith(blame.MEASURED)), key=lambda each: turn(name, each)
    )


@pytest.mark.full
@pytest.mark.parametrize("name", some_faults())
def test_no_run_of_a_blocked_rule_ends_with_0(name: str, pytester: pytest.Pytester, tmp_path: Path) -> None:
    blocked = alone.blocked().get(name)
    if not blocked:
        pytest.skip("it blocks no rule any more")
    way = WAYS[turn(name, "way") % len(WAYS)]
    target = alone.options(blame.faults()[name], tmp_path)
    for rule in sorted(blocked, key=lambda each: turn(name, each))[:_RULES]:
        rules = [rule] if way in ("alone", "x") else [rule, beside(name)]
        more = {"xdist": ("-n", "2"), "x": ("-x", "-n", "0")}.get(way, ("-n", "0"))
        selected = [*(f"--qnn-rule={each}" for each in rules), f"--qnn-seed={alone.SEED}"]
        result = pytester.runpytest_subprocess(
            *alone.SUITE, *target, *selected, *more, "--qnn-report=out.json"
        )
        document = json.loads(Path("out.json").read_text(encoding="utf-8"))
        assert result.ret in alone.ENDED
        assert not alone.is_quiet(int(result.ret), document, rules), alone.seen(document, rules)
        if alone.seen(document, rules):
            return
    pytest.fail(f"nothing was seen in {name} by any of its rules")


@pytest.mark.full
def test_the_command_says_how_a_run_ended(tmp_path: Path) -> None:
    """In a process of its own: what it forks from stays until that one ends."""
    kept = tmp_path / "kept.jsonl"
    command = [sys.executable, "-m", "benchmarks.blame.alone", "--only=aborts-in-invoke", "--sample=1"]
    done = subprocess.run(
        [*command, f"--keep={kept}"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit status: 1 in 1\n" in done.stdout
    assert "ended with 0 although something wrong was seen: 0\n" in done.stdout
    found = json.loads(kept.read_text())
    assert (found["fault"], found["status"], found["is_quiet"]) == ("aborts-in-invoke", 1, False)
    assert "RUN-01 MUST crash" in found["wrong"]
    assert found["letters"].endswith("F")


def document(*rules: tuple[str, str, str | None, Sequence[str]]) -> dict[str, Any]:
    names = ("id", "level", "verdict", "blocked_by")
    return {"targets": [{"rules": [dict(zip(names, rule, strict=True)) for rule in rules]}]}


OTHER = ("A-3", "MUST", None, ())


@pytest.mark.parametrize(
    ("rules", "is_quiet"),
    [
        ([("A-1", "MUST", "pass", ()), OTHER], False),
        ([("A-1", "MUST", "unsupported", ()), OTHER], False),
        ([("A-1", "MUST", "pass", ()), ("A-2", "SHOULD", "fail", ())], False),
        ([("A-1", "MUST", "pass", ("A-2",)), ("A-2", "SHOULD", "fail", ())], False),
        ([("A-1", "MUST", "pass", ()), ("A-2", "MUST", "fail", ())], True),
        ([("A-1", "MUST", "pass", ("A-3",)), OTHER], True),
        ([("A-1", "MUST", "inconclusive", ("A-2",)), ("A-2", "SHOULD", "fail", ())], True),
        ([("A-1", "SHOULD", "inconclusive", ())], True),
        ([("A-1", "MUST", None, ())], True),
        ([OTHER], True),
    ],
)
def test_0_is_for_what_is_right_and_for_what_only_a_should_says(
    rules: list[tuple[str, str, str | None, Sequence[str]]], is_quiet: bool
) -> None:
    assert alone.is_quiet(0, document(*rules), ["A-1"]) is is_quiet
    assert not alone.is_quiet(1, document(*rules), ["A-1"])


def test_a_run_without_a_report_that_ends_with_0_is_quiet() -> None:
    assert alone.is_quiet(0, None, ["A-1"])


def test_what_is_seen_is_what_the_report_has_against_the_target() -> None:
    one = document(("A-1", "MUST", "pass", ("A-2",)), ("A-2", "MUST", "crash", ()), OTHER)
    assert alone.seen(one, ["A-1"]) == ["A-1 around A-2", "A-2 MUST crash"]
    assert alone.seen(one, ["A-3", "B-1"])[-2:] == ["A-3 missing", "B-1 missing"]
