"""Judge one rule on one target: the only loop of the project.

    strategy -> Case -> target.run -> Trace -> rule.check -> Verdict

The cases are drawn one after another (`pytest_qnn.core.search`) and run, several to a process where they run
in children, until one breaks the rule. That one is made smaller by smaller draws: data to data, whatever
process the target runs in, so crashes and hangs shrink as failures do. From the case that they leave, whole
steps and nodes are then removed (`Target.smaller`) until none can be; and the smallest case is run again, to
tell a failure from a flaky result.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pytest_qnn.core import activity
from pytest_qnn.core.engine.attribution import Cause, RuleNamed
from pytest_qnn.core.engine.checking import InternalError, UnfitAnswerError, breaks, checked
from pytest_qnn.core.engine.garbage import rare_collections
from pytest_qnn.core.engine.judging import FRESH_RUNS, Judge
from pytest_qnn.core.engine.verdicts import finding_of, verdict_of
from pytest_qnn.core.known_failures import Expectations
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Target, TargetLost, TraceLike
from pytest_qnn.core.verdict import (
    WORST_FIRST,
    Examined,
    Further,
    Measured,
    Outcome,
    Unsupported,
    Verdict,
    Violation,
)

__all__ = [
    "FRESH_RUNS",
    "Blamed",
    "FirstFailure",
    "InternalError",
    "Judged",
    "UnfitAnswerError",
    "blame",
    "breaks",
    "first_failure",
    "judge",
    "judge_case",
    "judge_with_owners",
    "nothing_expected",
]

CaseT = TypeVar("CaseT")
TraceT = TypeVar("TraceT", bound=TraceLike)

_FEW_SEARCHES = 6
"""Of `blame`: enough to leave one operator's two types out, each at one rank and then at all."""
_MOST_FURTHER = 9
"""Findings of a rule beside its first."""

ExpectedOf = Callable[[str], Expectations]
"""What is expected of the rule with an id."""


def nothing_expected(rule_id: str) -> Expectations:
    """Of a run without a file of known failures."""
    del rule_id
    return Expectations()


def judge(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
) -> Verdict:
    """Search for a case in which the target breaks the rule, and say what was found.

    The same rule, target, profile and seed give the same cases. No other rule is asked: what any case may
    show, a wrong operator or a crash, is this rule's finding. `judge_with_owners` asks.

    Raises:
        InternalError: the suite itself failed.
        TargetLost: the target could not be loaded any more before the first case.
    """
    return _judged(Judge(rule, target, profile), seed)


class Judged(NamedTuple):
    """The verdict on a rule, and those on rules that own what went wrong in its cases."""

    verdict: Verdict
    handed_over: tuple[Verdict, ...]


def judge_with_owners(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed,
    expected_of: ExpectedOf = nothing_expected,
    tried_first: Sequence[Any] = (),
) -> Judged:
    """`judge`, but what is wrong in a plain case already (`Target.controls`) is its owner's finding.

    Args:
        rule: to be judged.
        target: under judgement.
        profile: of the search.
        seed: of the cases.
        rule_named: the rule with an id.
        expected_of: failures that are expected of the rule with an id.
        tried_first: cases of earlier runs.

    """
    expected = expected_of(rule.id)
    run = Judge(rule, target, profile, rule_named, expected.accepted, tried_first)
    verdict = _judged(run, seed)
    verdict = _as_expected(run, expected, _with_further(verdict, _further(run, seed)))
    handed_over = tuple(
        _owners_verdict(run, cause, seed, expected_of(cause.owner.id))
        for cause in run.attribution.causes.values()
    )
    return Judged(verdict, handed_over)


def _as_expected(run: Judge, expected: Expectations, verdict: Verdict) -> Verdict:
    """The verdict, with what is expected of the rule and was not found, or is expected no more."""
    if run.minimal is not None and not expected.expired:
        return verdict  # the search ended there: it may not have come to the others
    absent = [one for one in expected.accepted if one.number not in run.scope.met and not one.flaky]
    if verdict.outcome is Outcome.INCONCLUSIVE and not verdict.is_blocked:
        same = [one for one in absent if one.verdict is Outcome.INCONCLUSIVE]
        absent = [one for one in absent if one not in same]
        if same:
            verdict = msgspec.structs.replace(verdict, known=tuple(each.text for each in same), finding=None)
    told = [f"entry {one.number} of the known failures is expired" for one in expected.expired]
    if run.minimal is None:
        told += [f"entry {one.number} of the known failures was not found" for one in absent]
    return msgspec.structs.replace(verdict, unexpected="; ".join(told)) if told else verdict


def _judged(run: Judge, seed: int) -> Verdict:
    started = time.perf_counter()
    activity.doing("judging")
    with rare_collections():
        run.search_around(seed)
        run.reduce()
        run.locate()
        run.confirm()
        flaky = run.repeat()
    return verdict_of(run, seed, flaky, time.perf_counter() - started)


