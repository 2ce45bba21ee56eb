"""The answer on the page's first screen: does the target conform, and what was not judged, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pytest_qnn.core.printable import one_line
from pytest_qnn.core.verdict import Level, Outcome, fails
from pytest_qnn.report.causes import FINDINGS, LEVELS, Cause, Rule, is_blocked, is_finding

State = Literal["broken", "open", "conforms"]


class Answer(NamedTuple):
    """Whether a target conforms."""

    state: State
    """``open``: it is not shown."""
    words: str
    """The answer in two or three words."""
    sentence: str
    remarks: Sequence[str]
    """What else one must know, a sentence each."""


class Left(NamedTuple):
    """Rules that have no answer, for one reason."""

    kind: str
    """``unsupported``, ``blocked``, ``inconclusive``, ``not selected``, ..."""
    reason: str
    ids: Sequence[str]


def counts_against(rule: Rule, *, strict: bool) -> bool:
    """Whether a finding shows that the target does not conform: the rule is a MUST, or the process ended.

    What a MAY says is a choice, and so is a SHOULD where the run was not strict. A self-check judges the
    runtime and the suite.

    Args:
        rule: with a verdict.
        strict: a violated SHOULD counts (``--qnn-strict``).
    """
    if not is_finding(rule) or rule["self_check"]:
        return False
    return fails(Outcome(rule["verdict"]), Level(rule["level"]), strict=strict)


def answer(rules: Sequence[Rule], causes: Sequence[Cause], *, complete: bool, strict: bool) -> Answer:
    """The answer of one target.

    Args:
        rules: all of its rules, judged or not.
        causes: its findings by cause.
        complete: the run came to its end and judged every rule that it is about.
        strict: as for `counts_against`.
    """
    judged = [rule for rule in rules if rule["state"] == "judged"]
    remarks = [*_remarks(judged, strict=strict)]
    counted = [rule for rule in judged if counts_against(rule, strict=strict)]
    if counted:
        of_these = sum(any(rule in counted for rule in cause.findings) for cause in causes)
        sentence = f"{_findings(counted)} in {many(of_these, 'cause')}"
        return Answer("broken", "Does not conform", sentence, remarks)
    if why := _not_shown(rules, judged, complete=complete):
        return Answer("open", "Not shown to conform", f"no finding counts against it, but {why}", remarks)
    passed = sum(rule["verdict"] == "pass" for rule in judged)
    known = sum(rule["verdict"] == "known" for rule in judged)
    if known:
        sentence = f"{many(passed, 'rule')} passed, and {many(known, 'rule')} failed as expected"
        return Answer("conforms", "Conforms but for known failures", sentence, remarks)
    return Answer(
        "conforms", "Conforms", f"{many(passed, 'rule')} passed, and no finding counts against it", remarks
    )


_NOUNS = {"fail": "failure", "crash": "crash", "hang": "hang", "contradiction": "contradiction"}


def _findings(found: Sequence[Rule]) -> str:
    """``3 MUST findings and 1 crash under a SHOULD``: of other levels it is said what counts, or does not."""
    must = sum(rule["level"] == "MUST" for rule in found)
    parts = [many(must, "MUST finding")] if must else []
    for level in LEVELS[1:]:
        for verdict, noun in _NOUNS.items():
            count = sum((rule["level"], rule["verdict"]) == (level, verdict) for rule in found)
            parts += [f"{many(count, noun)} under a {level}"] if count else []
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]


def _not_shown(rules: Sequence[Rule], judged: Sequence[Rule], *, complete: bool) -> str:
    """Why the rules that were judged do not show that the target conforms; empty: they do."""
    missing = len(rules) - len(judged)
    if missing or not complete:
        return (
            f"{missing} of {many(len(rules), 'rule')} were not judged"
            if missing
            else "the report is incomplete"
        )
    unclear = [rule for rule in judged if rule["verdict"] == "inconclusive" and rule["level"] == "MUST"]
    if unclear:
        return f"{many(len(unclear), 'MUST rule')} could not be decided"
    if any(is_finding(rule) for rule in judged if rule["self_check"]):
        return "a self-check failed, and so the runtime or the suite is at fault"
    if any(rule["unexpected"] for rule in judged):
        return "expectations (--qnn-expect) were not met"
    return "" if any(rule["verdict"] in ("pass", "known") for rule in judged) else "nothing could be judged"


def _remarks(judged: Sequence[Rule], *, strict: bool) -> Iterable[str]:
    others = [
        rule
        for rule in judged
        if is_finding(rule) and not rule["self_check"] and not counts_against(rule, strict=strict)
    ]
    if others:
        yield f"{_findings(others)} {'do' if len(others) > 1 else 'does'} not count against it."
    checks = [rule["id"] for rule in judged if rule["self_check"] and is_finding(rule)]
    if checks:
        yield f"Failed self-checks, of the runtime and the suite: {', '.join(checks)}."
    unexpected = [rule["id"] for rule in judged if rule["unexpected"]]
    if unexpected:
        yield f"Not as expected (--qnn-expect): {', '.join(unexpected)}."
    broken = [rule["id"] for rule in judged if rule["traceback"]]
    if broken:
        yield f"The suite itself failed, which says nothing of the target: {', '.join(broken)}."


def left(rules: Sequence[Rule]) -> list[Left]:
    """The rules that have no answer, by reason, the reasons of most rules first."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        why = _why(rule)
        if why is not None:
            grouped.setdefault(why, []).append(rule["id"])
    found = [Left(kind, reason, ids) for (kind, reason), ids in grouped.items()]
    return sorted(found, key=lambda each: (_KINDS.index(each.kind), -len(each.ids), each.reason))


_KINDS = ("not judged", "inconclusive", "blocked", "unsupported", "not selected", "other shard")
_STATES = {
    "not_judged": ("not judged", "the run ended before"),
    "not_selected": ("not selected", "the options choose other rules"),
    "other_shard": ("other shard", "another shard judges them"),
}


def _why(rule: Rule) -> tuple[str, str] | None:
    """The kind and the reason for which a rule has no answer; None: it has one."""
    if rule["state"] != "judged":
        return _STATES[rule["state"]]
    if is_blocked(rule):
        return "blocked", f"every case went wrong by {', '.join(rule['blocked_by'])}"
    if rule["verdict"] in ("inconclusive", "unsupported"):
        return rule["verdict"], one_line(rule["reason"]) or "no reason was given"
    return None


def many(count: int, what: str) -> str:
    """``1 finding``, ``2 findings``, ``2 crashes``."""
    ending = "es" if what.endswith("sh") else "s"
    return f"{count} {what}{ending * (count != 1)}"


def counts(rules: Iterable[Rule]) -> dict[str, int]:
    """Number of judged rules by verdict, of those that there are; findings first."""
    found: dict[str, int] = {}
    for rule in rules:
        found[rule["verdict"]] = found.get(rule["verdict"], 0) + 1
    order = (*FINDINGS, "inconclusive", "known", "unsupported", "pass")
    return {verdict: found[verdict] for verdict in order if verdict in found}
