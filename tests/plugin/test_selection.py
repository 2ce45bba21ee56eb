"""Which rules ``--qnn-rule``, ``--qnn-area``, ``--qnn-level`` and ``-m`` select."""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import fake_suite
import jsonschema
import pytest
from reports import judged_by_id, refusal

from pytest_qnn import rules
from pytest_qnn.core.forms import LEVELS
from pytest_qnn.core.verdict import Level
from pytest_qnn.options import Selection
from pytest_qnn.session.selection import selected

SUITE = ("REG-01", "REG-06", "REG-08", "REG-10", "PART-01", "PART-02")
"""Two rules of delegates; REG-08 is a SHOULD, REG-10 a MAY."""
OWN = "\n\ndef test_own(): pass\n"


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    """Ids of the rules whose tests are left, and ``own`` for a test that judges none."""
    pytester.makepyfile(test_rules=fake_suite.suite(*SUITE) + OWN)
    result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
    names = [line.partition("::test_")[2] for line in result.outlines if "::test_" in line]
    return [name.upper().replace("_", "-") if name != "own" else name for name in names]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("--qnn-rule=REG-01",), ["REG-01"]),
        (("--qnn-rule=reg-08,Part-01",), ["REG-08", "PART-01"]),
        (("--qnn-rule=REG-08", "--qnn-rule=PART-01"), ["REG-08", "PART-01"]),
        (("--qnn-rule=*-01",), ["REG-01", "PART-01"]),
        (("--qnn-rule=REG-0[!1]",), ["REG-06", "REG-08"]),
        (("--qnn-rule=part-0?, REG-01",), ["REG-01", "PART-01", "PART-02"]),
        (("--qnn-area=part",), ["PART-01", "PART-02"]),
        (("--qnn-area=REG,PART", "--qnn-rule=*-0[12]"), ["REG-01", "PART-01", "PART-02"]),
        (("--qnn-level=should,MAY",), ["REG-08", "REG-10"]),
        (("--qnn-level=SHOULD", "--qnn-level=MAY"), ["REG-08", "REG-10"]),
        (("--qnn-level=MUST", "--qnn-area=REG"), ["REG-01", "REG-06"]),
        (("--qnn-level=MUST", "--qnn-area=REG", "--qnn-rule=*-06,*-08"), ["REG-06"]),
        (("--qnn-backend=reference", "--qnn-rule=*-01"), ["REG-01"]),
        (("-k", "not reg", "--qnn-rule=*-01"), ["PART-01"]),
        (("-m", "qnn_area_part"), ["PART-01", "PART-02"]),
        (("-m", "qnn_level_must and qnn_area_reg"), ["REG-01", "REG-06"]),
        (("-m", "qnn_level_may or qnn_level_should"), ["REG-08", "REG-10"]),
    ],
)
def test_the_rules_that_satisfy_every_option_are_left(
    pytester: pytest.Pytester, arguments: tuple[str, ...], left: list[str]
) -> None:
    found = collected(pytester, "--strict-markers", *arguments)
    own = [] if arguments[0] in ("-m", "-k") and "not" not in arguments[1] else ["own"]
    assert found == left + own  # what judges no rule stays, but for pytest's own selection


@pytest.mark.usefixtures("fakes")
def test_the_other_rules_tests_are_deselected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite(*SUITE) + OWN)
    result = pytester.runpytest_inprocess("--qnn-area=REG", "--qnn-rule=*-01")
    result.assert_outcomes(passed=2, deselected=5)
    result.stdout.fnmatch_lines(["qnn: *, profile default, rule [*]-01, area REG"])


