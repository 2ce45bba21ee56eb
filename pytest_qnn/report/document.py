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
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from pytest_qnn import rules
from pytest_qnn.core.rule import Demand, Subject
from pytest_qnn.core.verdict import Finding, Further, Verdict, case_file
from pytest_qnn.report import causes, crash, failure
from pytest_qnn.state import Description, Session

if TYPE_CHECKING:
    from pytest_qnn.expect.claims import Difference

SCHEMA = 2
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
TOOLS = ("pytest-qnn", "pytest", "hypothesis", "msgspec", "numpy")


class Found(NamedTuple):
    """What the report says of targets."""

    halves: frozenset[str]
    """What the run is about."""
    specs: dict[tuple[str, str], dict[str, Any]]
    """By subject and specification: what is said of each target but its rules; of each half at least one."""
    verdicts: Iterable[Verdict]
    """One for each rule and target."""
    states: Mapping[str, str]
    """Of rules that have no verdict: their state where it is not ``not_selected``."""
    blocks: int
    """Seed blocks of each rule."""


def make(session: Session, finished: datetime.datetime, *, ended: bool, status: int) -> dict[str, Any]:
    """The report of a run.

    Args:
        session: the run, its targets closed or not.
        finished: when it ended, with a time zone.
        ended: pytest came to the end of its own accord. The report is complete when, besides, every
            rule of the halves that the run is about was judged; of a shard each rule that is its own.
        status: the run's exit status.
    """
    found = _found(session)
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
        **_shard(session, status),
        "targets": targets(found),
        "extra": {},
    }


def _found(session: Session) -> Found:
    specs = {(half, spec) for half, spec, _ in session.verdicts}
    specs |= {
        (half, session.spec(half))
        for half in SUBJECTS
        if half in session.options.halves and half not in {each for each, _ in specs}
    }
    described = {key: _described(session.described.get(key, Description())) for key in sorted(specs)}
    elsewhere = dict.fromkeys(session.elsewhere, "other_shard")
    states = elsewhere | dict.fromkeys(session.expected, "not_judged")
    return Found(session.options.halves, described, session.verdicts.values(), states, session.options.blocks)


def _shard(session: Session, status: int) -> dict[str, Any]:
    """Of a shard: which it is, what is its own to judge, and each verdict by itself, to be merged."""
    options = session.options
    if session.units is None or options.shard is None:
        return {}
    number, of = options.shard
    collected = sorted(session.expected & session.units.keys())
    parts = [each for key in sorted(session.parts) for each in session.parts[key]]
    return {
        "shard": {
            "number": number,
            "of": of,
            "exit_status": status,
            "campaign": session.campaign(),
            "units": {rule_id: list(session.units[rule_id]) for rule_id in collected},
            "parts": msgspec.to_builtins(parts),
        }
    }


def fingerprint() -> str:
    """SHA-256 of what the catalogue demands: the same for two reports that are about the same rules."""
    demands = sorted(
        (rule.id, rule.level.value, rule.subject, rule.self_check, rule.sentence, rule.source)
        for rule in rules.listed().values()
    )
    return hashlib.sha256(json.dumps(demands).encode()).hexdigest()


def targets(found: Found) -> list[dict[str, Any]]:
    """Every target that is known; each rule of the halves that the run is about appears once."""
    grouped: dict[tuple[str, str], list[Verdict]] = {key: [] for key in found.specs}
    left = {rule.id: rule for rule in rules.listed().values()}
    for verdict in found.verdicts:
        grouped[verdict.subject, verdict.target].append(verdict)
        left.pop(verdict.rule, None)
    made = []
    for (half, spec), verdicts in sorted(grouped.items()):
        rest = [left.pop(name) for name in sorted(left) if left[name].subject == half]
        rows = [
            *(rule(verdict, found.blocks) for verdict in verdicts),
            *(_unjudged(each, found) for each in rest),
        ]
        made.append(
            {
                "subject": half,
                "spec": spec,
                **found.specs[half, spec],
                "rules": sorted(_with_causes(rows), key=lambda row: row["id"]),
            }
        )
    return made


