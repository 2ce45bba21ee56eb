"""What was seen is not lost: by a later error, with the target, or behind a cause or a known failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import Check, FakeTarget, case_of, finding, known, made_up, size_of, survives

from pytest_qnn.core.engine import (
    InternalError,
    Interrupted,
    Judged,
    first_failure,
    judge_with_owners,
    judging,
)
from pytest_qnn.core.engine.attribution import Attribution
from pytest_qnn.core.engine.checking import died
from pytest_qnn.core.engine.scope import Scope
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.known_failures import Expectations
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Control, Death, TargetLost
from pytest_qnn.core.verdict import (
    Contradiction,
    Divergence,
    Examined,
    Level,
    Measured,
    Outcome,
    Violation,
    WrongOutput,
)
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase, Prepare
from pytest_qnn.qnn.controls.calls import controls
from pytest_qnn.qnn.trace import MemoryTrace
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

PROFILE = PROFILES["default"]


def a_rule(rule_id: str, check: Check = survives) -> Rule[Any, Any, Any]:
    return made_up(st.just(case_of(1)), check=check, rule_id=rule_id)


def ended(during: str, *, lost: bool = False) -> MemoryTrace:
    kind, detail = ("garbage", "it cannot be loaded any more") if lost else ("signal", "SIGSEGV")
    return MemoryTrace(death=Death(kind, detail, 0, evidence=Evidence(during=during), lost=lost))  # type: ignore[arg-type]


class Controlled(FakeTarget):
    """Of a case of these sizes its allocation is a control, whose owner is OWN-01."""

    def __init__(self, run: Callable[[Any], Any] | None = None, *sizes: int) -> None:
        super().__init__("memory", run)
        self.sizes = sizes

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        if size_of(case) in self.sizes and len(case.steps) > 1:
            yield Control(MemoryCase(case.steps[1:]), ("OWN-01",))

    def run_fresh(self, case: Any) -> Any:
        return self.run(case)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the cases of given sizes be searched, in this order."""

    def have(*sizes: int) -> None:
        class Listed:
            def __init__(self, *_args: Any, **_more: Any) -> None:
                pass

            def __iter__(self) -> Iterator[MemoryCase]:
                return map(case_of, sizes)

            def shrink(self, *_args: Any) -> None:
                pass

        monkeypatch.setattr(judging, "Search", Listed)

    return have


def judged(
    target: FakeTarget, check: Check = survives, owner: Check = survives, accepted: Expectations | None = None
) -> Judged:
    rules = {"REG-99": a_rule("REG-99", check), "OWN-01": a_rule("OWN-01", owner)}
    return judge_with_owners(
        rules["REG-99"],
        target,
        PROFILE,
        1,
        rules.__getitem__,
        lambda rule: accepted if accepted and rule == "OWN-01" else Expectations(),
    )


def seen_at(**words: str) -> Check:
    """A check that sees these wrong outputs, by size."""

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if word := words.get(f"size_{size_of(case)}"):
            raise WrongOutput("0", word)
        return Examined(1, "outputs")

    return check


APPLES_AND_PEARS = seen_at(size_1="apples", size_2="pears")


def test_an_expected_failure_of_the_owner_hides_no_other_one_of_it(listed: Callable[..., None]) -> None:
    listed(1, 2)
    found = judged(Controlled(None, 1, 2), APPLES_AND_PEARS, APPLES_AND_PEARS, known("OWN-01", seen="apples"))
    (owners,) = found.handed_over
    assert (owners.outcome, finding(owners).seen, owners.is_known) == (Outcome.FAIL, "pears", False)
    assert owners.is_red(strict=False)
    assert len(owners.known) == 1


def test_all_that_an_owner_has_to_answer_for_is_handed_over_the_worst_first(
    listed: Callable[..., None],
) -> None:
    listed(1, 2, 3)
    target = Controlled(lambda case: ended("QnnA") if size_of(case) == 3 else MemoryTrace(), 1, 2, 3)
    (owners,) = judged(target, APPLES_AND_PEARS, APPLES_AND_PEARS).handed_over
    assert (owners.outcome, finding(owners).evidence.during) == (Outcome.CRASH, "QnnA")
    assert [each.finding.seen for each in owners.further] == ["apples", "pears"]


