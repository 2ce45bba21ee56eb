"""Findings by cause: owners as the engine names them, the rest by its looks; the same wherever shown."""

from __future__ import annotations

from typing import Any

from pytest_qnn.core.evidence import Evidence, Frame
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.verdict import Finding, Level, Outcome, Verdict
from pytest_qnn.report import document
from pytest_qnn.report.causes import Cause, causes
from pytest_qnn.report.html import view
from pytest_qnn.report.terminal import findings

BLOCKED = Outcome.INCONCLUSIVE
TARGET = ("memory", "libmine.so")


def verdict(rule: str, outcome: Outcome, finding: Finding | None = None, **more: Any) -> Verdict:
    return Verdict(
        rule=rule,
        area=rule.split("-", maxsplit=1)[0],
        level=more.pop("level", Level.MUST),
        sentence=f"Sentence of {rule}.",
        source="seed 000",
        subject=TARGET[0],
        self_check=False,
        target=TARGET[1],
        outcome=outcome,
        examples=3,
        examined=1,
        what="call",
        seconds=0.1,
        seed=1,
        finding=finding,
        **more,
    )


def failed(rule: str, seen: str, call: str = "register", **more: Any) -> Verdict:
    finding = Finding(expected="0", seen=seen, case="{}", fingerprint=Fingerprint(call=call, seen=seen))
    return verdict(rule, Outcome.FAIL, finding, **more)


def died(rule: str, place: str, **more: Any) -> Verdict:
    evidence = Evidence(during="QnnGraph_execute", frames=(Frame("/lib/libmine.so", 1, place),))
    mark = Fingerprint(call="QnnGraph_execute", signal="SIGSEGV")
    finding = Finding(expected="an answer", seen="SIGSEGV", case="{}", evidence=evidence, fingerprint=mark)
    return verdict(rule, Outcome.CRASH, finding, **more)


def found(*verdicts: Verdict) -> list[Cause]:
    return causes([document.rule(each) for each in verdicts])


def ids(cause: Cause) -> list[str]:
    return [rule["id"] for rule in cause.findings]


def test_deaths_at_one_place_are_one_cause() -> None:
    made = found(
        died("EXE-01", "libmine.so+0x10"),
        died("EXE-02", "libmine.so+0x20"),
        died("EXT-01", "libmine.so+0x10"),
    )
    assert [ids(cause) for cause in made] == [["EXE-01", "EXT-01"], ["EXE-02"]]


def test_numbers_and_contents_do_not_part_what_looks_alike() -> None:
    made = found(
        failed("REG-01", "byte 12 of b3 is 1f 00 1f 00"),
        failed("REG-02", "byte 4096 of b0 is 00 00 00 01"),
        failed("REG-03", "byte 12 of b3 is 1f 00 1f 00", call="deregister"),
        failed("REG-04", "8000"),
    )
    assert sorted(map(ids, made)) == [["REG-01", "REG-02"], ["REG-03"], ["REG-04"]]


def test_the_same_words_of_another_area_are_another_cause_without_a_call() -> None:
    made = found(failed("REG-01", "1 leak", call=""), failed("CTX-01", "1 leak", call=""))
    assert sorted(map(ids, made)) == [["CTX-01"], ["REG-01"]]


def test_what_breaks_a_must_stands_first_then_the_largest() -> None:
    made = found(
        failed("A-01", "a", level=Level.SHOULD),
        failed("A-02", "a", level=Level.SHOULD),
        failed("A-03", "a", level=Level.SHOULD),
        failed("B-01", "b"),
        failed("C-01", "c"),
        failed("C-02", "c"),
    )
    assert [cause.rule for cause in made] == ["C-01", "B-01", "A-01"]


def test_an_owner_names_its_cause_and_what_it_concealed() -> None:
    made = found(
        failed("REG-01", "8000"),
        failed("REG-02", "8000"),
        verdict("EXE-01", BLOCKED, blocked_by=("REG-02",)),
        verdict("EXE-02", Outcome.PASS, blocked_by=("REG-02",)),
    )
    assert [(cause.rule, ids(cause)) for cause in made] == [("REG-02", ["REG-02", "REG-01"])]
    assert (made[0].concerned, made[0].blocked) == (["EXE-01", "EXE-02"], ["EXE-01"])


def test_two_owners_are_two_causes_however_alike() -> None:
    made = found(
        failed("REG-01", "8000"),
        failed("REG-02", "8000"),
        failed("REG-03", "8000"),
        verdict("EXE-01", BLOCKED, blocked_by=("REG-02", "REG-03")),
    )
    assert [ids(cause) for cause in made] == [["REG-02", "REG-01"], ["REG-03"]]
    assert [cause.blocked for cause in made] == [["EXE-01"], ["EXE-01"]]


def test_an_owner_without_a_finding_is_a_cause_all_the_same() -> None:
    made = found(failed("REG-01", "8000"), verdict("EXE-01", BLOCKED, blocked_by=("DRG-07",)))
    assert [(cause.rule, ids(cause), cause.blocked) for cause in made] == [
        ("REG-01", ["REG-01"], []),
        ("DRG-07", [], ["EXE-01"]),
    ]


def test_the_terminal_the_report_and_the_page_say_the_same() -> None:
    verdicts = [
        failed("REG-08", "8000"),
        failed("REG-02", "8000"),
        died("REG-03", "libmine.so+0x10"),
        verdict("EXE-01", BLOCKED, blocked_by=("REG-02",)),
        verdict("CTX-01", BLOCKED, blocked_by=("DRG-01",)),
    ]
    report = _report(verdicts)
    rows = {row["id"]: row for row in report["targets"][0]["rules"] if row["state"] == "judged"}
    assert {name: row["cause"] for name, row in rows.items()} == {
        "REG-08": "REG-02",
        "REG-02": "REG-02",
        "EXE-01": "REG-02",
        "REG-03": "REG-03",
        "CTX-01": "DRG-01",
    }
    shown = view.page(report).targets[0].causes
    assert [(each.cause.rule, [one.rule["id"] for one in each.findings]) for each in shown] == [
        ("REG-02", ["REG-02", "REG-08"]),
        ("REG-03", ["REG-03"]),
        ("DRG-01", []),
    ]
    assert [line.text.split(":")[0].strip() for line in findings(verdicts)] == [
        "REG-02 MUST fail",
        "REG-08 MUST fail",
        "1 cause, REG-02",
        "REG-03 MUST crash",
        "1 cause, DRG-01",
    ]


def _report(verdicts: list[Verdict]) -> dict[str, Any]:
    told = document.Found(frozenset({"memory"}), {TARGET: {"options": [], "provenance": {}}}, verdicts, {}, 1)
    names = ("python", "platform", "started", "finished", "seed", "profile")
    header = dict.fromkeys(names, "") | {"options": {}, "tool": {}, "extra": {}, "complete": True}
    return {**header, "targets": document.targets(told)}
