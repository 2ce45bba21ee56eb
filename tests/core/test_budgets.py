"""What a search costs where cases hang, in whatever way a hang is explained; and how often a case is run."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import Check, FakeTarget, case_of, finding, known, made_up, size_of, survives

from pytest_qnn.core.drawing import decoded, listed
from pytest_qnn.core.engine import first_failure, judge, judge_with_owners, judging
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.known_failures import Expectations
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import Examined, Outcome, WrongOutput
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace

PROFILE = PROFILES["default"]
HANGING = 1000
"""Cases of this size, and larger ones, hang."""


def a_rule(sizes: Sequence[int], check: Check = survives) -> Rule[Any, Any, Any]:
    return made_up(st.sampled_from(list(sizes)).map(case_of), check=check)


def ended(kind: str, during: str) -> MemoryTrace:
    return MemoryTrace(death=Death(kind, "so it was", 0, evidence=Evidence(during=during)))  # type: ignore[arg-type]


class Hanging(FakeTarget):
    """Counts cases that hang; no case has a control."""

    def __init__(self, call: str = "QnnB", crash: int = -1) -> None:
        super().__init__("memory")
        self.call, self.crash, self.hung = call, crash, 0

    def run(self, case: Any) -> Any:
        self.cases.append(case)
        if size_of(case) == self.crash:
            return ended("signal", "QnnB")
        if size_of(case) < HANGING:
            return MemoryTrace()
        self.hung += 1
        return ended("hang", self.call)

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        return iter(())

    def run_fresh(self, case: Any) -> Any:
        return self.run(case)


class Together(Hanging):
    """Cases that are sent together run in one child, until one of them dies."""

    isolated = True

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        alone = True
        for case in cases:
            trace = self.run(case)
            yield trace, alone
            alone = trace.death is not None


@pytest.mark.parametrize("target", [Hanging, Together])
def test_hangs_that_are_expected_are_as_many_as_the_budget_has(target: type[Hanging]) -> None:
    rule, seen = a_rule(range(HANGING, HANGING + 200)), target()
    expected = known(outcome=Outcome.HANG, call="QnnB")
    rules = {"REG-99": rule}
    verdict = judge_with_owners(rule, seen, PROFILE, 1, rules.__getitem__, lambda _: expected).verdict
    assert verdict.is_known
    assert seen.hung <= 2 * PROFILE.hang_budget
    assert verdict.note == "the search ended early: 4 cases hung"


@pytest.mark.parametrize("target", [Hanging, Together])
def test_hangs_in_the_call_of_a_crash_are_passed_over_and_as_many(target: type[Hanging]) -> None:
    rule, seen = a_rule([1, *range(HANGING, HANGING + 200)]), target(crash=1)
    tried: tuple[Any, ...] = (case_of(1),)
    verdict = judge_with_owners(
        rule, seen, PROFILE, 1, {"REG-99": rule}.__getitem__, tried_first=tried
    ).verdict
    assert (verdict.outcome, verdict.further) == (Outcome.CRASH, ())
    assert 0 < seen.hung <= 2 * PROFILE.hang_budget


class Listed:
    """Cases of these sizes, in this order, in place of those that are drawn."""

    sizes: tuple[int, ...] = (*range(1, 8), 50, *range(HANGING, HANGING + 60))

    def __init__(self, *_args: Any, **_more: Any) -> None:
        pass

    def __iter__(self) -> Iterator[MemoryCase]:
        return map(case_of, self.sizes)


def test_behind_a_crash_nothing_is_run_for_a_search_that_may_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "Search", Listed)
    rule, seen = a_rule([1]), Together(crash=50)
    found = first_failure(rule, seen, PROFILE, 1)
    assert found is not None
    assert (found.examples, seen.hung) == (8, 0)


def wrong_at_5(case: MemoryCase, trace: Any) -> Examined:
    if trace.death is None and size_of(case) == 5:
        raise WrongOutput("0", "1")
    return Examined(1, "outputs")


class HangingControls(Hanging):
    owners: tuple[str, ...] = ("OWN-01",)

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        return (Control(case_of(HANGING + number), self.owners) for number in range(40))


class HangingForNobody(HangingControls):
    owners = ()


@pytest.mark.parametrize("target", [HangingControls, HangingForNobody])
def test_controls_that_hang_are_no_more_than_their_budget(target: type[Hanging]) -> None:
    rule, seen = a_rule([5], wrong_at_5), target()
    owners = {"REG-99": rule, "OWN-01": a_rule([5])}
    verdict = judge_with_owners(rule, seen, PROFILE, 1, owners.__getitem__).verdict
    assert verdict.outcome is Outcome.FAIL
    assert seen.hung == 3


class HangingInEveryControl(Hanging):
    """The last control tells whose a hang is, and those before it tell only what spoils all."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        spoiling = (Control(case_of(HANGING + number), ("OTH-01",), spoils=True) for number in range(10))
        return itertools.chain(spoiling, [Control(case_of(2 * HANGING), ("OWN-01",))])


