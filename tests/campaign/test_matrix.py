"""``--qnn-matrix`` and ``--qnn-target``: a run for each target of a file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from reports import judged_by_id, refusal

from pytest_qnn.session.matrix import worst

MATRIX = """\
[targets.old]
options = ["--qnn-backend=reference", "--qnn-strict"]

[targets.chain]
options = ["--tflite-delegate=reference", "--tflite-delegate=lib/own.so", "--tflite-delegate-option=a=b"]
resources = { board = 1 }
"""


@pytest.fixture
def matrix(pytester: pytest.Pytester, fakes: None) -> pytest.Pytester:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-08", "PART-01"))
    library = pytester.mkdir("targets") / "lib" / "own.so"
    library.parent.mkdir()
    library.touch()
    Path("targets/m.toml").write_text(MATRIX)
    return pytester


def report(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(name).read_text())
    return content


@pytest.mark.usefixtures("fakes_outside")
def test_each_target_has_a_run_a_report_and_a_junit_file_of_its_own(matrix: pytest.Pytester) -> None:
    """The backend of the command line is none of a target's; the exit status is the worst."""
    result = matrix.runpytest_inprocess(
        *("-p", "fake_suite", "--qnn-matrix=targets/m.toml", "--qnn-backend=mutant:unusable"),
        *("--qnn-report=out.json", "--junitxml=junit.xml"),
    )
    assert result.ret == 1
    old, chain = report("out-old.json"), report("out-chain.json")
    assert (old["halves"], chain["halves"]) == (["memory"], ["delegate"])
    assert judged_by_id(old).keys() == {"REG-01", "REG-08"}
    assert judged_by_id(chain).keys() == {"PART-01"}
    assert (old["options"]["qnn_strict"], chain["options"]["qnn_strict"]) == (True, False)
    assert old["seed"] == chain["seed"]  # drawn once
    assert chain["options"]["tflite_delegate"] == [
        {"spec": "reference", "options": {}},
        {"spec": str(Path("targets/lib/own.so").absolute()), "options": {"a": "b"}},
    ]
    assert not Path("out.json").exists()
    result.stdout.fnmatch_lines(["*  old: exit status 1", "*  chain: exit status 0"])
    names = {
        name: [case.get("name") for case in ET.parse(f"junit-{name}.xml").iter("testcase")]
        for name in ("old", "chain")
    }
    assert names == {"old": ["test_reg_01", "test_reg_08"], "chain": ["test_part_01"]}


def test_one_target_is_judged_in_this_run(matrix: pytest.Pytester) -> None:
    """What else the command line says stays, but for other targets."""
    result = matrix.runpytest_inprocess(
        *("--qnn-matrix=targets/m.toml", "--qnn-target=chain", "--tflite-delegate=xnnpack", "--qnn-seed=5"),
        *("--qnn-report=out.json", "--junitxml=junit.xml", "--tflite-runtime=ai_edge_litert"),
    )
    assert result.ret == 0
    found = report("out-chain.json")
    assert found["options"]["qnn_matrix_target"] == "chain"
    assert found["options"]["tflite_runtime"] == "ai_edge_litert"
    assert found["options"]["tflite_delegate"][0]["spec"] == "reference"
    assert found["seed"] == 5
    assert Path("junit-chain.xml").exists()
    assert not Path("junit.xml").exists()
    result.stdout.fnmatch_lines(["qnn: *, target chain"])


def test_a_shard_of_a_target(matrix: pytest.Pytester) -> None:
    options = ("--qnn-matrix=targets/m.toml", "--qnn-seed=5", "--qnn-blocks=2", "--qnn-shard=2/2")
    assert matrix.runpytest_inprocess(*options, "--qnn-target=chain", "--qnn-report=out.json").ret == 0
    assert report("out-chain.json")["shard"]["units"].keys() <= {"PART-01", "PART-02"}


def named(options: str) -> str:
    return f"[targets.one]\noptions = {options}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("targets = ", "is not TOML"),
        ("", "Object missing required field `targets`"),
        ("[targets]\n", "has no target"),
        ("[targets.one]\n", "'m.toml', one: Object missing required field `options`"),
        ("[targets]\none = 1\n", "'m.toml', one: Expected `object`, got `int`"),
        (named('["--qnn-backend=reference"]') + "more = 1\n", "one: Object contains unknown field `more`"),
        (named("[1]"), "'m.toml', one: Expected `str`, got `int` - at `$.options[0]`"),
        (named('["--qnn-backend=nowhere.so"]'), "--qnn-matrix, one: --qnn-backend: there is"),
        (named('["--qnn-backend=nowhere.so"]'), "nowhere.so'; names that need none: reference"),
        (
            named('["--qnn-backend=reference", "--qnn-color=red"]'),
            "'--qnn-color=red' is no option of pytest-qnn",
        ),
        (named('["--qnn-backend=reference", "tests"]'), "'tests' is no option of pytest-qnn"),
        (named('["--qnn-strict"]'), "its options name no target"),
        (named('["--qnn-backend=reference", "--qnn-shard=1/2"]'), "--qnn-shard is for the whole run"),
        (named('["--qnn-backend"]'), "--qnn-backend: expected one argument"),
        (named('["--tflite-delegate-option=a=b", "--tflite-delegate=xnnpack"]'), "belongs to no delegate"),
        (named('["--qnn-backend=reference", "--qnn-backend=mutant:x"]'), "are given"),
        (named('["--qnn-backend=reference", "--qnn-timeout=never"]'), "--qnn-timeout: 'never'"),
        (named('["--qnn-backend=reference", "--qnn-rule=ABC"]'), "one: --qnn-rule: 'ABC' matches no rule"),
        (named('["--qnn-backend=reference", "--qnn-expect=m.toml"]'), "m.toml' has 'targets'; entries are"),
        ('[targets."a/b"]\noptions = ["--qnn-backend=reference"]\n', "'a/b' is no name of letters"),
        (named('["--qnn-backend=reference"]') + "resources = { board = 0 }\n", "numbers above 0"),
    ],
)
def test_a_wrong_file_ends_the_run_before_any_target(matrix: pytest.Pytester, text: str, said: str) -> None:
    Path("m.toml").write_text(MATRIX.replace("lib/", "targets/lib/") * bool("[targets.one]" in text) + text)
    result = matrix.runpytest_inprocess("--qnn-matrix=m.toml", "--qnn-report=out.json")
    line = refusal(result)
    assert said in line
    assert "qnn matrix: target" not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--qnn-target=old",), "'old' is a target of --qnn-matrix, which is not given"),
        (("--qnn-matrix=nowhere.toml",), "--qnn-matrix: there is no file 'nowhere.toml'"),
        (("--qnn-matrix=targets",), "is not a regular file"),
        (("--qnn-matrix=targets/m.toml", "--qnn-target=new"), "which has old, chain"),
    ],
)
def test_a_target_that_there_is_not_ends_the_run(
    matrix: pytest.Pytester, options: tuple[str, ...], said: str
) -> None:
    assert said in refusal(matrix.runpytest_inprocess(*options))


def test_the_worst_exit_status_is_that_of_all() -> None:
    assert worst([0, 5]) == 5
    assert worst([5, 1, 0]) == 1
    assert worst([1, 4, 2]) == 4
    assert worst([0, -9]) == 3  # a signal ended it
