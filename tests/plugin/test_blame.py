"""Through the command line: a fault that any case meets is one finding, and none of it ends in exit 0."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from fast_run import later

SUITE = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-seed=1", "--qnn-sandbox=fork")
REPORT = "--qnn-report=out.json"


def judged(pytester: pytest.Pytester, mutant: str, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    usual = pytester.runpytest_subprocess if "-n" in options else pytester.runpytest_inprocess
    result = usual(*SUITE, REPORT, f"--tflite-delegate=mutant:{mutant}", *options)
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    (target,) = (target for target in document["targets"] if target["subject"] == "delegate")
    return result, {rule["id"]: rule for rule in target["rules"]}


@pytest.mark.parametrize(
    "workers", [pytest.param((), id="alone"), later(("-n", "2"), name="xdist"), later(("-x",), name="x")]
)
def test_a_rule_is_judged_around_a_crash_that_is_not_its_own(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    file = "--junitxml=out.xml"
    result, rules = judged(pytester, "aborts-at-rank-3", "-k", "test_life_10", file, *workers)
    result.assert_outcomes(passed=1, failed=1)  # what was seen is red; its rule was not selected
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (rules["LIFE-10"]["verdict"], rules["LIFE-10"]["blocked_by"]) == ("pass", ["RUN-01"])
    assert (rules["RUN-01"]["verdict"], rules["RUN-01"]["found_by"]) == ("crash", "LIFE-10")
    (failed,) = (test for test in ET.parse("out.xml").iter("testcase") if test.find("failure") is not None)
    assert failed.get("name") == "test_run_01"
    result.stdout.fnmatch_lines(
        [
            "=* FAILURES =*",
            "_* RUN-01, found by LIFE-10 _*",
            "RUN-01 crash: *",
            "  seen      the process died of SIGABRT*",
            "  where     in invoke of kernel 0, node 0 (MUL)*",
            "  native backtrace",
            "    #* (abort+0x*",
            "  calls, by step",
            "  minimal case",
            "  found by  LIFE-10, in a control of its cases",
            "  replay    *pytest --qnn-replay=*",
            "=* qnn =*",
            "RUN-01 MUST crash (found by LIFE-10): *",
            "  1 cause, RUN-01: it was seen in cases of 1 other rule",
        ]
    )
    case = rules["RUN-01"]["case"]
    assert [node["op"] for node in case["graph"]["nodes"]] == ["MUL"]
    assert rules["RUN-01"]["replay"]
    assert rules["RUN-01"]["violation"]["evidence"]["during"] == "invoke of kernel 0, node 0 (MUL)"
    assert "did not return" in next(Path(".pytest-qnn").glob("*/RUN-01-by-LIFE-10/crash.txt")).read_text()


def test_a_rule_of_which_nothing_is_left_is_blocked_and_the_run_red(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "aborts-in-invoke", "-k", "test_det_01", "--junitxml=out.xml", "-rs")
    result.assert_outcomes(skipped=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (rules["DET-01"]["verdict"], rules["DET-01"]["reason"]) == ("inconclusive", "blocked by RUN-01")
    assert rules["RUN-01"]["verdict"] == "crash"
    result.stdout.fnmatch_lines(["SKIPPED*DET-01 blocked by RUN-01"])
    assert '<property name="blocked_by" value="RUN-01" />' in Path("out.xml").read_text(encoding="utf-8")


@pytest.mark.full
def test_who_wants_no_failures_shown_is_shown_none_of_other_rules(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "aborts-in-invoke", "-k", "test_det_01", "--tb=no")
    assert rules["RUN-01"]["found_by"] == "DET-01"
    result.stdout.no_fnmatch_line("*found by  DET-01*")
    result.stdout.fnmatch_lines(["RUN-01 MUST crash (found by DET-01): *"])


@pytest.mark.full
def test_the_owner_and_who_met_its_fault_are_one_finding(pytester: pytest.Pytester) -> None:
    result, rules = judged(pytester, "aborts-at-rank-3", "-k", "test_life_09 or test_run_01 or test_abi_07")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    red = [name for name, rule in rules.items() if rule["verdict"] not in ("pass", "unsupported", None)]
    assert red == ["RUN-01"]
    if not rules["RUN-01"]["found_by"]:  # its test failed, and shows it
        result.stdout.no_fnmatch_line("*_ RUN-01, found by *")