def _further(run: Judge, seed: int) -> Iterator[Further]:
    """What else breaks the rule, in other calls or with other operators: one finding does not hide others."""
    judge: Judge | None = run
    for _ in range(_MOST_FURTHER):
        judge = judge.behind() if judge is not None else None
        if judge is None:
            return
        with rare_collections():
            try:
                judge.search_around(seed)
                judge.reduce()
                again = judge.repeat()
            except (InternalError, TargetLost):
                return  # the finding that there is must not be lost
        run.tally.examples += judge.tally.examples
        if judge.minimal is None:
            return
        case, violation = judge.minimal
        if not again:  # else it is flaky: of the first finding that is said
            yield Further(violation.outcome, finding_of(case, violation))


def _with_further(verdict: Verdict, further: Iterable[Further]) -> Verdict:
    """The verdict with what was found beside its finding; the worst of them is the verdict's."""
    found = tuple(further)
    if verdict.finding is None or not found:
        return verdict
    own = Further(verdict.outcome, verdict.finding)
    first, *rest = sorted((own, *found), key=lambda each: WORST_FIRST.index(each.outcome.value))
    flaky = verdict.flaky if first is own else ""
    return msgspec.structs.replace(
        verdict, outcome=first.outcome, finding=first.finding, flaky=flaky, further=tuple(rest)
    )


def _owners_verdict(run: Judge, cause: Cause, seed: int, expected: Expectations) -> Verdict:
    """The verdict on the rule that owns a cause, its case made smaller; a known one stays as it is."""
    started = time.perf_counter()
    owner = Judge(cause.owner, run.target, run.profile, accepted=expected.accepted)
    owner.tally.examples = 1
    if not owner.scope.is_known(cause.case, cause.violation):
        owner.minimal = (cause.case, cause.violation)
        owner.found = cause.case
        owner.shrinking.start()
    with rare_collections():
        owner.reduce()
        owner.locate()
        flaky = owner.repeat()
    verdict = verdict_of(owner, seed, flaky, time.perf_counter() - started)
    return msgspec.structs.replace(verdict, found_by=run.rule.id)


class Blamed(NamedTuple):
    """The verdict on a rule, and the ids of rules that own what went wrong in its cases."""

    verdict: Verdict
    owners: tuple[str, ...]


def blame(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed,
    controlled: dict[bytes, Sequence[Cause]],
) -> Blamed:
    """`judge_with_owners` with nothing made smaller or repeated, and of the owners their ids only.

    Args:
        rule: to be judged.
        target: under judgement.
        profile: of the search.
        seed: of the cases.
        rule_named: the rule with an id.
        controlled: what was wrong in controls on this target, to which this judgement adds its own. None is
            run twice for several rules: what it gives does not depend on who asks.

    """
    run = Judge(rule, target, profile, rule_named)
    run.attribution.controlled, run.searches = controlled, _FEW_SEARCHES
    started = time.perf_counter()
    with rare_collections():
        run.search_around(seed, shrink=False)
    return Blamed(verdict_of(run, seed, "", time.perf_counter() - started), tuple(run.attribution.causes))


@dataclasses.dataclass(frozen=True)
class FirstFailure:
    """The first case of a search that broke the rule."""

    examples: int
    """Cases that were run, this one included."""
    violation: Violation


def first_failure(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
    rule_named: RuleNamed | None = None,
) -> FirstFailure | None:
    """What broke the rule first, and after how many cases; None: nothing did. Nothing is shrunk.

    The cases are those of `judge` with the same arguments, or with ``rule_named`` of `judge_with_owners`.
    """
    run = Judge(rule, target, profile, rule_named)
    with rare_collections():
        run.search_around(seed, shrink=False)
    return FirstFailure(run.tally.examples, run.minimal[1]) if run.minimal is not None else None


def judge_case(
    rule: Rule[CaseT, TraceT, Any], target: Target[CaseT, TraceT], case: CaseT
) -> Violation | Unsupported | Examined:
    """Judge exactly one case, without any search (used by replay and tests).

    What is measured must be measured in fresh processes too, as in a search: else their result counts.
    """
    unfit = target.unfit(case)
    if unfit:
        return Unsupported(unfit)
    found = _judged_once(rule, target, case, target.run)
    for _ in range(FRESH_RUNS):
        if isinstance(found, Measured):
            found = _judged_once(rule, target, case, target.run_fresh)
    return found


def _judged_once(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    case: CaseT,
    run: Callable[[CaseT], TraceT],
) -> Violation | Unsupported | Examined:
    with rare_collections():
        trace = run(case)
    try:
        return checked(rule, case, trace)
    except Exception as error:
        if target.isolated:
            raise UnfitAnswerError(case) from error
        raise
