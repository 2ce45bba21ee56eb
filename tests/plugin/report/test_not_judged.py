"""A run in which a rule was not judged has failed, unless the user left the rule out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from reports import judged_by_id

pytestmark = pytest.mark.usefixtures("fakes", "fakes_outside")

NEVER_JUDGES = "def test_reg_02(judge): pass\n"
LEFT_OUT = """
import pytest

def test_reg_01(judge): judge("REG-01")

@pytest.mark.skip
def test_reg_02(judge): judge("REG-02")

@pytest.mark.xfail(run=False)
def test_reg_03(judge): judge("REG-03")

def test_reg_05(judge): pytest.skip("not today")

def test_reg_06(judge): judge("REG-06")

def test_reg_08(): pass

def test_reg_09(judge): judge("REG-09")
"""
SPREAD = pytest.mark.parametrize("spread", [(), ("-n1",)], ids=["here", "worker"])


def run(pytester: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    result = pytester.runpytest_subprocess("-p", "fake_suite", "--qnn-report=out.json", *options)
    return result, json.loads(Path("out.json").read_text())


@SPREAD
def test_a_test_that_passes_without_a_verdict_fails_the_run(
    pytester: pytest.Pytester, spread: tuple[str, ...]
) -> None:
    pytester.makepyfile(NEVER_JUDGES)
    result, report = run(pytester, *spread)
    assert (result.ret, report["not_judged"]) == (pytest.ExitCode.TESTS_FAILED, ["REG-02"])
    result.stdout.fnmatch_lines(["not judged: REG-02"])


def test_an_end_with_status_0_before_all_rules_were_judged_fails_the_run(pytester: pytest.Pytester) -> None:
    stop = 'import pytest\n\ndef test_stop(): pytest.exit("enough", returncode=0)\n'
    pytester.makepyfile("\n".join((fake_suite.suite("REG-01"), stop, fake_suite.suite("REG-06"))))
    result, report = run(pytester)
    assert (result.ret, report["not_judged"]) == (pytest.ExitCode.TESTS_FAILED, ["REG-06"])


@pytest.mark.parametrize("dist", ["load", "loadscope"])
def test_a_worker_that_is_not_replaced_fails_the_run(pytester: pytest.Pytester, dist: str) -> None:
    """Its rule is to be tried again, since the target is in other processes; no worker is left to do it."""
    result, report = run(
        pytester,
        *("-n1", f"--dist={dist}", "--max-worker-restart=0", "-p", "kill_worker", "--kill-always=REG-03"),
        *("-p", "no:fake_suite", "--pyargs", "pytest_qnn.conformance", "-k", "test_reg_03 or test_reg_04"),
        *("--qnn-backend=reference", "--qnn-sandbox=fork", "--qnn-profile=quick", "--qnn-seed=1"),
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert report["not_judged"] == ["REG-03", "REG-04"]
    result.stdout.fnmatch_lines(["not judged: REG-03, REG-04"])


@SPREAD
def test_what_the_user_leaves_out_counts_as_not_selected(
    pytester: pytest.Pytester, spread: tuple[str, ...]
) -> None:
    pytester.makepyfile(LEFT_OUT)
    name = "test_what_the_user_leaves_out_counts_as_not_selected"
    result, report = run(pytester, f"--deselect={name}.py::test_reg_09", *spread)
    assert (result.ret, report["not_judged"]) == (pytest.ExitCode.OK, [])
    assert judged_by_id(report).keys() == {"REG-01", "REG-06"}
    states = {rule["id"]: rule["state"] for each in report["targets"] for rule in each["rules"]}
    assert {states[f"REG-0{number}"] for number in (2, 3, 5, 8, 9)} == {"not_selected"}
    assert report["complete"] is False


@pytest.mark.parametrize("option", ["--setup-only", "--setup-plan", "--collect-only"])
def test_a_run_that_is_not_to_judge_does_not_fail(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    assert pytester.runpytest_inprocess(option).ret == pytest.ExitCode.OK


def test_a_replay_does_not_fail_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    run(pytester)
    (folder,) = Path(".pytest-qnn").glob("*/REG-02")
    source = (folder / "case.json").read_text().replace('"REG-02"', '"REG-01"')
    Path("passes.json").write_text(source)
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    result = pytester.runpytest_inprocess("--qnn-replay=passes.json")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["REG-01 on reference: FIXED*"])
    result.stdout.no_fnmatch_line("not judged*")
