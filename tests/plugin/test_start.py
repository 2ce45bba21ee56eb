"""What a run costs before its first verdict: one rule imports one area of one half."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fast_run import later

RUN = """
import json, resource, sys, pytest
status = int(pytest.main(sys.argv[1:]))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
seconds = sum(each.ru_utime + each.ru_stime for each in used)
print()
print(json.dumps([status, seconds, sorted(sys.modules)]))
"""
QUIET = ("-q", "-p", "no:cacheprovider")
SUITE = (*QUIET, "--pyargs", "pytest_qnn.conformance")
AREA = re.compile(r"pytest_qnn\.((?:qnn|tflite)\.rules\.\w+)\.(\w+)")
SHARE = 1.5 if sys.dont_write_bytecode else 2.0
"""CPU time of an empty run, times this: what one judged rule may cost beside it.

It may cost 1.5 s more, and an empty run grows with the load of the machine as the other does. Where Python
writes bytecode the empty run is the shortest, 0.35 s; one rule was measured to cost 0.5 to 0.6 s more there.
"""


class Ran(NamedTuple):
    status: int
    seconds: float
    modules: list[str]

    def areas(self, of: str = "rules") -> set[str]:
        """Areas of which a module was imported: the mutants, or any other."""
        found = [match for name in self.modules if (match := AREA.fullmatch(name))]
        return {match[1] for match in found if (match[2] == "mutants") == (of == "mutants")}

    def loaded(self, package: str) -> list[str]:
        return [name for name in self.modules if name == package or name.startswith(f"{package}.")]


def ran(folder: Path, *arguments: str) -> Ran:
    command: list[Any] = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Ran(*json.loads(done.stdout.splitlines()[-1]))


def test_an_empty_run_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    found = ran(tmp_path, *QUIET, "-p", "no:hypothesispytest")
    assert found.status == pytest.ExitCode.NO_TESTS_COLLECTED
    heavy = ("hypothesis", "msgspec", "numpy", "pytest_qnn.qnn", "pytest_qnn.tflite", "pytest_qnn.rules")
    assert [name for package in heavy for name in found.loaded(package)] == []


def test_all_tests_are_collected_without_any_rule(tmp_path: Path) -> None:
    found = ran(tmp_path, *SUITE, "--collect-only", "-p", "no:hypothesispytest")
    assert found.status == pytest.ExitCode.OK
    heavy = ("hypothesis", "numpy", "pytest_qnn.qnn", "pytest_qnn.tflite")
    assert [name for package in heavy for name in found.loaded(package)] == []


@pytest.mark.parametrize(
    ("selection", "area", "other"),
    [
        (("-k", "test_reg_08"), "qnn.rules.reg", "tflite"),
        later(("-k", "test_num_01"), "tflite.rules.num", "qnn"),
        later(("--qnn-rule=reg-08",), "qnn.rules.reg", "tflite"),
        (("--qnn-area=NUM", "--qnn-rule=*-01"), "tflite.rules.num", "qnn"),
    ],
)
def test_one_rule_imports_its_own_area_only(
    tmp_path: Path, selection: tuple[str, ...], area: str, other: str
) -> None:
    found = ran(tmp_path, *SUITE, *selection, "--qnn-profile=quick")
    assert found.status == pytest.ExitCode.OK
    assert found.areas() == {area}
    assert found.areas("mutants") == set()
    assert found.loaded(f"pytest_qnn.{other}") == []


@pytest.mark.parametrize(
    ("name", "mutant", "area", "other"),
    [
        later("reg_08", "--qnn-backend=mutant:reg-keeps-first", "qnn.rules.reg", "tflite"),
        later("part_01", "--tflite-delegate=mutant:claims-positions", "tflite.rules.part", "qnn"),
    ],
)
def test_a_replay_imports_the_area_of_its_rule_only(
    tmp_path: Path, name: str, mutant: str, area: str, other: str
) -> None:
    ran(tmp_path, *SUITE, "-k", f"test_{name}", "--qnn-seed=1", mutant)
    (case,) = tmp_path.rglob("case.json")
    found = ran(tmp_path, *QUIET, "--qnn-replay", str(case.parent))
    assert found.status == pytest.ExitCode.TESTS_FAILED
    assert found.areas() == found.areas("mutants") == {area}
    assert found.loaded(f"pytest_qnn.{other}") == []


@pytest.mark.full
def test_one_verdict_costs_little_more_than_an_empty_run(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    # The least of each: what else the machine does makes a run cost more, never less. In turns, and more
    # often where three are not enough: a machine can be slower for a while.
    nothing = one = math.inf
    for turn in range(9):
        nothing = min(nothing, ran(empty, *QUIET).seconds)
        one = min(one, ran(tmp_path, *SUITE, "-k", "test_reg_08").seconds)
        if turn >= 2 and one - nothing <= SHARE * nothing:
            break
    assert one - nothing <= SHARE * nothing
