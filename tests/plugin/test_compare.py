"""``python -m pytest_qnn compare``: on the reports of two real runs, and on what is changed in them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import fake_suite
import jsonschema
import msgspec
import pytest
from msgspec.structs import replace
from reports import within

from pytest_qnn import commands
from pytest_qnn.core import json_schema
from pytest_qnn.report import loaded
from pytest_qnn.report.compare import text
from pytest_qnn.report.compare.data import Comparison, RuleDifference, TargetDifference
from pytest_qnn.report.compare.differences import compare
from pytest_qnn.report.loaded import (
    Capabilities,
    Choice,
    Claim,
    Evidence,
    Partitioning,
    Report,
    Rule,
    Violation,
)

OLD = "--qnn-backend=reference:no-ion --tflite-delegate=reference:int8-only --qnn-report=old.json"
NEW = "--qnn-backend=mutant:reg-keeps-first --tflite-delegate=mutant:ignores-activation --qnn-report=new.json"
RULES = "test_reg_08 or test_reg_02 or test_ion_01 or test_num_06 or test_num_01"
COMPARE = (sys.executable, "-m", "pytest_qnn", "compare")


class Ran(NamedTuple):
    """What one command printed, and the reports that it compared."""

    folder: Path
    status: int
    stdout: str
    old: Report
    new: Report

    def written(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / name).read_text())
        return content


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of this run of pytest, which the first process that wants it has filled. Nobody changes it.

    Args:
        factory: that of the run.
        name: of the folder, another one for each ``make``.
        make: fills a folder, whose name is another one meanwhile. If it raises, the next process tries again.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose own folder lies in that of the run
        root = root.parent
    folder, begun = root / name, root / f"{name}.begun"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir()
            make(begun)
            begun.rename(folder)
    return folder


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two real runs about both halves: on conforming targets that offer less, and on two mutants."""
    folder = shared(tmp_path_factory, "compare", _run)
    status = int((folder / "status").read_text())
    reports = (loaded.read(folder / f"{name}.json") for name in ("old", "new"))
    return Ran(folder, status, (folder / "stdout").read_text(), *reports)


def _run(folder: Path) -> None:
    (folder / "temporary").mkdir()
    more = ("--qnn-profile=quick", "-q", "-p", "no:cacheprovider", "-k", RULES)
    done = subprocess.run(
        [*COMPARE, "--json", "out.json", "--run", OLD, NEW, "--", *more],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "temporary")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (folder / "out.json").exists(), done.stdout + done.stderr
    (folder / "status").write_text(str(done.returncode))
    (folder / "stdout").write_text(done.stdout)


def target(comparison: Comparison, subject: str) -> TargetDifference:
    (found,) = (each for each in comparison.targets if each.subject == subject)
    return found


def rules(comparison: Comparison) -> dict[str, RuleDifference]:
    return {each.id: each for target in comparison.targets for each in target.rules}


def with_rule(report: Report, rule_id: str, **fields: Any) -> Report:
    """The report with other fields in one rule."""

    def change(rule: Rule) -> Rule:
        return replace(rule, **fields) if rule.id == rule_id else rule

    targets = (replace(each, rules=tuple(map(change, each.rules))) for each in report.targets)
    return replace(report, targets=tuple(targets))


def without_rule(report: Report, rule_id: str) -> Report:
    targets = (
        replace(each, rules=tuple(rule for rule in each.rules if rule.id != rule_id))
        for each in report.targets
    )
    return replace(report, targets=tuple(targets))


def with_target(report: Report, subject: str, **fields: Any) -> Report:
    """The report with other fields in the target of one half."""
    targets = (replace(each, **fields) if each.subject == subject else each for each in report.targets)
    return replace(report, targets=tuple(targets))


def lines(comparison: Comparison) -> list[str]:
    return list(text.lines(comparison, "old.json", "new.json"))


@pytest.mark.full
def test_what_was_run_is_compared_as_its_reports_are(
    ran: Ran, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ran.folder)
    assert commands.main(["compare", "--json", "again.json", "old.json", "new.json"]) == ran.status == 1
    printed = capsys.readouterr().out.splitlines()
    # The reports in the temporary folder had another time in their names, and nothing else.
    assert printed[2:] == ran.stdout.splitlines()[2:]
    assert ran.written("again.json") == ran.written("out.json")
    assert printed[-1].startswith("worse: ")


