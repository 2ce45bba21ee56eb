"""The corpus: what broke a rule once is tried first, on any machine; new findings join it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fast_run import later
from reports import refusal

from pytest_qnn import case_file, commands
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.verdict import Verdict
from pytest_qnn.session import corpus, judging

SUITE = ("--pyargs", "pytest_qnn.conformance", "-p", "no:cacheprovider", "--qnn-report=out.json")
MUTANT = "--tflite-delegate=mutant:adds-a-thousandth"


def judged(pytester: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    result = pytester.runpytest_inprocess(*SUITE, "-k", "test_num_10", *options)
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    rules = [rule for target in document["targets"] for rule in target["rules"]]
    return result, next(rule for rule in rules if rule["id"] == "NUM-10")


@pytest.fixture
def found(pytester: pytest.Pytester) -> Path:
    """The one file of a corpus that a run has made."""
    result, _ = judged(pytester, MUTANT, "--qnn-seed=3", "--qnn-corpus=cases")
    result.assert_outcomes(failed=1)
    (path,) = Path("cases").iterdir()
    return path


def test_a_finding_joins_it_without_what_belongs_to_the_machine(found: Path) -> None:
    content = case_file.decode(found.read_bytes())
    assert (content.rule, content.options, content.target) == ("NUM-10", (), "mutant:adds-a-thousandth")
    assert str(Path.cwd()) not in found.read_text(encoding="utf-8")
    assert corpus.cases(Path("cases"), "NUM-10") == (content.case,)
    assert corpus.cases(Path("cases"), "NUM-02") == ()


@pytest.mark.full
def test_what_is_in_it_is_tried_first_whatever_the_seed(pytester: pytest.Pytester, found: Path) -> None:
    for options in (("--qnn-seed=4",), ("--qnn-seed=5", "--qnn-sandbox=fork"), ("--qnn-seed=6", "-n", "1")):
        _, rule = judged(pytester, MUTANT, "--qnn-corpus=cases", *options)
        assert rule["verdict"] == "fail"
        assert rule["case"] == json.loads(found.read_text(encoding="utf-8"))["case"]
    assert list(Path("cases").iterdir()) == [found]  # the same case is one file


def test_what_is_mended_passes_and_the_drawn_cases_follow(pytester: pytest.Pytester, found: Path) -> None:
    result, with_it = judged(pytester, "--tflite-delegate=reference", "--qnn-seed=3", "--qnn-corpus=cases")
    result.assert_outcomes(passed=1)
    _, without = judged(pytester, "--tflite-delegate=reference", "--qnn-seed=3")
    assert with_it["examples"] == without["examples"] + 1
    assert found.exists()


@pytest.mark.full
def test_in_the_ini_file_it_is_beside_it(pytester: pytest.Pytester, found: Path) -> None:
    pytester.makeini("[pytest]\nqnn_corpus = cases\nqnn_expect = known.toml\n")
    Path("known.toml").write_text("", encoding="utf-8")
    case = json.loads(found.read_text(encoding="utf-8"))["case"]
    Path("below").mkdir()
    os.chdir("below")
    _, rule = judged(pytester, MUTANT, "-c", "../tox.ini", "--rootdir=..")
    assert (rule["verdict"], rule["case"]) == ("fail", case)


def test_a_case_that_the_rule_cannot_judge_is_passed_over(pytester: pytest.Pytester, found: Path) -> None:
    """Another release may draw other cases for a rule: to its check this one has steps that it never met."""
    content = json.loads(found.read_text(encoding="utf-8")) | {"rule": "REG-08"}
    Path("cases/REG-08-0123456789abcdef.json").write_text(json.dumps(content), encoding="utf-8")
    result = pytester.runpytest_inprocess(*SUITE[:-1], "-k", "test_reg_08", "--qnn-corpus=cases")
    assert refusal(result).endswith("is a case of a delegate, and REG-08 is about QNN memory")
    content["rule"] = "PREC-03"
    Path("cases/REG-08-0123456789abcdef.json").rename("cases/PREC-03-0123456789abcdef.json")
    Path("cases/PREC-03-0123456789abcdef.json").write_text(json.dumps(content), encoding="utf-8")
    result = pytester.runpytest_inprocess(
        *SUITE[:-1], "-k", "prec_03", "--qnn-corpus=cases", "--tflite-delegate=reference"
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("NUM-10-0123456789abcdef.json", "{}", "is not a case file of pytest-qnn"),
        later("NUM-10-0123456789abcdef.json", None, "is a case of NUM-10"),
        later("notes.json", "{}", "is not called RULE-DIGEST.json"),
    ],
)
def test_what_is_no_case_is_refused_in_one_sentence(
    pytester: pytest.Pytester, found: Path, name: str, text: str | None, said: str
) -> None:
    rule = "test_num_10"
    if text is None:
        name, rule = name.replace("NUM-10", "NUM-02"), "test_num_02"
        shutil.copy(found, Path("cases") / name)
    else:
        (Path("cases") / name).write_text(text, encoding="utf-8")
    result = pytester.runpytest_inprocess(*SUITE[:-1], "-k", rule, MUTANT, "--qnn-corpus=cases")
    line = refusal(result)
    assert line.startswith("--qnn-corpus: ")
    assert said in line


def test_what_is_no_folder_is_refused(pytester: pytest.Pytester) -> None:
    Path("file").write_text("", encoding="utf-8")
    for value, said in (("file", "'file' is not a folder"), ("absent/cases", "there is no folder ")):
        result = pytester.runpytest_inprocess(*SUITE[:-1], "-k", "num_10", f"--qnn-corpus={value}")
        assert refusal(result).startswith(f"--qnn-corpus: {said}")


def test_the_command_refuses_a_name_that_no_folder_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 256
    assert commands.main(["corpus", name]) == 2
    assert capsys.readouterr().err == f"corpus: there is no folder '{name}'\n"


def test_what_cannot_be_written_is_said(pytester: pytest.Pytester) -> None:
    Path("cases").symlink_to("/proc/self/nowhere/cases")
    _, rule = judged(pytester, MUTANT, "--qnn-corpus=cases")
    assert rule["verdict"] == "fail"
    assert "could not be added" in rule["note"]


def test_what_becomes_of_a_file_while_the_run_lasts_costs_that_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, found: Path
) -> None:
    """Another run may be adding to the folder, and somebody copying into it."""
    usual = corpus.check

    def check(session: Any) -> None:
        usual(session)
        (found.parent / "NUM-10-0123456789abcdef.json").write_text("{", encoding="utf-8")

    monkeypatch.setattr(corpus, "check", check)
    result, rule = judged(pytester, MUTANT, "--qnn-seed=4", "--qnn-corpus=cases")
    result.assert_outcomes(failed=1)
    assert (rule["verdict"], rule["case"]) == ("fail", json.loads(found.read_text(encoding="utf-8"))["case"])
    assert "NUM-10-0123456789abcdef.json' is not a case file of pytest-qnn" in rule["note"]
    assert "Traceback" not in result.stdout.str()


def test_what_cannot_be_written_is_said_beside_whose_doing_the_end_of_a_process_was(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(_session: Any, _rule: Any, _target: Any, verdict: Verdict) -> Verdict:
        return msgspec.structs.replace(verdict, note="the process dies with this delegate only")

    monkeypatch.setattr(judging, "_compared", compared)
    Path("cases").symlink_to("/proc/self/nowhere/cases")
    _, rule = judged(pytester, MUTANT, "--qnn-corpus=cases")
    assert rule["note"].startswith("the process dies with this delegate only; the case could not be added")


def put(folder: Path, size: int, seen: str, verdict: str = "fail", where: str = "step 0") -> None:
    """Add a case with an allocation of this size."""
    case = {"steps": [{"do": "alloc", "buffer": "b0", "size": size}]}
    common = {"schema": 2, "rule": "REG-08", "verdict": verdict, "target": "x", "options": (), "seed": 1}
    texts = {"expected": "", "seen": seen, "where": where}
    corpus.add(folder, case_file.with_case("memory", json.dumps(case), common | texts))


def test_deaths_in_different_calls_are_not_alike(tmp_path: Path) -> None:
    for size, call in ((8, "QnnGraph_create"), (16, "QnnGraph_finalize"), (32, "QnnGraph_create kernel 1")):
        put(tmp_path, size, "the process died of SIGSEGV", "crash", f"in {call}, step 0 (Alloc)")
    (path,) = corpus.superfluous(tmp_path)
    assert '"size": 32' in path.read_text(encoding="utf-8")


def test_of_cases_that_fail_alike_the_smallest_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, seen in ((4096, "8000 QNN_MEM_X"), (8, "8000 QNN_MEM_X"), (16, "8001 QNN_MEM_Y")):
        put(tmp_path, size, seen)
    assert dict(corpus.counts(tmp_path)) == {"REG-08": 3}
    (path,) = corpus.superfluous(tmp_path)
    assert '"size": 4096' in path.read_text(encoding="utf-8")
    assert commands.main(["corpus", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["REG-08 3", "1 superfluous"]
    assert commands.main(["corpus", str(tmp_path), "--minimise"]) == 0
    assert capsys.readouterr().out.splitlines() == ["REG-08 3", "1 removed"]
    assert not path.exists()
    assert dict(corpus.counts(tmp_path)) == {"REG-08": 2}
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadOption, match="RULE-DIGEST"):
        corpus.superfluous(tmp_path)
    for folder in (tmp_path, tmp_path / "absent"):
        assert commands.main(["corpus", str(folder)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("corpus: ")


@pytest.mark.full
def test_of_cases_that_show_the_same_when_they_are_run_the_smallest_is_kept(
    found: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what stands in the files the two are different findings."""
    content = case_file.decode(found.read_bytes())
    larger = msgspec.structs.replace(content.case, invokes=2)
    corpus.add(Path("cases"), msgspec.structs.replace(content, case=larger, seen="something else", where=""))
    (other,) = set(Path("cases").iterdir()) - {found}
    assert corpus.superfluous(Path("cases")) == []

    def minimised(run: str) -> tuple[int, list[str]]:
        status = commands.main(["corpus", "cases", "--minimise", "--run", run])
        printed = capsys.readouterr()
        return status, (printed.out or printed.err).splitlines()

    capsys.readouterr()
    assert minimised("--tflite-delegate=reference") == (0, ["NUM-10 2", "0 removed"])
    assert minimised("--tflite-delegate=nowhere.so")[0] == 2
    assert minimised("--tflite-delegate='")[0] == 2
    assert other.exists()
    assert minimised(MUTANT) == (0, ["NUM-10 2", "1 removed"])
    assert set(Path("cases").iterdir()) == {found}


@pytest.mark.parametrize("rule", ["NUM-99", later("NUM-02")])
def test_a_case_that_this_suite_cannot_judge_stays_when_cases_are_run(
    found: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """A rule of another release, and one whose check meets what it does not know."""
    usual = corpus.engine.judge_case

    def judge_case(judging: Any, *rest: Any) -> Any:
        if judging.id == "NUM-02":
            raise KeyError("a step of another release")
        return usual(judging, *rest)

    monkeypatch.setattr(corpus.engine, "judge_case", judge_case)
    content = json.loads(found.read_text(encoding="utf-8")) | {"rule": rule}
    name = f"{rule}-0123456789abcdef.json"
    (Path("cases") / name).write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    assert commands.main(["corpus", "cases", "--minimise", "--run", MUTANT]) == 0
    printed = capsys.readouterr()
    assert set(printed.out.splitlines()) == {"0 removed", "NUM-10 1", f"{rule} 1"}
    assert printed.err == ""
    assert (Path("cases") / name).exists()
