"""Judge one rule on one target: the only loop of the project.

    strategy -> Case -> target.run -> Trace -> rule.check -> Verdict

Hypothesis stays in this process and sees a pure function of the case, whatever process the target runs
in: so crashes and hangs shrink as failures do. From the case that it leaves, whole steps and nodes are then
removed (`Target.smaller`) until none can be; and the smallest case is run again, to tell a failure from a
flaky result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase

from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import NothingToJudge, Rule
from pytest_qnn.core.target import Death, Target, TraceLike
from pytest_qnn.core.verdict import (
    Crashed,
    Divergence,
    Examined,
    Finding,
    Hung,
    Measured,
    Outcome,
    Unsupported,
    Verdict,
    Violation,
)

CaseT = TypeVar("CaseT")
TraceT = TypeVar("TraceT", bound=TraceLike)
ResultT = TypeVar("ResultT")

_UNSUPPORTED_CASES = 5
"""Cases that prove that the target lacks support, after which a rule that examined nothing is given up."""

_FRESH_RUNS = 2
"""Fresh processes in which a measured finding must be reproduced.

As long as the cache of glibc was counted, one case in 60 failed on a delegate that leaks nothing, and so one
run in 4 of a rule with 40 examples had a finding. Were fresh processes no better, one in 14,400 would.
"""


_COLLECTION_INTERVAL = 5.0
"""Seconds between full collections, among all objects, of which pytest's process has some 300,000."""


class InternalError(Exception):
    """The suite itself failed in a case: a defect of this project, raised from what was raised there.

    Args:
        case: the smallest in which it does.

    """

    def __init__(self, case: Any) -> None:
        super().__init__()
        self.case = case