def test_both_runs_have_the_seed_that_was_drawn_for_the_first(ran: Ran) -> None:
    assert ran.old.seed == ran.new.seed
    assert "--qnn-seed" not in {each.name for each in compare(ran.old, ran.new).settings}


def test_the_two_runs_leave_no_folder(ran: Ran) -> None:
    assert list((ran.folder / "temporary").glob("pytest-qnn-compare-*")) == []


def test_a_rule_that_passed_and_fails_is_a_regression(ran: Ran) -> None:
    found = rules(compare(ran.old, ran.new))
    for rule_id in ("REG-08", "NUM-06"):
        assert (found[rule_id].kind, found[rule_id].worse) == ("regression", True)
    (row,) = (line for line in ran.stdout.splitlines() if "REG-08" in line)
    assert row.split() == ["regression", "REG-08", "MUST", "pass", "->", "fail"]
    assert "seen      new: 8002 QNN_MEM_ERROR_ALREADY_REGISTERED" in ran.stdout


def test_what_is_not_offered_any_more_is_named_so_and_what_passes_now_is_better(ran: Ran) -> None:
    found = rules(compare(ran.new, ran.old))
    assert (found["ION-01"].kind, found["ION-01"].worse) == ("no longer offered", True)
    assert (found["REG-08"].kind, found["REG-08"].worse) == ("improvement", False)
    assert "REG-02" not in found
    forth = rules(compare(ran.old, ran.new))
    assert (forth["ION-01"].kind, forth["ION-01"].worse) == ("improvement", False)


def test_a_failure_that_is_expected_is_a_verdict_of_its_own(ran: Ran) -> None:
    known = with_rule(ran.new, "REG-08", verdict="known", violation=None)
    for old, new, kind in (
        (ran.old, known, "regression"),
        (ran.new, known, "other verdict"),
        (known, ran.new, "regression"),
        (known, ran.old, "improvement"),
    ):
        assert rules(compare(old, new))["REG-08"].kind == kind


def test_claims_that_are_lost_are_worse_and_those_that_are_gained_are_not(ran: Ran) -> None:
    back, forth = compare(ran.new, ran.old), compare(ran.old, ran.new)
    lost = {(each.op, each.dtype) for each in target(back, "delegate").claims if each.kind == "lost"}
    gained = {(each.op, each.dtype) for each in target(forth, "delegate").claims if each.kind == "gained"}
    assert lost == gained
    assert ("ADD", "float32") in lost
    assert target(back, "delegate").worse.count("claim lost") == len(lost)
    assert "claim lost" not in target(forth, "delegate").worse
    assert any(
        "lost" in line and "ADD float32" in line and "19 of 19 -> 0 of 19" in line for line in lines(back)
    )


def test_nodes_of_sample_graphs_that_are_left_to_the_cpu_are_counted(ran: Ran) -> None:
    back = target(compare(ran.new, ran.old), "delegate")
    counts = {each.name: each for each in back.partitioning}
    assert counts["ADD left to the CPU"].kind == "lost"
    assert counts["kernels"].kind == "changed"
    assert "more left to the CPU" in back.worse


def test_other_answers_where_documents_are_silent_are_named_and_are_not_worse(ran: Ran) -> None:
    memory = target(compare(ran.old, ran.new), "memory")
    assert memory.choices
    assert all(each.old != each.new and each.question for each in memory.choices)
    same = compare(ran.old, ran.old)
    assert target(same, "memory").choices == ()
    first, *rest = ran.old.targets[1].choices
    changed = with_target(ran.old, "memory", choices=(replace(first, answer="another"), *rest))
    comparison = compare(ran.old, changed)
    assert comparison.worse == 0
    assert f"    {first.answer} -> another: {first.point}" in lines(comparison)
    asked_more = with_target(ran.old, "memory", choices=(first, *rest, Choice("new-point", "Q", "success")))
    assert "    not asked -> success: new-point" in lines(compare(ran.old, asked_more))