def test_controls_of_what_spoils_all_leave_hangs_for_the_others() -> None:
    rule, seen = a_rule([3 * HANGING]), HangingInEveryControl()
    owners = {"REG-99": rule} | {
        name: dataclasses.replace(a_rule([5]), id=name) for name in ("OTH-01", "OWN-01")
    }
    judged = judge_with_owners(rule, seen, PROFILE, 1, owners.__getitem__)
    assert [verdict.rule for verdict in judged.handed_over] == ["OWN-01"]
    assert judged.verdict.outcome is Outcome.INCONCLUSIVE


LETTERS = "abcdefghijklmnopqrst"


class LeavingOut(Hanging):
    """Of a case that is expected to fail the facts leave its size out."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        yield Control(case, ("NUM-02",))

    def around(self, facts: Any, case: Any, call: str = "") -> Any:  # noqa: ARG002 - the interface's
        return (*(facts or ()), size_of(case))


def leaving_out(count: int, *, wrong: bool) -> tuple[Rule[Any, Any, Any], dict[str, Rule[Any, Any, Any]]]:
    """A rule whose cases of sizes up to ``count`` meet an owner's failure; if wrong one beyond breaks it."""

    def cases(facts: Any) -> st.SearchStrategy[MemoryCase]:
        return listed([case_of(size) for size in range(1, count + 4) if size not in (facts or ())])

    def owned(case: MemoryCase, _trace: Any) -> Examined:
        if 0 < size_of(case) <= count:
            raise WrongOutput("0", LETTERS[size_of(case)] * 4)
        return Examined(1, "outputs")

    def check(case: MemoryCase, trace: Any) -> Examined:
        if wrong and size_of(case) == count + 1:
            raise WrongOutput("0", "the rule's own")
        return owned(case, trace)

    rule = made_up(cases, check=check)
    return rule, {"REG-99": rule, "NUM-02": made_up(cases, check=owned, rule_id="NUM-02")}


def test_a_search_that_met_too_many_causes_says_so() -> None:
    rule, rules = leaving_out(14, wrong=False)
    verdict = judge_with_owners(rule, LeavingOut(), PROFILE, 1, rules.__getitem__).verdict
    met = "it met 12 failures that other rules own or that are expected"
    assert verdict.note == f"the search ended early: {met}"
    rule, rules = leaving_out(11, wrong=True)
    verdict = judge_with_owners(rule, LeavingOut(), PROFILE, 1, rules.__getitem__).verdict
    assert (verdict.outcome, verdict.note) == (Outcome.FAIL, "")


def test_failures_that_are_expected_do_not_end_the_search() -> None:
    rule, rules = leaving_out(14, wrong=True)
    entries = [known(seen=LETTERS[size] * 4).accepted[0] for size in range(1, 15)]
    numbered = [msgspec.structs.replace(entry, number=number) for number, entry in enumerate(entries)]
    expected = Expectations(tuple(numbered))
    verdict = judge_with_owners(rule, LeavingOut(), PROFILE, 1, rules.__getitem__, lambda _: expected).verdict
    assert (verdict.outcome, finding(verdict).seen) == (Outcome.FAIL, "the rule's own")


def test_cases_of_earlier_runs_prove_no_lack() -> None:
    class Unfit(Hanging):
        def unfit(self, case: Any) -> str:
            return "a case of 99 delegates takes too long" if size_of(case) >= 100 else ""

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) == 2:
            raise WrongOutput("0", "1")
        return Examined(0, "cases")

    rule = made_up(listed([case_of(size) for size in (1, 2, 3)]), check=check)
    earlier = tuple(map(case_of, range(100, 110)))
    judged = judge_with_owners(rule, Unfit(), PROFILE, 1, {"REG-99": rule}.__getitem__, tried_first=earlier)
    assert judged.verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize("target", [Hanging, Together])
def test_equal_cases_are_run_once_and_counted_once(target: type[Hanging]) -> None:
    drawn = decoded(4, lambda content: case_of(1 + content[0] % 40))
    rule, seen = made_up(drawn), target()
    verdict = judge(rule, seen, PROFILE, 1)
    assert verdict.examples == len(seen.cases) == len({*map(size_of, seen.cases)})
