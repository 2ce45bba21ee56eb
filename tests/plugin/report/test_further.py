"""What was found beside a rule's first finding: in the terminal, in reports, in its folder."""

from __future__ import annotations

import dataclasses
import html
import importlib.resources
import json
from pathlib import Path
from typing import Any

import fake_suite
import jsonschema
import msgspec
import pytest
from hypothesis import strategies as st

from pytest_qnn import commands
from pytest_qnn.core import engine
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.verdict import Level

SUITE = fake_suite.suite("REG-17")
ALL = ("--qnn-seed=3", "--qnn-report=out.json", "--qnn-report=out.html", "--qnn-corpus=corpus")


def dies_and_fails() -> Rule[Any, Any, Any]:
    """A rule of which one case dies in contextFree and another fails in an allocation."""
    return Rule(
        id="REG-17",
        level=Level.SHOULD,
        sentence="Sentence of REG-17.",
        source="seed 000, section 0",
        subject="memory",
        cases=lambda _facts: st.sampled_from([fake_suite.CASE, fake_suite.CRASH]),
        check=fake_suite.fails,
    )


@pytest.fixture
def run(fakes: None, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> pytest.RunResult:
    monkeypatch.setitem(fake_suite.CATALOGUE, "REG-17", dies_and_fails())
    pytester.makepyfile(test_rules=SUITE)
    return pytester.runpytest_inprocess(*ALL)


def rule_of_report() -> Any:
    document = json.loads(Path("out.json").read_text())
    schema = json.loads((importlib.resources.files("pytest_qnn.report") / "schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    (found,) = (rule for each in document["targets"] for rule in each["rules"] if rule["id"] == "REG-17")
    return found


def test_the_worst_is_the_verdict_and_the_others_stand_beside_it(run: pytest.RunResult) -> None:
    run.assert_outcomes(failed=1)  # a SHOULD that fails is an expected failure, one that crashes is not
    run.stdout.fnmatch_lines(
        [
            "REG-17 crash: *",
            "  further   fail: code 1000 <&> (step 1), case in case-2.json",
            "REG-17 SHOULD crash: *",
            "  further: fail: code 1000 <&> (step 1), case in case-2.json",
        ]
    )
    rule = rule_of_report()
    assert rule["verdict"] == "crash"
    (further,) = rule["further"]
    assert (further["verdict"], further["violation"]["fingerprint"]["call"]) == ("fail", "alloc")
    assert "code 1000 &lt;&amp;&gt; (step 1)" in Path("out.html").read_text()


def test_each_has_a_case_file_that_replays(run: pytest.RunResult, pytester: pytest.Pytester) -> None:
    files = {file["name"]: file["what"] for file in rule_of_report()["files"]}
    assert files["case-2.json"] == "a further finding under the rule, as data: replay this file"
    (case,) = Path(".pytest-qnn").glob("*/REG-17/case-2.json")
    (further,) = rule_of_report()["further"]
    assert f".pytest-qnn/{further['file']}" == str(case)
    page = Path("out.html").read_text()
    assert f"case in <code>{case}</code>" in page
    rule = rule_of_report()
    command = html.escape(rule["replay"].replace(f"/{rule['folder']}", f"/{further['file']}"), quote=False)
    assert str(case) in command
    assert f'data-copy="Replay it">{command}</pre>' in page
    again = pytester.runpytest_inprocess(f"--qnn-replay={case}")
    again.stdout.fnmatch_lines(["*STILL FAILS*"])
    assert len([*Path("corpus").glob("REG-17-*.json")]) == 2


def test_what_another_seed_block_found_stands_beside_it_with_its_file(
    fakes: None, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    usual = engine.judge_with_owners
    of_block = iter([fake_suite.CASE, fake_suite.CASE, fake_suite.CRASH])

    def judge(rule: Rule[Any, Any, Any], *rest: Any) -> engine.Judged:
        case = next(of_block)
        return usual(dataclasses.replace(rule, cases=lambda _facts: st.just(case)), *rest)

    monkeypatch.setitem(fake_suite.CATALOGUE, "REG-17", dies_and_fails())
    monkeypatch.setattr(engine, "judge_with_owners", judge)
    pytester.makepyfile(test_rules=SUITE)
    # Without a corpus, the cases of which are tried in each block.
    result = pytester.runpytest_inprocess(*ALL[:-1], "--qnn-blocks=3")
    (folder,) = Path(".pytest-qnn").glob("*/REG-17")
    file = f"{folder.relative_to('.pytest-qnn')}/case.json"
    told = f"fail: code 1000 <&> (step 1), case in .pytest-qnn/{file}"
    result.stdout.fnmatch_lines([f"  further   {told}", f"  further: {told}"])
    rule = rule_of_report()
    assert (rule["verdict"], rule["block"]) == ("crash", 2)
    (further,) = rule["further"]
    assert (further["verdict"], further["file"]) == ("fail", file)
    assert f"case in <code>.pytest-qnn/{file}</code>" in Path("out.html").read_text()
    again = pytester.runpytest_inprocess(f"--qnn-replay={folder / 'case.json'}")
    again.stdout.fnmatch_lines(["*STILL FAILS*"])


def test_one_that_was_not_seen_again_is_marked(
    fakes: None, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    usual = engine.judge_with_owners

    def judge(*arguments: Any) -> engine.Judged:
        found = usual(*arguments)
        (other,) = found.verdict.further
        other = msgspec.structs.replace(other, flaky="failed 1 of 2 runs")
        return found._replace(verdict=msgspec.structs.replace(found.verdict, further=(other,)))

    monkeypatch.setitem(fake_suite.CATALOGUE, "REG-17", dies_and_fails())
    monkeypatch.setattr(engine, "judge_with_owners", judge)
    pytester.makepyfile(test_rules=SUITE)
    result = pytester.runpytest_inprocess(*ALL[:-1])
    told = "fail: code 1000 <&> (step 1), flaky: the case failed 1 of 2 runs, case in case-2.json"
    result.stdout.fnmatch_lines([f"  further   {told}", f"  further: {told}"])
    (further,) = rule_of_report()["further"]
    assert further["flaky"] == "failed 1 of 2 runs"
    assert "flaky: the case failed 1 of 2 runs" in Path("out.html").read_text()
    (case,) = Path(".pytest-qnn").glob("*/REG-17/case-2.json")
    assert json.loads(case.read_text())["flaky"] == "failed 1 of 2 runs"


def test_each_is_a_known_failure_of_its_own(
    run: pytest.RunResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["expect", "out.json", "--update=known.toml"]) == 0
    written = Path("known.toml").read_text()
    assert written.count("[[failure]]") == 2
    assert 'call = "alloc"' in written