def test_one_thing_that_is_wrong_at_several_sizes_is_handed_over_once(listed: Callable[..., None]) -> None:
    listed(1, 2, 3)
    wrong = seen_at(size_1="7 apples", size_2="8 apples", size_3="9 apples")
    (owners,) = judged(Controlled(None, 1, 2, 3), wrong, wrong).handed_over
    assert owners.further == ()


def test_a_target_that_is_lost_in_a_control_was_lost_by_the_case(listed: Callable[..., None]) -> None:
    state = {"ended": False, "told": False}

    def run(case: MemoryCase) -> MemoryTrace:
        if state["told"]:
            raise TargetLost("it cannot be loaded any more")
        if state["ended"]:
            state["told"] = True
            return ended("", lost=True)
        state["ended"] = size_of(case) == 3
        return ended("QnnMem_register") if state["ended"] else MemoryTrace()

    listed(1, 2, 3, 4)
    verdict, handed_over = judged(Controlled(run, 3))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnMem_register")
    assert handed_over == ()


def test_a_target_that_is_lost_when_a_case_is_alone_was_lost_by_it(listed: Callable[..., None]) -> None:
    class Together(Controlled):
        isolated = True

        def run_all(self, cases: Any) -> Iterator[tuple[Any, bool]]:
            for number, case in enumerate(cases):
                yield ended("QnnA") if size_of(case) == 6 else MemoryTrace(), number == 0

    listed(*range(1, 10))
    verdict, _ = judged(Together(lambda _case: ended("", lost=True)))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")


def failing_later(times: int) -> Check:
    """A check that sees a wrong output so often, and fails itself then."""
    calls = iter(range(times))

    def check(_case: Any, _trace: Any) -> Examined:
        if next(calls, None) is None:
            raise KeyError("the suite's own")
        raise WrongOutput("0", "1")

    return check


def test_a_check_of_the_owner_that_fails_itself_loses_neither_finding(listed: Callable[..., None]) -> None:
    listed(1, 2)

    def check(case: MemoryCase, _trace: Any) -> Examined:
        raise WrongOutput("0", "1") if size_of(case) == 1 else Violation("0", "the rule's own")

    verdict, (owners,) = judged(Controlled(None, 1), check, failing_later(1))
    assert (verdict.outcome, finding(verdict).seen) == (Outcome.FAIL, "the rule's own")
    assert (owners.rule, owners.outcome) == ("OWN-01", Outcome.FAIL)


@pytest.mark.parametrize("error", [KeyError("the suite's own"), TargetLost("it cannot be loaded any more")])
def test_an_error_of_a_later_case_loses_nothing_that_is_handed_over(
    error: Exception, listed: Callable[..., None]
) -> None:
    listed(1, 2)

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) == 1:
            raise WrongOutput("0", "1")
        raise error

    def run(case: MemoryCase) -> MemoryTrace:
        if size_of(case) == 2 and isinstance(error, TargetLost):
            raise error
        return MemoryTrace()

    with pytest.raises(Interrupted) as stopped:
        judged(Controlled(run, 1), check, seen_at(size_1="apples"))
    (owners,) = stopped.value.handed_over
    assert (owners.rule, owners.outcome, owners.found_by) == ("OWN-01", Outcome.FAIL, "REG-99")
    cause = stopped.value.error
    assert error in (cause, cause.__cause__ if isinstance(cause, InternalError) else None)


def test_an_error_behind_a_finding_loses_no_finding(listed: Callable[..., None]) -> None:
    listed(1, 2)

    class Raising(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002
            if size_of(case) == 2:
                raise ValueError("the suite's own")
            return iter(())

    deaths = {1: ended("Qnn1"), 2: ended("Qnn2")}
    verdict, _ = judged(Raising(lambda case: deaths.get(size_of(case), MemoryTrace())))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "Qnn1")
    assert [each.finding.evidence.during for each in verdict.further] == ["Qnn2"]
    assert "ValueError: the suite's own" in verdict.traceback