def test_the_same_reports_give_a_short_text_and_status_0(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(ran.folder / "new.json")
    assert commands.main(["compare", path, path]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert "  3 rules judged in both, 3 of them the same" in printed
    assert printed[-1] == "nothing got worse"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("pass", "fail", "regression"),
        ("pass", "crash", "regression"),
        ("pass", "hang", "regression"),
        ("pass", "contradiction", "regression"),
        ("pass", "inconclusive", "regression"),
        ("pass", "unsupported", "no longer offered"),
        ("unsupported", "fail", "regression"),
        ("unsupported", "inconclusive", "regression"),
        ("inconclusive", "crash", "regression"),
        ("fail", "crash", "regression"),
        ("contradiction", "hang", "regression"),
        ("crash", "hang", "other verdict"),
        ("crash", "fail", "other verdict"),
        ("fail", "contradiction", "other verdict"),
        ("fail", "inconclusive", "other verdict"),
        ("fail", "unsupported", "other verdict"),
        ("inconclusive", "unsupported", "other verdict"),
        ("fail", "pass", "improvement"),
        ("unsupported", "pass", "improvement"),
        ("inconclusive", "pass", "improvement"),
    ],
)
def test_what_became_of_a_verdict_has_a_kind(ran: Ran, old: str, new: str, kind: str) -> None:
    comparison = compare(with_rule(ran.old, "REG-02", verdict=old), with_rule(ran.old, "REG-02", verdict=new))
    (found,) = rules(comparison).values()
    assert found.kind == kind
    assert found.worse == (kind in ("regression", "no longer offered"))
    assert comparison.worse == found.worse
    assert target(comparison, "memory").same == target(comparison, "memory").judged - 1 == 2


KNOWN = Violation("0", "1000", "step 1", Evidence("QnnMem_register", "SEGV_MAPERR at 0x8, near NULL"))


@pytest.mark.parametrize(
    "other",
    [
        replace(KNOWN, expected="8000"),
        replace(KNOWN, seen="1003"),
        replace(KNOWN, where="step 2"),
        replace(KNOWN, evidence=Evidence("QnnMem_deRegister", "SEGV_MAPERR at 0x8, near NULL")),
        replace(KNOWN, evidence=Evidence("QnnMem_register", "SEGV_MAPERR at 0x10, near NULL")),
    ],
)
def test_a_finding_with_another_text_is_changed_and_not_worse(ran: Ran, other: Violation) -> None:
    old, new = (
        with_rule(ran.old, "REG-02", verdict="crash", violation=violation) for violation in (KNOWN, other)
    )
    comparison = compare(old, new)
    (found,) = rules(comparison).values()
    assert (found.kind, found.worse, comparison.worse) == ("changed finding", False, 0)
    assert rules(compare(old, old)) == {}


@pytest.mark.parametrize(
    "texts",
    [
        ("0x7f0012345678 is left", "0x7f0087654321 is left"),
        (
            "no answer: still computing after 34 s, of which 21 s of",
            "no answer: still computing after 101 s, of which 20.5 s of",
        ),
    ],
)
def test_what_is_never_the_same_twice_tells_no_findings_apart(ran: Ran, texts: tuple[str, str]) -> None:
    reports = (
        with_rule(ran.old, "REG-02", verdict="hang", violation=replace(KNOWN, seen=seen)) for seen in texts
    )
    assert rules(compare(*reports)) == {}


def test_what_a_pass_says_is_not_compared(ran: Ran) -> None:
    assert rules(compare(ran.old, with_rule(ran.old, "REG-02", reason="more", seconds=0.5))) == {}


UNJUDGED = {"state": "not_judged", "verdict": None}
NOT_SELECTED = {"state": "not_selected", "verdict": None}


def test_a_rule_that_is_judged_in_one_report_only_is_named(ran: Ran) -> None:
    gone = compare(ran.old, with_rule(ran.old, "REG-02", **UNJUDGED))
    assert (rules(gone)["REG-02"].kind, gone.worse) == ("no longer judged", 1)
    assert "  no longer judged, pass -> not judged: 1: REG-02" in lines(gone)
    back = compare(with_rule(ran.old, "REG-02", **UNJUDGED), ran.old)
    assert (rules(back)["REG-02"].kind, back.worse) == ("judged now", 0)
    assert "  judged now, not judged -> pass: 1: REG-02" in lines(back)
    found = compare(
        with_rule(ran.old, "REG-02", **NOT_SELECTED),
        with_rule(ran.old, "REG-02", verdict="fail", violation=KNOWN),
    )
    assert (rules(found)["REG-02"].kind, found.worse) == ("new finding", 1)


def test_a_finding_by_another_rules_control_may_go_without_a_verdict(ran: Ran) -> None:
    old = with_rule(ran.old, "REG-02", verdict="fail", violation=KNOWN, found_by="REG-08")
    gone = compare(old, with_rule(ran.old, "REG-02", **NOT_SELECTED))
    assert (rules(gone)["REG-02"].kind, gone.worse) == ("other verdict", 0)
    lost = compare(old, with_rule(ran.old, "REG-02", **UNJUDGED))
    assert (rules(lost)["REG-02"].kind, lost.worse) == ("no longer judged", 1)


