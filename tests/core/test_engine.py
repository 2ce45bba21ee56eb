from __future__ import annotations

import collections
import dataclasses
import gc
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import FakeTarget, finding, made_up, refusing

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Outcome, Unsupported, Violation
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.report import failure, terminal

PROFILE = PROFILES["default"]
CASE = MemoryCase((ContextCreate("c0"),))
SIZES = st.integers(1, 100).map(lambda size: MemoryCase((ContextCreate("c0"), Alloc("b0", size))))


def failing_in(runs: list[bool]) -> Callable[[Any, Any], Examined]:
    """A check that fails in the runs that are marked, and never after them."""
    left = iter(runs)

    def check(_case: Any, _trace: Any) -> Examined:
        if next(left, False):
            raise Violation("0", "1000")
        return Examined(1, "calls")

    return check


def test_a_case_that_always_fails_is_no_flake() -> None:
    verdict = judge(
        made_up(st.just(CASE), "memory", failing_in([True] * 99)), FakeTarget("memory"), PROFILE, 1
    )
    assert (verdict.outcome, verdict.flaky) == (Outcome.FAIL, "")


@pytest.mark.parametrize(
    ("runs", "rate"),
    [
        ([True], "failed 1 of 6 runs"),
        ([True, False, True], "failed 2 of 6 runs"),
        ([True, True, True, True, True], "failed 5 of 6 runs"),
    ],
)
def test_a_case_that_does_not_always_fail_is_flaky_and_never_a_pass(runs: list[bool], rate: str) -> None:
    verdict = judge(made_up(st.just(CASE), "memory", failing_in(runs)), FakeTarget("memory"), PROFILE, 1)
    assert (verdict.outcome, verdict.flaky) == (Outcome.FAIL, rate)
    assert msgspec.json.decode(finding(verdict).case, type=MemoryCase) == CASE


def test_a_passing_rule_is_not_run_again() -> None:
    target = FakeTarget("memory")
    verdict = judge(made_up(SIZES, "memory"), target, PROFILE, 1)
    assert (verdict.outcome, verdict.flaky) == (Outcome.PASS, "")
    assert len(target.cases) == len(set(target.cases)) == verdict.examples


def test_a_crash_one_time_in_three_is_a_flaky_crash() -> None:
    turns = itertools.cycle([False, False, True])

    def run(_case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("signal", "SIGSEGV", 0) if next(turns) else None)

    verdict = judge(made_up(SIZES, "memory"), FakeTarget("memory", run), PROFILE, 1)
    assert verdict.outcome is Outcome.CRASH
    assert verdict.flaky in ("failed 2 of 6 runs", "failed 3 of 6 runs")


def test_a_target_of_many_moods_does_not_confuse_the_search() -> None:
    # Each run of a case gives another answer; what a case gave first is what Hypothesis keeps seeing.
    answers = itertools.cycle([0, 1, 1, 0, 2, 1, 0, 0, 3])

    def check(_case: Any, _trace: Any) -> Examined:
        answer = next(answers)
        if answer == 3:
            raise Unsupported("today it does not")
        if answer:
            raise Violation("0", str(answer))
        return Examined(1, "calls")

    verdicts = [
        judge(made_up(SIZES, "memory", check), FakeTarget("memory"), PROFILE, seed) for seed in range(9)
    ]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.FAIL}
    assert any(verdict.flaky for verdict in verdicts)


def test_a_strategy_that_draws_differently_each_time_keeps_its_finding() -> None:
    count = itertools.count()
    cases = st.integers(0, 9).map(lambda _: MemoryCase((Alloc("b0", next(count) + 1),)))
    rule = made_up(cases, "memory", refusing(lambda case: bool(case.steps[0].size > 5)))
    assert judge(rule, FakeTarget("memory"), PROFILE, 1).outcome is Outcome.FAIL