def test_the_verdict_says_what_was_seen_behind_its_finding_too(listed: Callable[..., None]) -> None:
    listed(1, 2, 3, 4, 5)
    check = seen_at(size_2="apples")
    target = Controlled(lambda case: ended("QnnA") if size_of(case) == 1 else MemoryTrace(), 2)
    verdict, (owners,) = judged(target, check, check)
    assert (verdict.outcome, verdict.blocked_by, owners.found_by) == (Outcome.CRASH, ("OWN-01",), "REG-99")
    assert verdict.examples >= 5
    assert verdict.examined >= 3


def test_what_is_measured_behind_a_finding_is_confirmed(listed: Callable[..., None]) -> None:
    listed(1, 7)
    runs: list[int] = []

    class Chance(Controlled):
        def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the interface's
            if size_of(case) == 7:
                yield case_of(8)

    def run(case: MemoryCase) -> MemoryTrace:
        runs.append(size_of(case))
        return ended("QnnA") if size_of(case) == 1 else MemoryTrace()

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if size_of(case) == 7 or (size_of(case) == 8 and runs.count(8) == 1):
            raise Measured("0", "1", where="step 1")
        return Examined(1, "cases")

    verdict, _ = judged(Chance(run), check)
    (further,) = verdict.further
    assert size_of(msgspec.json.decode(further.finding.case, type=MemoryCase)) == 7


def test_a_death_is_blamed_on_the_same_rule_whatever_was_seen_before() -> None:
    """A rule that owns the deaths in one call of a control owns them also where another control is known."""
    plain = Prepare("g0", "c0", "ElementWiseAdd", "UFIXED_POINT_8")
    large = msgspec.structs.replace(plain, shape=(1, 9, 9, 9), graph="g1")

    def run(case: MemoryCase) -> MemoryTrace:
        for step in case.steps:
            if isinstance(step, Prepare):
                return ended("QnnGraph_create" if step.shape == large.shape else "QnnGraph_finalize")
        return MemoryTrace()

    class Calls(FakeTarget):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            return controls(case, (1,), died=died)

    names = "IF-01 IF-06 IF-11 IF-12 IF-13 CTX-08 CTX-09 CTX-01 PRE-10 PRE-11 EXE-21 REG-01 DRG-01 EXE-10"
    rules = {name: a_rule(name) for name in names.split()}
    attribution = Attribution(rules["PRE-10"], Calls("memory", run), rules.__getitem__)

    def owner(*steps: Any) -> str:
        case = MemoryCase((ContextCreate("c0"), *steps))
        death = run(case).death
        assert death is not None
        cause = attribution.cause(case, died(death))
        return cause.owner.id if cause else "PRE-10"

    assert owner(plain) == "PRE-11"
    assert owner(large, plain) == "PRE-10"


def test_a_death_of_a_smaller_case_is_no_milder_for_what_was_found_first(listed: Callable[..., None]) -> None:
    listed(7)

    class Smaller(Controlled):
        def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the interface's
            if size_of(case) == 7:
                yield case_of(8)

    target = Smaller(lambda case: ended("QnnA") if size_of(case) == 8 else MemoryTrace())
    verdict, _ = judged(target, seen_at(size_7="apples"))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")
    assert [each.finding.seen for each in verdict.further] == ["apples"]


def test_a_death_of_the_same_case_run_again_is_a_finding(listed: Callable[..., None]) -> None:
    listed(7)
    runs = iter([MemoryTrace()])
    verdict, _ = judged(Controlled(lambda _case: next(runs, ended("QnnA"))), seen_at(size_7="apples"))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")


def test_a_target_that_is_lost_when_cases_are_joined_was_lost_by_them(listed: Callable[..., None]) -> None:
    class Together(Controlled):
        isolated = True

        def run_all(self, cases: Any) -> Iterator[tuple[Any, bool]]:
            for number, case in enumerate(cases):
                yield ended("QnnA") if size_of(case) == 6 else MemoryTrace(), number == 0

        def joined(self, cases: Any) -> Any:  # noqa: ARG002 - the interface's
            return case_of(100)

    def run(case: MemoryCase) -> MemoryTrace:
        return ended("", lost=True) if size_of(case) == 100 else MemoryTrace()

    listed(*range(1, 10))
    verdict, _ = judged(Together(run))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")