@pytest.mark.full
def test_rules_of_another_catalogue_are_new_or_removed(ran: Ran) -> None:
    less = replace(without_rule(ran.old, "REG-02"), catalogue=loaded.Catalogue(1, "0" * 64))
    removed, added = compare(ran.old, less), compare(less, ran.old)
    assert (rules(removed)["REG-02"].kind, removed.worse) == ("removed rule", 0)
    assert (rules(added)["REG-02"].kind, added.worse) == ("new rule", 0)
    assert "catalogue" in {each.name for each in removed.settings}
    found = compare(less, with_rule(ran.old, "REG-02", verdict="fail", violation=KNOWN))
    assert (rules(found)["REG-02"].kind, found.worse) == ("new finding", 1)
    # With one catalogue a rule is not removed: its verdict is missing.
    missing = compare(ran.old, without_rule(ran.old, "REG-02"))
    assert (rules(missing)["REG-02"].kind, missing.worse) == ("no longer judged", 1)


def test_what_the_runs_differ_in_is_listed_first_and_in_order(ran: Ran) -> None:
    other = replace(
        ran.old,
        seed=ran.old.seed + 1,
        profile="thorough",
        platform="elsewhere",
        catalogue=loaded.Catalogue(ran.old.catalogue.rules, "0" * 64),
        tool=ran.old.tool | {"pytest-qnn": "9.9"},
        options=ran.old.options | {"qnn_timeout": 5.0, "tflite_delegate_precision": "float16"},
    )
    names = [each.name for each in compare(ran.old, other).settings]
    assert names == [
        *("--qnn-profile", "--qnn-seed", "--qnn-timeout", "--tflite-delegate-precision"),
        *("catalogue", "pytest-qnn", "platform"),
    ]
    printed = lines(compare(ran.old, other))
    assert printed[3] == "The runs differ in"
    assert printed[4].split() == ["--qnn-profile", "quick", "->", "thorough"]
    assert compare(ran.old, other).worse == 0


def test_versions_and_digests_of_a_target_are_compared(ran: Ran) -> None:
    now = with_target(
        ran.old, "memory", provenance=ran.old.targets[1].provenance | {"library_sha256": "1" * 64}
    )
    (found,) = target(compare(ran.old, now), "memory").provenance
    assert (found.name, found.old, found.new) == ("library_sha256", "", "1" * 64)


def test_targets_of_two_names_are_matched_where_each_report_has_one(ran: Ran) -> None:
    found = target(compare(ran.old, ran.new), "memory")
    assert (found.old, found.new) == ("reference:no-ion", "mutant:reg-keeps-first")
    assert "memory target: reference:no-ion -> mutant:reg-keeps-first" in ran.stdout


def test_of_several_targets_those_with_one_name_are_matched(ran: Ran) -> None:
    memory = ran.old.targets[1]
    another = replace(memory, spec="another")
    two = replace(ran.old, targets=(*ran.old.targets, another))
    more, less = compare(ran.old, two), compare(two, ran.old)
    assert [(each.old, each.new) for each in more.targets if each.subject == "memory"] == [(memory.spec,) * 2]
    assert [each.spec for each in (*more.only_new, *less.only_old)] == ["another", "another"]
    assert (more.worse, less.worse) == (0, 1)
    assert "only in the old report: memory target another: 3 rules judged" in lines(less)
    with_finding = with_rule(replace(ran.old, targets=(another,)), "REG-02", verdict="fail")
    added = replace(ran.old, targets=(*ran.old.targets, *with_finding.targets))
    assert compare(ran.old, added).worse == 1


def test_a_target_without_verdicts_is_not_missed(ran: Ran) -> None:
    delegate, memory = ran.old.targets
    unjudged = replace(memory, rules=tuple(replace(rule, **NOT_SELECTED) for rule in memory.rules))
    old = replace(ran.old, targets=(delegate, unjudged))
    assert compare(old, replace(ran.old, targets=(delegate,))).worse == 0
    assert compare(ran.old, replace(ran.old, targets=(delegate,))).worse == 1