@pytest.mark.parametrize("least", [1, 6])
def test_a_hang_is_searched_within_its_budget_and_seen_twice(least: int) -> None:
    def hangs(case: MemoryCase) -> bool:
        return any(isinstance(step, Alloc) and step.size > 10 for step in case.steps)

    def run(case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("hang", "no answer within 10 s", 1) if hangs(case) else None)

    target = FakeTarget("memory", run)
    sizes = st.integers(1, 100) if least > 1 else st.just(11)
    cases = st.lists(sizes, min_size=least, max_size=20 * least // 6)
    made = cases.map(lambda sizes: MemoryCase(tuple(Alloc(f"b{at}", size) for at, size in enumerate(sizes))))
    verdict = judge(made_up(made, "memory"), target, PROFILE, 1)
    assert (verdict.outcome, verdict.flaky) == (Outcome.HANG, "")
    assert 2 <= sum(map(hangs, target.cases)) <= PROFILE.hang_budget
    found = msgspec.json.decode(finding(verdict).case, type=MemoryCase)
    assert len(found.steps) == 1
    # Of one that was made smaller the larger case has hung too.
    assert target.cases.count(found) == (1 if least > 1 else 2)


def test_a_smaller_case_that_fails_otherwise_is_not_the_finding() -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("signal", "SIGSEGV", 1) if len(case.steps) == 2 else None)

    rule = made_up(SIZES, "memory", refusing(lambda case: len(case.steps) == 1))
    verdict = judge(rule, FakeTarget("memory", run), PROFILE, 1)
    assert verdict.outcome is Outcome.CRASH
    assert len(msgspec.json.decode(finding(verdict).case, type=MemoryCase).steps) == 2


@pytest.mark.parametrize("least", [0, 50])
def test_cases_that_give_too_much_are_counted_and_prove_nothing(least: int) -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        size = next((step.size for step in case.steps if isinstance(step, Alloc)), 0)
        return MemoryTrace(death=Death("large", "the case gives too much") if size >= least else None)

    verdict = judge(made_up(SIZES, "memory"), FakeTarget("memory", run), PROFILE, 1)
    if least:
        assert verdict.outcome is Outcome.PASS
        assert int(verdict.note.partition(": ")[2]) > 0
    else:
        assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "the case gives too much")


@pytest.mark.parametrize(("final", "outcome"), [(False, Outcome.INCONCLUSIVE), (True, Outcome.UNSUPPORTED)])
def test_beside_cases_that_give_too_much_only_a_proof_makes_a_rule_unsupported(
    final: bool, outcome: Outcome
) -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        size = next((step.size for step in case.steps if isinstance(step, Alloc)), 0)
        return MemoryTrace(death=Death("large", "the case gives too much") if size >= 50 else None)

    def check(_case: MemoryCase, _trace: Any) -> Examined:
        raise Unsupported("there is no such type", final=final)

    verdict = judge(made_up(SIZES, "memory", check), FakeTarget("memory", run), PROFILE, 1)
    assert verdict.outcome is outcome


def test_a_case_that_gives_too_much_without_the_target_too_hides_nothing() -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        size = next((step.size for step in case.steps if isinstance(step, Alloc)), 0)
        death = Death("large", "the case gives too much", of_case=True)
        return MemoryTrace(death=death if size >= 50 else None)

    def check(_case: MemoryCase, _trace: Any) -> Examined:
        raise Unsupported("there was nothing to look at", final=False)

    verdict = judge(made_up(SIZES, "memory", check), FakeTarget("memory", run), PROFILE, 1)
    assert (verdict.outcome, verdict.reason) == (Outcome.UNSUPPORTED, "there was nothing to look at")


@pytest.mark.parametrize("by_chance", [True, False])
def test_of_what_shows_by_chance_a_smaller_case_must_show_it_twice(by_chance: bool) -> None:
    times: collections.Counter[int] = collections.Counter()

    def check(case: MemoryCase, _trace: Any) -> Examined:
        size = next((step.size for step in case.steps if isinstance(step, Alloc)), 0)
        begun = any(each >= 50 for each in times)
        times[size] += 1
        # A size below 50 shows it each second time only, once a larger one has.
        if size >= 50 or (size and begun and times[size] % 2):
            raise Violation("0", "1000")
        return Examined(1, "calls")

    rule = dataclasses.replace(made_up(SIZES, "memory", check), by_chance=by_chance)
    found = msgspec.json.decode(finding(judge(rule, FakeTarget("memory"), PROFILE, 1)).case, type=MemoryCase)
    (size,) = [step.size for step in found.steps if isinstance(step, Alloc)]
    assert (size >= 50) is by_chance


def test_a_rule_that_stumbles_over_a_smaller_case_keeps_its_finding() -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        assert isinstance(case.steps[1], Alloc)  # an IndexError in every smaller case
        raise Violation("0", "1000")

    verdict = judge(made_up(SIZES, "memory", check), FakeTarget("memory"), PROFILE, 1)
    assert verdict.outcome is Outcome.FAIL


def test_without_a_budget_nothing_is_tried_after_the_first_failure() -> None:
    class Hasty(Profile):
        def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
            return 0

    target = FakeTarget("memory")
    judge(made_up(SIZES, "memory", refusing(lambda _: True)), target, Hasty("hasty", 9, 9, repeats=2), 1)
    assert len(target.cases) == 3
    assert len(set(target.cases)) == 1


