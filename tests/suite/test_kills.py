from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from pytest_qnn import mutants as kills
from pytest_qnn.mutants import Kill, table
from pytest_qnn.mutants.__main__ import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "measured" / "mutants.md"


def kill(*examples: int | None) -> Kill:
    return Kill(table()["claims-twice"], "PART-01", kills.RUNTIMES[0], examples)


def test_the_document_lists_every_mutant_with_every_rule_it_must_be_found_by() -> None:
    listed = set(re.findall(r"^\| `([\w-]+)` \| .* \| ([A-Z]+-\d+) \|", DOCUMENT.read_text(), re.MULTILINE))
    expected = {(mutant.name, rule) for mutant in table().values() for rule in mutant.kills}
    assert listed == expected, "run python -m pytest_qnn.mutants --stale --update docs/measured/mutants.md"


def test_the_median_of_the_seeds_is_shown() -> None:
    assert kill(1, 9, 3).cell() == "3"
    assert not kill(1, 9, 3).weak


@pytest.mark.parametrize(("examples", "cell"), [((21, 30, 2), "**21**"), ((1, None, 1), "**missed 1 of 3**")])
def test_what_is_found_late_or_not_always_is_marked(examples: tuple[int | None, ...], cell: str) -> None:
    assert kill(*examples).weak
    assert kill(*examples).cell() == cell


def test_only_takes_names_rules_and_both() -> None:
    def pairs(*only: str) -> set[tuple[str, str]]:
        return {(mutant.name, rule) for mutant, rules in kills.chosen(only, "") for rule in rules}

    assert pairs("writes-last-output") == {("writes-last-output", rule) for rule in ("PART-10", "PART-11")}
    assert pairs("writes-last-output/PART-11") == {("writes-last-output", "PART-11")}
    assert ("writes-terminal-outputs", "PART-11") in pairs("/PART-11")
    assert {rule for _, rule in pairs("/PART-11")} == {"PART-11"}


def test_a_subject_takes_one_half() -> None:
    assert {mutant.subject for mutant, _ in kills.chosen((), "memory")} == {"memory"}


def test_a_measured_kill_is_printed_with_its_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "claims-twice", "--only", "if-null-accepted", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    for name in ("claims-twice", "if-null-accepted"):
        assert table()[name].fault in printed
    row = next(line for line in printed.splitlines() if "`claims-twice`" in line)
    assert re.search(r"\| [\d.]+ \| [\d.]+ \|$", row)


def test_a_mutant_that_nothing_finds_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = dataclasses.replace(table()["claims-twice"], kills=("NUM-03",))
    monkeypatch.setattr(kills, "table", lambda: {harmless.name: harmless})
    assert main(["--seeds", "1", "--limit", "20"]) == 1
    output = capsys.readouterr()
    assert "**missed 1 of 1**" in output.out
    assert "weak: claims-twice/NUM-03 on tflite_runtime: - (" in output.err


@pytest.mark.parametrize("load", [0.2, 3.1])
def test_a_measurement_beside_other_work_says_what_that_means_for_races(
    load: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    assert main(["--only", "claims-twice", "--seeds", "1"]) == 0
    said = "the machine is busy (load 3.1): faults that need two threads at once" in capsys.readouterr().err
    assert said is (load > 1)


def test_a_name_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "no-such-mutant"])
    assert "no mutant is of this name" in capsys.readouterr().err
