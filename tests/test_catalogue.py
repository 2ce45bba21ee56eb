"""The catalogue as a whole: every rule has a test of its name, a source and a mutant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest_qnn.conformance

from pytest_qnn.mutants import table
from pytest_qnn.rules import catalogue
from pytest_qnn.rules.__main__ import document

ISSUED = set(
    """
PART-01 PART-02 PART-04 PART-05 PART-06 PART-07 PART-08 PART-09 PART-10 PART-11 PART-15 PART-16
PREC-01 PREC-02 PREC-03 PREC-06 LIFE-01 LIFE-02 LIFE-04 ERR-03 MEM-01 MEM-02 DET-01 DET-04
NUM-01 NUM-02 NUM-03 NUM-04
IF-01 IF-02 IF-05 CAP-01 CAP-02 CAP-03 CAP-04
RPC-02 RPC-04 RPC-06 RPC-07 RPC-08 RPC-09 RPC-10 RPC-11
REG-01 REG-02 REG-03 REG-04 REG-05 REG-06 REG-07 REG-08 REG-13 REG-14 REG-15 REG-16
REG-20 REG-21 REG-22 REG-23 REG-24 ION-03 ION-04 ION-05
SHB-03 SHB-04 SHB-06 SHB-07 SHB-08 SHB-09 SHB-13
DRG-01 DRG-02 DRG-03 DRG-04 DRG-05 DRG-06 DRG-09 DRG-11
CTX-01 CTX-03 CTX-04 CTX-05 CTX-06 EXE-01 EXE-02 EXE-03 EXE-04 EXE-05
QMG-01 QMG-02 QMG-03 QMG-04 QMG-05 QMG-06 QMG-07 QMG-08 PRE-01 PRE-02 PRE-04
""".split()  # noqa: SIM905 - a table of ids reads better than a list of strings
)
"""Ids are never reused and never dropped: this list only grows."""


def conformance_tests() -> list[str]:
    """Names of the suite's tests, as rule ids."""
    folder = Path(pytest_qnn.conformance.__path__[0])
    names = [
        name
        for path in sorted(folder.glob("test_*.py"))
        for name in re.findall(r"^def test_(\w+)\(", path.read_text(), re.MULTILINE)
    ]
    return [name.upper().replace("_", "-") for name in names]


def test_no_rule_was_dropped() -> None:
    assert set(catalogue()) >= ISSUED


def test_each_rule_has_exactly_one_test_of_its_name() -> None:
    assert sorted(conformance_tests()) == sorted(catalogue())


def test_each_rule_is_found_by_a_mutant() -> None:
    killed = {rule for mutant in table().values() for rule in mutant.kills}
    assert set(catalogue()) - killed == set()


def test_mutants_name_rules_that_there_are_and_of_their_own_half() -> None:
    rules = catalogue()
    assert [
        (mutant.name, rule)
        for mutant in table().values()
        for rule in mutant.kills
        if rule not in rules or rules[rule].subject != mutant.subject
    ] == []


def test_each_rule_names_a_source_and_says_what_it_demands() -> None:
    for rule in catalogue().values():
        assert len(rule.source) > 3, rule.id
        assert len(rule.sentence) > 20, rule.id


def test_the_document_of_rules_is_current() -> None:
    written = Path(__file__).parents[1] / "docs" / "rules.md"
    assert written.read_text() == document(), "run python -m pytest_qnn.rules > docs/rules.md"
