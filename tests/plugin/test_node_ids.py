"""The ids of the suite's tests, as pytest prints them, and given back to pytest in the same folder."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import pytest_qnn.conformance
import real_suite
from fast_run import later

from pytest_qnn import rules

SUITE = real_suite.SUITE
REG = "pytest_qnn/conformance/qnn/test_reg.py"
PART = "pytest_qnn/conformance/tflite/test_part.py"
CHOSEN = "--qnn-rule=REG-08,PART-01"
IDS = [f"{REG}::test_reg_08", f"{PART}::test_part_01"]
LOADED = real_suite.RULES
"""What runs in this process need is loaded once."""
CLASSES = ["pytest_qnn.conformance.qnn.test_reg", "pytest_qnn.conformance.tflite.test_part"]
HOME = Path(pytest_qnn.conformance.__file__).parent


def printed(result: pytest.RunResult) -> list[str]:
    """The ids in the lines of ``-v``."""
    return [line.split()[0] for line in result.outlines if "::" in line]


def classes(path: str) -> list[str | None]:
    """Of the tests in a JUnit file."""
    return [test.get("classname") for test in ET.parse(path).iter("testcase")]


@pytest.fixture(params=["ini file above", *map(later, ("no ini file", "ini file here"))])
def start(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> str:
    """Where a run is started; given is what printed ids have in front there."""
    if request.param == "no ini file":
        return ""
    pytester.makeini("[pytest]\n")
    if request.param == "ini file here":
        return ""
    request.getfixturevalue("monkeypatch").chdir(pytester.mkdir("below"))
    return "../"


def test_a_printed_id_can_be_given_back(pytester: pytest.Pytester, start: str) -> None:
    first = pytester.runpytest_inprocess(*SUITE, CHOSEN, "-v", "--junitxml=out.xml")
    assert classes("out.xml") == CLASSES
    first.assert_outcomes(passed=2, deselected=len(rules.listed()) - 2)
    ids = printed(first)
    assert ids == [f"{start}{name}" for name in IDS]
    again = pytester.runpytest_inprocess(*SUITE[2:], "-v", "--junitxml=out.xml", *ids)
    again.assert_outcomes(passed=2)
    assert printed(again) == ids
    assert classes("out.xml") == CLASSES
    for given in (IDS, ["--pyargs", *ids]):  # IDS: relative to the rootdir, as -q has them
        collected = pytester.runpytest_inprocess("--collect-only", "-q", *given)
        assert printed(collected) == IDS


def test_a_worker_finds_what_is_given_back(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*SUITE[2:], "-n1", "--junitxml=out.xml", *IDS)
    result.assert_outcomes(passed=2)
    assert classes("out.xml") == CLASSES


@pytest.mark.parametrize(
    "argument",
    [
        "pytest_qnn.conformance.qnn",
        "pytest_qnn.conformance.qnn.test_reg",
        str(HOME),
        str(HOME / "qnn/test_reg.py"),
    ],
)
def test_a_test_has_one_id_whatever_it_is_found_by(pytester: pytest.Pytester, argument: str) -> None:
    result = pytester.runpytest_inprocess("--pyargs", argument, "--qnn-rule=REG-08", "--collect-only", "-q")
    assert printed(result) == IDS[:1]


def test_a_file_or_a_folder_of_the_suite_can_be_given_back(pytester: pytest.Pytester) -> None:
    for given in (REG, "pytest_qnn/conformance/qnn", "pytest_qnn/conformance"):
        result = pytester.runpytest_inprocess(given, "--qnn-rule=REG-08", "--collect-only", "-q")
        assert printed(result) == IDS[:1]


def test_a_file_that_is_there_is_taken(pytester: pytest.Pytester) -> None:
    path = pytester.path / REG
    path.parent.mkdir(parents=True)
    path.write_text("def test_reg_08(): pass\n")
    result = pytester.runpytest_inprocess(f"{REG}::test_reg_08", "-v", "--import-mode=importlib")
    result.assert_outcomes(passed=1)
    assert "qnn:" not in result.stdout.str()


@pytest.mark.parametrize(
    "given", ["qnn/test_reg.py", "pytest_qnn/test_reg.py", "pytest_qnn/conformance/../test_reg.py"]
)
def test_other_paths_are_left_alone(pytester: pytest.Pytester, given: str) -> None:
    result = pytester.runpytest_inprocess(given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: file or directory not found: {given}"])


def test_ids_of_other_tests_are_pytests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own="def test_reg_08(): pass\n")
    assert printed(pytester.runpytest_inprocess("-v")) == ["test_own.py::test_reg_08"]


def test_pytest_remembers_what_failed(pytester: pytest.Pytester) -> None:
    target = ("--qnn-backend=mutant:reg-keeps-first", "--qnn-seed=1")
    pytester.runpytest_inprocess(*SUITE[:2], "--qnn-rule=REG-0[78]", *target).assert_outcomes(
        passed=1, failed=1, deselected=len(rules.listed()) - 2
    )
    remembered = json.loads((pytester.path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert list(remembered) == IDS[:1]
    result = pytester.runpytest_inprocess(*SUITE[:2], "--lf", "--collect-only", "-q")
    assert printed(result) == IDS[:1]