@pytest.mark.usefixtures("fakes")
def test_the_ini_file_selects_and_the_command_line_wins_option_by_option(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nqnn_rule =\n  *-01, *-08\n  PART-02\nqnn_area = reg\nqnn_level = MUST\n")
    assert collected(pytester, "--strict-config") == ["REG-01", "own"]
    assert collected(pytester, "--qnn-level=SHOULD") == ["REG-08", "own"]
    assert collected(pytester, "--qnn-area=PART") == ["PART-01", "PART-02", "own"]
    assert collected(pytester, "--qnn-rule=REG-06") == ["REG-06", "own"]


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--qnn-rule=reg-1",), "--qnn-rule: 'REG-1' matches no rule; the nearest is REG-"),
        (("--qnn-rule=RGE-01",), "--qnn-rule: 'RGE-01' matches no rule; the nearest is REG-01"),
        (("--qnn-rule=REG-01,PRT-*",), "--qnn-rule: 'PRT-*' matches no rule; the nearest area is PART"),
        (("--qnn-rule=PARTS-9999",), "--qnn-rule: 'PARTS-9999' matches no rule; the nearest area is PART"),
        (("--qnn-rule=Reg",), "--qnn-rule: 'REG' matches no rule; REG-* matches those of the area"),
        (("--qnn-rule=xyz",), "--qnn-rule: 'XYZ' matches no rule"),
        (("--qnn-rule=",), "--qnn-rule: '' has an empty name in it"),
        (("--qnn-rule=REG-01,",), "--qnn-rule: 'REG-01,' has an empty name in it"),
        (("--qnn-rule=[!\udc80]*",), "--qnn-rule: '[!\\udc80]*' is not UTF-8, as what selects rules must be"),
        (("--qnn-area=PATR",), "--qnn-area: 'PATR' is no area; the nearest is PART"),
        (("--qnn-area=REG,xyz",), "--qnn-area: 'XYZ' is no area"),
        (("--qnn-area=REG*",), "--qnn-area: 'REG*' is no area; the nearest is REG"),
        (("--qnn-level=MUSTN",), "--qnn-level: 'MUSTN' is not one of MUST, SHOULD, MAY"),
        (
            ("--qnn-area=PART", "--qnn-level=MAY,SHOULD"),
            "--qnn-area=PART --qnn-level=MAY,SHOULD: no rule satisfies all of them",
        ),
        (
            ("--qnn-backend=reference", "--qnn-rule=PART-*"),
            (
                "--qnn-rule=PART-*: no rule about QNN memory (a backend is named, and no delegate), and the "
                "run judges nothing else"
            ),
        ),
        (
            ("--tflite-delegate=reference", "--qnn-area=REG", "--qnn-level=MUST"),
            (
                "--qnn-area=REG --qnn-level=MUST: no rule about delegates (a delegate is named, and no "
                "backend), and the run judges nothing else"
            ),
        ),
        (("-o", "qnn_area=RGE"), "--qnn-area: 'RGE' is no area; the nearest is REG"),
    ],
)
def test_what_selects_no_rule_is_refused(
    pytester: pytest.Pytester, arguments: tuple[str, ...], sentence: str
) -> None:
    pytester.makepyfile(fake_suite.suite("REG-01"))
    said = refusal(pytester.runpytest_inprocess("-v", *arguments))
    assert said.startswith(sentence)
    assert len(said) <= len(sentence) + len("01") * sentence.endswith("-")


@pytest.mark.usefixtures("fakes")
def test_a_level_that_no_rule_has_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(fake_suite.CATALOGUE, "REG-10")
    assert refusal(pytester.runpytest_inprocess("--qnn-level=MAY")) == "--qnn-level: no rule is a MAY"


def test_levels_are_those_of_the_rules() -> None:
    assert list(LEVELS) == [level.value for level in Level]


def test_each_area_and_each_level_of_the_list_can_be_selected() -> None:
    def chosen(**options: tuple[str, ...]) -> frozenset[str]:
        return selected(Selection(**options), ("delegate", "memory"))

    for area in {rule.area for rule in rules.listed().values()}:
        assert chosen(areas=(area,)) == chosen(rules=(f"{area}-*",)) != set()
    assert set().union(*(chosen(levels=(level,)) for level in LEVELS)) == set(rules.listed())


