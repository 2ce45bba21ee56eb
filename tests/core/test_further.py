"""One finding does not hide the others: the search goes on around its call, or its operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import Check, FakeTarget, case_of, finding, made_up, size_of

from pytest_qnn.core.drawing import listed
from pytest_qnn.core.engine import judge, judge_with_owners
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Level, Measured, Outcome, Verdict, Violation
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace

SIZES = tuple(range(1, 13))


class Alone(FakeTarget):
    """No control explains anything; what is measured is measured alike in each process."""

    def controls(self, _case: Any, **_more: Any) -> Iterator[Any]:
        return iter(())

    def run_fresh(self, case: Any) -> Any:
        return self.run(case)


def a_rule(check: Check) -> Rule[Any, Any, Any]:
    return made_up(st.sampled_from(SIZES).map(case_of), check=check)


def judged(check: Check, run: Callable[[Any], Any] | None = None) -> Verdict:
    rule = a_rule(check)
    target = Alone("memory", run)
    return judge_with_owners(rule, target, PROFILES["default"], 1, {"REG-99": rule}.__getitem__).verdict


def examined(_case: Any, _trace: Any) -> Examined:
    return Examined(1, "cases")


def dying_in(calls: dict[int, str], ends: str = "signal") -> Callable[[Any], MemoryTrace]:
    """A run that dies in a call that depends on the size."""

    def run(case: MemoryCase) -> MemoryTrace:
        call = calls.get(size_of(case))
        if call is None:
            return MemoryTrace()
        return MemoryTrace(
            death=Death(ends, "the process died of SIGSEGV", 0, evidence=Evidence(during=call))
        )

    return run


def sizes_of(verdict: Verdict) -> list[int]:
    found = [finding(verdict), *(each.finding for each in verdict.further)]
    return [size_of(msgspec.json.decode(one.case, type=MemoryCase)) for one in found]


def test_a_death_in_one_call_does_not_hide_those_in_others() -> None:
    calls = {1: "QnnGraph_create", 2: "QnnGraph_create", 3: "QnnLog_create", 5: "QnnMem_register"}
    verdict = judged(examined, dying_in(calls))
    found = [finding(verdict), *(each.finding for each in verdict.further)]
    assert sorted(one.evidence.during for one in found) == sorted({*calls.values()})
    assert {each.outcome for each in verdict.further} == {Outcome.CRASH}


def test_behind_one_place_there_is_nothing_else_and_each_case_runs_once() -> None:
    calls = dict.fromkeys(SIZES, "QnnGraph_create")
    verdict = judged(examined, dying_in(calls))
    assert verdict.further == ()
    assert verdict.examples <= 2 * len(SIZES)  # those drawn, and smaller ones without the context


def test_what_is_worst_is_the_finding() -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        if 0 < size_of(case) < 12:
            raise Violation("0", "1", where=f"step {len(case.steps) - 1}")
        return Examined(1, "cases")

    verdict = judged(check, dying_in({12: "QnnMem_register"}))
    assert (verdict.outcome, sizes_of(verdict)[0]) == (Outcome.CRASH, 12)
    assert [each.outcome for each in verdict.further] == [Outcome.FAIL]


class Company(Alone):
    """Cases that are sent together run in one child."""

    isolated = True

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        self.together = [*getattr(self, "together", ()), *map(size_of, cases)]
        return ((self.run(case), False) for case in cases)


def test_what_ran_in_the_company_of_a_failure_is_judged_behind_it_without_another_run() -> None:
    calls = {1: "QnnGraph_create", 3: "QnnLog_create", 5: "QnnMem_register"}

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if call := calls.get(size_of(case)):
            violation = Violation("0", "1")
            violation.evidence = Evidence(during=call)
            raise violation
        return Examined(1, "cases")

    rule = a_rule(check)
    target = Company("memory")
    verdict = judge_with_owners(rule, target, PROFILES["default"], 1, {"REG-99": rule}.__getitem__).verdict
    assert len(verdict.further) == 2
    again = {size for size in target.together if target.together.count(size) > 1}
    assert again <= set(sizes_of(verdict))  # what failed is judged again, for what else is wrong in it


def test_what_is_in_a_place_that_was_found_already_is_not_carried_out_alone() -> None:
    class Counting(Company):
        alone = 0

        def run(self, case: Any) -> Any:
            self.alone += 1
            return super().run(case)

        def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
            return ((super(Counting, self).run(case), False) for case in cases)

    rule = a_rule(examined)
    target = Counting("memory", dying_in(dict.fromkeys(SIZES, "QnnGraph_create")))
    verdict = judge_with_owners(rule, target, PROFILES["default"], 1, {"REG-99": rule}.__getitem__).verdict
    assert verdict.further == ()
    assert target.alone <= 12, "the finding, smaller cases, and the finding again"


def test_at_most_nine_are_told_beside_the_first() -> None:
    verdict = judged(examined, dying_in({size: f"QnnCall_{size}" for size in SIZES}))
    assert len(verdict.further) == 9
    assert len({*sizes_of(verdict)}) == 10


class OneCall(Alone):
    """A death in the allocation is that call's alone, and the allocation needs nothing."""

    def alone(self, case: MemoryCase, step: int) -> MemoryCase | None:
        return MemoryCase(case.steps[step:]) if isinstance(case.steps[step], Alloc) else None


