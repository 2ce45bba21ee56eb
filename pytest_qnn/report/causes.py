"""Findings that look like one fault, put together: what is mended first may mend all of them.

It is a grouping for readers. No verdict depends on it: the engine's own judgement of whose fault it is
stands in ``blocked_by`` and ``found_by``, and is shown with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    """Findings that look like one fault."""

    title: str
    """What was seen in the first of them, on one line."""
    findings: Sequence[Rule]
    """What breaks a MUST first, and of these deaths first."""
    blocked: Sequence[str]
    """Rules of which nothing was left to judge for one of these findings, ids in order."""


def causes(rules: Sequence[Rule]) -> list[Cause]:
    """The findings of a target by cause, what breaks a MUST first, then the largest.

    Args:
        rules: every rule of the target that was judged.
    """
    grouped: dict[tuple[str, ...], list[Rule]] = {}
    for rule in sorted((rule for rule in rules if is_finding(rule)), key=_place):
        grouped.setdefault(_key(rule), []).append(rule)
    made = [Cause(_title(found[0]), found, _blocked(found, rules)) for found in grouped.values()]
    return sorted(made, key=lambda cause: (_place(cause.findings[0])[:1], -len(cause.findings)))


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


def _blocked(found: Iterable[Rule], rules: Iterable[Rule]) -> list[str]:
    owners = {rule["id"] for rule in found}
    return sorted(rule["id"] for rule in rules if is_blocked(rule) and owners & set(rule["blocked_by"]))


def is_blocked(rule: Rule) -> bool:
    """Whether nothing was left to judge the rule by: all cases went wrong in a way that another one owns."""
    return rule["verdict"] == "inconclusive" and bool(rule["blocked_by"])