PART = "claims (ranks 1, 2; NONE; plain); leaves (rank 3; NONE; plain)"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (Claim("ADD", "int8", 4, 4, "claims"), Claim("ADD", "int8", 2, 4, PART), "lost"),
        (Claim("ADD", "int8", 2, 4, PART), Claim("ADD", "int8", 2, 4, PART.replace("1, 2", "1, 3")), "lost"),
        (Claim("ADD", "int8", 2, 4, PART), Claim("ADD", "int8", 4, 4, "claims"), "gained"),
        (
            Claim("ADD", "int8", 2, 4, PART),
            Claim("ADD", "int8", 2, 4, PART.replace("leaves", "fails")),
            "changed",
        ),
        (Claim("ADD", "int8", 0, 4, "leaves"), Claim("ADD", "int8", 0, 4, "dies of"), "changed"),
        (Claim("ADD", "int8", 4, 4, "claims"), Claim("ADD", "int8", 2, 6, PART), "other"),
    ],
)
def test_what_became_of_a_claim_has_a_kind(ran: Ran, old: Claim, new: Claim, kind: str) -> None:
    before, after = (with_target(ran.old, "delegate", claims=(claim,)) for claim in (old, new))
    comparison = compare(before, after)
    (found,) = target(comparison, "delegate").claims
    assert (found.kind, comparison.worse) == (kind, int(kind == "lost"))
    assert target(compare(before, before), "delegate").claims == ()


def test_kinds_that_are_lost_are_named_also_where_more_are_claimed(ran: Ran) -> None:
    some = ("ADD int8 rank 2", "ADD int8 rank 2 RELU", "MUL int8 rank 1")
    others = ("ADD int8 rank 2", "ADD int8 rank 3", "ADD int8 rank 3 RELU", "MUL int8 rank 1")
    before, after = (
        with_target(ran.old, "delegate", capabilities=Capabilities(operators)) for operators in (some, others)
    )
    found = target(compare(before, after), "delegate")
    assert [(each.kind, each.of, each.which) for each in found.kinds] == [
        ("lost", "ADD int8", "rank 2 RELU"),
        ("gained", "ADD int8", "rank 3"),
        ("gained", "ADD int8", "rank 3 RELU"),
    ]
    assert found.worse == ("kind no longer supported",)
    shown = lines(compare(before, after))
    assert any(line.split() == ["lost", "ADD", "int8", "rank", "2", "RELU"] for line in shown)
    assert any("gained  ADD int8  rank 3; rank 3 RELU" in line for line in shown)
    assert target(compare(before, before), "delegate").kinds == ()
    nothing = with_target(ran.old, "delegate", capabilities=Capabilities())
    assert target(compare(before, nothing), "delegate").kinds == ()


def test_an_operator_or_a_key_that_a_backend_supports_no_longer_is_worse(ran: Ran) -> None:
    before, after = (
        with_target(ran.old, "memory", capabilities=Capabilities(("Relu FLOAT_32", *more), (202, *keys)))
        for more, keys in ((("Relu UFIXED_POINT_8",), (1101,)), ((), ()))
    )
    found = target(compare(before, after), "memory")
    assert [(each.of, each.which) for each in found.kinds] == [
        ("Relu UFIXED_POINT_8", ""),
        ("property key", "1101"),
    ]
    assert found.worse == ("kind no longer supported",) * 2
    assert target(compare(after, before), "memory").worse == ()


def test_claims_that_were_not_learned_are_lost_unless_nothing_was_judged(ran: Ran) -> None:
    unlearned = with_target(ran.new, "delegate", claims=())
    known = [claim for claim in ran.new.targets[0].claims if claim.claimed]
    assert target(compare(ran.new, unlearned), "delegate").worse == ("claim lost",) * len(known)
    delegate = unlearned.targets[0]
    unjudged = tuple(replace(rule, **NOT_SELECTED) for rule in delegate.rules)
    not_run = with_target(unlearned, "delegate", rules=unjudged)
    assert "claim lost" not in target(compare(ran.new, not_run), "delegate").worse


def test_other_sample_graphs_are_said_and_not_compared(ran: Ran) -> None:
    first, second = Partitioning(2, 9, 2, 0, {}), Partitioning(3, 12, 5, 1, {"ADD": 3})
    comparison = compare(*(with_target(ran.old, "delegate", partitioning=each) for each in (first, second)))
    found = target(comparison, "delegate").partitioning
    assert {each.kind for each in found} == {"other"}
    assert comparison.worse == 0


