"""The skeletons that `tools/new_rule.py` writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fast_run import later

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("pytest_qnn", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("rule", "folder"), [("REG-99", "qnn/rules/reg"), later("PART-99", "tflite/rules/part")]
)
def test_a_skeleton_is_in_order_and_fails_until_it_is_filled_in(copy: Path, rule: str, folder: str) -> None:
    done = command(copy, "-m", "tools.new_rule", rule)
    assert done.returncode == 0, done.stderr
    assert f"pytest_qnn/{folder}/rules.py and pytest_qnn/{folder}/mutants.py" in done.stdout
    listed = json.loads((copy / "pytest_qnn" / "rules.json").read_text())
    assert rule in {row["id"] for row in listed}
    linted = command(copy, "-m", "ruff", "check", "--no-cache", f"pytest_qnn/{folder}")
    assert linted.returncode == 0, linted.stdout
    tried = command(copy, "-m", "pytest_qnn.mutants", "--only", f"/{rule}", "--seeds", "1")
    assert tried.returncode != 0
    assert f"{rule}: " in tried.stderr
    again = command(copy, "-m", "tools.new_rule", rule)
    assert (again.returncode, again.stderr) == (1, f"{rule} is taken already; ids are never used again\n")


@pytest.mark.parametrize(
    ("rule", "sentence"), [("XYZ-01", "there is no area XYZ"), ("reg1", "'reg1' is no rule's id")]
)
def test_what_cannot_be_added_is_one_sentence(copy: Path, rule: str, sentence: str) -> None:
    done = command(copy, "-m", "tools.new_rule", rule)
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
