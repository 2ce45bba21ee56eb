"""A bundle is what its answers show, for whoever has nothing but it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from native_plugins import plugin

from pytest_qnn import commands, rules
from pytest_qnn.core import engine
from pytest_qnn.core.target import TargetLost
from pytest_qnn.session import judging
from pytest_qnn.session.certification import bundle
from pytest_qnn.session.certification.verify import verify
from tests.certification.forged_bundles import KINDS, Bundle, Bundles

SLICE = 5
EACH = 20
"""Forgeries of each kind."""


def verdicts(folder: Path) -> dict[str, str]:
    report = json.loads((folder / bundle.REPORT).read_bytes())
    rules = [rule for target in report["targets"] for rule in target["rules"]]
    return {rule["id"]: rule["verdict"] for rule in rules if rule["verdict"]}


def forged(bundles: Bundles, folder: Path, kind: str, number: int) -> Bundle:
    made = Bundle(bundles.faulty, folder, random.Random(f"{kind} {number}"))
    other = Bundle(bundles.conforming, folder.with_name(f"{folder.name}-other"), made.chance)
    KINDS[kind](made, other)
    made.seal()
    return made


def found_in(bundles: Bundles, folder: Path, kind: str, number: int) -> str:
    """What verification says of a forgery; empty: nothing."""
    forged(bundles, folder, kind, number)
    try:
        found = verify(folder)
    except bundle.BadBundle as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(folder.with_name(f"{folder.name}-other"))
    return "; ".join(found.false)


def verified_apart(folder: Path) -> str:
    """What a process of its own says of a true bundle; starting another or loading a library is refused."""
    command = [sys.executable, "-m", "pytest_qnn", "verify", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (3, ""), result.stdout
    assert "NOT A CERTIFICATION: profile quick, and release" in result.stdout
    return result.stdout


@pytest.mark.full
def test_a_crash_and_what_passes_are_judged_again_without_the_library(
    bundles: Bundles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verify(bundles.faulty)
    assert (found.false, found.judged) == ([], 5)
    assert set(verdicts(bundles.faulty).values()) >= {"crash", "pass"}
    assert found.violated == [
        rule for rule, verdict in sorted(verdicts(bundles.faulty).items()) if verdict == "crash"
    ]
    assert any("profile quick" in reason for reason in found.missing)
    assert "vendor: ACME" in verified_apart(bundles.conforming)


OF_EACH_KIND = "ABI-03,DOM-01,LIFE-02,PART-01,REG-08"
"""Rules whose cases are between them of every kind that there is."""


@pytest.mark.full
def test_answers_to_every_kind_of_case_are_kept_and_judged_again(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    trial = ("--qnn-profile=quick", f"--qnn-rule={OF_EACH_KIND}")
    both = ("--qnn-backend=reference", "--tflite-delegate=reference")
    assert commands.main(["certify", "--to", str(folder), *trial, *both]) == 3
    assert verdicts(folder) == dict.fromkeys(OF_EACH_KIND.split(","), "pass")
    found = verify(folder)
    assert (found.false, found.violated, found.judged) == ([], [], 5)
    verified_apart(folder)


@pytest.mark.full
def test_what_a_heavy_delegate_was_judged_by_is_judged_again(tmp_path: Path) -> None:
    """How long a case may be follows from its price, and from the time that the run gave to a case."""
    library = plugin(tmp_path, IN_CREATE="usleep(130000)")
    trial = ("--qnn-profile=default", "--qnn-timeout=20", "--qnn-rule=ABI-03,LEAK-01,LIFE-11")
    folder = tmp_path / "bundle"
    assert commands.main(["certify", "--to", str(folder), *trial, f"--tflite-delegate={library}"]) == 3
    found = verify(folder)
    assert (found.false, found.judged) == ([], 3)
    report = json.loads((folder / bundle.REPORT).read_bytes())
    assert report["targets"][0]["price"] == {"seconds": 0.125, "most_lives": 160}
    assert verdicts(folder)["LEAK-01"] == "unsupported"


@pytest.fixture(scope="module")
def found_in_cases_of_another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of LIFE-10 alone, in whose cases RUN-01 has a verdict and none of its own."""
    folder = tmp_path_factory.mktemp("owner") / "bundle"
    trial = ("--qnn-profile=quick", "--qnn-rule=LIFE-10", "--tflite-delegate=mutant:aborts-at-rank-3")
    assert commands.main(["certify", "--to", str(folder), *trial]) == 1
    assert verdicts(folder) == {"LIFE-10": "pass", "RUN-01": "crash"}
    return folder


