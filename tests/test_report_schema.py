from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import fake_suite
import jsonschema
import pytest

ALL_RULES = [rule for rule in fake_suite.CATALOGUE if rule != "REG-12"]  # REG-12 ends its process


@pytest.fixture
def schema() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files("pytest_qnn.report").joinpath("schema.json").read_text()
    )
    return content


@pytest.fixture
def document(pytester: pytest.Pytester, fakes: None) -> dict[str, Any]:
    pytester.makepyfile(fake_suite.suite(*ALL_RULES))
    pytester.runpytest_inprocess(
        "--qnn-report=out.json", "--qnn-seed=3", "--tflite-delegate=xnnpack", "--qnn-backend=reference"
    )
    content: dict[str, Any] = json.loads(Path("out.json").read_text())
    return content


def rules_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for target in document["targets"] for rule in target["rules"]]


def test_the_schema_is_one(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_report_with_every_kind_of_verdict_is_valid(
    schema: dict[str, Any], document: dict[str, Any]
) -> None:
    jsonschema.Draft202012Validator(schema).validate(document)
    assert {rule["verdict"] for rule in rules_of(document)} == set(
        schema["$defs"]["rule"]["properties"]["verdict"]["enum"]
    )


def test_each_rule_appears_once_per_target(document: dict[str, Any]) -> None:
    assert sorted(rule["id"] for rule in rules_of(document)) == sorted(ALL_RULES)
    assert [(target["subject"], target["spec"]) for target in document["targets"]] == [
        ("delegate", "xnnpack"),
        ("memory", "reference"),
    ]


def test_a_finding_carries_violation_case_and_replay(document: dict[str, Any]) -> None:
    rule = next(rule for rule in rules_of(document) if rule["id"] == "REG-02")
    assert rule["violation"] == {
        "expected": "0 (success)",
        "seen": "code 1000 <&>",
        "where": "step 1",
        "picture": "t0 -> [ABS]\n      -> t1",
    }
    assert rule["case"]["steps"][1] == {"do": "alloc", "buffer": "b0", "size": 4096}
    assert f"pytest --qnn-replay {Path.cwd() / '.pytest-qnn' / 'memory-'}" in rule["replay"]
    assert rule["replay"].endswith(" --qnn-backend=reference --qnn-rpcmem=emulated")


def test_a_flake_has_its_rate_and_what_always_fails_has_none(
    schema: dict[str, Any], document: dict[str, Any]
) -> None:
    assert {rule["flaky"] for rule in rules_of(document)} == {""}
    next(rule for rule in rules_of(document) if rule["id"] == "REG-02")["flaky"] = "failed 2 of 6 runs"
    jsonschema.Draft202012Validator(schema).validate(document)


def test_the_run_and_its_targets_are_named(document: dict[str, Any]) -> None:
    assert (document["seed"], document["profile"], document["complete"]) == (3, "default", True)
    assert document["options"]["tflite_delegate"] == [{"spec": "xnnpack", "options": {}}]
    assert document["targets"][1]["provenance"] == {"library": "reference", "library_sha256": "0" * 64}
    assert document["started"] < document["finished"]


@pytest.mark.parametrize(
    ("rule_id", "key", "value"),
    [
        ("REG-01", "examined", 0),
        ("REG-01", "flaky", "failed 1 of 6 runs"),
        ("REG-02", "violation", None),
        ("REG-02", "replay", ""),
        ("REG-06", "reason", ""),
        ("REG-01", "verdict", "passed"),
        ("REG-01", "id", "reg 1"),
    ],
)
def test_the_schema_refuses_what_no_report_may_say(
    schema: dict[str, Any], document: dict[str, Any], rule_id: str, key: str, value: Any
) -> None:
    next(rule for rule in rules_of(document) if rule["id"] == rule_id)[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document)


def test_the_schema_refuses_unknown_keys(schema: dict[str, Any], document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document | {"more": 1})