def test_what_follows_the_first_failure_ends_after_its_seconds() -> None:
    def run(_case: MemoryCase) -> MemoryTrace:
        time.sleep(0.02)
        return MemoryTrace()

    target = FakeTarget("memory", run)
    profile = dataclasses.replace(PROFILE, shrink_seconds=0.5, repeats=1)
    cases = st.lists(st.integers(1, 100), min_size=30, max_size=30).map(
        lambda sizes: MemoryCase(tuple(Alloc(f"b{at}", size) for at, size in enumerate(sizes)))
    )
    rule = made_up(cases, "memory", refusing(lambda case: sum(step.size for step in case.steps) > 300))
    verdict = judge(rule, target, profile, 1)
    assert verdict.outcome is Outcome.FAIL
    assert 3 < len(target.cases) < 40
    assert judge(rule, FakeTarget("memory"), PROFILE, 1).examples > 2 * len(target.cases)


def test_a_flake_is_told_in_the_text_and_in_the_line_of_the_report() -> None:
    verdict = judge(
        made_up(st.just(CASE), "memory", failing_in([True, False, True])), FakeTarget("memory"), PROFILE, 1
    )
    assert "  flaky     the minimal case failed 2 of 6 runs" in failure.text(verdict, 1).splitlines()
    (line,) = terminal.findings([verdict])
    assert line.text.startswith("REG-99 MUST fail (flaky: failed 2 of 6 runs): ")


def test_long_contents_of_a_case_that_is_kept_are_cut_in_the_text() -> None:
    verdict = judge(
        made_up(st.just(CASE), "memory", refusing(lambda _: True)), FakeTarget("memory"), PROFILE, 1
    )
    assert verdict.finding is not None
    case = json.dumps({"data": "A" * 100_000, "short": "B" * 300})
    verdict = msgspec.structs.replace(verdict, finding=msgspec.structs.replace(verdict.finding, case=case))
    assert "A" * 100_000 in failure.text(verdict, 1)  # it stands nowhere else
    shown = failure.text(msgspec.structs.replace(verdict, folder="REG-99"), 1)
    assert max(map(len, shown.splitlines())) < 400
    assert "... 100,000 characters, which the case file has" in shown
    assert "B" * 300 in shown


def test_a_known_failure_that_is_absent_is_told_in_the_first_line_without_a_reason() -> None:
    verdict = judge(
        made_up(st.just(CASE), "memory", lambda _, __: Examined(1, "calls")), FakeTarget("memory"), PROFILE, 1
    )
    absent = "entry 1 of the known failures was not found"
    lines = failure.text(msgspec.structs.replace(verdict, unexpected=absent), 1).splitlines()
    assert lines[0].startswith(f"REG-99 pass, but {absent} (--qnn-expect): ")
    assert [line for line in lines if line.startswith("  reason")] == []


@pytest.mark.parametrize("seed", range(6))
def test_a_failure_does_not_turn_into_a_crash_while_it_shrinks(seed: int) -> None:
    seen: list[str] = []

    def run(case: MemoryCase) -> MemoryTrace:
        size = sum(step.size for step in case.steps if isinstance(step, Alloc))
        kind = "fail" if size > 60 else "crash" if size > 30 else ""
        seen.append(kind)
        return MemoryTrace(death=Death("signal", "SIGSEGV", 1) if kind == "crash" else None)

    check = refusing(lambda case: any(isinstance(step, Alloc) and step.size > 60 for step in case.steps))
    verdict = judge(made_up(SIZES, "memory", check), FakeTarget("memory", run), PROFILE, seed)
    assert verdict.outcome.value == next(filter(None, seen))
    assert finding(verdict).case.count('"size":61' if verdict.outcome is Outcome.FAIL else '"size":31') == 1


@pytest.mark.parametrize("frozen_by_the_user", [False, True])
def test_what_was_there_before_a_search_is_frozen_for_its_time_and_no_longer(
    frozen_by_the_user: bool,
) -> None:
    counts: list[int] = []

    def check(_case: Any, _trace: Any) -> Examined:
        counts.append(gc.get_freeze_count())
        return Examined(1, "calls")

    if frozen_by_the_user:
        gc.freeze()
    try:
        judge(made_up(st.just(CASE), "memory", check), FakeTarget("memory"), PROFILE, 1)
        assert counts[0] > 1000
        assert bool(gc.get_freeze_count()) is frozen_by_the_user
    finally:
        gc.unfreeze()