@pytest.mark.parametrize(
    ("old", "new", "said"), [(1.0, 2.5, True), (1.0, 1.9, False), (0.1, 0.9, False), (2.0, 3.5, False)]
)
def test_a_rule_is_slower_beyond_twice_the_time_and_a_second(
    ran: Ran, old: float, new: float, said: bool
) -> None:
    comparison = compare(*(with_rule(ran.old, "REG-02", seconds=seconds) for seconds in (old, new)))
    assert [each.id for each in target(comparison, "memory").slower] == ["REG-02"] * said
    assert comparison.worse == 0
    assert any("REG-02" in line for line in lines(comparison)) == said


def test_the_slowest_ten_are_shown_with_the_time_of_all_rules(ran: Ran) -> None:
    memory = ran.old.targets[1]
    judged = next(rule for rule in memory.rules if rule.state == "judged")
    old, new = (
        with_target(
            ran.old,
            "memory",
            rules=tuple(replace(judged, id=f"REG-{n}", seconds=n * factor) for n in range(1, 31)),
        )
        for factor in (1.0, 3.0)
    )
    comparison = compare(old, new)
    assert len(target(comparison, "memory").slower) == 30
    shown = [line.split() for line in lines(comparison) if "REG-" in line]
    assert [words[0] for words in shown] == [f"REG-{n}" for n in range(30, 20, -1)]
    assert shown[0][1:] == ["30.0", "->", "90.0"]
    assert "  slower, in seconds, of all rules judged in both 465.0 -> 1395.0: 30" in lines(comparison)


def test_self_checks_and_what_a_verdict_depends_on_are_said(ran: Ran) -> None:
    new = with_rule(
        ran.old,
        "REG-02",
        verdict="inconclusive",
        reason="nothing is left",
        self_check=True,
        blocked_by=("RUN-01", "EXE-21"),
        flaky="failed 2 of 6 runs",
    )
    printed = "\n".join(lines(compare(ran.old, new)))
    assert "pass -> inconclusive (self-check)" in printed
    assert "blocked   new: by RUN-01, EXE-21" in printed
    assert "reason    new: nothing is left" in printed
    assert "flaky     new: failed 2 of 6 runs" in printed


def hostile(value: Any, *, names: bool = False) -> Any:
    """Every text of a report made hostile, but for those that are ids or one of a few words.

    ``names``: those of a dictionary too.
    """
    kept = ("id", "level", "state", "verdict", "subject", "halves", "sha256")
    if isinstance(value, str):
        return f"{fake_suite.HOSTILE_TEXT}\n{value}" + "x" * 500
    if isinstance(value, dict):
        free = ("provenance", "tool", "left", "options")
        return {
            hostile(key) if names else key: part if key in kept else hostile(part, names=key in free)
            for key, part in value.items()
        }
    return [hostile(part) for part in value] if isinstance(value, list | tuple) else value


def test_text_from_elsewhere_is_escaped_and_cut(ran: Ran) -> None:
    bad_old, bad_new = (
        msgspec.convert(hostile(msgspec.to_builtins(each)), Report) for each in (ran.old, ran.new)
    )
    both = replace(ran.old, targets=(*ran.old.targets, *bad_new.targets))
    pairs = [(ran.old, bad_new), (bad_new, ran.old), (bad_old, ran.new), (ran.old, both), (both, ran.old)]
    for old, new in pairs:
        printed = list(text.lines(compare(old, new), fake_suite.HOSTILE_TEXT, fake_suite.HOSTILE_TEXT))
        assert [line for line in printed if not line.isprintable()] == []
        assert max(map(len, printed)) < 600
        assert any("\\x1b[2J" in line for line in printed[2:])


