from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_qnn import case_file
from pytest_qnn.tflite.cases.file import ScriptCaseFile

RUN = ("-p", "no:cacheprovider", "--pyargs", "pytest_qnn.conformance", "-k", "test_mem_03", "--qnn-seed=1")


@pytest.fixture
def finding(pytester: pytest.Pytester) -> Path:
    """The folder of a finding with a script."""
    result = pytester.runpytest_inprocess(*RUN, "--tflite-delegate=mutant:writes-tail")
    result.assert_outcomes(failed=1)
    (folder,) = (pytester.path / ".pytest-qnn").glob("delegate-*/MEM-03")
    return folder


def test_a_script_is_kept_replayed_and_found_fixed(pytester: pytest.Pytester, finding: Path) -> None:
    content = case_file.read(finding)
    assert isinstance(content, ScriptCaseFile)
    assert json.loads((finding / "case.json").read_text())["subject"] == "delegate-script"
    assert (finding / "model0.tflite").read_bytes()[4:8] == b"TFL3"
    assert "model0.tflite" in (finding / "README.txt").read_text()
    again = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--qnn-replay", str(finding))
    again.stdout.fnmatch_lines(["*MEM-03 STILL FAILS*"])
    fixed = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--qnn-replay", str(finding), "--tflite-delegate=reference"
    )
    fixed.assert_outcomes(passed=1)
