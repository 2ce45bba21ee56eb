"""Judge one rule on one target: the only loop of the project.

    strategy -> Case -> target.run -> Trace -> rule.check -> Verdict

The cases are drawn one after another (`pytest_qnn.core.search`) and run, several to a process where they run
in children, until one breaks the rule. That one is made smaller by smaller draws: data to data, whatever
process the target runs in, so crashes and hangs shrink as failures do. From the case that they leave, whole
steps and nodes are then removed (`Target.smaller`) until none can be; and the smallest case is run again, to
tell a failure from a flaky result.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pytest_qnn.core import activity
from pytest_qnn.core.engine.attribution import Attribution, Cause, RuleNamed
from pytest_qnn.core.engine.checking import InternalError, UnfitAnswerError, breaks, checked
from pytest_qnn.core.engine.garbage import rare_collections
from pytest_qnn.core.engine.judging import FRESH_RUNS, Judge
from pytest_qnn.core.engine.scope import Scope
from pytest_qnn.core.engine.verdicts import finding_of, verdict_of
from pytest_qnn.core.known_failures import Expectations
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Target, TargetLost, TraceLike
from pytest_qnn.core.verdict import (
    MOST_FURTHER,
    WORST_FIRST,
    Examined,
    Further,
    Level,
    Measured,
    Outcome,
    Unsupported,
    Verdict,
    Violation,
    fails,
)

__all__ = [
    "FRESH_RUNS",
    "Blamed",
    "Cause",
    "ExpectedOf",
    "FirstFailure",
    "InternalError",
    "Interrupted",
    "Judged",
    "RuleNamed",
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
"""Searches of one rule by `blame`: enough to leave an operator's two types out, each at a rank and at all."""

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
        TargetLost: the target cannot be loaded any more, and the case that met this first gave no finding.
    """
    run = Judge(rule, target, profile)
    started = time.perf_counter()
    flaky = _searched(run, seed)
    return verdict_of(run, seed, flaky, time.perf_counter() - started)


class Judged(NamedTuple):
    """The verdict on a rule, and those on rules that own what went wrong in its cases."""

    verdict: Verdict
    handed_over: tuple[Verdict, ...]


class Interrupted(Exception):  # noqa: N818 - what it was interrupted by is the error
    """A search was ended by an error, behind findings that other rules own.

    Args:
        error: what ended it.
        handed_over: the verdicts on these rules.

    """

    def __init__(self, error: Exception, handed_over: tuple[Verdict, ...]) -> None:
        super().__init__()
        self.error = error
        self.handed_over = handed_over


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

    What else breaks the rule, in other calls or with other operators, is looked for, too.

    Args:
        rule: to be judged.
        target: under judgement.
        profile: of the search.
        seed: of the cases.
        rule_named: the rule with an id.
        expected_of: failures that are expected of the rule with an id.
        tried_first: cases of earlier runs.

    Raises:
        Interrupted: the suite itself failed, or the target was lost, and something is handed over.
        InternalError: the suite itself failed, and nothing is.
        TargetLost: as of `judge`, and nothing is handed over.
    """
    expected = expected_of(rule.id)
    attribution = Attribution(rule, target, rule_named)
    run = Judge(rule, target, profile, attribution, Scope(target, expected.accepted), tried_first)
    started = time.perf_counter()
    try:
        flaky = _searched(run, seed)
    except Exception as error:
        if not attribution.causes:
            raise
        raise Interrupted(error, _handed_over(run, seed, expected_of)) from error
    further = tuple(_further(run, seed))
    verdict = _with_further(verdict_of(run, seed, flaky, time.perf_counter() - started), further)
    return Judged(_as_expected(run, expected, verdict), _handed_over(run, seed, expected_of))


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


def _searched(run: Judge, seed: int) -> str:
    """Search, and make what is found smaller; how often it was seen again, where that is not always."""
    activity.doing("judging")
    with rare_collections():
        run.search_around(seed)
        run.reduce()
        run.locate()
        run.confirm()
        return run.repeat()


def _further(run: Judge, seed: int) -> Iterator[Further]:
    """What else breaks the rule, in other calls or with other operators: one finding does not hide others."""
    yield from _deaths(run)
    judge: Judge | None = run
    left = MOST_FURTHER - len(run.deaths)
    while left > 0:
        judge = judge.behind() if judge is not None else None
        if judge is None:
            return
        try:
            again = _searched(judge, seed)
        except (TargetLost, UnfitAnswerError):
            run.is_cut_off = True  # nobody can tell whose fault it is, and the finding that there is stands
            return
        except Exception as error:
            cause = error.__cause__
            run.further_errors.append(cause if isinstance(cause, Exception) else error)
            run.is_cut_off = True
            return
        run.tally.add(judge.tally)
        if judge.minimal is None:
            return
        case, violation = judge.minimal
        yield Further(violation.outcome, finding_of(case, violation), again)
        if not judge.is_alone:  # that costs one smaller case, and there are as many as calls that end it
            left -= 1
        if not run.deaths:
            yield from _deaths(judge)


