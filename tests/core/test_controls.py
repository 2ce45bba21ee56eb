"""What goes wrong in a plain case already: whose finding it is, and how the search goes on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from minimal_doubles import Check, FakeTarget, case_of, finding, made_up, survives

from pytest_qnn.core.drawing import decoded, listed
from pytest_qnn.core.engine import Judged, blame, first_failure, judge, judge_with_owners
from pytest_qnn.core.engine.attribution import first_and_last
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.rule import NothingToJudge, Rule
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import (
    Examined,
    FailedCall,
    FalseDeclaration,
    Measured,
    Outcome,
    Retained,
    Unsupported,
    Violation,
    WrongOutput,
    WrongRefusal,
    WrongSuccess,
)
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase
from pytest_qnn.qnn.trace import MemoryTrace

PROFILE = PROFILES["default"]


def sizes_of(case: MemoryCase) -> list[int]:
    return [step.size for step in case.steps if isinstance(step, Alloc)]


def sizes(facts: Any) -> st.SearchStrategy[MemoryCase]:
    """A context and an allocation, of a size that the facts do not leave out."""
    left = [size for size in (1, 2, 3) if size not in (facts or ())]
    if not left:
        raise NothingToJudge("no size is left")
    return st.sampled_from(left).map(case_of)


def a_rule(rule_id: str, check: Check, **more: Any) -> Rule[Any, Any, Any]:
    return made_up(sizes, check=check, rule_id=rule_id, **more)


def wrong_at(*bad: int) -> Check:
    """A check that sees wrong outputs at allocations of these sizes."""

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if set(bad).intersection(sizes_of(case)):
            raise WrongOutput("0", "1")
        return Examined(1, "outputs")

    return check


class Controlled(FakeTarget):
    """A control of a case is its allocation without the context."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
        allocations = tuple(step for step in case.steps if isinstance(step, Alloc))
        yield Control(MemoryCase(allocations), ("OWN-02",) if died else ("OWN-01",))

    def run_fresh(self, case: Any) -> Any:
        return self.run(case)

    def around(self, facts: Any, case: MemoryCase, call: str = "") -> Any:  # noqa: ARG002 - the interface's
        return (*(facts or ()), *sizes_of(case))


def judged(check: Check, owner: Check, run: Callable[[Any], Any] | None = None, **more: Any) -> Judged:
    owners = {name: a_rule(name, owner) for name in ("OWN-01", "OWN-02")}
    rule = a_rule("REG-99", check, **more)
    return judge_with_owners(rule, Controlled("memory", run), PROFILE, 1, owners.__getitem__)


def test_what_the_control_shows_is_its_owners_finding_and_the_rule_is_judged_around_it() -> None:
    verdict, handed_over = judged(wrong_at(2), wrong_at(2))
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.PASS, ("OWN-01",))
    (owners,) = handed_over
    assert (owners.rule, owners.outcome, owners.found_by) == ("OWN-01", Outcome.FAIL, "REG-99")
    assert msgspec.json.decode(finding(owners).case, type=MemoryCase).steps == (Alloc("b0", 2),)


def test_each_cause_is_left_out_and_where_nothing_is_left_the_rule_is_blocked() -> None:
    verdict, handed_over = judged(wrong_at(1, 2, 3), wrong_at(1, 2, 3))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "blocked by OWN-01")
    assert verdict.is_blocked
    assert not verdict.is_red(strict=True)
    assert [each.rule for each in handed_over] == ["OWN-01"]
    assert handed_over[0].is_red(strict=False)


def test_a_fault_behind_the_cause_is_still_the_rules_own() -> None:
    verdict, handed_over = judged(wrong_at(1, 3), wrong_at(1))
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.FAIL, ("OWN-01",))
    assert sizes_of(msgspec.json.decode(finding(verdict).case, type=MemoryCase)) == [3]
    assert [each.rule for each in handed_over] == ["OWN-01"]