class _Judge:
    """Runs cases, remembers what each gave, and keeps what follows the first failure within its budgets.

    There are three budgets, because three things cost time in different ways:

    1. ``examples`` (`Profile.examples`, given to Hypothesis): cases of the search, up to the first failure.
       A rule that has examined nothing after `_UNSUPPORTED_CASES` proofs of no support ends it early.
    2. ``budget`` (`Profile.shrink_budget`): cases run after the first failure, to make it smaller. Hypothesis
       may use a third; ``reserved`` keeps the rest for `reduce`.
    3. ``hangs_left`` (`Profile.hang_budget`): cases that may hang, before and after the first failure, since
       each takes the whole ``--qnn-timeout``. The last one is kept for `repeat`.

    A case whose result is known is never run again for the search, and costs no budget.
    """

    def __init__(self, rule: Rule[Any, Any, Any], target: Target[Any, Any], profile: Profile) -> None:
        self.rule = rule
        self.target = target
        self.profile = profile
        self.budget = profile.shrink_budget(isolated=target.isolated)
        self.reserved = self.budget * 2 // 3
        """Of the budget: for `reduce`, which gains more with each run than Hypothesis does."""
        self.hangs_left = profile.hang_budget
        self.known: dict[bytes, Violation | None] = {}
        """By encoded case: bytes are small, and the garbage collector does not track them."""
        self.failed = False
        self.examples = 0
        self.examined = 0
        self.what = ""
        self.unsupported = ""
        self.no_cases = ""
        """Why there is no case to run."""
        self.unsupported_cases = 0
        self.minimal: tuple[Any, Violation] | None = None
        self.confirmed: tuple[Any, Violation] | None = None
        """The first measured finding, which was reproduced in fresh processes."""
        self.unexamined_case: Any = None
        """A case in which the rule examined nothing: the smallest, which Hypothesis tries first."""

    def __call__(self, case: Any) -> None:
        """Judge a case for Hypothesis, to which equal cases give the same result however often it asks.

        Raises:
            Violation: the target broke the rule, in the way in which it did so first: a failure does not
                turn into a crash while it shrinks, nor the other way round.
        """
        violation = self.result(case, keep=self.reserved)
        if isinstance(violation, Measured) and self.minimal is None:
            if not self._is_reproduced(case):
                self.known[msgspec.msgpack.encode(case)] = None  # a chance result; the search continues
                return
            self.confirmed = (case, violation)
        if violation is not None and (self.minimal is None or type(violation) is type(self.minimal[1])):
            self.failed = True
            self.minimal = (case, violation)
            # Hypothesis tells failures apart by type and by the place of the raise. Every failure of one
            # search is raised here, so that it shrinks them as one; a traceback would keep the frames of the
            # case, and with them its trace, alive for as long as Hypothesis remembers the failure.
            raise violation.with_traceback(None)

    def result(self, case: Any, *, keep: int = 0) -> Violation | None:
        """The known result of the case, or that of running it; None also where no budget is left to run it.

        Args:
            case: the case.
            keep: runs of the budget to leave for later. With any, a failure that is a hang is not shrunk by
                Hypothesis at all: each run costs the whole time of a case, and `reduce` gains more by it.
        """
        key = msgspec.msgpack.encode(case)
        if key not in self.known:
            hung = self.minimal is not None and isinstance(self.minimal[1], Hung)
            spent = self.failed and (self.budget <= keep or self.hangs_left <= 1 or (hung and keep > 0))
            gave_up = not self.failed and not self.examined and self.unsupported_cases >= _UNSUPPORTED_CASES
            if spent or gave_up:
                return None
            self.budget -= self.failed
            self.examples += 1
            self.known[key] = self._run(case)
        return self.known[key]

    def give_up(self, nothing: NothingToJudge) -> None:
        """There is no case that could show anything of the target."""
        if nothing.unsupported:
            self.unsupported = nothing.reason
        else:
            self.no_cases = nothing.reason

    def reduce(self) -> None:
        """Remove steps and nodes from the minimal case until none can be removed; it still fails alike."""
        shrinking = self.minimal is not None
        while shrinking and self.minimal is not None:
            shrinking = False
            case, violation = self.minimal
            for candidate in self.target.smaller(case, deadly=isinstance(violation, Crashed | Hung)):
                found = _none_on_internal_error(self.result, candidate)
                if found is not None and type(found) is type(violation):
                    self.minimal = (candidate, found)
                    shrinking = True
                    break

    def locate(self) -> None:
        """Find the node at which a wrong number first appears, by examining the minimal case."""
        if self.minimal is None:
            return
        case, end = self.minimal
        if not isinstance(end, Divergence) or end.is_first:
            return
        for candidate in self.target.revealing(case):
            found = _none_on_internal_error(self.result, candidate)
            if isinstance(found, Divergence) and (found.is_first or found.node < end.node):
                self.minimal = (candidate, found)
                return

    def confirm(self) -> None:
        """Go back to the first measured finding where the reduced one is not reproduced.

        Smaller cases may have failed by chance: of those, the reduction chooses the ones that did.
        """
        if self.minimal is None or self.confirmed is None or self.minimal[0] == self.confirmed[0]:
            return
        if not _none_on_internal_error(self._is_reproduced, self.minimal[0]):
            self.minimal = self.confirmed

    def _is_reproduced(self, case: Any) -> bool:
        """Whether a measured finding is reproduced in each of some fresh processes.

        These are used with every sandbox mode: with ``--qnn-sandbox off`` a case is measured in a process
        that has run others before, and with glibc's cache of freed blocks. For a finding, that is not enough.
        """
        return all(isinstance(self._run(case, self.target.run_fresh), Measured) for _ in range(_FRESH_RUNS))

    def repeat(self) -> str:
        """Run the minimal case again: how often it failed, if it does not always; else empty.

        Raises:
            InternalError: the suite failed where it runs the case; what it saw of the case before is worth
                no more.
        """
        if self.minimal is None:
            return ""
        case, violation = self.minimal
        times = 1 if isinstance(violation, Hung) else self.profile.repeats
        again = [self._run(case) for _ in range(times)]
        failed = 1 + sum(found is not None for found in again)
        return "" if failed == 1 + times else f"failed {failed} of {1 + times} runs"

    def _run(self, case: Any, run: Callable[[Any], TraceLike] | None = None) -> Violation | None:
        """Run the case and judge its trace; only what is learned of the target is remembered."""
        unfit = self.target.unfit(case)
        if unfit:
            self.unsupported = unfit
            self.unsupported_cases += 1
            return None
        try:
            trace = (run or self.target.run)(case)
            if trace.death is not None:
                self.hangs_left -= trace.death.kind == "hang"
                return died(trace.death)
            examined = self.rule.check(case, trace)
        except Violation as violation:
            self.hangs_left -= isinstance(violation, Hung)
            return violation.with_traceback(None)
        except Unsupported as unsupported:
            self.unsupported = unsupported.reason
            self.unsupported_cases += unsupported.final
            return None
        except Exception as error:
            raise InternalError(case) from error
        if not examined.count and self.unexamined_case is None:
            self.unexamined_case = case
        self.examined += examined.count
        self.what = examined.what
        return None


def _none_on_internal_error(judge: Callable[[Any], ResultT | None], case: Any) -> ResultT | None:
    """What ``judge`` gives for the case; None when the suite itself fails in it.

    Once there is a finding, an internal error in a later trial must not lose it: a rule may rely on how its
    own cases are made, and fail in one that a step was removed from.
    """
    try:
        return judge(case)
    except Exception:
        return None


def died(death: Death) -> Violation:
    """The violation that every rule shares: the process that ran the case did not survive it."""
    where = f"step {death.step}" if death.step >= 0 else ""
    if death.late:
        kind = Hung if death.kind == "hang" else Crashed
        return kind("the process ends in good order, whatever is alive", death.detail, "after the last step")
    if death.kind == "hang":
        return Hung("an answer", death.detail, where)
    return Crashed("the call returns, with success or an error", death.detail, where)


def judge(
    rule: Rule[CaseT, TraceT, Any],
    target: Target[CaseT, TraceT],
    profile: Profile,
    seed: int,
) -> Verdict:
    """Search for a case in which the target breaks the rule, and say what was found.

    The same rule, target, profile and seed give the same cases.
    """
    started = time.perf_counter()
    run = _Judge(rule, target, profile)
    with _rare_collections():
        try:
            cases = rule.cases(target.facts)
        except NothingToJudge as nothing:
            run.give_up(nothing)
        else:
            _search(run, cases, profile.examples(rule, isolated=target.isolated), seed)
        run.reduce()
        run.locate()
        run.confirm()
        flaky = run.repeat()
    return _verdict(rule, target, run, seed, flaky, time.perf_counter() - started)