def test_a_should_that_fails_hides_no_contradiction(listed: Callable[..., None]) -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        violation = Violation if size_of(case) == 1 else Contradiction
        found = violation("0", "1")
        found.evidence = Evidence(during=f"Qnn{size_of(case)}")
        raise found

    listed(1, 2)
    rule = dataclasses.replace(a_rule("REG-99", check), level=Level.SHOULD)
    verdict = judge_with_owners(rule, Controlled(), PROFILE, 1, {"REG-99": rule}.__getitem__).verdict
    assert verdict.outcome is Outcome.CONTRADICTION
    assert Outcome.FAIL in {each.outcome for each in verdict.further}
    assert verdict.is_red(strict=False)


class RaisingControls(Controlled):
    """Of a case of these sizes the suite itself fails where it makes the controls."""

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        if self.subject == "delegate" or size_of(case) in self.sizes:
            raise ValueError("the suite's own")
        return super().controls(case, died=died)


def test_an_error_in_the_controls_loses_no_finding_and_is_told(listed: Callable[..., None]) -> None:
    listed(1)
    verdict, handed_over = judged(RaisingControls(None, 1), seen_at(size_1="apples"))
    assert (verdict.outcome, finding(verdict).seen, handed_over) == (Outcome.FAIL, "apples", ())
    assert "internal error: ValueError: the suite's own" in verdict.note
    assert "ValueError: the suite's own" in verdict.traceback
    assert verdict.is_red(strict=False)


class Isolated(Controlled):
    """The cases of a company in one child, which dies of the eighth case."""

    isolated = True

    def run_all(self, cases: Any) -> Iterator[tuple[Any, bool]]:
        for number, case in enumerate(cases):
            yield ended("QnnA") if size_of(case) == 8 else MemoryTrace(), number == 0


def raising(case: Any, **_named: Any) -> Iterator[Any]:
    if size_of(case) == 9:
        yield case_of(8)
    raise ValueError("the suite's own")


def divergent(case: Any, _trace: Any) -> Examined:
    if not size_of(case):
        return Examined(1, "outputs")
    raise Divergence("0", f"{size_of(case)} apples", node=1, is_first=False)


@pytest.mark.parametrize("method", ["smaller", "revealing"])
def test_an_error_where_other_cases_are_made_loses_no_finding(
    method: str, listed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(9)
    target = Controlled()
    monkeypatch.setattr(target, method, raising)
    verdict, _ = judged(target, divergent)
    assert verdict.outcome is Outcome.FAIL
    assert finding(verdict).seen == ("8 apples" if method == "smaller" else "9 apples")
    assert verdict.note == "internal error: ValueError: the suite's own; the case may not be the smallest"
    assert "ValueError: the suite's own" in verdict.traceback


def test_an_error_in_a_smaller_draw_loses_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.Search, "shrink", raising_at_once)
    verdict, _ = judged(Controlled(), seen_at(size_1="apples"))
    assert (verdict.outcome, finding(verdict).seen) == (Outcome.FAIL, "apples")
    assert "ValueError: the suite's own" in verdict.traceback


def raising_at_once(*_arguments: Any) -> Any:
    raise ValueError("the suite's own")


