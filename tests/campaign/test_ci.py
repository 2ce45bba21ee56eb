"""Recipes of docs/how-to/ci.md: their YAML names all shards, and their scripts leave what the page says."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from reports import judged_by_id

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ci.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
(MATRIX,) = (text for kind, text in BLOCKS if kind == "toml")
(SHELL,) = (text for kind, text in BLOCKS if kind == "sh")
GITHUB, GITLAB = (yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml")
TARGETS = ("reference", "xnnpack")
SHARDS = (1, 2)


def github(job: str, **values: object) -> str:
    """The scripts of a job, with what GitHub puts into them."""
    text = "\n".join(step["run"] for step in GITHUB["jobs"][job]["steps"] if "run" in step)
    for name, value in values.items():
        text = text.replace(f"${{{{ {name.replace('_', '.', 1)} }}}}", str(value))
    assert "${{" not in text
    return text


def gitlab(job: str, **values: object) -> str:
    """The script of a job, with the variables that GitLab sets."""
    return "\n".join([*(f"{name}={value}" for name, value in values.items()), *GITLAB[job]["script"]])


def recipe(name: str) -> Iterator[str]:
    """The scripts of a recipe in the order in which they run."""
    pairs = itertools.product(TARGETS, SHARDS)
    if name == "shell":
        yield SHELL
    elif name == "github":
        for target, shard in pairs:
            yield github("shard", matrix_target=target, matrix_shard=shard, github_run_number=7)
        yield from (github("merge", matrix_target=target) for target in TARGETS)
    else:
        for target, shard in pairs:
            yield gitlab("shard", TARGET=target, SHARD=shard, CI_PIPELINE_IID=7)
        yield from (gitlab("merge", TARGET=target) for target in TARGETS)


@pytest.mark.parametrize(
    "jobs", [GITHUB["jobs"]["shard"]["strategy"]["matrix"], None], ids=["github", "gitlab"]
)
def test_each_target_has_all_its_shards(jobs: dict[str, Any] | None) -> None:
    if jobs is None:
        (found,) = GITLAB["shard"]["parallel"]["matrix"]
        jobs = {"target": found["TARGET"], "shard": list(map(int, found["SHARD"]))}
        assert GITLAB["merge"]["parallel"]["matrix"] == [{"TARGET": list(TARGETS)}]
        assert GITLAB["shard"]["allow_failure"] == {"exit_codes": 1}
    else:
        assert GITHUB["jobs"]["merge"]["strategy"]["matrix"] == {"target": list(TARGETS)}
        assert GITHUB["jobs"]["merge"]["needs"] == "shard"
    assert jobs == {"target": list(TARGETS), "shard": list(SHARDS)}
    assert re.findall(r"\[targets\.(\w+)\]", MATRIX) == list(TARGETS)


@pytest.mark.full
@pytest.mark.parametrize("name", ["shell", "github", "gitlab"])
def test_the_scripts_of_a_recipe_leave_a_merged_report_for_each_target(name: str, tmp_path: Path) -> None:
    """With few rules, and without what installs the package."""
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "matrix.toml").write_text(MATRIX)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "--qnn-rule=REG-01,REG-02,NUM-01,PART-01 --qnn-profile=quick",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for script in recipe(name):
        done = subprocess.run(
            ["bash", "-e", "-c", re.sub(r"^pip install .*$", "", script, flags=re.MULTILINE)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    for target, rules in (("reference", {"REG-01", "REG-02"}), ("xnnpack", {"NUM-01", "PART-01"})):
        report = json.loads((tmp_path / "out" / f"{target}.json").read_text())
        assert judged_by_id(report).keys() == rules
        assert [each["shard"] for each in report["merged"]] == ["1/2", "2/2"]
        assert (tmp_path / "out" / f"junit-1-{target}.xml").exists()
        assert (tmp_path / "out" / f"{target}.html").exists()
    if name == "github":
        assert "Nothing failed." in (tmp_path / "summary.md").read_text()