def test_hostile_text_reaches_a_terminal_without_utf_8_and_json(ran: Ran, tmp_path: Path) -> None:
    document = ran.written("new.json")
    found = next(rule for each in document["targets"] for rule in each["rules"] if rule["verdict"] == "fail")
    found["violation"]["seen"] = "\u20ac\x1b[2J\u202e" + "x" * 500
    (tmp_path / "new.json").write_text(json.dumps(document))
    done = subprocess.run(
        [*COMPARE, str(ran.folder / "old.json"), "new.json", "--json", "out.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"\\u20ac\\x1b[2J\\u202exxx" in done.stdout
    written = json.loads((tmp_path / "out.json").read_text())
    seen = [rule["new"]["seen"] for each in written["targets"] for rule in each["rules"]]
    assert found["violation"]["seen"] in seen


def test_a_reader_who_goes_away_is_no_error(ran: Ran) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [*COMPARE, *(str(ran.folder / f"{name}.json") for name in ("old", "new"))]
    with os.fdopen(write_end, "wb") as stdout:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_comparison_in_json_has_a_schema(ran: Ran) -> None:
    schema = json.loads(resources.files("pytest_qnn.report.compare").joinpath("schema.json").read_text())
    assert schema == json_schema.made_of(Comparison, schema["title"])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(ran.written("out.json"))
    assert not validator.is_valid(ran.written("out.json") | {"worse": "much"})


def a_folder(path: Path) -> None:
    path.mkdir()


def a_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


BAD = {
    "missing": (str, "cannot be read: No such file or directory"),
    "folder": (a_folder, "cannot be read: it is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "cannot be read: it is not a regular file"),
    "fifo": (os.mkfifo, "cannot be read: it is not a regular file"),
    "large": (a_large_file, "has more than 67108864 bytes, and no report of pytest-qnn has"),
    "empty": (holding(b""), "is not a report of pytest-qnn: Input data was truncated"),
    "html": (holding(b"<!doctype html>"), "is not a report of pytest-qnn: JSON is malformed: *"),
    "list": (holding(b"[]"), "is not a report of pytest-qnn: Expected `object`, got `array`"),
    "no-report": (holding(b"{}"), "is not a report of pytest-qnn: Object missing required field `schema`"),
    "half": (holding(b'{"schema": 2}'), "is not a report of pytest-qnn: Object missing required field *"),
    "schema": (holding(b'{"schema": 3}'), "is a report of schema 3, and this pytest-qnn reads schema 2"),
    "number": (holding(b'{"schema": 1%s}' % (b"0" * 5000)), "is not a report of pytest-qnn: *out of range*"),
    "deep": (holding(b'{"schema": 2, "x": ' + b"[" * 100_000), "is not a report of pytest-qnn: *recursion*"),
    "no-utf-8": (holding(b'{"schema": 2, "profile": "\xff"}'), "is not a report of pytest-qnn: *"),
}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence with which two files are not compared."""
    with within(10):
        assert commands.main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("compare: ")
    assert line.isprintable()
    return line.removeprefix("compare: ")


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("place", ["old", "new"])
def test_what_is_no_report_is_refused_in_a_sentence(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, place: str
) -> None:
    make, sentence = BAD[name]
    path, good = tmp_path / "bad.json", ran.folder / "old.json"
    make(path)
    pair = (path, good) if place == "old" else (good, path)
    said = refused(capsys, *map(str, pair))
    before, star, after = f"{path} {sentence}".partition("*")
    assert said.startswith(before)
    assert star or said == before
    assert after.rstrip("*") in said


def test_a_truncated_report_is_refused(ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, good = tmp_path / "bad.json", ran.folder / "old.json"
    content = good.read_bytes()
    for length in (len(content) // 2, len(content) - 3):
        path.write_bytes(content[:length])
        assert "is not a report of pytest-qnn: " in refused(capsys, str(path), str(good))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b'"id": "REG-02"', b'"id": "REG-01"', "the rule REG-01 is there twice"),
        (b'"state": "not_selected"', b'"state": "judged"', "is judged and has no verdict"),
        (b'"verdict": "pass"', b'"verdict": "passed"', "Invalid enum value 'passed'"),
        (b'"id": "REG-02"', b'"id": "REG-02\\n"', "matching regex"),
        (b'"seconds": ', b'"seconds": -', "`float` >= 0.0"),
        (b'"seconds": ', b'"seconds": 1e300, "x": ', "`float` <= 1000000000.0"),
        (b'"seconds": ', b'"seconds": 1e999, "x": ', "out of range"),
        (b'"subject": "memory"', b'"subject": "memory\\u001b[2J"', "Invalid enum value 'memory\\x1b[2J'"),
        (
            b'"point": "count-zero-register"',
            b'"point": "fresh-memory"',
            "the choice fresh-memory is there twice",
        ),
        (b'"op": "ABS"', b'"op": "RELU"', "the claim RELU float32 is there twice"),
    ],
)
def test_a_report_that_says_what_none_may_say_is_refused(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path, old: bytes, new: bytes, sentence: str
) -> None:
    path, good = tmp_path / "bad.json", ran.folder / "new.json"
    content = good.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    assert sentence in refused(capsys, str(good), str(path))


def test_one_target_twice_is_no_report(ran: Ran) -> None:
    document = ran.written("old.json")
    document["targets"].append(document["targets"][1])
    with pytest.raises(loaded.BadReport, match="the target memory reference:no-ion is there twice"):
        loaded.decode(json.dumps(document).encode())


def test_a_path_with_control_characters_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "a\x1b[2J\n.json", "b.json").startswith("a\\x1b[2J .json cannot be read: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "an old and a new one are needed, and 0 given"),
        (("a.json",), "an old and a new one are needed, and 1 given"),
        (("a.json", "b.json", "c.json"), "an old and a new one are needed, and 3 given"),
        (("a.json", "b.json", "--json", "c.html"), "--json: 'c.html' does not end in .json"),
        (("a.json", "b.json", "--json", "nowhere/c.json"), "--json: there is no folder "),
        (("a.json", "b.json", "--jso\x1b"), "unrecognized arguments: --jso\\x1b"),
        (("--run", "--qnn-backend=a"), "--run: an old and a new one are needed, and 1 given"),
        (("--run", "x", "y", "z.json"), "--run makes its own reports, and z.json is named"),
        (
            ("--run", "--qnn-seed=1", "", "--", "-k", "nothing"),
            "--qnn-seed is for both runs: write it behind --",
        ),
        (
            ("--run", "", "", "--", "--qnn-report=a.json", "-k", "nothing"),
            "both runs would write one --qnn-report",
        ),
        (("--run", "'", ""), "cannot be split into options: No closing quotation"),
    ],
)
def test_a_wrong_command_line_has_status_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        commands.main(["compare", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_json_that_cannot_be_written_has_status_2(
    ran: Ran, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Path.open

    def full(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if mode == "xb":
            raise OSError(28, "No space left on device")
        return usual(self, mode, *rest, **more)

    path = str(ran.folder / "old.json")
    monkeypatch.setattr(Path, "open", full)
    assert commands.main(["compare", path, path, "--json", str(ran.folder / "more.json")]) == 2
    assert "more.json could not be written: No space left on device" in capsys.readouterr().err


def test_a_run_that_does_not_come_to_its_end_is_no_comparison(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(["compare", "--run", "--qnn-backend=nowhere.so", "", "--", "-k", "reg_02"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last == "compare: the old run ended with exit status 4: --qnn-backend=nowhere.so -k reg_02"


def test_a_terminated_comparison_ends_its_run_and_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(90)\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*COMPARE, "--run", "", "", "--", "-p", "sleeps"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with within(30):
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                time.sleep(0.05)
            assert len(list(temporary.iterdir())) == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert list(temporary.iterdir()) == []


def test_the_help_lists_the_commands_and_loads_none(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys\nfrom pytest_qnn import commands\n"
        "try:\n    commands.main(['--help'])\nexcept SystemExit:\n"
        "    print(*(name for name in sys.modules if name.startswith(('pytest', 'msgspec', 'numpy'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *listed, modules = done.stdout.splitlines()
    for name in commands.COMMANDS:
        assert any(line.split()[:1] == [name] for line in listed)
    assert set(modules.split()) == {
        *("pytest_qnn", "pytest_qnn.commands", "pytest_qnn.core", "pytest_qnn.core.printable")
    }


def test_the_comparison_loads_neither_pytest_nor_a_half() -> None:
    code = "import sys\nfrom pytest_qnn.commands import compare\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = (
        "pytest",
        "_pytest",
        "hypothesis",
        "numpy",
        "pytest_qnn.qnn",
        "pytest_qnn.tflite",
        "pytest_qnn.rules",
    )
    assert [name for name in done.stdout.split() if name in heavy] == []


def test_a_command_is_its_module_and_has_what_follows_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("pytest_qnn.commands.certify")
    given: list[str] = []
    vars(module)["main"] = lambda arguments: given.extend(arguments) or 7
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(commands.COMMANDS, "certify", "what it does")
    assert commands.main(["certify", "--help", "a.json"]) == 7
    assert given == ["--help", "a.json"]


def test_a_command_that_there_is_not_has_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.main(["compere"])
    assert ended.value.code == 2
    assert "invalid choice: 'compere'" in capsys.readouterr().err


def test_the_commands_are_modules_with_a_main() -> None:
    folder = Path(commands.__file__).parent
    assert all((folder / f"{name}.py").exists() for name in commands.COMMANDS)


@pytest.mark.parametrize(
    ("where", "status", "said"),
    [(">/dev/full", 2, "corpus: the output cannot be written: No space left on device\n"), (">&-", 0, "")],
)
def test_an_output_that_cannot_be_written_is_no_traceback(
    tmp_path: Path, where: str, status: int, said: str
) -> None:
    command = ["sh", "-c", f'exec "$0" -m pytest_qnn corpus "$1" {where}', sys.executable, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, said)
