"""What a judge has seen of a rule, as a verdict."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from pytest_qnn.core.engine.attribution import traits
from pytest_qnn.core.engine.judging import Judge
from pytest_qnn.core.printable import said
from pytest_qnn.core.verdict import Crashed, Finding, Hung, Outcome, Verdict, Violation


def _outcome(run: Judge) -> tuple[Outcome, str]:
    """The outcome, and the reason where there is neither a pass nor a finding."""
    if run.minimal is not None:
        return run.minimal[1].outcome, ""
    if run.scope.met:
        first = next(iter(run.scope.met.values()))
        return first.verdict, f"known: {first.text}"
    if run.tally.examined:
        return Outcome.PASS, ""
    # A rule about what the target has not is unsupported, whatever went wrong in its cases.
    denied = run.target.denies(run.rule.gate) if run.attribution.causes else ""
    if run.attribution.causes and not denied:
        return Outcome.INCONCLUSIVE, f"blocked by {', '.join(sorted(run.attribution.causes))}"
    unproved = run.tally.large and not run.tally.unsupported_cases
    if unsupported := denied or ("" if unproved else run.tally.unsupported):
        return Outcome.UNSUPPORTED, unsupported
    return Outcome.INCONCLUSIVE, run.tally.no_cases or _in_vain(run.tally.examples)


def _in_vain(cases: int) -> str:
    run = "1 case was run and did not" if cases == 1 else f"{cases} cases were run and none of them"
    return f"{run} let the rule look at anything"


def _examined_and_wrong(run: Judge) -> int:
    """1 for what was examined last and found wrong: a check that raises has counted nothing.

    Where the process died, there was nothing to examine.
    """
    return int(run.minimal is not None and not isinstance(run.minimal[1], Crashed | Hung))


def _finding(run: Judge, outcome: Outcome, reason: str) -> Finding | None:
    """What can be judged again: a violation, or that a case showed nothing."""
    if run.minimal is not None:
        return finding_of(*run.minimal)
    case = run.tally.unexamined_case
    if outcome is Outcome.INCONCLUSIVE and case is not None and not run.scope.met:
        wanted = "a case that lets the rule look at something"
        return Finding(expected=wanted, seen=reason, case=msgspec.json.encode(case).decode())
    return None


def finding_of(case: Any, violation: Violation) -> Finding:
    """The violation as data, with its case."""
    return Finding(
        expected=violation.expected,
        seen=violation.seen,
        where=violation.where,
        picture=violation.picture,
        evidence=violation.evidence,
        case=msgspec.json.encode(case).decode(),
        fingerprint=traits(case, violation).fingerprint,
    )


def _note(run: Judge) -> str:
    """What a reader should know of the search."""
    number = len(run.tally.large)
    large = f"cases that gave too much to be judged: {number}" if number else ""
    number = run.profile.hang_budget - run.hangs_left
    ended = run.hung_too_often and run.minimal is None
    hung = f"the search ended early: {number} cases hung" if ended else ""
    met = f"it met {run.ended_behind} failures that other rules own or that are expected"
    behind = f"the search ended early: {met}" if run.ended_behind else ""
    failed = ""
    if run.errors:
        lost = "; the case may not be the smallest" if run.making_errors else ""
        if run.attribution.errors or run.scope.errors:
            lost = "; no other rule was found to own what was seen"
        failed = f"internal error: {said(run.errors[0])}{lost}"
    owner = run.attribution.unattributed if run.minimal is not None else ""
    unowned = (
        f"unattributed: a plain case ends its process, too ({owner}), and no rule owns that" if owner else ""
    )
    cut = "what else breaks the rule was not looked for to the end" if run.is_cut_off else ""
    return "; ".join(filter(None, (large, hung, behind, unowned, failed, cut)))


def verdict_of(run: Judge, seed: int, flaky: str, seconds: float) -> Verdict:
    """The verdict on the judge's rule.

    Args:
        run: whose searches are over.
        seed: of its cases.
        flaky: how often the finding was seen again, where that is not always.
        seconds: that it took.

    """
    rule, target, tally = run.rule, run.target, run.tally
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
        examples=tally.examples,
        examined=tally.examined + _examined_and_wrong(run),
        what=tally.what,
        seconds=seconds,
        seed=seed,
        reason=reason,
        finding=_finding(run, outcome, reason),
        flaky=flaky,
        blocked_by=tuple(sorted(run.attribution.causes)),
        only_in_company=tally.only_in_company,
        note=_note(run),
        traceback="".join(traceback.format_exception(run.errors[0])) if run.errors else "",
        known=tuple(one.text for one in run.scope.met.values()),
    )
