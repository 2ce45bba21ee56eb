"""What is found in the cases of another rule is a test of the run: counted, shown and in JUnit files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import fake_suite
import pytest
from msgspec.structs import replace

from pytest_qnn import rules
from pytest_qnn.core import engine
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.session import node_ids

HANDED = {"REG-01": ["REG-02"], "REG-05": ["REG-02"], "REG-06": ["REG-08"]}
"""By rule: the owners of what its cases show."""
OWN_OF_02 = "pytest_qnn/conformance/qnn/test_reg.py::test_reg_02"


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch, fakes: None) -> dict[str, list[str]]:
    usual = engine.judge_with_owners
    owners = dict(HANDED)

    def judge(rule: Any, *others: Any) -> engine.Judged:
        verdict, _ = usual(rule, *others)
        found = [usual(fake_suite.CATALOGUE[owner], *others).verdict for owner in owners.get(rule.id, ())]
        return engine.Judged(verdict, tuple(replace(each, found_by=rule.id) for each in found))

    monkeypatch.setattr(engine, "judge_with_owners", judge)
    return owners


def run(pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
    return pytester.runpytest_inprocess("--junitxml=out.xml", "--strict-markers", *arguments)


def suite() -> ET.Element:
    return next(ET.parse("out.xml").iter("testsuite"))


def counts() -> dict[str, int]:
    return {name: int(suite().get(name, "")) for name in ("tests", "failures", "errors", "skipped")}


def tagged(name: str) -> list[ET.Element]:
    return [each for each in suite().iter("testcase") if each.get("name") == name]


def test_it_is_a_failed_test_by_the_name_of_its_rule(
    pytester: pytest.Pytester, handed: dict[str, list[str]]
) -> None:
    result = run(pytester, ("REG-01",))
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert counts() == {"tests": 2, "failures": 1, "errors": 0, "skipped": 0}
    (test,) = tagged("test_reg_02")
    (failure,) = test.iter("failure")
    assert failure.get("message", "").startswith("Failed: REG-02 fail: Sentence of REG-02.")
    assert "code 1000 <&>" in (failure.text or "")
    told = {each.get("name"): each.get("value") for each in test.iter("property")}
    assert (told["rule"], told["verdict"], told["found_by"]) == ("REG-02", "fail", "REG-01")
    assert test.get("classname") == "pytest_qnn.conformance.qnn.test_reg"


def test_the_terminal_shows_it_once_and_gives_no_second_letter(
    pytester: pytest.Pytester, handed: dict[str, list[str]]
) -> None:
    result = run(pytester, ("REG-01",))
    result.stdout.fnmatch_lines(
        [
            "test_rules.py . *100%]",
            "=* FAILURES =*",
            "_* REG-02, found by REG-01 _*",
            "  found by  REG-01, in a control of its cases",
            "REG-02 MUST fail (found by REG-01): *",
            f"FAILED {OWN_OF_02} - *",
            "=* 1 failed, 1 passed in *",
        ]
    )
    # Where the environment says that this is CI, pytest's summary has the whole message again.
    above, _ = "\n".join(result.outlines).split("short test summary info")
    assert above.count("  found by  REG-01, in a control of its cases") == 1
    result.stdout.no_fnmatch_line("*200%*")


def test_what_the_rules_own_test_has_failed_with_is_told_once(
    pytester: pytest.Pytester, handed: dict[str, list[str]]
) -> None:
    run(pytester, ("REG-01", "REG-02")).assert_outcomes(passed=1, failed=1)
    assert counts() == {"tests": 2, "failures": 1, "errors": 0, "skipped": 0}
    assert len(tagged("test_reg_02")) == 1


def test_what_two_rules_met_is_told_once(pytester: pytest.Pytester, handed: dict[str, list[str]]) -> None:
    run(pytester, ("REG-01", "REG-05")).assert_outcomes(passed=1, failed=2)
    assert len(tagged("test_reg_02")) == 1


def test_a_test_that_has_seen_less_stands_beside_it(
    pytester: pytest.Pytester, handed: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine.judge_with_owners

    def judge(rule: Any, *others: Any) -> engine.Judged:
        if rule.id == "REG-02":  # its own cases show nothing
            passed = made(fake_suite.CATALOGUE["REG-07"], *others).verdict
            return engine.Judged(replace(passed, rule="REG-02", outcome=Outcome.PASS, reason=""), ())
        return made(rule, *others)

    monkeypatch.setattr(engine, "judge_with_owners", judge)
    run(pytester, ("REG-02", "REG-01")).assert_outcomes(passed=2, failed=1)
    first, second = tagged("test_reg_02")
    assert not [*first.iter("failure")]
    assert [*second.iter("failure")]
    assert second.get("classname") == "test_rules"  # the id of the test that there is


@pytest.mark.parametrize(
    ("arguments", "outcome", "status"),
    [
        ((), {"skipped": 1, "xfailed": 1}, pytest.ExitCode.OK),
        (("--qnn-strict",), {"skipped": 1, "failed": 1}, pytest.ExitCode.TESTS_FAILED),
        (("--runxfail",), {"skipped": 1, "failed": 1}, pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_it_ends_as_the_rules_own_test_would(
    pytester: pytest.Pytester,
    handed: dict[str, list[str]],
    arguments: tuple[str, ...],
    outcome: dict[str, int],
    status: int,
) -> None:
    result = run(pytester, ("REG-06",), "-rx", *arguments)
    result.assert_outcomes(**outcome)
    assert result.ret == status
    (test,) = tagged("test_reg_08")
    xfailed = [each.get("message", "") for each in test.iter("skipped") if each.get("type") == "pytest.xfail"]
    assert len([*test.iter("failure")]) == outcome.get("failed", 0)
    assert len(xfailed) == outcome.get("xfailed", 0)
    if xfailed:
        assert xfailed[0].startswith("REG-08 SHOULD: code 1000")
        result.stdout.fnmatch_lines(["XFAIL *::test_reg_08 - *REG-08 SHOULD: code 1000*"])


@pytest.mark.parametrize("arguments", [("-x",), ("--stepwise",), ("--maxfail=2",)])
def test_it_stops_nothing_and_is_told_where_a_run_is_stopped(
    pytester: pytest.Pytester, handed: dict[str, list[str]], arguments: tuple[str, ...]
) -> None:
    result = run(pytester, ("REG-01",), *arguments)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("!!*")
    result = run(pytester, ("REG-01", "REG-03", "REG-07"), *arguments)
    failed = {"--maxfail=2": 3}.get(arguments[0], 2)
    result.assert_outcomes(passed=1, failed=failed)
    assert counts()["failures"] == failed
    assert len(tagged("test_reg_02")) == 1


def test_without_a_terminal_it_is_in_the_file(
    pytester: pytest.Pytester, handed: dict[str, list[str]]
) -> None:
    assert run(pytester, ("REG-01",), "-p", "no:terminal").ret == pytest.ExitCode.TESTS_FAILED
    assert counts()["failures"] == 1


@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
def test_it_is_in_files_of_both_families(
    pytester: pytest.Pytester, handed: dict[str, list[str]], family: str
) -> None:
    run(pytester, ("REG-01",), "-o", f"junit_family={family}")
    assert len(tagged("test_reg_02")) == 1


@pytest.mark.usefixtures("fakes_outside")
def test_the_id_of_each_rule_is_that_of_its_test(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--pyargs", "pytest_qnn.conformance", "--collect-only", "-q")
    ids = {line for line in result.outlines if "::" in line}
    assert ids == {node_ids.of_rule(rule) for rule in rules.listed().values()}