@dataclasses.dataclass(frozen=True)
class FirstFailure:
    """The first case of a search that broke the rule."""

    examples: int
    """Cases that were run, this one included."""
    violation: Violation


def first_failure(
    rule: Rule[CaseT, TraceT, Any], target: Target[CaseT, TraceT], profile: Profile, seed: int
) -> FirstFailure | None:
    """What broke the rule first, and after how many cases; None: nothing did. Nothing is shrunk.

    The cases are those of `judge` with the same arguments.
    """
    run = _Judge(rule, target, profile)
    examples = profile.examples(rule, isolated=target.isolated)
    with _rare_collections():
        _search(run, rule.cases(target.facts), examples, seed, shrink=False)
    return FirstFailure(run.examples, run.minimal[1]) if run.minimal is not None else None


def judge_case(
    rule: Rule[CaseT, TraceT, Any], target: Target[CaseT, TraceT], case: CaseT
) -> Violation | Unsupported | Examined:
    """Judge exactly one case, without any search (used by replay and tests)."""
    unfit = target.unfit(case)
    if unfit:
        return Unsupported(unfit)
    with _rare_collections():
        trace = target.run(case)
    if trace.death is not None:
        return died(trace.death)
    try:
        return rule.check(case, trace)
    except (Violation, Unsupported) as outcome:
        return outcome


class _LastCollection:
    """Time of this process's last full collection, in seconds of `time.monotonic`."""

    last = 0.0

    @classmethod
    def collect_if_due(cls) -> None:
        """Collect, at most once in `_COLLECTION_INTERVAL`: a full collection takes a tenth of a second."""
        if time.monotonic() - cls.last > _COLLECTION_INTERVAL:
            gc.collect()
            cls.last = time.monotonic()


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often while examples are made, and never among what was there before.

    Each example leaves some thousand objects, few of them in cycles: at Python's default thresholds the
    collector takes a fifteenth of an example, at these hardly anything. A case that measures memory collects
    before each measurement: what pytest and Hypothesis hold is frozen, or most of a leak rule's time goes to
    collections among it.
    """
    # `gc.freeze` moves every tracked object into the permanent generation, garbage included, which is not
    # collected before `gc.unfreeze`: so a full collection comes first, where the last one was long ago.
    # https://docs.python.org/3/library/gc.html#gc.freeze
    _LastCollection.collect_if_due()
    thresholds = gc.get_threshold()
    frozen_before = gc.get_freeze_count()
    gc.set_threshold(20_000, 20, 20)
    gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen_before:  # else another plugin froze objects too, and `gc.unfreeze` knows no owners
            gc.unfreeze()


def _search(run: Callable[[Any], None], cases: Any, examples: int, seed: int, *, shrink: bool = True) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(cases)
    def search(case: Any) -> None:
        run(case)

    try:
        search()
    except Violation:
        pass
    except hypothesis.errors.Flaky:
        # Only a strategy that draws differently each time comes here, since equal cases give equal results:
        # the last failing case is the finding all the same.
        pass


def _outcome(run: _Judge) -> tuple[Outcome, str]:
    """The outcome, and the reason where there is neither a pass nor a finding."""
    if run.minimal is not None:
        return run.minimal[1].outcome, ""
    if run.examined:
        return Outcome.PASS, ""
    if run.unsupported:
        return Outcome.UNSUPPORTED, run.unsupported
    return (
        Outcome.INCONCLUSIVE,
        run.no_cases or f"{run.examples} cases were run and none of them let the rule look at anything",
    )


def _finding(run: _Judge, outcome: Outcome, reason: str) -> Finding | None:
    """What can be judged again: a violation, or that a case showed nothing."""
    if run.minimal is not None:
        case, violation = run.minimal
        return Finding(
            expected=violation.expected,
            seen=violation.seen,
            where=violation.where,
            picture=violation.picture,
            case=msgspec.json.encode(case).decode(),
        )
    if outcome is Outcome.INCONCLUSIVE and run.unexamined_case is not None:
        wanted = "a case that lets the rule look at something"
        return Finding(expected=wanted, seen=reason, case=msgspec.json.encode(run.unexamined_case).decode())
    return None


def _verdict(
    rule: Rule[Any, Any, Any], target: Target[Any, Any], run: _Judge, seed: int, flaky: str, seconds: float
) -> Verdict:
    outcome, reason = _outcome(run)
    return Verdict(
        rule=rule.id,
        area=rule.area,
        level=rule.level,
        sentence=rule.sentence,
        source=rule.source,
        subject=rule.subject,
        self_check=rule.self_check,
        target=target.spec,
        outcome=outcome,
        examples=run.examples,
        examined=run.examined,
        what=run.what,
        seconds=seconds,
        seed=seed,
        reason=reason,
        finding=_finding(run, outcome, reason),
        flaky=flaky,
    )
