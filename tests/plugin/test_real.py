"""The plugin on the real catalogue, suite and targets."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from fast_run import later
from real_suite import RULES, SUITE
from reports import judged_rules


def test_every_rule_has_one_test_and_every_test_stands_for_a_rule(pytester: pytest.Pytester) -> None:
    items, _ = pytester.inline_genitems(*SUITE)
    names = [item.name for item in items]
    assert sorted(names) == sorted(f"test_{rule.lower().replace('-', '_')}" for rule in RULES)


@pytest.mark.parametrize(
    ("rule", "mutant", "reference"),
    [
        later("MEM-02", "--tflite-delegate=mutant:writes-input", "--tflite-delegate=reference"),
        ("REG-02", "--qnn-backend=mutant:reg-same-handle", "--qnn-backend=reference"),
    ],
)
def test_a_mutant_fails_and_its_case_passes_on_the_reference(
    pytester: pytest.Pytester, rule: str, mutant: str, reference: str
) -> None:
    name = f"test_{rule.lower().replace('-', '_')}"
    pytester.runpytest_inprocess(*SUITE, "-k", name, mutant, "--qnn-seed=1").assert_outcomes(
        failed=1, deselected=len(RULES) - 1
    )
    (folder,) = pytester.path.glob(f".pytest-qnn/*/{rule}")
    still = pytester.runpytest_inprocess(f"--qnn-replay={folder}")
    still.stdout.fnmatch_lines([f"{rule} on mutant:*: STILL FAILS: *"])
    elsewhere = pytester.runpytest_inprocess(f"--qnn-replay={folder}", reference)
    elsewhere.stdout.fnmatch_lines([f"{rule} on reference: PASSES HERE: *"])
    assert elsewhere.ret == pytest.ExitCode.OK


def test_the_report_of_a_real_run_is_valid_and_names_the_runtime(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess(*SUITE, "-k", "test_part_01 or test_reg_01", "--qnn-report=out.json")
    document = json.loads(Path("out.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    delegate, memory = document["targets"]
    assert delegate["provenance"]["runtime"] in ("tflite_runtime", "ai_edge_litert")
    assert memory["provenance"]["rpcmem"] == "emulated"
    assert [(rule["id"], rule["verdict"]) for rule in judged_rules(document)] == [
        ("PART-01", "pass"),
        ("REG-01", "pass"),
    ]
    listed = sum(len(target["rules"]) for target in document["targets"])
    assert listed == document["catalogue"]["rules"] == len(RULES)
    assert document["complete"] is False


def test_markers_split_the_suite_between_delegates_and_memory(pytester: pytest.Pytester) -> None:
    subjects = [rule.subject for rule in RULES.values()]
    for subject in ("delegate", "memory"):
        result = pytester.runpytest_inprocess(*SUITE, "--collect-only", "-q", "-m", f"qnn_{subject}")
        result.stdout.fnmatch_lines([f"{subjects.count(subject)}/{len(subjects)} tests collected *"])