def _deaths(run: Judge) -> Iterator[Further]:
    """What was seen to end the process behind a milder finding."""
    return (Further(violation.outcome, finding_of(case, violation)) for case, violation in run.deaths)


def _with_further(verdict: Verdict, further: Iterable[Further]) -> Verdict:
    """The verdict with what was found beside its finding; the worst of them is the verdict's."""
    found = tuple(further)
    if verdict.finding is None or not found:
        return verdict
    own = Further(verdict.outcome, verdict.finding, verdict.flaky)
    first, *rest = sorted((own, *found), key=lambda each: _place(verdict.level, each.outcome))
    return msgspec.structs.replace(
        verdict, outcome=first.outcome, finding=first.finding, flaky=first.flaky, further=tuple(rest)
    )


def _place(level: Level, outcome: Outcome) -> tuple[bool, int]:
    """Where a finding stands among those of a rule: what fails a run first, then the worst."""
    return not fails(outcome, level, strict=False), WORST_FIRST.index(outcome.value)


def _handed_over(run: Judge, seed: int, expected_of: ExpectedOf) -> tuple[Verdict, ...]:
    """The verdicts on the rules that own what went wrong in the cases of this one, and in smaller ones."""
    waiting = collections.deque(run.attribution.causes.values())
    verdicts = []
    while waiting:
        causes = waiting.popleft()
        verdict, others = _owners_verdict(run, causes, seed, expected_of(causes[0].owner.id))
        verdicts.append(verdict)
        waiting += ([cause] for cause in others)
    return tuple(verdicts)


def _owners_verdict(
    run: Judge, causes: Sequence[Cause], seed: int, expected: Expectations
) -> tuple[Verdict, Sequence[Cause]]:
    """The verdict on the rule that owns the causes: the worst that is not known is made smaller.

    With it what ended the process meanwhile and is another rule's.
    """
    started = time.perf_counter()
    owner = Judge(causes[0].owner, run.target, run.profile, scope=Scope(run.target, expected.accepted))
    owner.tally.examples = len(causes)
    owner.keeps_call = True
    new = [cause for cause in causes if not owner.scope.is_known(cause.case, cause.violation)]
    new.sort(key=lambda cause: _place(owner.rule.level, cause.violation.outcome))
    flaky = ""
    if new:
        owner.minimal = (new[0].case, new[0].violation)
        owner.found = new[0].case
        owner.others_before = new[0].others_before
        owner.shrinking.start()
        # Where the suite fails itself in the same case now, what was seen of it must not be lost.
        with rare_collections(), contextlib.suppress(InternalError):
            owner.reduce()
            owner.locate()
            flaky = owner.repeat()
    others = _others_deaths(run, owner)
    verdict = verdict_of(owner, seed, flaky, time.perf_counter() - started)
    again = _seen_again(owner, new[1 : 1 + MOST_FURTHER - len(owner.deaths)])
    verdict = _with_further(verdict, itertools.chain(_deaths(owner), again))
    return msgspec.structs.replace(verdict, found_by=run.rule.id), others


def _others_deaths(run: Judge, owner: Judge) -> Sequence[Cause]:
    """Deaths that an owner's judge has noted and that other rules own: it then has them no longer."""
    attribution = Attribution(owner.rule, run.target, run.attribution.rule_named)
    found = [(each, attribution.cause(*each)) for each in owner.deaths]
    owner.deaths = [each for each, cause in found if cause is None]
    return [cause for _, cause in found if cause is not None]


def _seen_again(owner: Judge, causes: Iterable[Cause]) -> Iterator[Further]:
    """Those causes, run again in the same cases, which are plain already."""
    for cause in causes:
        one = Judge(owner.rule, owner.target, dataclasses.replace(owner.profile, repeats=1))
        one.minimal, one.others_before = (cause.case, cause.violation), cause.others_before
        again = ""
        with contextlib.suppress(InternalError):
            again = one.repeat()
        yield Further(cause.violation.outcome, finding_of(cause.case, cause.violation), again)


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
    run = Judge(rule, target, profile, Attribution(rule, target, rule_named, controlled))
    run.searches = _FEW_SEARCHES
    started = time.perf_counter()
    with rare_collections():
        run.search_around(seed, shrink=False)
    _raise_errors(run)
    return Blamed(verdict_of(run, seed, "", time.perf_counter() - started), tuple(run.attribution.causes))


def _raise_errors(run: Judge) -> None:
    """Raise the first error of the suite itself: these searches are measurements, and no verdict tells it."""
    for error in run.errors:
        raise error


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
    run = Judge(rule, target, profile, Attribution(rule, target, rule_named))
    with rare_collections():
        run.search_around(seed, shrink=False)
    _raise_errors(run)
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
