"""Of a test that is interrupted, the seed blocks that are over are in the report and on the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from fast_run import later
from reports import judged_by_id

from pytest_qnn.core import engine
from pytest_qnn.session import findings, judging

BLOCKS = ("--qnn-blocks=3", "--qnn-seed=3", "--qnn-report=out.json")
WAITS_IN_THE_THIRD = """
import time
from pathlib import Path
from pytest_qnn.core import engine

judged = []
usual = engine.judge_with_owners

def judge(rule, *rest):
    if rule.id == "REG-02" and judged.count("REG-02") == 2:
        Path("begun").touch()
        time.sleep(60)
    judged.append(rule.id)
    return usual(rule, *rest)

engine.judge_with_owners = judge
"""


def check(output: str) -> None:
    report = json.loads(Path("out.json").read_text())
    assert (report["complete"], report["not_judged"]) == (False, ["REG-02", "REG-06"])
    assert {name: rule["verdict"] for name, rule in judged_by_id(report).items()} == {
        "REG-01": "pass",
        "REG-02": "fail",
    }
    assert "REG-02 MUST fail: Sentence of REG-02. | seen: code 1000" in output
    assert "not judged: REG-02, REG-06" in output


@pytest.mark.usefixtures("fakes")
def test_the_blocks_before_the_interrupted_one_are_kept(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, judged = engine.judge_with_owners, []

    def judge(rule: Any, *rest: Any) -> engine.Judged:
        judged.append(rule.id)
        if judged.count("REG-02") == 3:
            raise KeyboardInterrupt
        return usual(rule, *rest)

    monkeypatch.setattr(engine, "judge_with_owners", judge)
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-02", "REG-06"))
    result = pytester.runpytest_inprocess(*BLOCKS, no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    check(result.stdout.str())
    rule = judged_by_id(json.loads(Path("out.json").read_text()))["REG-02"]
    assert rule["examples"] > 0
    assert len([*Path(".pytest-qnn").glob("*/REG-02*/case.json")]) == 2


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("ends", ["fail", "exit"])
def test_what_ends_a_test_in_a_later_block_loses_no_finding(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    usual = judging.judge

    def judge(session: Any, item: Any, rule_id: str, block: int = 0) -> Any:
        if block == 1:
            getattr(pytest, ends)("a time limit")
        return usual(session, item, rule_id, block)

    monkeypatch.setattr(judging, "judge", judge)
    pytester.makepyfile('def test_reg_02(judge): judge("REG-02")')
    result = pytester.runpytest_inprocess(*BLOCKS)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if ends == "fail" else pytest.ExitCode.INTERRUPTED)
    report = json.loads(Path("out.json").read_text())
    assert report["not_judged"] == ["REG-02"]
    assert judged_by_id(report)["REG-02"]["verdict"] == "fail"
    assert "internal error" not in result.stdout.str()


@pytest.mark.usefixtures("fakes")
def test_a_finding_whose_folder_is_being_made_is_not_lost(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(findings, "keep", interrupted)
    pytester.makepyfile(test_rules=fake_suite.suite("REG-02"))
    result = pytester.runpytest_inprocess("--qnn-report=out.json", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert judged_by_id(json.loads(Path("out.json").read_text()))["REG-02"]["verdict"] == "fail"


def interrupt_all(process: subprocess.Popen[str]) -> None:
    """As a terminal does at Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def interrupt_worker(process: subprocess.Popen[str]) -> None:
    """The main process learns of it from its worker only."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGINT)


@pytest.mark.usefixtures("fakes_outside")
@pytest.mark.parametrize("interrupt", [interrupt_all, later(interrupt_worker)])
def test_a_worker_sends_them_when_it_is_interrupted(
    pytester: pytest.Pytester, interrupt: Callable[[subprocess.Popen[str]], None]
) -> None:
    pytester.makeconftest(WAITS_IN_THE_THIRD)
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-02", "REG-06"))
    # A shell's background job ignores SIGINT and hands that on.
    begin = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    options = ("-p", "no:cacheprovider", "-p", "fake_suite", "-n1", *BLOCKS)
    command = [sys.executable, "-c", begin, sys.executable, "-m", "pytest", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        until = time.monotonic() + 60
        while not Path("begun").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        interrupt(process)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    check(output)
