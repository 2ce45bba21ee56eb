"""How the verdicts of one target differ between two reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from pytest_qnn.report.compare.data import RuleDifference, RuleKind, Seen, Slower
from pytest_qnn.report.loaded import Evidence, Rule, Target, Violation

FINDINGS = ("fail", "contradiction", "crash", "hang")
"""Verdicts that accuse the target."""
_ENDS_THE_PROCESS = ("crash", "hang")
_WORSE = ("regression", "no longer offered", "new finding", "no longer judged")
_KINDS: tuple[RuleKind, ...] = get_args(RuleKind)
_ADDRESS = re.compile(r"\b0x[0-9a-f]{5,}\b")
"""Where something happened to be in memory; what is near NULL has fewer digits."""
_TIME = re.compile(r"\b\d+(\.\d+)? s\b")
"""Seconds in the text of a finding: something was waited for, or took so long."""
_TIMES, _SECONDS = 2, 1.0
"""A rule is slower beyond both: so many times as long, and so many seconds more."""


def differences(old: Target, new: Target, *, same_catalogue: bool) -> tuple[RuleDifference, ...]:
    """Every rule that the reports do not say the same of, sorted by kind, then by id.

    Args:
        old: the target in the old report.
        new: the target in the new report.
        same_catalogue: both reports are about the same rules, so that a missing one was not removed.
    """
    before, after = _by_id(old), _by_id(new)
    found = []
    for name in sorted(before.keys() | after.keys()):
        first, second = before.get(name), after.get(name)
        kind = _kind(first, second, same_catalogue)
        if kind is not None:
            found.append(_difference(kind, first, second, after.get(name) or before[name]))
    return tuple(sorted(found, key=lambda each: (_KINDS.index(each.kind), not each.worse, each.id)))


def judged(target: Target) -> list[Rule]:
    """The rules that have a verdict."""
    return [rule for rule in target.rules if rule.state == "judged"]


def judged_in_both(old: Target, new: Target) -> list[tuple[Rule, Rule]]:
    """The rules that have a verdict in both reports, the old one and the new one."""
    before = {rule.id: rule for rule in judged(old)}
    return [(before[rule.id], rule) for rule in judged(new) if rule.id in before]


def slower(both: Sequence[tuple[Rule, Rule]]) -> Iterator[Slower]:
    """Of rules that have a verdict in both reports those that took far longer."""
    for old, new in both:
        if new.seconds > _TIMES * old.seconds and new.seconds > old.seconds + _SECONDS:
            yield Slower(old.id, old.seconds, new.seconds)


def _by_id(target: Target) -> Mapping[str, Rule]:
    return {rule.id: rule for rule in target.rules}


def _difference(kind: RuleKind, old: Rule | None, new: Rule | None, told: Rule) -> RuleDifference:
    """The difference as data; ``told`` is the rule that says what it demands, the new one if there is one."""
    return RuleDifference(
        kind=kind,
        worse=kind in _WORSE,
        id=told.id,
        level=told.level,
        self_check=told.self_check,
        sentence=told.sentence,
        old=None if old is None else _seen(old),
        new=None if new is None else _seen(new),
    )


def _kind(old: Rule | None, new: Rule | None, same_catalogue: bool) -> RuleKind | None:
    """How the two differ; None: not at all."""
    if old is None or old.verdict is None:
        return _without_old(old, new)
    if new is None:
        return "no longer judged" if same_catalogue else "removed rule"
    if new.verdict is None:
        # It was found without the rule's own test: that there is no verdict now may as well be good.
        is_of_another = old.found_by and new.state in ("not_selected", "other_shard")
        return "other verdict" if is_of_another else "no longer judged"
    if old.verdict != new.verdict:
        return _changed(old.verdict, new.verdict)
    return "changed finding" if _signature(old) != _signature(new) else None


def _without_old(old: Rule | None, new: Rule | None) -> RuleKind | None:
    """The same where the old report has no verdict of the rule."""
    if new is None:
        return "removed rule"
    if new.verdict in FINDINGS:
        return "new finding"
    if old is None:
        return "new rule"
    return None if new.verdict is None else "judged now"


def _changed(before: str, after: str) -> RuleKind:
    """What it is that one verdict became another one."""
    if after == "pass":
        return "improvement"
    if before == "pass":
        return "no longer offered" if after == "unsupported" else "regression"
    if after in FINDINGS:
        was_known = before in FINDINGS
        ends_now = after in _ENDS_THE_PROCESS and before not in _ENDS_THE_PROCESS
        return "regression" if ends_now or not was_known else "other verdict"
    return "regression" if before == "unsupported" else "other verdict"


def _signature(rule: Rule) -> tuple[str, ...]:
    """What tells one finding from another, without what is never the same twice."""
    violation = rule.violation
    if violation is None:
        return ()
    left = violation.evidence or Evidence()
    texts = (violation.expected, violation.seen, violation.where, left.during, left.fault)
    return tuple(_TIME.sub("... s", _ADDRESS.sub("0x...", text)) for text in texts)


def _seen(rule: Rule) -> Seen:
    violation = rule.violation or Violation("", "")
    left = violation.evidence or Evidence()
    return Seen(
        state=rule.state,
        verdict=rule.verdict or "",
        expected=violation.expected,
        seen=violation.seen,
        where=violation.where,
        call=left.during,
        fault=left.fault,
        reason=rule.reason,
        flaky=rule.flaky,
        blocked_by=rule.blocked_by,
        found_by=rule.found_by,
    )