def dying_at_the_last_step(case: MemoryCase) -> MemoryTrace:
    evidence = Evidence(during=f"QnnCall_{size_of(case)}")
    return MemoryTrace(death=Death("signal", "SIGSEGV", len(case.steps) - 1, evidence=evidence))


def test_a_death_in_a_call_that_says_it_all_is_that_call_alone_and_nothing_smaller_is_tried() -> None:
    target = OneCall("memory", dying_at_the_last_step)
    verdict = judged_by(should(examined, 3), target)
    assert finding(verdict).case == msgspec.json.encode(MemoryCase((Alloc("b0", 3),))).decode()
    repeats = PROFILES["default"].repeats
    assert [size_of(case) for case in target.cases] == [3] * (2 + repeats)


def test_where_the_call_alone_does_not_end_the_process_smaller_cases_are_looked_for() -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        return dying_at_the_last_step(case) if len(case.steps) > 1 else MemoryTrace()

    target = OneCall("memory", run)
    case = MemoryCase((ContextCreate("c0"), ContextCreate("c1"), Alloc("b0", 3)))
    rule = dataclasses.replace(made_up(listed([case]), check=examined), level=Level.SHOULD)
    found = msgspec.json.decode(finding(judged_by(rule, target)).case, type=MemoryCase)
    assert len(found.steps) == 2


@pytest.mark.parametrize("kind", [OneCall, Alone])
def test_deaths_in_calls_that_say_it_all_are_told_however_many_they_are(kind: type[Alone]) -> None:
    verdict = judged_by(should(examined, *range(1, 31)), kind("memory", dying_at_the_last_step))
    assert len(verdict.further) == (29 if kind is OneCall else 9)


def test_a_failure_that_is_in_no_call_and_of_no_operator_ends_the_search() -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        raise Violation("0", str(size_of(case)))

    assert judged(check).further == ()


def test_nothing_is_looked_for_behind_what_is_measured() -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) > 3:
            raise Measured("0", "1", where=f"step {size_of(case) % 2}")
        return Examined(1, "cases")

    verdict = judged(check)
    assert (verdict.outcome, verdict.further) == (Outcome.FAIL, ())


def test_nothing_is_looked_for_behind_a_hang() -> None:
    verdict = judged(examined, dying_in({1: "QnnGraph_create", 3: "QnnLog_create"}, "hang"))
    assert (verdict.outcome, verdict.further) == (Outcome.HANG, ())


def at_the_step(size: int) -> Check:
    """A check that a case of this size breaks, in its allocation."""

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) == size:
            raise Violation("0", "1", where=f"step {len(case.steps) - 1}")
        return Examined(1, "cases")

    return check


def should(check: Check, *sizes: int) -> Rule[Any, Any, Any]:
    """A SHOULD with the cases of these sizes, in this order."""
    return dataclasses.replace(made_up(listed(list(map(case_of, sizes))), check=check), level=Level.SHOULD)


def judged_by(rule: Rule[Any, Any, Any], target: FakeTarget) -> Verdict:
    return judge_with_owners(rule, target, PROFILES["default"], 1, {rule.id: rule}.__getitem__).verdict


@pytest.mark.parametrize("sizes", [(1, 2, 3), (2, 1, 3)])
def test_a_death_in_the_place_of_a_milder_finding_is_another_one(sizes: tuple[int, ...]) -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("signal", "SIGSEGV", 1)) if size_of(case) == 2 else MemoryTrace()

    verdict = judged_by(should(at_the_step(1), *sizes), Alone("memory", run))
    assert verdict.outcome is Outcome.CRASH
    assert verdict.is_red(strict=False)


@pytest.mark.parametrize(("sizes", "runs"), [((1, 2, 3), 2), ((2, 1, 3), 6)])
def test_a_death_that_is_not_seen_again_is_a_flaky_finding_wherever_it_comes(
    sizes: tuple[int, ...], runs: int
) -> None:
    died = iter([True])

    def run(case: MemoryCase) -> MemoryTrace:
        if size_of(case) == 2 and next(died, False):
            return dying_in({2: "QnnMem_register"})(case)
        return MemoryTrace()

    verdict = judged_by(should(at_the_step(1), *sizes), Alone("memory", run))
    assert (verdict.outcome, verdict.flaky) == (Outcome.CRASH, f"failed 1 of {runs} runs")
    assert [(each.outcome, each.flaky) for each in verdict.further] == [(Outcome.FAIL, "")]


def test_an_error_behind_a_finding_is_told_with_it() -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) == 2:
            raise KeyError("the suite's own")
        return at_the_step(1)(case, _trace)

    verdict = judged_by(should(check, 1, 2, 3), Alone("memory"))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.note.startswith("internal error: KeyError: ")
    assert verdict.note.endswith("; what else breaks the rule was not looked for to the end")
    assert "KeyError" in verdict.traceback


def test_without_owners_the_first_finding_ends_the_search() -> None:
    target = Alone("memory", dying_in({1: "QnnGraph_create", 3: "QnnLog_create"}))
    assert judge(a_rule(examined), target, PROFILES["default"], 1).further == ()