def test_what_only_other_rules_found_is_not_judged_as_in_the_run(
    found_in_cases_of_another: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of just these two rules says that RUN-01 was not judged, and so that it is incomplete."""
    both = {name: rules.listed()[name] for name in ("LIFE-10", "RUN-01")}
    monkeypatch.setattr(rules, "listed", lambda: both)
    said = verify(found_in_cases_of_another).false
    assert not any("as complete" in sentence for sentence in said), said


def test_a_rule_that_was_judged_cannot_be_stated_not_to_be(
    found_in_cases_of_another: Path, tmp_path: Path
) -> None:
    made = Bundle(found_in_cases_of_another, tmp_path / "forged", random.Random(0))
    made.report["not_judged"] = ["LIFE-10", "RUN-01"]
    made.seal()
    found = verify(made.folder)
    assert found.false == ["LIFE-10 is stated not to be judged, and the answers show a verdict on it"]
    (target,) = found.stated.targets
    assert set(target.verdicts) == {"not judged"}
    assert found.stated.failing == ("RUN-01",)


def test_what_a_lost_target_had_shown_of_other_rules_is_kept(
    found_in_cases_of_another: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = judging.with_owners

    def lost(*given: Any) -> engine.Judged:
        raise engine.Interrupted(TargetLost("it cannot be loaded any more"), usual(*given).handed_over)

    monkeypatch.setattr(judging, "with_owners", lost)
    assert verify(found_in_cases_of_another).false == ["LIFE-10 is stated pass, and no answers show it"]


def test_forgeries_with_right_sums_are_found(bundles: Bundles, tmp_path: Path) -> None:
    kinds = list(KINDS)
    for number in range(SLICE):
        kind = kinds[number % len(kinds)]
        assert found_in(bundles, tmp_path / "forged", kind, number), f"{kind} {number}"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("verdict", "fine", "report.json is not what it should be"),
        ("verdict", "known", "report.json is not what it should be"),
        ("violation", ["none"], "violation is stated"),
        ("violation", {"evidence": {"backtrace": ["main"]}}, "violation is stated"),
    ],
)
def test_what_no_report_has_is_one_sentence(
    bundles: Bundles, tmp_path: Path, key: str, value: Any, said: str
) -> None:
    made = Bundle(bundles.conforming, tmp_path / "forged", random.Random(0))
    rules = [rule for target in made.report["targets"] for rule in target["rules"]]
    next(rule for rule in rules if rule["verdict"] == "pass")[key] = value
    (made.folder / bundle.REPORT).write_text(json.dumps(made.report))
    bundle.seal(made.folder)
    try:
        told = "; ".join(verify(made.folder).false)
    except bundle.BadBundle as error:
        told = str(error)
    assert said in told
    assert "\n" not in told


def test_a_number_that_python_does_not_read_is_one_sentence(bundles: Bundles, tmp_path: Path) -> None:
    made = Bundle(bundles.conforming, tmp_path / "forged", random.Random(0))
    text = json.dumps(made.report)
    (made.folder / bundle.REPORT).write_text(f'{{"more": {"9" * 5000}, {text[1:]}')
    bundle.seal(made.folder)
    with pytest.raises(bundle.BadBundle, match=r"^report\.json is not what it should be: Exceeds the limit"):
        verify(made.folder)


def test_rules_of_a_target_that_cannot_be_opened_are_named(bundles: Bundles, tmp_path: Path) -> None:
    made = Bundle(bundles.conforming, tmp_path / "forged", random.Random(0))
    memory = next(target for target in made.report["targets"] if target["subject"] == "memory")
    memory["options"] = ["--bogus"]
    made.seal()
    said = verify(made.folder).false
    assert said[0] == "the target memory reference: BadOption: '--bogus' does not select a target"
    assert said[1] == "CTX-09: there is no memory target that it could be judged of"


def test_the_limit_is_answers_that_are_consistent(bundles: Bundles, tmp_path: Path) -> None:
    """Who has a library that keeps the rules can say that its answers are another one's."""
    made = Bundle(bundles.conforming, tmp_path / "forged", random.Random(0))
    memory = next(target for target in made.report["targets"] if target["subject"] == "memory")
    library = "/opt/other/libQnnOther.so"
    memory["spec"] = library
    memory["options"] = [f"--qnn-backend={library}", "--qnn-rpcmem=emulated"]
    memory["provenance"] |= {"library": library, "library_sha256": "0" * 64}
    made.report["submission"] = {"vendor": "somebody else"}
    made.seal()
    assert verify(made.folder).false == []


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_forgery_is_found(bundles: Bundles, tmp_path: Path, kind: str) -> None:
    said = {number: found_in(bundles, tmp_path / "forged", kind, number) for number in range(EACH)}
    assert [number for number, text in said.items() if not text] == []