@pytest.mark.parametrize("looks", [True, False])
def test_around_a_cause_the_cases_before_it_are_not_drawn_again(*, looks: bool) -> None:
    """Where the rule has looked at something in them: else they have shown nothing."""
    large = 1 << 20

    def numbers(facts: Any) -> st.SearchStrategy[MemoryCase]:
        def case(content: bytes) -> MemoryCase:
            number = 1 + int.from_bytes(content, "little")
            return case_of(large + number if facts else 2 * number + (number % 9 != 0))

        return decoded(2, case)

    def check(case: MemoryCase, _trace: Any) -> Examined:
        (size,) = sizes_of(case)
        if size < large and size % 2 == 0:
            raise WrongOutput("0", "1")
        return Examined(int(looks or size >= large), "outputs")

    rule = dataclasses.replace(a_rule("REG-99", check), cases=numbers)
    owners = {name: a_rule(name, check) for name in ("OWN-01", "OWN-02")}
    target = Controlled("memory")
    verdict, _ = judge_with_owners(rule, target, PROFILE, 1, owners.__getitem__)
    drawn = [size for case in target.cases if len(case.steps) == 2 for size in sizes_of(case)]
    examples = PROFILE.examples(rule, isolated=False)
    before, after = (sum((size >= large) is around for size in drawn) for around in (False, True))
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.PASS, ("OWN-01",))
    assert before > 1
    assert after == (examples - before + 1 if looks else examples)


