"""The report as JSON data, schema 2. `schema.json`, beside this module, describes it.

Schema 2: each rule of the halves that the run is about appears once, also one that was not selected or not
judged; ``complete`` says that all of them were judged; where the suite itself failed, there is a traceback.
A violation in which a child process died has ``evidence``: the call, stderr, a native backtrace, all calls.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from importlib import metadata
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from pytest_qnn import rules
from pytest_qnn.core.rule import Demand, Subject
from pytest_qnn.core.verdict import Verdict
from pytest_qnn.report import crash, terminal
from pytest_qnn.state import Description, Session

if TYPE_CHECKING:
    from pytest_qnn.expect.claims import Difference

SCHEMA = 2
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
TOOLS = ("pytest-qnn", "pytest", "hypothesis", "msgspec", "numpy")


def make(session: Session, finished: datetime.datetime, *, ended: bool) -> dict[str, Any]:
    """The report of a run.

    Args:
        session: the run, its targets closed or not.
        finished: when it ended, with a time zone.
        ended: pytest came to the end of its own accord. The report is complete when, besides, every
            rule of the halves that the run is about was judged.
    """
    return {
        "schema": SCHEMA,
        "complete": ended and not session.not_judged and not session.not_selected,
        "halves": sorted(session.options.halves),
        "not_judged": session.not_judged,
        "catalogue": {"rules": len(rules.listed()), "sha256": fingerprint()},
        "tool": {name: metadata.version(name) for name in TOOLS},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started": session.started.isoformat(),
        "finished": finished.isoformat(),
        "seed": session.seed,
        "profile": session.options.profile,
        "options": _options(session),
        **_submission(session),
        **_surroundings(session),
        "targets": _targets(session),
        "extra": {},
    }


def fingerprint() -> str:
    """SHA-256 of what the catalogue demands: the same for two reports that are about the same rules."""
    demands = sorted(
        (rule.id, rule.level.value, rule.subject, rule.self_check, rule.sentence, rule.source)
        for rule in rules.listed().values()
    )
    return hashlib.sha256(json.dumps(demands).encode()).hexdigest()


def _targets(session: Session) -> list[dict[str, Any]]:
    """Every target with verdicts; of each half that the run is about at least one, and all of its rules."""
    judged = terminal.by_target(session)
    for subject in SUBJECTS:
        if subject in session.options.halves and subject not in {half for half, _ in judged}:
            judged[subject, session.spec(subject)] = []
    left = {rule.id: rule for rule in rules.listed().values()}
    for verdict in chain.from_iterable(judged.values()):
        left.pop(verdict.rule, None)
    targets = []
    for (half, spec), verdicts in sorted(judged.items()):
        rest = [left.pop(name) for name in sorted(left) if left[name].subject == half]
        made = [*map(rule, verdicts), *(_unjudged(each, session) for each in rest)]
        description = session.described.get((half, spec), Description())
        targets.append(_target(half, spec, description, sorted(made, key=lambda each: each["id"])))
    return targets


def _options(session: Session) -> dict[str, Any]:
    options = session.options
    return {
        "qnn_backend": options.backend,
        "qnn_rpcmem": options.rpcmem,
        "tflite_delegate": [{"spec": spec, "options": dict(pairs)} for spec, pairs in options.delegates],
        "tflite_runtime": options.runtime,
        "tflite_delegate_precision": options.precision,
        "qnn_sandbox": options.sandbox,
        "qnn_timeout": options.timeout,
        "qnn_env": list(options.env),
        "qnn_rule": list(options.selection.rules),
        "qnn_area": list(options.selection.areas),
        "qnn_level": list(options.selection.levels),
        "qnn_strict": options.strict,
        "qnn_corpus": None if options.corpus is None else str(options.corpus),
        "qnn_expect": None if options.expect is None else str(options.expect),
    }


def _submission(session: Session) -> dict[str, dict[str, str]]:
    """What names the submission, where something does."""
    named = dict(session.options.submission)
    return {"submission": named} if named else {}


def _surroundings(session: Session) -> dict[str, list[str]]:
    """What of the machine concerns child processes, where there is something to say."""
    found = {} if session.held_back is None else {"held_back": list(session.held_back)}
    return found | ({"host_lacks": list(session.host_lacks)} if session.host_lacks else {})


def _target(
    subject: str, spec: str, description: Description, judged: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "subject": subject,
        "spec": spec,
        "options": list(description.options),
        "provenance": description.provenance,
        **description.learned,
        **({} if description.claimed is None else {"declared": _declared(description.claimed)}),
        "rules": judged,
    }


def _declared(found: Difference) -> dict[str, list[str]]:
    return {"missing": list(found.missing), "more": list(found.more)}


def _unjudged(rule: Demand, session: Session) -> dict[str, Any]:
    """A rule that has no verdict."""
    return {
        "id": rule.id,
        "area": rule.area,
        "level": rule.level.value,
        "sentence": rule.sentence,
        "source": rule.source,
        "self_check": rule.self_check,
        "state": "not_judged" if rule.id in session.expected else "not_selected",
        "verdict": None,
    }


def rule(verdict: Verdict) -> dict[str, Any]:
    """A rule that has a verdict."""
    finding = verdict.finding
    violation = finding and {
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
        "picture": finding.picture,
        "evidence": crash.data(finding.evidence),
        "fingerprint": msgspec.to_builtins(finding.fingerprint),
    }
    return {
        "id": verdict.rule,
        "area": verdict.area,
        "level": verdict.level.value,
        "sentence": verdict.sentence,
        "source": verdict.source,
        "self_check": verdict.self_check,
        "state": "judged",
        "verdict": verdict.shown,
        "examples": verdict.examples,
        "examined": verdict.examined,
        "what": verdict.what,
        "seconds": round(verdict.seconds, 6),
        "seed": verdict.seed,
        "reason": verdict.reason,
        "flaky": verdict.flaky,
        "blocked_by": list(verdict.blocked_by),
        "found_by": verdict.found_by,
        "known": list(verdict.known),
        "unexpected": verdict.unexpected,
        "note": verdict.note,
        "only_in_company": verdict.only_in_company,
        "violation": violation,
        "case": json.loads(finding.case) if finding and finding.case else None,
        "replay": verdict.replay,
        "traceback": verdict.traceback,
    }
