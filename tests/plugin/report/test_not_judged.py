"""A run in which a rule was not judged has failed, unless the user left the rule out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from fast_run import later
from reports import judged_by_id, refusal

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
SPREAD = pytest.mark.parametrize("spread", [(), later(("-n1",))], ids=["here", "worker"])
IN_BOTH = pytest.mark.parametrize("spread", [(), ("-n1",)], ids=["here", "worker"])


def run(pytester: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    """In this process, unless there is a worker."""
    if "-n1" in options:
        return run_apart(pytester, *options)
    result = pytester.runpytest_inprocess("--qnn-report=out.json", *options)
    return result, json.loads(Path("out.json").read_text())


def run_apart(pytester: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    """In a process of its own: what it changes stays in it."""
    result = pytester.runpytest_subprocess("-p", "fake_suite", "--qnn-report=out.json", *options)
    return result, json.loads(Path("out.json").read_text())


def found(pytester: pytest.Pytester) -> Path:
    """The folder of the only finding of a run in this process."""
    pytester.runpytest_inprocess()
    (folder,) = Path(".pytest-qnn").glob("*/REG-02")
    return folder


@IN_BOTH
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


@pytest.mark.full
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


def test_an_end_with_status_0_hides_no_failure(pytester: pytest.Pytester) -> None:
    stop = 'import pytest\n\ndef test_stop(): pytest.exit("enough", returncode=0)\n'
    pytester.makepyfile("\n".join((fake_suite.suite("REG-02"), stop)))
    assert run(pytester)[0].ret == pytest.ExitCode.TESTS_FAILED


ENDED = """
import pytest

@pytest.mark.xfail(reason="fails on our board")
def test_reg_02(judge): pytest.fail("a time limit", pytrace=False)
"""


@SPREAD
def test_a_test_that_is_expected_to_fail_and_judges_nothing_fails_the_run(
    pytester: pytest.Pytester, spread: tuple[str, ...]
) -> None:
    pytester.makepyfile(ENDED)
    result, report = run(pytester, *spread)
    assert (result.ret, report["not_judged"]) == (pytest.ExitCode.TESTS_FAILED, ["REG-02"])


@pytest.mark.full
def test_the_end_of_a_worker_in_another_test_is_no_finding(pytester: pytest.Pytester) -> None:
    """It is only called like a rule's."""
    own = "import os\n\ndef test_reg_01(): os._exit(3)\n\n"
    pytester.makepyfile(own + fake_suite.suite("REG-06"))
    result, report = run(pytester, "-n1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert judged_by_id(report).keys() == {"REG-06"}


DROPS_REPORTS = """
from _pytest import runner
import pytest
from pytest_qnn.session import judging

turn, usual = [], judging.judge

def judge(session, item, rule_id, block=0):
    turn.append(rule_id)
    return usual(session, item, "REG-02" if len(turn) == 1 else "REG-01", block)

judging.judge = judge

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    reports = runner.runtestprotocol(item, log=False, nextitem=nextitem)
    if any(each.failed for each in reports):  # nobody sees them
        item._initrequest()
        reports = runner.runtestprotocol(item, log=False, nextitem=nextitem)
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    return True
"""


@SPREAD
def test_a_finding_in_a_report_that_a_plugin_drops_fails_the_run(
    pytester: pytest.Pytester, spread: tuple[str, ...]
) -> None:
    pytester.makeconftest(DROPS_REPORTS)
    pytester.makepyfile('def test_one(judge): judge("REG-01")')
    result, report = run_apart(pytester, *spread)
    found = {name: rule["verdict"] for name, rule in judged_by_id(report).items()}
    assert found == {"REG-01": "pass", "REG-02": "fail"}
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_test_that_runs_again_leaves_the_folder_of_what_it_found_first(pytester: pytest.Pytester) -> None:
    twice = 'def test_reg_02(judge): judge("REG-02")\n'
    again = """
import dataclasses
import fake_suite

def test_once_more():
    fake_suite.CATALOGUE["REG-02"] = dataclasses.replace(fake_suite.CATALOGUE["REG-03"], id="REG-02")
"""
    pytester.makepyfile(test_a=twice, test_b=again, test_c=twice)
    _, report = run_apart(pytester)
    assert judged_by_id(report)["REG-02"]["verdict"] == "crash"
    saved = {
        path.parent.name: json.loads(path.read_text()) for path in Path(".pytest-qnn").glob("*/*/case.json")
    }
    assert {name: case["verdict"] for name, case in saved.items()} == {"REG-02": "fail", "REG-02-2": "crash"}


SKIPS = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason="slow"))
"""


@pytest.mark.parametrize("judges", [True, False])
def test_a_replay_that_judges_nothing_fails(pytester: pytest.Pytester, judges: bool) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    folder = found(pytester)
    if judges:
        pytester.makeconftest(SKIPS)
    else:
        pytester.makepyfile(test_rules=NEVER_JUDGES)
    result = pytester.runpytest_inprocess(f"--qnn-replay={folder}", "test_rules.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["--qnn-replay: no test has judged the case"])


@pytest.mark.parametrize(
    "option",
    [
        '-m "not qnn_memory"',
        later("-k nothing"),
        later("--deselect=test_rules.py"),
        "--deselect test_rules.py",
    ],
)
def test_a_replay_needs_no_options_that_select_tests(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    folder = found(pytester)
    pytester.makeini(f"[pytest]\naddopts = {option}")
    result = pytester.runpytest_inprocess(f"--qnn-replay={folder}", "test_rules.py")
    result.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS*"])


@pytest.mark.parametrize("where", ["ini", "environment"])
def test_a_replay_needs_no_folder_that_addopts_name(
    pytester: pytest.Pytester, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    folder = found(pytester)
    pytester.makepyfile(test_others="def test_other(): pass")
    if where == "ini":
        pytester.makeini("[pytest]\naddopts = -rA test_others.py")
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", "test_others.py")
    result = pytester.runpytest_inprocess(f"--qnn-replay={folder}")
    result.stdout.fnmatch_lines(["REG-02 on reference: *"])
    result.stdout.no_fnmatch_line("*no test has judged*")


def test_forks_of_tests_are_refused(pytester: pytest.Pytester) -> None:
    """They would share the processes of a target, and its answers."""
    pytester.makeconftest('def pytest_addoption(parser): parser.addoption("--forked", action="store_true")')
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    assert refusal(pytester.runpytest_subprocess("--forked")).startswith("--forked: ")


def test_a_replay_does_not_fail_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    folder = found(pytester)
    source = (folder / "case.json").read_text().replace('"REG-02"', '"REG-01"')
    Path("passes.json").write_text(source)
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    result = pytester.runpytest_inprocess("--qnn-replay=passes.json")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["REG-01 on reference: FIXED*"])
    result.stdout.no_fnmatch_line("not judged*")
