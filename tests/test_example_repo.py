"""The example repository, as its author would work with it: built, judged, and broken on purpose."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_qnn.rules import catalogue

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
DELEGATE_RULES = {rule.id for rule in catalogue().values() if rule.subject == "delegate"}
SOURCE = "src/arithmetic_delegate.c"

FAULTS = {
    "claims-by-position": ("= plan->data[i];", "= i;", {"PART-01": "fail"}),
    "writes-last-output-only": (
        "if (is_output(params, step->output)) return true;",
        "if (index == params->nodes_to_replace->data[params->nodes_to_replace->size - 1]) return true;",
        {"PART-11": "fail"},
    ),
    "modifies-its-input": (
        "store(out, i, value, step->activation);",
        "store(out, i, value, step->activation), *(char*)in[0].data ^= 1;",
        {"MEM-02": "fail"},
    ),
    "subtracts-the-wrong-way": ("? a - b :", "? b - a :", {"NUM-01": "fail"}),
    "truncates": ("(units < 0.0f ? -0.5f : 0.5f)", "0.0f", {"NUM-03": "fail"}),
    "frees-twice": ("  free(kernel->steps);\n", "  free(kernel->steps), free(kernel->steps);\n", {"LIFE-01": "crash"}),
}
"""Name -> (what stands in the source, what replaces it, the verdicts that it must get)."""


@pytest.fixture
def repository(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A copy of the example, not built."""
    example = pytestconfig.rootpath / "examples" / "delegate_repo"
    return Path(shutil.copytree(example, tmp_path / "repo", ignore=shutil.ignore_patterns("build", ".*")))


def build(repository: Path, flags: str = "-O2 -Wall -Wextra -Wpedantic -Werror") -> None:
    subprocess.run(["make", f"CFLAGS={flags}"], cwd=repository, check=True, capture_output=True, timeout=60)


def judged(repository: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the verdicts by rule of the delegate half of the suite and the example's tests."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_qnn.conformance", "tests"]
    options = ("-m", "not qnn_memory", "--qnn-seed=1", "--qnn-report=verdicts.json", *options)
    done = subprocess.run(
        [*command, *options], cwd=repository, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    (target,) = json.loads((repository / "verdicts.json").read_text())["targets"]
    return done.returncode, {verdict["rule"]: verdict for verdict in target["verdicts"]}
