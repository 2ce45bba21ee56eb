"""Case files of schema 1, written before the project was laid out anew, are read and judged as they were.

`case_files_1.jsonl` has one case file in each line, and beside its own fields what judging it gave then. They
are minimal cases of mutants, chosen so that every kind of step is among them, and every field that is set in
any of the minimal cases of all mutants.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from fast_pairs import DEAR
from fast_run import later, turn

from pytest_qnn import case_file
from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.verdict import Examined, Unsupported
from pytest_qnn.mutants import table
from pytest_qnn.qnn.cases.case import AnyStep
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.plugin import AnyPluginStep
from pytest_qnn.tflite.cases.script import AnyScriptStep
from pytest_qnn.tflite.target import open_delegate_target

_DATA = Path(__file__).parents[2] / "data"
FILES = [json.loads(line) for line in (_DATA / "case_files_1.jsonl").read_text().splitlines()]
STEPS = {"memory": AnyStep, "delegate-script": AnyScriptStep, "delegate-plugin": AnyPluginStep}
TIMEOUT = 10.0


def kinds(steps: Any) -> list[Any]:
    """The members of a union of steps, of unions in it too."""
    members = get_args(steps)
    return [kind for member in members for kind in kinds(member)] if members else [steps]


def mentioned(value: Any) -> set[str]:
    """Tags of the steps in a case."""
    if isinstance(value, list):
        return set().union(*map(mentioned, value))
    if not isinstance(value, dict):
        return set()
    return {value[key] for key in ("do",) if key in value}.union(*map(mentioned, value.values()))


def current(file: dict[str, Any]) -> dict[str, Any]:
    """The file as it would be written today."""
    found: dict[str, Any] = json.loads(case_file.encode(case_file.decode(json.dumps(bare(file)).encode())))
    return found


def bare(file: dict[str, Any]) -> dict[str, Any]:
    return {key: file[key] for key in file if key != "result"}


@cache
def known() -> set[tuple[str, str]]:
    return {(file["subject"], tag) for file in FILES for tag in mentioned(current(file)["case"])}


@pytest.mark.parametrize(
    ("subject", "tag"),
    [(subject, kind.__struct_config__.tag) for subject, steps in STEPS.items() for kind in kinds(steps)],
)
def test_every_kind_of_step_is_in_a_file(subject: str, tag: str) -> None:
    assert (subject, tag) in known()


def test_every_kind_of_case_is_in_a_file() -> None:
    assert {file["subject"] for file in FILES} == {*STEPS, "delegate"}


@pytest.mark.parametrize(
    "file",
    [
        file if turn(file["rule"]) % 4 == 0 and not file["rule"].startswith(DEAR) else later(file)
        for file in FILES
    ],
    ids=lambda file: f"{file['rule']}-{file['target']}",
)
def test_a_case_file_of_schema_1_gives_what_it_gave(file: dict[str, Any]) -> None:
    content = case_file.decode(json.dumps(bare(file)).encode())
    with closing(opened(content)) as target:
        found = judge_case(catalogue()[content.rule], target, content.case)
    if isinstance(found, Examined | Unsupported):
        assert type(found).__name__.lower() == file["result"], found
    else:
        assert found.outcome.value == file["result"], found


def opened(content: case_file.AnyCaseFile) -> Any:
    """The target that the file names, of this suite's own."""
    mutant = table().get(content.target.removeprefix("mutant:"))
    sandbox = "fork" if mutant is not None and mutant.deadly else "auto"
    if content.subject == "memory":
        return open_memory_target(content.target, "emulated", sandbox, TIMEOUT)
    timeout = TIMEOUT if mutant is None else mutant.timeout
    return open_delegate_target([(content.target, {})], "tflite_runtime", sandbox, timeout)