def _with_causes(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of one target, each that was judged with the cause that it has, if it has one."""
    judged = [row for row in rows if row["state"] == "judged"]
    named = causes.by_rule(causes.causes(judged))
    return [row | ({"cause": named.get(row["id"], "")} if row["state"] == "judged" else {}) for row in rows]


def _options(session: Session) -> dict[str, Any]:
    options = session.options
    return {
        "qnn_backend": options.backend,
        "qnn_rpcmem": options.rpcmem,
        "tflite_delegate": [{"spec": spec, "options": dict(pairs)} for spec, pairs in options.delegates],
        "tflite_runtime": options.runtime,
        "tflite_delegate_precision": options.precision,
        "qnn_sandbox": options.sandbox,
        "qnn_on": options.on,
        "qnn_timeout": options.timeout,
        "qnn_env": list(options.env),
        "qnn_rule": list(options.selection.rules),
        "qnn_area": list(options.selection.areas),
        "qnn_level": list(options.selection.levels),
        "qnn_matrix_target": options.target,
        "qnn_blocks": options.blocks,
        "qnn_shard": None if options.shard is None else "{}/{}".format(*options.shard),
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


def _described(description: Description) -> dict[str, Any]:
    """What is said of a target but its rules."""
    return {
        "options": list(description.options),
        "provenance": description.provenance,
        **description.learned,
        **({} if description.claimed is None else {"declared": _declared(description.claimed)}),
    }


def _declared(found: Difference) -> dict[str, list[str]]:
    return {"missing": list(found.missing), "more": list(found.more)}


def _unjudged(rule: Demand, found: Found) -> dict[str, Any]:
    """A rule that has no verdict."""
    return {
        "id": rule.id,
        "area": rule.area,
        "level": rule.level.value,
        "sentence": rule.sentence,
        "source": rule.source,
        "self_check": rule.self_check,
        "state": found.states.get(rule.id, "not_selected"),
        "verdict": None,
    }


def rule(verdict: Verdict, blocks: int = 1) -> dict[str, Any]:
    """A rule that has a verdict; ``blocks``: seed blocks of each rule of the run."""
    finding = verdict.finding
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
        **({"block": verdict.block} if blocks > 1 else {}),
        "reason": verdict.reason,
        "flaky": verdict.flaky,
        "blocked_by": list(verdict.blocked_by),
        **({"coverage": msgspec.to_builtins(verdict.coverage)} if verdict.coverage else {}),
        "found_by": verdict.found_by,
        "known": list(verdict.known),
        "unexpected": verdict.unexpected,
        "note": verdict.note,
        "only_in_company": verdict.only_in_company,
        "violation": finding and _violation(finding),
        "case": finding and _case(finding),
        "further": [_further(verdict, number, each) for number, each in enumerate(verdict.further, 2)],
        "replay": verdict.replay,
        "explain": failure.explain(verdict.rule) if finding else "",
        "folder": verdict.folder,
        "files": [{"name": name, "what": what} for name, what in verdict.files.items()],
        "traceback": verdict.traceback,
    }


def _further(verdict: Verdict, number: int, one: Further) -> dict[str, Any]:
    """What else broke the rule; ``number``: its place among the verdict's findings, as of `case_file`."""
    file = one.file or (f"{verdict.folder}/{case_file(number)}" if verdict.folder else "")
    return {
        "verdict": one.outcome.value,
        "violation": _violation(one.finding),
        "case": _case(one.finding),
        **({"flaky": one.flaky} if one.flaky else {}),
        **({"file": file} if file else {}),
    }


def _violation(finding: Finding) -> dict[str, Any]:
    return {
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
        "picture": finding.picture,
        "evidence": crash.data(finding.evidence),
        "fingerprint": msgspec.to_builtins(finding.fingerprint),
    }


def _case(finding: Finding) -> Any:
    return json.loads(finding.case) if finding.case else None
