"""Verification: whether what a bundle states is what its answers show."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from pytest_qnn import rules
from pytest_qnn.core.forms import PROFILE_NAMES
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.rule import Subject
from pytest_qnn.isolation.stored.answering import LogMismatch
from pytest_qnn.isolation.stored.record import SUFFIX
from pytest_qnn.options import of_target
from pytest_qnn.session.certification import bundle, release, statement
from pytest_qnn.session.certification.again import Again, Opened, comparable, said
from pytest_qnn.session.certification.bundle import BadBundle
from pytest_qnn.session.certification.statement import ReportSaid, Statement, TargetSaid

_LONGEST = 400
"""Characters of one sentence."""


@dataclasses.dataclass
class Findings:
    """What verification has to say.

    Attributes:
        stated: what the bundle states.
        false: what is not as it says, in sentences; there, nothing of it can be relied on.
        missing: why it is no certification though all of it is true, in phrases.
        violated: rules that the target does not keep.
        withdrawn: rules that it does not keep and that an erratum has withdrawn, with number and reason.
        judged: rules that were judged again.

    """

    stated: Statement
    false: list[str] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)
    violated: list[str] = dataclasses.field(default_factory=list)
    withdrawn: list[str] = dataclasses.field(default_factory=list)
    judged: int = 0

    def add(self, sentence: str) -> None:
        """Something is false."""
        self.false.append(one_line(sentence, _LONGEST))


def verify(folder: Path, errata: Path | None = None) -> Findings:
    """Check a bundle's files, and judge all of it again.

    Args:
        folder: of the bundle.
        errata: a file of errata that are newer than this suite.

    Raises:
        BadBundle: it is none, or is not whole, or is one of another release.
        pytest_qnn.session.certification.release.BadErrata: the file cannot be used.
    """
    bundle.check_sums(folder)
    stated = bundle.typed(folder, bundle.STATEMENT, Statement)
    installed = release.frozen()
    if stated.release != installed.release:
        raise BadBundle(
            f"it is about release {one_line(stated.release, 40)}, and this is {installed.release}: "
            f"judge it with pytest-qnn=={one_line(stated.release, 40)}"
        )
    withdrawn = release.errata(installed.release, errata)
    report = bundle.typed(folder, bundle.REPORT, ReportSaid)
    found = Findings(stated)
    _check(folder, report, found)
    found.missing += statement.shortcomings(stated, installed)
    found.violated += statement.violated(stated, withdrawn)
    found.withdrawn += [
        f"{rule} by erratum {withdrawn[rule].number}: {withdrawn[rule].reason}"
        for rule in stated.failing
        if rule in withdrawn
    ]
    return found


def _check(folder: Path, report: ReportSaid, found: Findings) -> None:
    targets = {target.subject: target for target in report.targets}
    if len(targets) != len(report.targets) or set(targets) != set(report.halves):
        found.add("the report does not have one target for each of its halves")
        return
    if report.profile not in PROFILE_NAMES:
        found.add(f"there is no profile {report.profile}")
        return
    names = bundle.logs(folder)
    openings = [f"{half}{SUFFIX}" for half in sorted(targets)]
    for name in set(openings) - set(names):
        found.add(f"there is no {bundle.ANSWERS}/{name}")
    opened: dict[Subject, Opened] = {}
    for target in targets.values():
        _open(folder, target, report.options.qnn_timeout, opened, found)
    again = Again(report.seed, report.profile, opened)
    answers = sum(_judged(folder, name, again, found) for name in names if name not in openings)
    answers += sum(one.answers for one in opened.values())
    if statement.state(report, answers) != found.stated:
        found.add("the statement is not the one that report and answers allow")
    raw = bundle.plain(folder, bundle.REPORT)
    for target, content in zip(report.targets, raw["targets"], strict=True):
        _compare(target, content, opened.get(target.subject), again, found)
    not_judged = again.not_judged(report.halves)
    if report.complete != (not not_judged):
        found.add("the report is not as complete as it says")
    for rule_id in sorted({*report.not_judged} - {*not_judged}):
        found.add(f"{rule_id} is stated not to be judged, and the answers show a verdict on it")


def _open(
    folder: Path, target: TargetSaid, timeout: float, opened: dict[Subject, Opened], found: Findings
) -> None:
    """Learn of a target again what was learned when it was opened; ``timeout``: seconds for a case."""
    try:
        log = bundle.log(folder, f"{target.subject}{SUFFIX}")
        options = dataclasses.replace(of_target(target.options), timeout=timeout)
        opened[target.subject] = Opened(target.subject, options, log)
    except (Exception, LogMismatch) as error:  # what is said to have been learned may be anything
        found.add(f"the target {target.subject} {target.spec}: {type(error).__name__}: {error}")


def _judged(folder: Path, name: str, again: Again, found: Findings) -> int:
    """Judge a rule again; how many cases its log answers."""
    try:
        log = bundle.log(folder, name)
        again.judge(log)
    except (BadBundle, LogMismatch, LookupError) as error:
        found.add(str(error))
        return 0
    found.judged += 1
    return bundle.answers(log)


def _compare(
    target: TargetSaid, content: dict[str, Any], opened: Opened | None, again: Again, found: Findings
) -> None:
    """Compare what the report says of a target with what was learned and judged again."""
    if opened is None:
        return  # which was said
    for sentence in opened.differences(target, content):
        found.add(f"{target.subject} target: {sentence}")
    verdicts = {key[2]: verdict for key, verdict in again.verdicts.items() if key[0] == target.subject}
    listed = {rule.id for rule in rules.listed().values() if rule.subject == target.subject}
    if sorted(rule.id for rule in target.rules) != sorted(listed):
        found.add(f"{target.subject} target: its rules are not those of the release")
    for rule in content["rules"]:
        wanted = verdicts.get(rule["id"])
        if wanted is None:
            if rule["verdict"] is not None:
                found.add(f"{rule['id']} is stated {rule['verdict']}, and no answers show it")
            continue
        judged = said(wanted)
        stated = comparable(rule)
        for key in sorted(judged.keys() | stated.keys()):
            if judged.get(key) != stated.get(key):
                found.add(
                    f"{rule['id']}: {key} is stated {stated.get(key)!r}, and judged {judged.get(key)!r}"
                )
                break
