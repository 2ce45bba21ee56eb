"""A library that cannot be loaded any more is one finding; what comes after it is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from native import qnn_library
from reports import judged_rules

RULES = ("CTX-01", "CTX-02", "IF-01", "REG-01")


def run(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and report of a run in which every context created removes the library."""
    library = qnn_library(folder, f'unlink("{folder}/libqnn0.so")')
    names = " or ".join(f"test_{rule.lower().replace('-', '_')}" for rule in RULES)
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "pytest_qnn.conformance"),
        *("-k", names, f"--qnn-backend={library}", "--qnn-profile=quick", "--qnn-seed=1"),
        *("--qnn-report=out.json", *options),
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    return ended.returncode, ended.stdout, json.loads((folder / "out.json").read_text())


def test_one_finding_and_the_rest_is_not_judged(tmp_path: Path) -> None:
    status, output, report = run(tmp_path, "--qnn-sandbox=spawn")
    assert status == pytest.ExitCode.TESTS_FAILED
    found = {rule["id"]: rule for rule in judged_rules(report)}
    (lost,) = (rule for rule in found.values() if rule["verdict"] == "crash")
    assert "the target cannot be loaded any more after Qnn" in lost["violation"]["seen"]
    assert set(report["not_judged"]) == set(RULES) - set(found)
    assert len(report["not_judged"]) >= 2
    for rule in report["not_judged"]:
        assert f"{rule} not judged: the target cannot be loaded any more" in output
    assert "internal error" not in output
    assert "suite itself failed" not in output
    # What the file was when it was opened; it is there no more.
    (case,) = tmp_path.glob(".pytest-qnn/*/*/case.json")
    assert json.loads(case.read_text())["provenance"] == report["targets"][0]["provenance"]
    assert lost["replay"].split()[1] == f"--qnn-replay={case.parent}"


@pytest.mark.full
def test_a_worker_that_cannot_open_the_target_says_so(tmp_path: Path) -> None:
    # The main process learns what the target is, which removes it, before the workers open it.
    status, output, report = run(tmp_path, "-n1", "--qnn-sandbox=fork")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert set(report["not_judged"]) == set(RULES)
    assert "does not exist" in output
    assert "internal error" not in output
