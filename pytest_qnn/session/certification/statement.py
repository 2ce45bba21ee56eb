"""What a certification states, as data that is made from its report and the number of its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec

from pytest_qnn.core.printable import counted
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Level, Outcome, fails
from pytest_qnn.session.certification.release import Erratum, Release

_SCHEMA = 1
_ALLOWED = (Outcome.PASS, Outcome.UNSUPPORTED)


class RuleSaid(msgspec.Struct, frozen=True):
    """What a report says of one rule, as far as a statement needs it."""

    id: str
    level: Level
    verdict: Outcome | None
    """Not ``known``: a certification has no known failures."""
    blocked_by: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether a run in which it was found fails."""
        if self.verdict is None or self.verdict in _ALLOWED:
            return False
        if self.verdict is Outcome.INCONCLUSIVE and self.blocked_by:
            return False
        return fails(self.verdict, self.level, strict=False)


class TargetSaid(msgspec.Struct, frozen=True):
    """What a report says of one target."""

    subject: Subject
    spec: str
    options: tuple[str, ...]
    provenance: dict[str, str]
    rules: tuple[RuleSaid, ...]


class OptionsSaid(msgspec.Struct, frozen=True):
    """The options of a run that a release says something of."""

    qnn_sandbox: str
    qnn_timeout: float


class ReportSaid(msgspec.Struct, frozen=True):
    """What a report says, as far as a statement needs it."""

    complete: bool
    halves: tuple[Subject, ...]
    not_judged: tuple[str, ...]
    """Collected rules without a verdict of their own; others' cases may have given them one."""
    catalogue: dict[str, Any]
    tool: dict[str, str]
    python: str
    platform: str
    started: str
    finished: str
    seed: int
    profile: str
    options: OptionsSaid
    targets: tuple[TargetSaid, ...]
    submission: dict[str, str] = {}


class StatedTarget(msgspec.Struct, frozen=True):
    """A target that was judged."""

    subject: Subject
    spec: str
    options: tuple[str, ...]
    provenance: dict[str, str]
    verdicts: dict[str, int]
    """How many rules have each."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a certification states."""

    schema: int = _SCHEMA
    submission: dict[str, str]
    """Vendor, product, SDK and board, as far as they were given."""
    release: str
    """Of the suite."""
    catalogue: str
    halves: tuple[Subject, ...]
    seed: int
    profile: str
    isolation: str
    timeout: float
    complete: bool
    """All rules of the halves were judged."""
    targets: tuple[StatedTarget, ...]
    failing: tuple[str, ...]
    """Rules that fail the run."""
    answers: int
    """Cases that were carried out and answered."""
    tool: dict[str, str]
    python: str
    platform: str
    started: str
    finished: str


def state(report: ReportSaid, answers: int) -> Statement:
    """The statement that a report allows."""
    said = [rule for target in report.targets for rule in target.rules]
    return Statement(
        submission=report.submission,
        release=report.tool.get("pytest-qnn", ""),
        catalogue=str(report.catalogue.get("sha256")),
        halves=report.halves,
        seed=report.seed,
        profile=report.profile,
        isolation=report.options.qnn_sandbox,
        timeout=report.options.qnn_timeout,
        complete=report.complete,
        targets=tuple(_target(target, report.not_judged) for target in report.targets),
        failing=tuple(sorted(rule.id for rule in said if rule.fails)),
        answers=answers,
        tool=report.tool,
        python=report.python,
        platform=report.platform,
        started=report.started,
        finished=report.finished,
    )


def _target(target: TargetSaid, not_judged: Collection[str]) -> StatedTarget:
    verdicts = Counter(
        rule.verdict.value if rule.verdict and rule.id not in not_judged else "not judged"
        for rule in target.rules
    )
    return StatedTarget(
        target.subject, target.spec, target.options, target.provenance, dict(sorted(verdicts.items()))
    )


def shortcomings(stated: Statement, release: Release) -> list[str]:
    """Why what is stated is no certification by the release, whatever was found; a phrase for each."""
    found = []
    for name, has, wanted in (
        ("profile", stated.profile, release.profile),
        ("seed", stated.seed, release.seed),
        ("timeout", stated.timeout, release.timeout),
        ("catalogue", stated.catalogue, release.catalogue),
    ):
        if has != wanted:
            found.append(f"{name} {has}, and release {release.release} demands {wanted}")
    if stated.isolation not in ("fork", "spawn"):
        found.append(f"isolation {stated.isolation}")
    unjudged = sum(target.verdicts.get("not judged", 0) for target in stated.targets)
    if unjudged or not stated.complete:
        found.append(f"{counted(unjudged, 'rule was', 'rules were')} not judged")
    return found


def violated(stated: Statement, withdrawn: dict[str, Erratum]) -> list[str]:
    """Rules that the target does not keep, without those that are withdrawn."""
    return [rule for rule in stated.failing if rule not in withdrawn]
