"""Findings by cause, for the terminal, the JSON report and the page alike.

Whose fault something is the engine judges (``blocked_by``): a rule that it names is the owner of one cause.
What it leaves open is a guess, for readers only: findings that look like one fault stand together, and no
verdict depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_qnn.core.printable import one_line
from pytest_qnn.core.verdict import WORST_FIRST

FINDINGS = ("fail", "crash", "hang", "contradiction")
"""Verdicts that accuse the target."""
LEVELS = ("MUST", "SHOULD", "MAY")
_ENDS = ("crash", "hang")
_BYTES = re.compile(r"\b(?:[0-9a-f]{2} ){2,}[0-9a-f]{2}\b")
"""Contents of memory."""
_LONGEST = 240
"""Characters of a title."""

Rule = Mapping[str, Any]
"""A rule as the JSON report has it."""


class Cause(NamedTuple):
    """What one fault seems to have done."""

    rule: str
    """Id of the rule that it is named after: the owner, else that of the first finding."""
    title: str
    """What was seen in the first finding, on one line."""
    findings: Sequence[Rule]
    """The owner's first; what breaks a MUST before the rest, and of these deaths. None: the owner has no
    finding in this report, since it is a known failure or has no verdict."""
    concerned: Sequence[str]
    """Rules in cases of which the owner's fault was seen, ids in order."""
    blocked: Sequence[str]
    """Those of them of which nothing was left to judge."""


def causes(rules: Sequence[Rule]) -> list[Cause]:
    """The findings of a target by cause, what breaks a MUST first, then the largest.

    Last are the causes of which there is no finding, only what they left nothing to judge of.

    Args:
        rules: every rule of the target that was judged.
    """
    owners = {owner for rule in rules for owner in rule["blocked_by"]}
    alike: dict[tuple[str, ...], list[Rule]] = {}
    for rule in sorted((rule for rule in rules if is_finding(rule)), key=_place):
        alike.setdefault(_key(rule), []).append(rule)
    found = [part for group in alike.values() for part in _by_owner(group, owners)]
    found.sort(key=lambda part: (min(map(_place, part))[0], -len(part)))
    others = owners - {rule["id"] for part in found for rule in part}
    made = [_cause(part[0]["id"], _title(part[0]), part, rules) for part in found]
    return made + [
        _cause(owner, f"a fault that is {owner}'s to judge", (), rules) for owner in sorted(others)
    ]


def by_rule(found: Iterable[Cause]) -> dict[str, str]:
    """The rule that its cause is named after, for each rule with a finding or with nothing left to judge."""
    named: dict[str, str] = {}
    for cause in found:
        for rule_id in (*(rule["id"] for rule in cause.findings), *cause.blocked):
            named.setdefault(rule_id, cause.rule)
    return named


def _by_owner(alike: list[Rule], owners: Collection[str]) -> list[list[Rule]]:
    """Findings that look alike, one cause for each owner; what owns nothing is with the first one."""
    named = [rule for rule in alike if rule["id"] in owners]
    if not named:
        return [alike]
    rest = [rule for rule in alike if rule["id"] not in owners]
    return [[named[0], *rest], *([rule] for rule in named[1:])]


def _cause(name: str, title: str, findings: Sequence[Rule], rules: Iterable[Rule]) -> Cause:
    concerned = [rule for rule in rules if name in rule["blocked_by"]]
    return Cause(
        rule=name,
        title=title,
        findings=findings,
        concerned=sorted(rule["id"] for rule in concerned),
        blocked=sorted(rule["id"] for rule in concerned if is_blocked(rule)),
    )


def is_finding(rule: Rule) -> bool:
    """Whether the rule accuses the target; a known failure does not."""
    return rule["verdict"] in FINDINGS


def _place(rule: Rule) -> tuple[int, int, str]:
    return LEVELS.index(rule["level"]), WORST_FIRST.index(rule["verdict"]), rule["id"]


def _key(rule: Rule) -> tuple[str, ...]:
    """What findings of one cause have in common: of deaths the place in the code, of others what was seen."""
    violation = rule["violation"] or {}
    mark = violation.get("fingerprint", {})
    call, code, end = (mark.get(name, "") for name in ("call", "code", "signal"))
    if rule["verdict"] in _ENDS:
        frames = (violation.get("evidence") or {}).get("backtrace", ())
        return rule["verdict"], call, end, frames[0]["at"] if frames else mark.get("seen", "")
    seen = _BYTES.sub("#", violation.get("seen", ""))
    # The same words of calls of different areas may be said of different things.
    return "", call or rule["area"], code, _masked(mark.get("seen", "") and seen)


def _masked(text: str) -> str:
    """The text without what differs from case to case."""
    return " ".join(re.sub(r"[-+]?\b[0-9][\w.+-]*|\b[a-z]{1,2}\d+\b", "#", text).split())


def _title(rule: Rule) -> str:
    """What was seen, and where; where that is a code or a value, what was expected as well."""
    violation = rule["violation"] or {}
    seen = violation.get("seen") or rule["reason"] or rule["sentence"]
    during = (violation.get("evidence") or {}).get("during", "")
    if rule["verdict"] in _ENDS or not violation:
        return one_line(f"{seen} (in {during})" if during and during not in seen else seen, _LONGEST)
    call = violation.get("fingerprint", {}).get("call", "")
    return one_line(f"{call}: {seen}, expected {violation['expected']}".removeprefix(": "), _LONGEST)


def is_blocked(rule: Rule) -> bool:
    """Whether nothing was left to judge the rule by: all cases went wrong in a way that another one owns."""
    return rule["verdict"] == "inconclusive" and bool(rule["blocked_by"])
