"""A library that kills or stops its supervisor at each multiplication costs a rule some seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_qnn.core.rule import Subject
from pytest_qnn.isolation.namespaces import SWITCH
from tests.hostile.matrix.action import OWNERS, Action, build

MOST = 30.0
"""Seconds of a rule. On a quiet machine none takes ten (docs/measured/hostile-costs.md)."""
DEEDS = {
    "kills": "kill(getppid(), SIGKILL); sleep(1);",
    "stops": "for (;;) kill(getppid(), SIGSTOP);",
}
_RULES: dict[Subject, tuple[str, str, str]] = {
    "memory": ("qnn", "--qnn-backend", "EXE-21,REG-01"),
    "delegate": ("tflite", "--tflite-delegate", "RUN-01,DET-01"),
}


def seconds(library: Path, side: Subject) -> dict[str, tuple[str, float]]:
    """Of each rule the verdict, and the seconds that it took."""
    half, option, rules = _RULES[side]
    command = [*(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--qnn-timeout=1")]
    command += ["--pyargs", f"pytest_qnn.conformance.{half}", "--qnn-profile=quick", "--qnn-seed=1"]
    command += [f"--qnn-rule={rules}", f"{option}={library}", "--qnn-report=out.json"]
    # In namespaces of its own the library ends nobody but itself.
    environment = os.environ | {SWITCH: "0"}
    done = subprocess.run(
        command, cwd=library.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    document = json.loads((library.parent / "out.json").read_text())
    judged = [rule for target in document["targets"] for rule in target["rules"] if rule["verdict"]]
    return {rule["id"]: (rule["verdict"], rule["seconds"]) for rule in judged if rule["id"] in rules}


@pytest.mark.full
@pytest.mark.parametrize("side", OWNERS)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_supervisor_that_is_lost_at_each_case_costs_a_rule_little(
    tmp_path: Path, deed: str, side: Subject
) -> None:
    action = Action(deed, "attack", "work", "owner", f"{deed} its supervisor", DEEDS[deed])
    taken = seconds(build(action, side, tmp_path), side)
    assert len(taken) == 2
    assert taken[OWNERS[side]["work"]][0] == "crash"
    assert max(took for _, took in taken.values()) < MOST, taken