@pytest.mark.usefixtures("fakes")
def test_the_report_says_what_was_selected_and_counts_the_rest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_target(subject: Any, options: Any) -> fake_suite.FakeTarget:
        opened.append(subject)
        return fake_suite.open_target(subject, options)

    monkeypatch.setattr(sys.modules["pytest_qnn.targets"], "open_target", open_target)
    pytester.makepyfile(fake_suite.suite(*(name for name in fake_suite.CATALOGUE if name != "REG-12")))
    result = pytester.runpytest_inprocess(
        "--qnn-report=out.json", "--qnn-rule=reg-01,REG-06", "--qnn-area=reg", "--qnn-level=must"
    )
    result.stdout.fnmatch_lines(["not selected: 12 of 14 rules; the report is incomplete"])
    assert opened == ["memory"]
    document = json.loads(Path("out.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    chosen = {key: document["options"][key] for key in ("qnn_rule", "qnn_area", "qnn_level")}
    assert chosen == {"qnn_rule": ["REG-01", "REG-06"], "qnn_area": ["REG"], "qnn_level": ["MUST"]}
    assert list(judged_by_id(document)) == ["REG-01", "REG-06"]
    states = [rule["state"] for target in document["targets"] for rule in target["rules"]]
    assert (states.count("not_selected"), states.count("judged")) == (12, 2)
    assert (document["complete"], document["not_judged"]) == (False, [])


@pytest.mark.usefixtures("fakes")
def test_a_replay_ignores_the_selection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite(*SUITE, "REG-02") + OWN)
    pytester.runpytest_inprocess("--qnn-rule=REG-02").assert_outcomes(
        passed=1, failed=1, deselected=len(SUITE)
    )
    (case,) = pytester.path.glob(".pytest-qnn/*/REG-02")
    pytester.makeini("[pytest]\nqnn_area = PART\naddopts = --qnn-rule=XYZ-01 --qnn-level=MAY\n")
    result = pytester.runpytest_inprocess(f"--qnn-replay={case}", "test_rules.py")
    result.assert_outcomes(failed=1, deselected=len(SUITE) + 1)
    result.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])
    assert "XYZ" not in result.stdout.str()


def test_a_rule_that_was_not_selected_still_owns_its_fault(pytester: pytest.Pytester) -> None:
    suite = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-seed=1")
    target = ("--qnn-sandbox=fork", "--tflite-delegate=mutant:aborts-in-invoke")
    result = pytester.runpytest_inprocess(*suite, *target, "--qnn-rule=DET-01", "--qnn-report=out.json")
    result.assert_outcomes(skipped=1, failed=1)  # of RUN-01, which has no test in this run
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    verdicts = judged_by_id(json.loads(Path("out.json").read_text()))
    assert verdicts["RUN-01"]["verdict"] == "crash"
    assert verdicts.keys() == {"RUN-01", "DET-01"}


@pytest.mark.full
def test_workers_select_the_same_rules(pytester: pytest.Pytester) -> None:
    suite = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-profile=quick")
    result = pytester.runpytest_subprocess(*suite, "-n1", "--qnn-rule=reg-0[78]", "--qnn-report=out.json")
    result.assert_outcomes(passed=2)
    assert judged_by_id(json.loads(Path("out.json").read_text())).keys() == {"REG-07", "REG-08"}


@pytest.mark.usefixtures("fakes")
def test_markers_of_rules_are_known_where_no_rule_is_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OWN)
    strict = ("--strict-markers", "-m")
    for known in ("not qnn_area_reg", "not (qnn_area_part or qnn_level_may)", "not qnn_memory"):
        pytester.runpytest_inprocess(*strict, known).assert_outcomes(passed=1)


def test_one_line_describes_the_markers_of_all_areas(pytester: pytest.Pytester) -> None:
    lines = pytester.runpytest_inprocess("--markers").outlines
    assert [line.partition(":")[0] for line in lines if line.startswith("@pytest.mark.qnn_area")] == [
        "@pytest.mark.qnn_area_AREA"
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_has_a_line(pytester: pytest.Pytester, level: str) -> None:
    pytester.runpytest_inprocess("--markers").stdout.fnmatch_lines(
        [f"@pytest.mark.qnn_level_{level.lower()}: *"]
    )
