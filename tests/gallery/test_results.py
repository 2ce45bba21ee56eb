"""What is kept of a gallery: of each rule the last that it said, as long as its cases and check are these."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks.gallery import document, results
from benchmarks.gallery.results import Judged, Red, Rules
from pytest_qnn.mutants import digests, table
from pytest_qnn.mutants.digests import controls_digest, pair_digest, rule_digest

BEFORE = Rules("before", {"REG-01": "a", "REG-02": "a", "REG-03": "a"})
NOW = Rules("now", {"REG-01": "a", "REG-02": "b", "REG-04": "a"})
WRONG = Red("REG-02", "MUST", "fail", "8003")
ALL = Judged(
    *("qnn", "odd", "default", 1, 0),
    day="2026-11-29",
    seconds=60.0,
    met=3,
    outcomes={"pass": 1, "unsupported": 1, "fail": 1},
    red=[WRONG],
    unsupported=["REG-03"],
    digests="before",
)
AGAIN = msgspec.structs.replace(
    ALL,
    seconds=2.0,
    met=1,
    outcomes={"pass": 2},
    red=[],
    unsupported=[],
    rules=["REG-02", "REG-04"],
    digests="now",
)
TABLES = {each.name: each for each in (BEFORE, NOW)}


def test_only_what_has_changed_since_and_what_is_new_is_left() -> None:
    standing = results.standing([ALL], TABLES)[ALL.key]
    assert standing.stale(BEFORE) == []
    assert standing.stale(NOW) == ["REG-02", "REG-04"]
    standing.add(AGAIN, NOW)
    assert standing.stale(NOW) == []
    assert standing.stale(BEFORE) == ["REG-02"]


def test_what_was_judged_beside_loops_counts_without_them_too_and_not_the_other_way_round() -> None:
    loaded = msgspec.structs.replace(ALL, load=4)
    found = results.standing([loaded], TABLES)
    assert {key: each.stale(BEFORE) for key, each in found.items()} == {ALL.key: [], loaded.key: []}
    assert results.standing([ALL], TABLES).keys() == {ALL.key}
    later = results.standing([ALL, msgspec.structs.replace(AGAIN, load=4)], TABLES)
    assert later[ALL.key].stale(NOW) == []
    assert later[loaded.key].stale(NOW) == ["REG-01"]


def test_of_each_rule_the_last_that_it_said_counts() -> None:
    standing = results.standing([ALL, AGAIN], TABLES)[ALL.key]
    found = standing.judged(ALL.key, NOW)
    assert (found.outcomes, found.red, found.met, found.seconds) == (
        {"pass": 3, "unsupported": 0},
        [],
        4,
        62.0,
    )
    standing = results.standing([AGAIN, ALL], TABLES)[ALL.key]
    found = standing.judged(ALL.key, NOW)
    assert (found.outcomes, found.red) == ({"pass": 2, "unsupported": 0, "fail": 1}, [WRONG])


def test_a_finding_that_was_handed_over_stays_until_its_finder_judges_again() -> None:
    handed_over = msgspec.structs.replace(WRONG, rule="REG-09", found_by="REG-02")
    standing = results.standing([msgspec.structs.replace(ALL, red=[handed_over])], TABLES)[ALL.key]
    assert standing.judged(ALL.key, NOW).red == [handed_over]
    standing.add(AGAIN, NOW)
    assert standing.judged(ALL.key, NOW).red == []


def test_results_without_their_rules_are_no_result_of_todays() -> None:
    assert results.standing([msgspec.structs.replace(ALL, digests="")], TABLES) == {}


def test_a_file_names_the_rules_of_its_results_once(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    for found, rules in ((ALL, BEFORE), (AGAIN, NOW), (AGAIN, NOW)):
        results.keep(file, found, rules)
    assert results.kept(file) == [ALL, AGAIN, AGAIN]
    assert results.rules_before(file) == TABLES
    assert len((tmp_path / "odd-rules.jsonl").read_text().splitlines()) == 2


def test_the_document_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    about = ("a freedom", "a source", "what is seen")
    gallery = SimpleNamespace(FREEDOMS={"odd": about, "another": about})
    monkeypatch.setattr(document, "rules_of", {"qnn": NOW}.__getitem__)
    found = document.document(gallery, "qnn", [ALL, AGAIN], TABLES, "")
    assert "1 of 2 targets by all 3, 3 pairs of a target and a rule are left." in found
    assert "| default | 4 | 3 pass, 0 unsupported | 62 |" in found
    found = document.document(gallery, "qnn", [ALL], TABLES, "")
    assert "0 of 2 targets by all 3, 5 pairs of a target and a rule are left." in found
    assert "| default | 3 | 1 pass, 1 unsupported; **REG-02 fail** | 60 |" in found


def test_a_rules_digest_is_its_own_and_follows_no_control() -> None:
    found = [rule_digest(each) for each in ("REG-01", "REG-02", "PART-01")]
    assert len({*found}) == 3
    assert pair_digest("REG-01", table()["reg-null-handle"]) not in found
    assert results.rules_of("qnn").digests["REG-01"] == found[0]


def test_controls_change_no_rules_digest_and_no_pairs_and_have_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a failure meets them, and what obeys the documents has none."""
    mutant = table()["reg-null-handle"]
    before, pair = rule_digest("REG-01"), pair_digest("REG-01", mutant)
    both, alone = pair_digest("REG-01", mutant, controls=True), controls_digest("qnn")
    monkeypatch.setattr(digests, "_CONTROLS", {"qnn": "qnn.controls.left", "tflite": "tflite.controls"})
    for each in (digests._reached, digests.controls_digest):
        each.cache_clear()
    try:
        assert rule_digest("REG-01") == before
        assert pair_digest("REG-01", mutant) == pair
        assert pair_digest("REG-01", mutant, controls=True) != both
        assert controls_digest("qnn") != alone
    finally:
        monkeypatch.undo()
        for each in (digests._reached, digests.controls_digest):
            each.cache_clear()
