from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import fake_suite
import jsonschema
import pytest
from reports import judged_rules

from pytest_qnn.core.verdict import Level

ALL_RULES = [rule for rule in fake_suite.CATALOGUE if rule != "REG-12"]  # REG-12 ends its process


NAMED = "test_what_was_not_selected_is_named"
"""The test below, whose module in pytester has its name."""


@pytest.fixture
def schema() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files("pytest_qnn.report").joinpath("schema.json").read_text()
    )
    return content


class Run(NamedTuple):
    """What one run of all these rules has written."""

    folder: Path
    report: str


RUN: list[Run] = []
"""Of the first test that asks for it."""


@pytest.fixture
def document(pytester: pytest.Pytester, fakes: None) -> dict[str, Any]:
    if not RUN:
        pytester.makepyfile(fake_suite.suite(*ALL_RULES))
        pytester.runpytest_inprocess(
            "--qnn-report=out.json", "--qnn-seed=3", "--tflite-delegate=xnnpack", "--qnn-backend=reference"
        )
        RUN.append(Run(Path.cwd(), Path("out.json").read_text()))
    content: dict[str, Any] = json.loads(RUN[0].report)
    return content


def test_the_schema_is_a_schema(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_report_with_every_kind_of_verdict_is_valid(
    schema: dict[str, Any], document: dict[str, Any]
) -> None:
    jsonschema.Draft202012Validator(schema).validate(document)
    known = set(schema["$defs"]["rule"]["properties"]["verdict"]["enum"])
    assert {rule["verdict"] for rule in judged_rules(document)} == known - {None, "known"}


def test_each_rule_appears_once_per_target(document: dict[str, Any]) -> None:
    assert sorted(rule["id"] for rule in judged_rules(document)) == sorted(ALL_RULES)
    everything = [rule["id"] for target in document["targets"] for rule in target["rules"]]
    assert sorted(everything) == sorted(fake_suite.CATALOGUE)
    assert [(target["subject"], target["spec"]) for target in document["targets"]] == [
        ("delegate", "xnnpack"),
        ("memory", "reference"),
    ]


def test_a_finding_carries_violation_case_and_replay(document: dict[str, Any]) -> None:
    rule = next(rule for rule in judged_rules(document) if rule["id"] == "REG-02")
    assert rule["violation"] == {
        "expected": "0 (success)",
        "seen": "code 1000 <&>",
        "where": "step 1",
        "picture": "t0 -> [ABS]\n      -> t1",
        "evidence": None,
        "fingerprint": {"call": "alloc", "seen": "code # <&>"},
    }
    assert rule["case"]["steps"][1] == {"do": "alloc", "buffer": "b0", "size": 4096}
    assert f"pytest --qnn-replay={RUN[0].folder / '.pytest-qnn' / 'memory-'}" in rule["replay"]
    assert rule["replay"].endswith(" --qnn-backend=reference --qnn-rpcmem=emulated")
    assert rule["explain"] == "pytest --qnn-explain=REG-02"
    kept = {path.name for path in (RUN[0].folder / ".pytest-qnn" / rule["folder"]).iterdir()}
    assert {file["name"] for file in rule["files"]} == kept - {"README.txt"}
    assert all(file["what"] for file in rule["files"])


def test_a_flake_has_its_rate_and_what_always_fails_has_none(
    schema: dict[str, Any], document: dict[str, Any]
) -> None:
    assert {rule["flaky"] for rule in judged_rules(document)} == {""}
    next(rule for rule in judged_rules(document) if rule["id"] == "REG-02")["flaky"] = "failed 2 of 6 runs"
    jsonschema.Draft202012Validator(schema).validate(document)


def test_the_run_and_its_targets_are_named(document: dict[str, Any]) -> None:
    assert (document["seed"], document["profile"]) == (3, "default")
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
    next(rule for rule in judged_rules(document) if rule["id"] == rule_id)[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document)


def test_the_schema_refuses_unknown_keys(schema: dict[str, Any], document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document | {"more": 1})


def reported(pytester: pytest.Pytester, rule_ids: Iterable[str], *arguments: str) -> dict[str, Any]:
    pytester.makepyfile(fake_suite.suite(*rule_ids))
    pytester.runpytest_inprocess("--qnn-report=out.json", *arguments)
    content: dict[str, Any] = json.loads(Path("out.json").read_text())
    return content


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("way", [("-k", "reg_01"), ("--deselect", f"{NAMED}.py::test_reg_02")])
def test_what_was_not_selected_is_named(
    pytester: pytest.Pytester, schema: dict[str, Any], way: tuple[str, ...]
) -> None:
    document = reported(pytester, ALL_RULES, *way)
    jsonschema.Draft202012Validator(schema).validate(document)
    states = {rule["id"]: rule["state"] for target in document["targets"] for rule in target["rules"]}
    assert document["complete"] is False
    assert states.keys() == fake_suite.CATALOGUE.keys()
    assert (states["REG-01"], states["REG-02"]) == ("judged", "not_selected")
    assert document["not_judged"] == []


@pytest.mark.usefixtures("fakes")
def test_a_report_is_complete_where_every_rule_of_its_halves_was_judged(
    pytester: pytest.Pytester, schema: dict[str, Any]
) -> None:
    document = reported(pytester, ALL_RULES, "--tflite-delegate=reference")
    jsonschema.Draft202012Validator(schema).validate(document)
    assert (document["complete"], document["halves"]) == (True, ["delegate"])
    assert {target["subject"] for target in document["targets"]} == {"delegate"}


@pytest.mark.usefixtures("fakes")
def test_the_hash_of_the_catalogue_tells_catalogues_apart(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (reported(pytester, ["REG-01"])["catalogue"] for _ in range(2))
    assert one == two
    assert one["rules"] == len(fake_suite.CATALOGUE)
    other = dataclasses.replace(fake_suite.CATALOGUE["REG-02"], level=Level.SHOULD)
    monkeypatch.setitem(fake_suite.CATALOGUE, "REG-02", other)
    assert reported(pytester, ["REG-01"])["catalogue"]["sha256"] != one["sha256"]


@pytest.mark.usefixtures("fakes")
def test_the_page_and_the_terminal_say_what_was_not_selected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite(*ALL_RULES))
    result = pytester.runpytest_inprocess("--qnn-report=out.html", "--qnn-backend=reference", "-k", "reg_01")
    result.stdout.fnmatch_lines(["not selected: 11 of 12 rules; the report is incomplete"])
    page = Path("out.html").read_text()
    assert "<b>11</b> not selected" in page
    assert 'id="rule-REG-11"' in page
