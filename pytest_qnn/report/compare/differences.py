"""The comparison of two reports: a pure function from both of them to what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_qnn.report.compare import learned, verdicts
from pytest_qnn.report.compare.data import Comparison, Run, Setting, TargetDifference, Unmatched
from pytest_qnn.report.loaded import Report, Target

_FIRST = (
    *("--qnn-profile", "--qnn-seed", "--qnn-timeout", "--tflite-delegate-precision", "--tflite-runtime"),
    *("catalogue", "rules of the catalogue", "pytest-qnn"),
)
"""Settings that decide which cases are run and how they are judged."""


def compare(old: Report, new: Report) -> Comparison:
    """All that differs between two reports."""
    pairs = _matched(old, new)
    targets = tuple(_target(*pair, same_catalogue=old.catalogue == new.catalogue) for pair in pairs)
    only_old = _unmatched(old, [one for one, _ in pairs])
    only_new = _unmatched(new, [one for _, one in pairs])
    return Comparison(
        worse=sum(len(target.worse) for target in targets)
        + sum(target.judged > 0 for target in only_old)
        + sum(len(target.findings) for target in only_new),
        old=_run(old),
        new=_run(new),
        settings=tuple(_changed(_settings(old), _settings(new))),
        targets=targets,
        only_old=only_old,
        only_new=only_new,
    )


def _matched(old: Report, new: Report) -> list[tuple[Target, Target]]:
    """Targets that are compared: the only ones of a half, else those with the same specification."""
    pairs = []
    for target in old.targets:
        others = [other for other in new.targets if other.subject == target.subject]
        alone = len(others) == 1 == sum(one.subject == target.subject for one in old.targets)
        pairs += [(target, other) for other in others if alone or other.spec == target.spec]
    return pairs


def _target(old: Target, new: Target, *, same_catalogue: bool) -> TargetDifference:
    rules = verdicts.differences(old, new, same_catalogue=same_catalogue)
    both = verdicts.judged_in_both(old, new)
    differ = sum(bool(each.old and each.old.verdict and each.new and each.new.verdict) for each in rules)
    return TargetDifference(
        subject=old.subject,
        old=old.spec,
        new=new.spec,
        judged=len(both),
        same=len(both) - differ,
        old_seconds=sum(rule.seconds for rule, _ in both),
        new_seconds=sum(rule.seconds for _, rule in both),
        provenance=tuple(_changed(old.provenance, new.provenance)),
        rules=rules,
        claims=tuple(learned.claims(old, new)),
        kinds=tuple(learned.kinds(old, new)),
        partitioning=tuple(learned.partitioning(old.partitioning, new.partitioning)),
        choices=tuple(learned.choices(old, new)),
        slower=tuple(verdicts.slower(both)),
    )


def _unmatched(report: Report, matched: Sequence[Target]) -> tuple[Unmatched, ...]:
    """The report's targets that are compared with none."""
    names = {(target.subject, target.spec) for target in matched}
    left = [target for target in report.targets if (target.subject, target.spec) not in names]
    return tuple(
        Unmatched(
            target.subject,
            target.spec,
            len(verdicts.judged(target)),
            tuple(rule.id for rule in target.rules if rule.verdict in verdicts.FINDINGS),
        )
        for target in left
    )


def _run(report: Report) -> Run:
    judged = sum(len(verdicts.judged(target)) for target in report.targets)
    return Run(report.started, report.complete, judged)


def _settings(report: Report) -> dict[str, str]:
    """Everything that has one value in a report, what decides about the cases first."""
    found = {
        "--qnn-profile": report.profile,
        "--qnn-seed": str(report.seed),
        "catalogue": report.catalogue.sha256,
        "rules of the catalogue": str(report.catalogue.rules),
        **report.tool,
        **{f"--{name.replace('_', '-')}": _text(value) for name, value in report.options.items()},
        "halves": ", ".join(report.halves),
        "complete": _text(report.complete),
        "python": report.python,
        "platform": report.platform,
        "held back from child processes": ", ".join(report.held_back),
        "host": "; ".join(report.host_lacks),
    }
    return {name: found[name] for name in (*(name for name in _FIRST if name in found), *found)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Setting]:
    """What has another value, in the order of the old ones."""
    for name in dict.fromkeys((*old, *new)):
        if old.get(name, "") != new.get(name, ""):
            yield Setting(name, old.get(name, ""), new.get(name, ""))
