"""docs/reference/seeds.md is held to the catalogue: each statement has rules that exist, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_qnn.rules import listed

ROOT = Path(__file__).parents[2]
SEEDS = ("000", "001", "002", "003", "004")
STATEMENTS = 110
"""The five documents make about as many."""
_ROW = re.compile(r"^\| (\d{3})\.(\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_RULE = re.compile(r"\b[A-Z]{2,5}-\d\d\b")
_REASONS = ("duty", "speed", "inside", "tool")


def _text() -> str:
    return (ROOT / "docs" / "reference" / "seeds.md").read_text(encoding="utf-8")


def _rows() -> list[tuple[str, int, str, str, str]]:
    return [
        (seed, int(number), statement, rules, seen)
        for seed, number, statement, rules, seen in _ROW.findall(_text())
    ]


def test_every_line_of_the_tables_is_a_row() -> None:
    lines = [line for line in _text().splitlines() if line.startswith("|")]
    heads = [line for line in lines if line.startswith(("| #", "|---"))]
    assert len(heads) == 2 * len(SEEDS)
    assert len(lines) - len(heads) == len(_rows()) >= STATEMENTS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_has_a_section_with_its_statements_numbered(seed: str) -> None:
    sections = re.split(r"^## ", _text(), flags=re.MULTILINE)
    own = [section for section in sections if section.startswith(f"Seed {seed}:")]
    assert len(own) == 1
    numbers = [(of, int(number)) for of, number, *_ in _ROW.findall(own[0])]
    assert numbers == [(seed, number) for number in range(1, len(numbers) + 1)]
    assert numbers


def test_a_statement_has_rules_that_exist_or_a_reason() -> None:
    wrong = []
    for seed, number, _, rules, seen in _rows():
        named = rules.split(", ")
        unknown = [rule for rule in named if rule not in listed()]
        if rules == "-" and len(seen) >= 4:
            continue
        if unknown or len(set(named)) < len(named) or len(seen) < 4:
            wrong.append((f"{seed}.{number}", unknown))
    assert wrong == []


def test_a_row_that_is_left_out_is_one_of_that_document() -> None:
    """Ids in the last column may be rules, or rows of rules-left-out.md where the column says so."""
    left_out = (ROOT / "docs" / "reference" / "rules-left-out.md").read_text(encoding="utf-8")
    for seed, number, _, _, seen in _rows():
        for name in _RULE.findall(seen):
            where = left_out if "rules-left-out.md" in seen else ""
            assert name in listed() or name in where, (f"{seed}.{number}", name)


def test_the_reasons_that_come_again_are_explained() -> None:
    for reason in _REASONS:
        assert f"* **{reason}**:" in _text()
    used = " ".join(seen for *_, seen in _rows())
    assert [reason for reason in _REASONS if not re.search(rf"\b{reason}\b", used)] == []


def test_what_judges_the_runtime_is_marked() -> None:
    """A statement of which only rules about the runtime speak says so."""
    for seed, number, _, rules, seen in _rows():
        named = [] if rules == "-" else rules.split(", ")
        if named and all(rule in listed() and listed()[rule].self_check for rule in named):
            assert "*" in seen, f"{seed}.{number}"