def test_an_error_where_cases_are_joined_does_not_end_the_search(
    listed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(*range(1, 12))
    target = Isolated()
    monkeypatch.setattr(target, "joined", raising_at_once)
    verdict, _ = judged(target, seen_at(size_11="apples"))
    assert (verdict.outcome, finding(verdict).seen) == (Outcome.FAIL, "apples")
    assert verdict.only_in_company == 1
    assert "ValueError: the suite's own" in verdict.traceback


def test_of_a_company_too_long_for_one_case_what_is_needed_is_found(listed: Callable[..., None]) -> None:
    """The child dies where 15 came before 18, and no case may have more than four allocations."""

    class Long(Controlled):
        isolated = True

        def run_all(self, cases: Any) -> Iterator[tuple[Any, bool]]:
            for number, case in enumerate(cases):
                dies = size_of(case) == 18 and len(cases) > 1
                yield ended("QnnA") if dies else MemoryTrace(), number == 0

        def joined(self, cases: Any) -> Any:
            steps = tuple(step for case in cases for step in case.steps if isinstance(step, Alloc))
            return MemoryCase(steps) if len(steps) <= 4 else None

    def run(case: MemoryCase) -> MemoryTrace:
        sizes = [step.size for step in case.steps if isinstance(step, Alloc)]
        return ended("QnnA") if {15, 18}.issubset(sizes) else MemoryTrace()

    listed(*range(1, 30))
    verdict, _ = judged(Long(run))
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")


class Delegate(Controlled):
    """Nothing is joined to one case; a child dies of the case of size 8 behind the one of size 7."""

    isolated = True
    owner_in_company = "OWN-01"
    seldom = 2

    def run_all(self, cases: Any) -> Iterator[tuple[Any, bool]]:
        for number, case in enumerate(cases):
            dies = {7, 8} <= {size_of(one) for one in cases} and size_of(case) == 8 and self.seldom > 0
            self.seldom -= dies
            yield ended("QnnA") if dies else MemoryTrace(), number == 0

    def joined(self, cases: Any) -> Any:  # noqa: ARG002 - the interface's
        return None


@pytest.mark.parametrize("seldom", [1, 2])
def test_a_death_behind_other_cases_that_comes_again_is_that_of_the_owner(
    listed: Callable[..., None], seldom: int
) -> None:
    listed(*range(1, 12))
    target = Delegate()
    target.seldom = seldom
    verdict, handed_over = judged(target)
    assert (verdict.outcome, verdict.only_in_company) == (Outcome.PASS, 1)
    assert len(handed_over) == (seldom == 2)
    for owners in handed_over:
        assert (owners.rule, owners.outcome) == ("OWN-01", Outcome.CRASH)
        assert finding(owners).evidence.during == "QnnA"
        assert owners.flaky == "failed twice, behind 2 other cases in one process, and not alone"
        assert size_of(msgspec.json.decode(finding(owners).case, type=MemoryCase)) == 8


@pytest.mark.parametrize("rule_id", ["REG-99", "OWN-01", "OTH-01"])
def test_a_death_behind_other_cases_is_that_of_what_spoils_all(
    listed: Callable[..., None], rule_id: str
) -> None:
    """Not of the owner of deaths in company, whatever rule meets it; the one that it is due to keeps it."""

    class Spoilt(Delegate):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002
            yield Control(case_of(20), ("OTH-01",), spoils=True)

    listed(*range(1, 12))
    rules = {name: a_rule(name) for name in ("REG-99", "OWN-01")}
    rules["OTH-01"] = a_rule("OTH-01", seen_at(size_20="apples"))
    verdict, handed_over = judge_with_owners(rules[rule_id], Spoilt(), PROFILE, 1, rules.__getitem__)
    if rule_id == "OTH-01":
        assert (verdict.outcome, handed_over) == (Outcome.CRASH, ())
    else:
        assert verdict.outcome is Outcome.PASS
        assert [(each.rule, each.outcome) for each in handed_over] == [("OTH-01", Outcome.FAIL)]


def test_the_owner_itself_has_it_as_a_finding_of_its_own(listed: Callable[..., None]) -> None:
    listed(*range(1, 12))
    rule = a_rule("OWN-01")
    verdict, handed_over = judge_with_owners(rule, Delegate(), PROFILE, 1, {"OWN-01": rule}.__getitem__)
    assert (verdict.outcome, handed_over) == (Outcome.CRASH, ())
    assert verdict.flaky.startswith("failed twice, behind ")


def test_a_death_in_either_run_of_a_smaller_case_of_chance_is_a_finding(listed: Callable[..., None]) -> None:
    class Smaller(Controlled):
        def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the interface's
            if size_of(case) == 7:
                yield case_of(8)

    listed(7)
    died = iter([True])
    target = Smaller(
        lambda case: ended("QnnA") if size_of(case) == 8 and next(died, False) else MemoryTrace()
    )
    rule = dataclasses.replace(a_rule("REG-99", seen_at(size_7="apples")), by_chance=True)
    verdict = judge_with_owners(rule, target, PROFILE, 1, {"REG-99": rule}.__getitem__).verdict
    assert (verdict.outcome, finding(verdict).evidence.during) == (Outcome.CRASH, "QnnA")


def test_of_many_things_that_an_owner_has_to_answer_for_a_death_is_told(listed: Callable[..., None]) -> None:
    listed(*range(1, 12))
    wrong = seen_at(**{f"size_{size}": f"{'abcdefghij'[size - 1] * 4}" for size in range(1, 11)})
    target = Controlled(lambda case: ended("QnnA") if size_of(case) == 11 else MemoryTrace(), *range(1, 12))
    (owners,) = judged(target, wrong, wrong).handed_over
    assert owners.outcome is Outcome.CRASH
    assert len(owners.further) == 9


class Plainer(Controlled):
    """Of the control of size 5 there is a smaller case, of size 4, which may have a control of OTH-01."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
        yield from super().controls(case, died=died)
        if size_of(case) == 4 and "OTH-01" in self.owners:
            yield Control(case_of(3), ("OTH-01",))

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:  # noqa: ARG002 - the interface's
        if size_of(case) == 5 and len(case.steps) == 1:
            yield MemoryCase((Alloc("b0", 4),))

    owners: tuple[str, ...] = ()


@pytest.mark.parametrize("other", [False, True])
def test_a_death_behind_what_an_owner_has_to_answer_for_is_handed_over(
    listed: Callable[..., None], *, other: bool
) -> None:
    """To the owner, or where a control of it dies too to that one's."""
    listed(5, 1)
    target = Plainer(lambda case: ended("QnnA") if size_of(case) in (3, 4) else MemoryTrace(), 5)
    target.owners = ("OTH-01",) if other else ()
    rules = {name: a_rule(name, seen_at(size_5="apples")) for name in ("REG-99", "OWN-01")}
    rules["OTH-01"] = a_rule("OTH-01")
    found = judge_with_owners(rules["REG-99"], target, PROFILE, 1, rules.__getitem__).handed_over
    outcomes = {each.rule: (each.outcome, [one.outcome for one in each.further]) for each in found}
    if other:
        expected = {"OWN-01": (Outcome.FAIL, []), "OTH-01": (Outcome.CRASH, [])}
    else:
        expected = {"OWN-01": (Outcome.CRASH, [Outcome.FAIL])}
    assert outcomes == expected


def test_what_is_handed_over_is_not_made_smaller_into_another_call(listed: Callable[..., None]) -> None:
    listed(5, 1)
    deaths = {5: ended("QnnGraph_finalize"), 4: ended("QnnGraph_create")}
    (owners,) = judged(Plainer(lambda case: deaths.get(size_of(case), MemoryTrace()), 5)).handed_over
    assert finding(owners).evidence.during == "QnnGraph_finalize"


def test_an_error_in_later_controls_loses_nothing_that_is_handed_over(listed: Callable[..., None]) -> None:
    listed(1, 2)

    class Target(RaisingControls):
        def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
            if size_of(case) == 2:
                raise ValueError("the suite's own")
            return Controlled.controls(self, case, died=died)

    verdict, (owners,) = judged(Target(None, 1), APPLES_AND_PEARS, APPLES_AND_PEARS)
    assert (finding(verdict).seen, finding(owners).seen) == ("pears", "apples")
    assert verdict.blocked_by == ("OWN-01",)
    assert "ValueError" in verdict.traceback
    assert owners.traceback == ""


def test_a_failure_that_is_expected_is_known_also_where_nothing_can_be_left_out() -> None:
    graph = Graph((Tensor((1, 2)), Tensor((1, 2))), (Node("ABS", (0,), (1,)),), (0,), (1,))
    expected = known("OWN-01", operators=("ABS float32",)).accepted
    target = RaisingControls()
    target.subject = "delegate"
    scope = Scope(target, expected)
    assert scope.is_known(DelegateCase(graph), WrongOutput("0", "1"))
    (error,) = scope.behind(Fingerprint(), Outcome.FAIL).errors
    assert isinstance(error, ValueError)


def test_a_measurement_does_not_go_on_behind_an_error_in_the_controls(listed: Callable[..., None]) -> None:
    listed(1)
    rules = {"REG-99": a_rule("REG-99", seen_at(size_1="apples"))}
    with pytest.raises(ValueError, match="the suite's own"):
        first_failure(rules["REG-99"], RaisingControls(None, 1), PROFILE, 1, rules.__getitem__)
