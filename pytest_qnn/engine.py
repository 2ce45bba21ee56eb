"""Judge one rule on one target: the only loop of the project.

    strategy -> Case -> target.run -> Trace -> rule.check -> Verdict

Hypothesis stays in this process and sees a pure function of the case, whatever process the target runs
in: so crashes and hangs shrink as failures do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase

from pytest_qnn.profile import Profile
from pytest_qnn.rules.rule import Rule
from pytest_qnn.target import Target, TraceLike
from pytest_qnn.trace import Death
from pytest_qnn.verdict import Crashed, Examined, Finding, Hung, Outcome, Unsupported, Verdict, Violation

CaseT = TypeVar("CaseT")
TraceT = TypeVar("TraceT", bound=TraceLike)

_PATIENCE = 5
"""Cases in a row that the target does not support, with nothing examined, before the rule is given up."""


class _Judge:
    """Runs cases, remembers what each gave, and keeps the shrinking phase within its budget."""

    def __init__(self, rule: Rule[Any, Any, Any], target: Target[Any, Any], profile: Profile) -> None:
        self.rule = rule
        self.target = target
        self.budget = profile.shrink_budget(isolated=target.isolated)
        self.hangs_left = profile.hang_budget
        self.known: dict[bytes, Violation | None] = {}
        """By encoded case: bytes are small, and nothing to the garbage collector."""
        self.failed = False
        self.examples = 0
        self.examined = 0
        self.what = ""
        self.unsupported = ""
        self.settled = 0
        self.minimal: tuple[Any, Violation] | None = None

    def __call__(self, case: Any) -> None:
        if not self.examined and self.settled >= _PATIENCE:
            return
        key = msgspec.msgpack.encode(case)
        if key not in self.known:
            if self.failed and (self.budget <= 0 or self.hangs_left <= 0):
                return
            self.budget -= self.failed
            self.known[key] = self._judge(case)
        violation = self.known[key]
        if violation is not None:
            self.failed = True
            self.minimal = (case, violation)
            raise violation

    def _judge(self, case: Any) -> Violation | None:
        trace = self.target.run(case)
        self.examples += 1
        if trace.death is not None:
            self.hangs_left -= trace.death.kind == "hang"
            return died(trace.death)
        try:
            examined = self.rule.check(case, trace)
        except Violation as violation:
            return violation.with_traceback(None)
        except Unsupported as unsupported:
            self.unsupported = unsupported.reason
            self.settled += unsupported.settled
            return None
        self.examined += examined.count
        self.what = examined.what
        return None


def died(death: Death) -> Violation:
    """The violation that every rule shares: the process that ran the case did not survive it."""
    where = f"step {death.step}" if death.step >= 0 else ""
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
    _search(run, rule.cases(target.facts), profile.examples(rule, isolated=target.isolated), seed)
    finding: Finding | None = None
    reason = ""
    if run.minimal is not None:
        case, violation = run.minimal
        outcome = violation.outcome
        finding = Finding(
            expected=violation.expected,
            seen=violation.seen,
            where=violation.where,
            picture=violation.picture,
            case=msgspec.json.encode(case).decode(),
        )
    elif run.examined:
        outcome = Outcome.PASS
    elif run.unsupported:
        outcome, reason = Outcome.UNSUPPORTED, run.unsupported
    else:
        outcome = Outcome.INCONCLUSIVE
        reason = f"{run.examples} cases were run and none of them let the rule look at anything"
    return _verdict(rule, target, run, outcome, reason, finding, seed, time.perf_counter() - started)


def judge_case(
    rule: Rule[CaseT, TraceT, Any], target: Target[CaseT, TraceT], case: CaseT
) -> Violation | Unsupported | Examined:
    """Judge exactly one case, without any search (replay, tests)."""
    trace = target.run(case)
    if trace.death is not None:
        return died(trace.death)
    try:
        return rule.check(case, trace)
    except (Violation, Unsupported) as outcome:
        return outcome


def _search(run: Callable[[Any], None], cases: Any, examples: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
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
        # The budget made a failing case look harmless on its way to the minimum: the last failing
        # case that was really run is the finding.
        pass


def _verdict(
    rule: Rule[Any, Any, Any],
    target: Target[Any, Any],
    run: _Judge,
    outcome: Outcome,
    reason: str,
    finding: Finding | None,
    seed: int,
    seconds: float,
) -> Verdict:
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
        finding=finding,
    )
