"""The report as JSON data, schema 1. `schema.json`, beside this module, describes it."""

from __future__ import annotations

import datetime
import json
import platform
from importlib import metadata
from typing import Any

from pytest_qnn.report import terminal
from pytest_qnn.session import Description, Session
from pytest_qnn.verdict import Verdict

SCHEMA = 1
TOOLS = ("pytest-qnn", "pytest", "hypothesis", "msgspec", "numpy")


def make(session: Session, finished: datetime.datetime, *, ended: bool) -> dict[str, Any]:
    """The report of a run.

    Args:
        session: the run, its targets closed or not.
        finished: when it ended, with a time zone.
        ended: pytest came to the end of its own accord. The report is complete when, besides, every
            rule whose test was collected was judged.
    """
    return {
        "schema": SCHEMA,
        "complete": ended and not session.not_judged,
        "not_judged": session.not_judged,
        "tool": {name: metadata.version(name) for name in TOOLS},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started": session.started.isoformat(),
        "finished": finished.isoformat(),
        "seed": session.seed,
        "profile": session.options.profile,
        "options": _options(session),
        "targets": [
            _target(subject, spec, session.described.get((subject, spec), Description()), verdicts)
            for (subject, spec), verdicts in terminal.by_target(session).items()
        ],
        "extra": {},
    }


def _options(session: Session) -> dict[str, Any]:
    options = session.options
    return {
        "qnn_backend": options.backend,
        "qnn_rpcmem": options.rpcmem,
        "tflite_delegate": [{"spec": spec, "options": dict(pairs)} for spec, pairs in options.delegates],
        "tflite_runtime": options.runtime,
        "qnn_sandbox": options.sandbox,
        "qnn_timeout": options.timeout,
        "qnn_strict": options.strict,
    }


def _target(subject: str, spec: str, description: Description, verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "subject": subject,
        "spec": spec,
        "options": list(description.options),
        "provenance": description.provenance,
        **description.learned,
        "rules": [_rule(verdict) for verdict in verdicts],
    }


def _rule(verdict: Verdict) -> dict[str, Any]:
    finding = verdict.finding
    violation = finding and {
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
        "picture": finding.picture,
    }
    return {
        "id": verdict.rule,
        "area": verdict.area,
        "level": verdict.level.value,
        "sentence": verdict.sentence,
        "source": verdict.source,
        "self_check": verdict.self_check,
        "verdict": verdict.outcome.value,
        "examples": verdict.examples,
        "examined": verdict.examined,
        "what": verdict.what,
        "seconds": round(verdict.seconds, 6),
        "seed": verdict.seed,
        "reason": verdict.reason,
        "flaky": verdict.flaky,
        "violation": violation,
        "case": json.loads(finding.case) if finding and finding.case else None,
        "replay": verdict.replay,
    }
