"""Judge again what was certified, from the answers alone: no target, no process, no file but the bundle's.

The engine draws the cases from the seed and from what was learned, as it did when they were carried out, and
gets the stored answers. A case that is another one, or that has no answer, is a `LogMismatch`.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from pytest_qnn import effort, rules
from pytest_qnn.core import engine
from pytest_qnn.core.printable import encodable
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import TargetLost
from pytest_qnn.core.verdict import Outcome, Verdict, not_judged, worst
from pytest_qnn.isolation.codec import Codec
from pytest_qnn.isolation.stored.answering import LogMismatch, Stored
from pytest_qnn.isolation.stored.log import CASES, Log
from pytest_qnn.isolation.target import OpenTarget
from pytest_qnn.isolation.worker import WorkerSpec
from pytest_qnn.options import Options
from pytest_qnn.report import document
from pytest_qnn.session import judging
from pytest_qnn.session.certification.statement import TargetSaid
from pytest_qnn.targets import open_target

VerdictKey = tuple[str, str, str]
_OF_TARGET = frozenset({"subject", "spec", "options", "provenance", "rules"})
"""What a report says of a target beside what was learned."""
_UNJUDGED = ("seconds", "replay", "note", "traceback", "cause", "explain", "folder", "files")
"""What a report says of a rule and is no function of the answers."""
_NAMED = ("at", "line")
"""The same of a frame: names come from the library's symbols."""


class Opened:
    """A target that answers out of logs."""

    def __init__(self, subject: Subject, options: Options, opening: Log) -> None:
        """Raises LogMismatch, TargetUnusable where the log says so, and BadOption."""
        self._executors: list[Stored] = []

        def make(_spec: WorkerSpec, codec: Codec, _mode: str, _timeout: float, **_: Any) -> Stored:
            self._executors.append(Stored(codec, opening))
            return self._executors[-1]

        target = open_target(subject, options, make)
        assert isinstance(target, OpenTarget)
        self.target = target
        self.learned = as_json(self.target.learned() | self.target.asked())
        self.observed = self.target.observed()
        self.executor.check_end()
        self.answers = sum(step.way in CASES for step in opening.steps)

    def differences(self, stated: TargetSaid, content: dict[str, Any]) -> Iterator[str]:
        """What a report says of the target and is not so; a sentence for each.

        Args:
            stated: what it says.
            content: the same as JSON, with what was learned.
        """
        if (stated.spec, stated.options) != (self.target.spec, self.target.options):
            yield f"the options {stated.options} do not open {stated.spec}"
        for key, value in self.observed.items():
            if stated.provenance.get(key) != value:
                yield f"{key} is stated {stated.provenance.get(key)!r}, and was observed to be {value!r}"
        for key in content.keys() - _OF_TARGET | self.learned.keys():
            if content.get(key) != self.learned.get(key):
                yield f"{key} is not what was learned"

    @property
    def executor(self) -> Stored:
        """Who answers."""
        return self._executors[-1]


class Again:
    """The judgement of all rules of a run, in the order of that run.

    Attributes:
        verdicts: by half, target and rule, those of rules that were found in others' cases among them.

    """

    def __init__(self, seed: int, profile: str, opened: dict[Subject, Opened]) -> None:
        self._seed = seed
        self._profile = effort.profile(profile).without_seconds()
        self._opened = opened
        self._hung: Counter[Subject] = Counter()
        self._found: dict[VerdictKey, list[Verdict]] = {}
        self._judged: set[str] = set()
        self.verdicts: dict[VerdictKey, Verdict] = {}

    def judge(self, log: Log) -> None:
        """Judge the rule that the log is about.

        Raises:
            LookupError: there is no such rule.
            LogMismatch: the log is not that of the rule's cases, or no target of its half could be opened.
        """
        if log.name in self._judged:
            raise LogMismatch(f"{log.name}: there are answers of it twice")
        self._judged.add(log.name)
        rule = rules.named(log.name)
        opened = self._opened.get(rule.subject)
        if opened is None:
            raise LogMismatch(f"{rule.id}: there is no {rule.subject} target that it could be judged of")
        opened.executor.turn_to(log)
        profile = judging.fitted(self._profile, opened.target, self._hung[rule.subject])
        seed = judging.rule_seed(self._seed, rule.id)
        found: list[Verdict] = []
        error: Exception | None = None
        try:
            verdict, handed_over = judging.with_owners(rule, opened.target, profile, seed, rules.named)
            self._hung[rule.subject] += verdict.outcome is Outcome.HANG
            found += [verdict, *handed_over]
        except engine.Interrupted as stopped:
            error, found = stopped.error, [*stopped.handed_over]
        except Exception as failure:
            error = failure
        if error is not None and not isinstance(error, TargetLost):
            found.append(judging.failed(rule, opened.target.spec, seed, error, 0.0))
        for each in found:
            self._keep(each)
        opened.executor.check_end()

    def not_judged(self, halves: Collection[Subject]) -> list[str]:
        """Ids of the rules of these halves of which the answers show no verdict of their own."""
        units = ((rule.id, 0) for rule in rules.listed().values() if rule.subject in halves)
        return not_judged(units, itertools.chain.from_iterable(self._found.values()))

    def _keep(self, verdict: Verdict) -> None:
        """Enter a verdict; of several on one rule and target the worst is kept."""
        key = (verdict.subject, verdict.target, verdict.rule)
        self._found.setdefault(key, []).append(verdict)
        self.verdicts[key] = worst(self._found[key])


def said(verdict: Verdict) -> dict[str, Any]:
    """What a report says of the rule, as far as it follows from the answers."""
    return comparable(as_json(document.rule(verdict)))


def comparable(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule of a report without what does not follow from the answers."""
    kept = {key: value for key, value in rule.items() if key not in _UNJUDGED}
    violation = kept.get("violation")
    evidence = violation.get("evidence") if isinstance(violation, dict) else None
    if isinstance(violation, dict) and isinstance(evidence, dict):
        frames = evidence.get("backtrace")
        if isinstance(frames, list) and all(isinstance(frame, dict) for frame in frames):
            unnamed = [{key: frame[key] for key in frame if key not in _NAMED} for frame in frames]
            kept["violation"] = violation | {"evidence": evidence | {"backtrace": unnamed}}
    further = kept.get("further")
    if isinstance(further, list) and all(isinstance(each, dict) for each in further):
        kept["further"] = [{key: each[key] for key in each if key != "file"} for each in further]
    return kept


def as_json(data: Any) -> Any:
    """As a report has it."""
    return json.loads(json.dumps(encodable(data)))
