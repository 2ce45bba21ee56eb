"""What is kept of the blame matrix: of each rule its last word on a fault, and what that rule then was."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # The faults in C are not installed; the path is taken back below.

from benchmarks import blame  # noqa: E402
from benchmarks.blame import rows as blame_rows  # noqa: E402
from benchmarks.blame.rows import Row, Standing  # noqa: E402
from benchmarks.gallery.results import Rules  # noqa: E402
from pytest_qnn.mutants import table  # noqa: E402
from pytest_qnn.mutants.digests import mutant_digest, pair_digest, rule_digest  # noqa: E402

sys.path.remove(str(ROOT))

BEFORE = Rules("before", {"REG-01": "a", "REG-02": "a", "REG-08": "a", "QLEAK-01": "a"})
NOW = Rules("now", {"REG-01": "a", "REG-02": "b", "REG-08": "a", "QLEAK-01": "a", "REG-07": "a"})
TABLES = {each.name: each for each in (BEFORE, NOW)}
KILLS = ("REG-08",)
FIRST = Row(
    *("m", ["REG-08"], [], ["REG-02"], [], ["REG-01"], 60.0, 1, {"REG-02": "8003"}, ["QLEAK-01"]),
    by={"REG-02": ["REG-02", "REG-08"]},
    day="2026-11-30",
    digests="before",
    fault="f",
)
AGAIN = Row(
    *("m", [], ["REG-08"], [], [], [], 5.0, 1),
    by={"REG-07": ["REG-07"]},
    rules=["REG-02", "REG-07"],
    day="2026-12-01",
    digests="now",
    fault="f",
)


def standing(*rows: Row) -> Standing:
    return blame_rows.standing(rows, TABLES)["m"]


def test_what_has_changed_since_is_new_or_was_left_out_is_stale() -> None:
    assert standing(FIRST).stale(BEFORE, "f") == ["QLEAK-01"]
    assert standing(FIRST).stale(NOW, "f") == ["REG-02", "QLEAK-01", "REG-07"]
    assert standing(FIRST, AGAIN).stale(NOW, "f") == ["QLEAK-01"]


def test_where_nothing_failed_other_controls_change_nothing() -> None:
    plain = {rule: f"{rule}, its cases and check" for rule in BEFORE.digests}
    before = replace(BEFORE, plain=plain)
    later = Rules("later", dict.fromkeys(BEFORE.digests, "other controls"), plain)
    row = replace(FIRST, unjudged=["QLEAK-01 (TargetLost)"])  # REG-02 has failed, REG-01 is blocked

    def stale(row: Row, now: Rules) -> list[str]:
        return blame_rows.standing([row], {"before": before})["m"].stale(now, "f")

    assert stale(row, before) == []
    assert stale(row, later) == ["REG-01", "REG-02", "QLEAK-01"]
    assert stale(replace(row, left_open=["REG-08"]), later) == [*BEFORE.digests]
    changed = replace(later, plain=plain | {"REG-08": "other cases"})
    assert stale(row, changed) == [*BEFORE.digests]
    assert standing(FIRST).stale(replace(NOW, plain=plain), "f") == [
        "REG-02",
        "QLEAK-01",
        "REG-07",
    ]  # not known


def test_of_a_fault_that_has_changed_all_is_stale() -> None:
    assert standing(FIRST, AGAIN).stale(NOW, "other") == [*NOW.digests]


def test_a_row_that_does_not_say_what_its_rules_were_stands_and_is_stale() -> None:
    old = Row("m", ["REG-08"], [], ["REG-02"], [], ["REG-01"], 60.0, 1, later=["REG-01"])
    assert standing(old).row(KILLS) == old
    assert standing(old).stale(NOW, "f") == [*NOW.digests]
    assert standing(old, FIRST).stale(BEFORE, "f") == ["QLEAK-01"]


def test_of_each_rule_the_last_word_counts_also_on_what_it_handed_over() -> None:
    first = standing(FIRST).row(KILLS)
    assert (first.owners, first.accused, first.blocked) == (["REG-08"], ["REG-02"], ["REG-01"])
    found = standing(FIRST, AGAIN).row(KILLS)
    assert (found.owners, found.missed, found.accused) == ([], ["REG-08"], ["REG-07"])
    assert (found.blocked, found.unjudged) == (["REG-01"], ["QLEAK-01"])
    assert (found.seconds, found.day) == (65.0, "2026-12-01")


def test_a_rule_that_was_left_out_is_in_the_row_when_it_has_judged() -> None:
    measured = Row("m", [], [], [], [], [], 9.0, 1, rules=["QLEAK-01"], digests="now", fault="f")
    found = standing(FIRST, measured)
    assert found.row(KILLS).unjudged == []
    assert found.stale(BEFORE, "f") == []


def test_what_the_cases_of_default_show_stays_until_a_rule_judges_again() -> None:
    nothing = Row(*("m", [], ["REG-08"], [], [], [], 60.0, 1), digests="before", fault="f")
    default = Row(
        *("m", [], ["REG-08"], [], [], [], 7.0, 1),
        later=["REG-08"],
        rules=["REG-08"],
        whole=True,
        digests="now",
    )
    found = standing(nothing, default)
    assert (found.row(KILLS).later, found.row(KILLS).seconds) == (["REG-08"], 67.0)
    assert found.stale(BEFORE, "f") == []
    judged = Row(*("m", [], ["REG-08"], [], [], [], 1.0, 1), rules=["REG-08"], digests="now", fault="f")
    assert standing(nothing, default, judged).row(KILLS).later == []


def test_rows_of_the_old_kind_keep_what_default_shows() -> None:
    old = Row("m", [], ["REG-08"], [], [], [], 60.0, 1)
    default = Row(*("m", [], ["REG-08"], [], [], [], 7.0, 1), later=["REG-08"], whole=True, digests="now")
    found = standing(old, default).row(KILLS)
    assert (found.missed, found.later, found.seconds) == (["REG-08"], ["REG-08"], 67.0)


def test_a_file_names_the_rules_of_its_rows_once(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    for row, rules in ((FIRST, BEFORE), (AGAIN, NOW), (AGAIN, NOW)):
        blame_rows.keep(file, row, rules)
    assert blame_rows.kept(file) == [FIRST, AGAIN, AGAIN]
    assert len((tmp_path / "rows-rules.jsonl").read_text().splitlines()) == 2
    assert blame_rows.known(file)["m"].row(KILLS) == standing(FIRST, AGAIN, AGAIN).row(KILLS)


def test_what_is_left_is_without_those_that_are_left_out() -> None:
    found = {"m": standing(FIRST)}
    faults = {"m": ("f", NOW), "n": ("g", BEFORE)}
    left = blame_rows.left(found, faults, lambda _, rule: rule.startswith("QLEAK"))
    assert left == {"m": ["REG-02", "REG-07"], "n": ["REG-01", "REG-02", "REG-08"]}
    left = blame_rows.left(found, faults, lambda *_: False)
    assert left["m"] == ["REG-02", "QLEAK-01", "REG-07"]


def test_digests_are_a_rules_with_its_controls_and_a_mutants_own() -> None:
    mutant = table()["reg-null-handle"]
    digests = {
        rule_digest("REG-01"),
        rule_digest("REG-01", controls=True),
        mutant_digest("reg-null-handle"),
        pair_digest("REG-01", mutant),
    }
    assert len(digests) == 4
    now = blame_rows.rules_now("memory")
    assert now.digests["REG-01"] == rule_digest("REG-01", controls=True)
    assert now.plain["REG-01"] == rule_digest("REG-01")


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Sequence[str], bool]]:
    """What was asked to be judged: the fault, the rules (none: all), and whether those that measure are."""
    asked: list[tuple[str, Sequence[str], bool]] = []

    def row(name: str, seed: int, only: Sequence[str] = (), *, measured: bool = False) -> Row:
        asked.append((name, [*only], measured))
        return Row(name, [], [], [], [], [], 1.0, seed, rules=[*only])

    def measure(names: Any, seed: int, jobs: int, judge: Any) -> Any:
        yield from (judge(name, seed) for name in names)

    monkeypatch.setattr(blame, "RESULTS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(blame, "row", row)
    monkeypatch.setattr(blame, "measure", measure)
    return asked


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["blame", *arguments])
    blame.main()


def test_the_stale_are_judged_again_by_what_has_changed_and_then_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
    judging: list[tuple[str, Sequence[str], bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = blame.faults()
    chosen = ("reg-null-handle", "qnn-code", "aborts-at-rank-3")
    monkeypatch.setattr(blame, "faults", lambda: {name: both[name] for name in chosen})
    called(monkeypatch)
    assert sorted(judging) == sorted((name, [], False) for name in chosen)
    judging.clear()
    usual = blame_rows.rule_digest
    monkeypatch.setattr(
        blame_rows, "rule_digest", lambda rule, **how: usual(rule, **how) + "x" * (rule == "REG-01")
    )
    called(monkeypatch, "--left")
    assert capsys.readouterr().out.startswith("2 faults, 2 pairs of a fault and a rule")
    called(monkeypatch, "--stale")
    assert sorted(judging) == [("qnn-code", ["REG-01"], False), ("reg-null-handle", ["REG-01"], False)]
    called(monkeypatch, "--left")
    assert capsys.readouterr().out.startswith("0 faults, 0 pairs")
    (row,) = (each for each in blame_rows.kept(blame.RESULTS) if each.name == "qnn-code" and each.rules)
    assert row.day
    assert row.fault == blame.fault_digest(both["qnn-code"])


def test_rules_that_measure_judge_all_mutants_on_demand(
    monkeypatch: pytest.MonkeyPatch, judging: list[tuple[str, Sequence[str], bool]]
) -> None:
    both = blame.faults()
    monkeypatch.setattr(blame, "faults", lambda: {"reg-null-handle": both["reg-null-handle"]})
    called(monkeypatch, "--measured")
    assert judging == [("reg-null-handle", [], True)]
    judging.clear()
    rules = blame_rows.rules_now("memory")
    left_out = [each for each in rules.digests if each.startswith(("QLEAK-", "QTHR-"))]
    row = Row("reg-null-handle", [], [], [], [], [], 1.0, 1, unjudged=left_out, digests=rules.name)
    (fault,) = blame.faults().values()
    blame_rows.keep(blame.RESULTS, replace(row, fault=blame.fault_digest(fault)), rules)
    called(monkeypatch, "--stale")
    assert judging == []
    called(monkeypatch, "--stale", "--measured")
    assert judging == [("reg-null-handle", left_out, True)]


def test_only_accusations_that_there_are_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(name for name in blame.in_turn(1) if blame.faults()[name].is_mutant)
    row = Row(mutant, [], [], ["REG-02"], [], [], 60.0, 1, day="2026-11-30", digests="now")
    for said in (blame.EXPLAINED, blame.FALSE):
        monkeypatch.setitem(said, mutant, ("REG-02 REG-03", "both"))
        text = blame.document({mutant: row}, {mutant: ["REG-01", "REG-02"]})
        assert f"* `{mutant}` (REG-02): both" in text
        assert "* `waits-at-a-mean` (ABI-05)" not in text
        text = blame.document({mutant: replace(row, accused=[])}, {})
        assert "): both" not in text
    assert "faults as they are on that day: 1 of 1. Left are 0 pairs of" in text
    assert "judge one mutant in 8, drawn by its name" in text