def test_around_a_cause_every_case_of_a_list_is_run() -> None:
    """Without those that meet the cause the list is shorter: each of the others has another number."""

    def kinds(facts: Any) -> st.SearchStrategy[MemoryCase]:
        return listed([case_of(size) for size in (11, 12, 21, 22, 31) if size // 10 not in (facts or ())])

    class ByKind(Controlled):
        def around(self, facts: Any, case: MemoryCase, call: str = "") -> Any:  # noqa: ARG002 - the interface's
            return (*(facts or ()), sizes_of(case)[0] // 10)

    def check(case: MemoryCase, _trace: Any) -> Examined:
        if {12, 21}.intersection(sizes_of(case)):
            raise WrongOutput("0", str(sizes_of(case)))
        return Examined(1, "outputs")

    rule = dataclasses.replace(a_rule("REG-99", check), cases=kinds)
    owner = a_rule("OWN-01", wrong_at(12))
    verdict, (owners,) = judge_with_owners(rule, ByKind("memory"), PROFILE, 1, {"OWN-01": owner}.__getitem__)
    assert (verdict.outcome, finding(verdict).seen) == (Outcome.FAIL, "[21]")
    assert owners.rule == "OWN-01"


def test_what_no_control_shows_is_the_rules_own() -> None:
    verdict, handed_over = judged(wrong_at(2), survives)
    assert (verdict.outcome, verdict.blocked_by, handed_over) == (Outcome.FAIL, (), ())
    # Reduction does not leave what the control has alone.
    assert len(msgspec.json.decode(finding(verdict).case, type=MemoryCase).steps) == 1


@pytest.mark.parametrize("violation", [Violation("0", "1"), Measured("0", "1")])
def test_what_only_the_rule_itself_looks_for_has_no_control(violation: Violation) -> None:
    def check(_case: Any, _trace: Any) -> Examined:
        raise violation

    verdict, handed_over = judged(check, wrong_at(1, 2, 3))
    assert (verdict.outcome, handed_over) == (Outcome.FAIL, ())


class Several(Controlled):
    """Controls of its allocation that explain different things, each with an owner of its own."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
        (general,) = super().controls(case, died=died)
        yield general
        yield general._replace(owners=("OWN-03",), explains=(Retained,))
        yield general._replace(owners=("OWN-04",), explains=(FalseDeclaration,))


@pytest.mark.parametrize(
    ("seen", "owner"), [(WrongOutput, "OWN-01"), (Retained, "OWN-03"), (FalseDeclaration, "OWN-04")]
)
def test_a_control_explains_what_it_is_made_for(seen: type[Violation], owner: str) -> None:
    def check(case: MemoryCase, _trace: Any) -> Examined:
        if sizes_of(case) == [2]:
            raise seen("0", "1")
        return Examined(1, "allocations")

    passing = "OWN-01" if seen is FalseDeclaration else ""
    names = ("OWN-01", "OWN-03", "OWN-04")
    owners = {name: a_rule(name, survives if name == passing else wrong_at(2)) for name in names}
    target = Several("memory", None)
    verdict, handed_over = judge_with_owners(a_rule("REG-99", check), target, PROFILE, 1, owners.__getitem__)
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.PASS, (owner,))
    assert [each.rule for each in handed_over] == [owner]


def test_a_rule_that_cannot_have_a_control_has_none() -> None:
    verdict, handed_over = judged(wrong_at(2), wrong_at(2), uncontrolled="each case has what it is about")
    assert (verdict.outcome, handed_over) == (Outcome.FAIL, ())


def test_a_death_in_the_control_explains_deaths_and_no_wrong_outputs() -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("signal", "SIGSEGV", 0) if 2 in sizes_of(case) else None)

    verdict, handed_over = judged(wrong_at(3), survives, run)
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.FAIL, ("OWN-02",))
    assert [(each.rule, each.outcome) for each in handed_over] == [("OWN-02", Outcome.CRASH)]


def test_a_wrong_output_in_the_control_explains_no_death() -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        return MemoryTrace(death=Death("signal", "SIGSEGV", 0) if len(case.steps) == 2 else None)

    verdict, handed_over = judged(survives, wrong_at(1, 2, 3), run)
    assert (verdict.outcome, handed_over) == (Outcome.CRASH, ())


def test_an_owner_keeps_its_own_case() -> None:
    owner = a_rule("OWN-01", wrong_at(2))
    verdict = judge_with_owners(
        owner, Controlled("memory"), PROFILE, 1, {"OWN-01": owner}.__getitem__
    ).verdict
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.FAIL, ())


def test_an_owner_that_does_not_look_at_such_a_case_takes_nothing() -> None:
    def elsewhere(_case: Any, _trace: Any) -> Examined:
        raise Unsupported("other cases")

    assert judged(wrong_at(2), elsewhere).verdict.outcome is Outcome.FAIL


def test_without_owners_the_first_failure_is_the_rules() -> None:
    rule = a_rule("REG-99", wrong_at(2))
    owners = {"OWN-01": a_rule("OWN-01", wrong_at(2))}
    assert judge(rule, Controlled("memory"), PROFILE, 1).outcome is Outcome.FAIL
    assert first_failure(rule, Controlled("memory"), PROFILE, 1) is not None
    assert first_failure(rule, Controlled("memory"), PROFILE, 1, owners.__getitem__) is None


def test_a_cause_that_facts_do_not_tell_apart_blocks_its_cases_only() -> None:
    class Stubborn(Controlled):
        def around(self, facts: Any, case: MemoryCase, call: str = "") -> Any:  # noqa: ARG002 - the signature is Target's
            return facts

    owners = {"OWN-01": a_rule("OWN-01", wrong_at(2))}
    rule = a_rule("REG-99", wrong_at(2))
    verdict, handed_over = judge_with_owners(rule, Stubborn("memory"), PROFILE, 1, owners.__getitem__)
    assert (verdict.outcome, verdict.blocked_by, len(handed_over)) == (Outcome.PASS, ("OWN-01",), 1)


class ByCall(Controlled):
    """Controls whose deaths are owned by the call that they came in."""

    owners: tuple[str, ...] = ("OWN-01",)

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
        for control in super().controls(case, died=died):
            yield Control(control.case, self.owners, (("QnnMem_register", "OWN-02"),))


def in_call(control: str, case: str, kind: Any = "signal") -> Callable[[Any], MemoryTrace]:
    """A target that dies of everything; of controls, which have no context, in another call."""

    def run(given: MemoryCase) -> MemoryTrace:
        during = case if any(isinstance(step, ContextCreate) for step in given.steps) else control
        return MemoryTrace(death=Death(kind, "it died", evidence=Evidence(during)))

    return run


@pytest.mark.parametrize(
    ("control", "owner"), [("QnnMem_register", "OWN-02"), ("QnnMem_registered", "OWN-01"), ("", "OWN-01")]
)
def test_a_death_is_owned_by_the_rule_on_the_call_it_came_in(control: str, owner: str) -> None:
    rules = {name: a_rule(name, survives) for name in ("OWN-01", "OWN-02")}
    target = ByCall("memory", in_call(control, "QnnMem_register"))
    verdict, handed_over = judge_with_owners(
        a_rule("REG-99", survives), target, PROFILE, 1, rules.__getitem__
    )
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.INCONCLUSIVE, (owner,))
    assert [each.rule for each in handed_over] == [owner]


@pytest.mark.parametrize(("case", "blocked_by"), [("QnnMem_register", ("OWN-02",)), ("QnnGraph_execute", ())])
def test_a_control_without_owners_explains_deaths_in_the_same_call(
    case: str, blocked_by: tuple[str, ...]
) -> None:
    rules = {"OWN-02": a_rule("OWN-02", survives)}
    target = ByCall("memory", in_call("QnnMem_register", case))
    target.owners = ()
    verdict = judge_with_owners(a_rule("REG-99", survives), target, PROFILE, 1, rules.__getitem__).verdict
    assert verdict.blocked_by == blocked_by


@pytest.mark.parametrize(
    ("seen", "outcome", "is_run"),
    [
        ("QnnMem_register", Outcome.INCONCLUSIVE, True),
        ("", Outcome.INCONCLUSIVE, True),
        ("QnnGraph_execute", Outcome.CRASH, False),
    ],
)
def test_a_control_within_a_call_is_run_for_deaths_in_that_call_only(
    seen: str, outcome: Outcome, *, is_run: bool
) -> None:
    class Within(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            for control in super().controls(case, died=died):
                yield control._replace(within="QnnMem_register")

    rules = {"OWN-02": a_rule("OWN-02", survives)}
    target = Within("memory", in_call("QnnMem_register", seen))
    verdict = judge_with_owners(a_rule("REG-99", survives), target, PROFILE, 1, rules.__getitem__).verdict
    assert verdict.outcome is outcome
    has_context = (any(isinstance(step, ContextCreate) for step in case.steps) for case in target.cases)
    assert (not all(has_context)) is is_run


def test_the_search_goes_on_around_the_call_in_which_a_control_died() -> None:
    calls = []

    class Around(Controlled):
        def around(self, facts: Any, case: MemoryCase, call: str = "") -> Any:
            calls.append(call)
            return super().around(facts, case)

    rules = {"OWN-02": a_rule("OWN-02", survives)}
    target = Around("memory", in_call("QnnMem_register", "QnnMem_register"))
    judge_with_owners(a_rule("REG-99", survives), target, PROFILE, 1, rules.__getitem__)
    assert set(calls) == {"QnnMem_register"}


def test_an_owner_whose_own_check_fails_keeps_no_other_quiet() -> None:
    def stumbles(_case: Any, _trace: Any) -> Examined:
        raise ValueError("not made for this case")

    class Two(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            for control in super().controls(case, died=died):
                yield Control(control.case, ("OWN-02", "OWN-01"))

    rules = {"OWN-01": a_rule("OWN-01", wrong_at(2)), "OWN-02": a_rule("OWN-02", stumbles)}
    verdict = judge_with_owners(
        a_rule("REG-99", wrong_at(2)), Two("memory"), PROFILE, 1, rules.__getitem__
    ).verdict
    assert (verdict.outcome, verdict.blocked_by) == (Outcome.PASS, ("OWN-01",))


def test_a_failed_call_has_controls_as_a_wrong_output_has() -> None:
    def fails(case: MemoryCase, _trace: Any) -> Examined:
        if 2 in sizes_of(case):
            raise FailedCall("success", "an error")
        return Examined(1, "calls")

    verdict, handed_over = judged(fails, fails)
    assert (verdict.outcome, [each.rule for each in handed_over]) == (Outcome.PASS, ["OWN-01"])


class Spoiling(Controlled):
    """Its control may give any call another answer."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
        for control in super().controls(case, died=died):
            yield control._replace(spoils=True)


@pytest.mark.parametrize(
    ("seen", "target", "is_own"),
    [
        (FailedCall("success", "an error", call="register"), Controlled, False),
        (FailedCall("success", "an error", call="execute"), Controlled, True),
        (WrongOutput("0", "1"), Controlled, True),
        (WrongOutput("0", "1"), Spoiling, False),
    ],
)
def test_a_wrong_refusal_is_the_owners_where_the_same_call_fails_in_a_control(
    seen: Violation, target: type[Controlled], is_own: bool
) -> None:
    def raises(violation: Violation) -> Check:
        def check(case: MemoryCase, _trace: Any) -> Examined:
            if 2 in sizes_of(case):
                raise violation
            return Examined(1, "calls")

        return check

    refused = WrongRefusal("8000", "8001", "step 1", call="register")
    owner = a_rule("OWN-01", raises(seen))
    verdict = judge_with_owners(
        a_rule("REG-99", raises(refused)), target("memory"), PROFILE, 1, {"OWN-01": owner}.__getitem__
    ).verdict
    assert verdict.outcome is (Outcome.FAIL if is_own else Outcome.PASS)
    assert verdict.blocked_by == (() if is_own else ("OWN-01",))


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("QnnMem_register", Outcome.INCONCLUSIVE),
        ("Interpreter.invoke", Outcome.INCONCLUSIVE),
        ("QnnGraph_execute", Outcome.HANG),
    ],
)
def test_beyond_the_budget_of_controls_a_hang_is_the_known_one_in_the_same_call_only(
    case: str, outcome: Outcome
) -> None:
    """Three controls may hang; the sizes from 4 on are met when none may any more."""

    def run(given: MemoryCase) -> MemoryTrace:
        during = case if max(sizes_of(given)) > 3 else "QnnMem_register"
        return MemoryTrace(death=Death("hang", "no answer", evidence=Evidence(during)))

    def more_sizes(facts: Any) -> st.SearchStrategy[MemoryCase]:
        left = [size for size in range(1, 8) if size not in (facts or ())]
        if not left:
            raise NothingToJudge("no size is left")
        return st.just(MemoryCase((ContextCreate("c0"), Alloc("b0", left[0]))))

    rule = dataclasses.replace(a_rule("REG-99", survives), cases=more_sizes)
    rules = {name: a_rule(name, survives) for name in ("OWN-01", "OWN-02")}
    target = ByCall("memory", run)
    run_judged = judge_with_owners(rule, target, PROFILE, 1, rules.__getitem__)
    assert run_judged.verdict.outcome is outcome
    assert [each.rule for each in run_judged.handed_over] == ["OWN-02"]


def test_several_rules_share_what_controls_gave() -> None:
    rules = {name: a_rule(name, wrong_at(2)) for name in ("OWN-01", "OWN-02")}
    target = Controlled("memory")
    controlled: dict[bytes, Any] = {}
    for rule_id in ("REG-98", "REG-99"):
        found = blame(a_rule(rule_id, wrong_at(2)), target, PROFILE, 1, rules.__getitem__, controlled)
        assert (found.verdict.outcome, found.owners) == (Outcome.PASS, ("OWN-01",))
    assert sum(case.steps == (Alloc("b0", 2),) for case in target.cases) == 1


def test_a_control_says_nothing_where_what_it_presumes_is_wrong() -> None:
    class Presuming(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            other = Control(MemoryCase((Alloc("b9", 9),)), ("OWN-02",))
            for control in super().controls(case, died=died):
                yield control._replace(presumes=other)

    for wrong, outcome in ((8, Outcome.PASS), (9, Outcome.FAIL)):
        rules = {"OWN-01": a_rule("OWN-01", wrong_at(2)), "OWN-02": a_rule("OWN-02", wrong_at(wrong))}
        rule = a_rule("REG-99", wrong_at(2))
        judged = judge_with_owners(rule, Presuming("memory"), PROFILE, 1, rules.__getitem__)
        assert judged.verdict.outcome is outcome


def test_nor_where_what_that_one_presumes_is_wrong() -> None:
    class Presuming(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            plainest = Control(MemoryCase((Alloc("b9", 9),)), ("OWN-02",))
            plainer = Control(MemoryCase((Alloc("b7", 7),)), ("OWN-02",), presumes=plainest)
            for control in super().controls(case, died=died):
                yield control._replace(presumes=plainer)

    def fails_in(*wrong: int) -> Outcome:
        """Of a rule that fails in size 2, where another rule fails in these."""

        def check(case: MemoryCase, _: MemoryTrace) -> Examined:
            if sizes_of(case)[0] in wrong:
                raise WrongOutput("another", "wrong", "")
            return Examined(1, "cases")

        rules = {"OWN-01": a_rule("OWN-01", wrong_at(2)), "OWN-02": a_rule("OWN-02", check)}
        rule = a_rule("REG-99", wrong_at(2))
        return judge_with_owners(rule, Presuming("memory"), PROFILE, 1, rules.__getitem__).verdict.outcome

    assert fails_in() is Outcome.PASS
    # The plainer one says nothing where the plainest is wrong; that does not make it right.
    assert fails_in(9) is fails_in(7) is fails_in(7, 9) is Outcome.FAIL


@pytest.mark.parametrize(
    ("wrong", "owner"),
    [((2,), ""), ((2, 7), "OWN-01"), ((2, 9), ""), ((7,), "OWN-02"), ((9,), "")],
)
def test_a_mistake_that_is_accepted_is_explained_by_what_spoils_all_and_by_nothing_else(
    wrong: tuple[int, ...], owner: str
) -> None:
    class BesideOneThatSpoils(Controlled):
        """Its first control is plain; one that spoils is behind it, and one that does not behind that."""

        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            yield from super().controls(case, died=died)
            yield Control(case_of(7), ("OWN-02",), spoils=True)
            yield Control(case_of(9), ("OWN-02",))

    def accepts(case: MemoryCase, _trace: Any) -> Examined:
        if sizes_of(case) == [2]:
            raise WrongSuccess("8000", "0 QNN_SUCCESS", "step 1")
        return Examined(1, "calls")

    owners = {name: a_rule(name, wrong_at(*wrong)) for name in ("OWN-01", "OWN-02")}
    rule = a_rule("REG-99", accepts)
    verdict = judge_with_owners(rule, BesideOneThatSpoils("memory"), PROFILE, 1, owners.__getitem__).verdict
    assert verdict.outcome is (Outcome.PASS if owner else Outcome.FAIL)
    assert verdict.blocked_by == ((owner,) if owner else ())


@pytest.mark.parametrize(("spoils", "outcome"), [(True, Outcome.PASS), (False, Outcome.CRASH)])
def test_what_spoils_any_call_explains_a_death(spoils: bool, outcome: Outcome) -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        dies = 2 in sizes_of(case) and len(case.steps) == 2
        return MemoryTrace(death=Death("signal", "SIGSEGV", 0) if dies else None)

    class Spoilt(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            for control in super().controls(case, died=died):
                yield control._replace(spoils=spoils)

    rules = {"OWN-02": a_rule("OWN-02", wrong_at(2))}
    target = Spoilt("memory", run)
    found = judge_with_owners(a_rule("REG-99", survives), target, PROFILE, 1, rules.__getitem__)
    assert found.verdict.outcome is outcome


@pytest.mark.parametrize(
    ("calls", "note"),
    [
        ((), "unattributed: a plain case ends its process, too (SIGSEGV in first), and no rule owns that"),
        (
            (("second", "OWN-02"),),
            "unattributed: a plain case ends its process, too (SIGSEGV in first), and no rule owns that",
        ),
        ((("first", "OWN-02"),), ""),
    ],
)
def test_a_death_of_a_plain_case_that_no_rule_owns_is_told(
    calls: tuple[tuple[str, str], ...], note: str
) -> None:
    def run(case: MemoryCase) -> MemoryTrace:
        death = Death("signal", "SIGSEGV", 0, evidence=Evidence(during="first"))
        return MemoryTrace(death=death if 2 in sizes_of(case) else None)

    class Unowned(Controlled):
        def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:
            for control in super().controls(case, died=died):
                yield control._replace(owners=(), calls=calls)

    rules = {"OWN-02": a_rule("OWN-02", survives)}
    verdict = judge_with_owners(
        a_rule("REG-99", survives), Unowned("memory", run), PROFILE, 1, rules.__getitem__
    ).verdict
    assert verdict.note == note
    assert (verdict.outcome is Outcome.CRASH) is bool(note)


class WithMany(Controlled):
    """A right control of each case's own comes first, then one that is wrong, the same for all."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        yield Control(MemoryCase((Alloc("b0", 100 + sizes_of(case)[0]),)), ("OWN-01",))
        yield Control(MemoryCase((Alloc("b0", 7),)), ("OWN-01",))

    def around(self, facts: Any, case: MemoryCase, call: str = "") -> Any:  # noqa: ARG002 - the interface's
        """Facts do not tell it apart."""
        return facts


def test_a_control_that_is_known_to_be_wrong_spares_the_others() -> None:
    target = WithMany("memory")
    owners = {"OWN-01": a_rule("OWN-01", wrong_at(7))}
    rule = a_rule("REG-99", wrong_at(1, 2, 3))
    found = judge_with_owners(rule, target, PROFILE, 1, owners.__getitem__)
    assert found.verdict.is_blocked
    assert found.verdict.blocked_by == ("OWN-01",)
    assert sum(size > 100 for case in target.cases for size in sizes_of(case)) == 1


class WithPlainerOnes(WithMany):
    """Of each case's own first one of another rule, then one that the rule judged owns as well."""

    def controls(self, case: MemoryCase, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the interface's
        size = sizes_of(case)[0]
        yield Control(MemoryCase((Alloc("b0", 100 + size),)), ("OWN-01",))
        yield Control(MemoryCase((Alloc("b0", 200 + size),)), ("OWN-01", "REG-99"))
        yield Control(MemoryCase((Alloc("b0", 7),)), ("OWN-01",))


@pytest.mark.parametrize("plainer", [True, False])
def test_a_control_that_was_passed_over_still_explains_what_the_rule_would_own(*, plainer: bool) -> None:
    """In the first case only the last control is wrong, which is then known; in others those before are."""
    wrong = [7, *(200 + size for size in range(2, 9)), *(100 + size for size in range(2, 9) if plainer)]
    rules = {name: a_rule(name, wrong_at(*wrong)) for name in ("OWN-01", "REG-99")}
    rule = a_rule("REG-99", wrong_at(*wrong, *range(1, 9)))
    found = judge_with_owners(rule, WithPlainerOnes("memory"), PROFILE, 1, rules.__getitem__)
    assert found.verdict.is_blocked is plainer


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (3, [0, 1, 2]), (5, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 7, 8])]
)
def test_of_many_controls_the_last_are_run_too(count: int, expected: list[int]) -> None:
    """They are about the whole case: the one that named OOM-02 in 22 joined cases of OOM-04 was the 868th."""
    assert list(first_and_last(iter(range(count)), 3, 2)) == expected


def test_the_last_control_explains_a_death_however_many_there_are() -> None:
    def dies(case: MemoryCase) -> MemoryTrace:
        death = Death("signal", "SIGABRT", 0) if len(case.steps) > 1 else None
        return MemoryTrace(death=death)

    class Many(FakeTarget):
        def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
            assert died
            fine = MemoryCase((ContextCreate("c0"),))
            yield from itertools.repeat(Control(fine, ("AAA-02",)), 2000)
            yield Control(case, ("AAA-02",))

    rules = {each: a_rule(each, survives) for each in ("AAA-01", "AAA-02")}
    found = judge_with_owners(rules["AAA-01"], Many("memory", dies), PROFILE, 1, rules.__getitem__)
    assert found.verdict.outcome is Outcome.INCONCLUSIVE
    assert [(each.rule, each.outcome) for each in found.handed_over] == [("AAA-02", Outcome.CRASH)]
