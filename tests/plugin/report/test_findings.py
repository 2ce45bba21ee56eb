"""Lines of the terminal: findings by cause, what is unsupported by reason, nothing cut."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_qnn.core.verdict import Finding, Level, Outcome, Verdict
from pytest_qnn.report.terminal import Line, findings, spans


def verdict(rule: str, outcome: Outcome, seen: str = "code 1000", **more: Any) -> Verdict:
    failed = outcome is Outcome.FAIL
    return Verdict(
        rule=rule,
        area=rule.split("-", maxsplit=1)[0],
        level=Level.MUST,
        sentence=f"Sentence of {rule}.",
        source="seed 000",
        subject="memory",
        self_check=False,
        target="reference",
        outcome=outcome,
        examples=3,
        examined=1,
        what="call",
        seconds=0.1,
        seed=1,
        finding=Finding(expected="0", seen=seen, case="{}") if failed else None,
        **more,
    )


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["REG-01"], "REG-01"),
        (["REG-02", "REG-01"], "REG-01, REG-02"),
        (["REG-01", "REG-02", "REG-03", "REG-05", "SHB-01"], "REG-01 to REG-03, REG-05, SHB-01"),
        (["QLEAK-02", "LEAK-03", "LEAK-04", "QLEAK-01"], "LEAK-03, LEAK-04, QLEAK-01, QLEAK-02"),
        ([], ""),
    ],
)
def test_rules_in_a_row_are_two(rules: list[str], said: str) -> None:
    assert spans(rules) == said


def test_a_cause_stands_with_what_it_conceals() -> None:
    lines = findings(
        [
            verdict("EXE-01", Outcome.INCONCLUSIVE, blocked_by=("REG-02",), reason="blocked by REG-02"),
            verdict("REG-02", Outcome.FAIL),
            verdict("REG-03", Outcome.INCONCLUSIVE, blocked_by=("REG-02",), reason="blocked by REG-02"),
            verdict("REG-04", Outcome.PASS, blocked_by=("REG-02",)),
            verdict("REG-05", Outcome.INCONCLUSIVE, reason="nothing examined"),
        ]
    )
    assert [line.text.split(":")[0].strip() for line in lines] == [
        "REG-02 MUST fail",
        "1 cause, REG-02",
        "REG-05 MUST inconclusive",
    ]
    assert lines[1] == Line(
        "  1 cause, REG-02: it was seen in cases of 3 other rules; of them not judged for it: EXE-01, REG-03"
    )
    assert [line.colour for line in lines] == ["red", "", "yellow"]


def test_what_most_rules_lack_stands_first() -> None:
    lacking = [f"REG-{number:02}" for number in range(1, 9)]
    unsupported = [verdict("MSC-01", Outcome.UNSUPPORTED, reason="no key 213")]
    unsupported += [verdict(rule, Outcome.UNSUPPORTED, reason="no memRegister") for rule in lacking]
    assert [line.text for line in findings(unsupported)] == [
        "unsupported: REG-01 to REG-08: no memRegister",
        "unsupported: MSC-01: no key 213",
    ]


def test_no_text_is_cut() -> None:
    """Its reader cannot ask for the rest."""
    long = "code 1000 " * 100
    (line,) = findings([verdict("REG-02", Outcome.FAIL, seen=long)])
    assert long.strip() in line.text
