"""One report of the reports of all shards of a campaign: that of the same campaign in one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.core.printable import encodable, one_line
from pytest_qnn.core.verdict import Verdict, not_judged, of_blocks, worst
from pytest_qnn.report import document, loaded
from pytest_qnn.report.loaded import BadReport
from pytest_qnn.report.merge import shards
from pytest_qnn.report.merge.shards import Named, ShardReport

_NO_PART = ("subject", "spec")


class Merged(NamedTuple):
    """What the shards come to."""

    document: dict[str, Any]
    """The report as JSON data."""
    verdicts: dict[tuple[str, str], list[Verdict]]
    """By subject and target, in the order of rule ids."""
    failures: tuple[str, ...]
    """Why the run has failed, a line each; none: it has not."""


def merge(reports: Sequence[Named]) -> Merged:
    """Put the reports of all shards together, in any order.

    Raises:
        pytest_qnn.report.loaded.BadReport: they do not belong together.
    """
    shards.check(reports)
    ordered = sorted((each.report for each in reports), key=lambda report: report.part.number)
    first = ordered[0]
    parts: dict[tuple[str, str, str], list[Verdict]] = {}
    for part in (part for report in ordered for part in report.part.parts):
        parts.setdefault((part.subject, part.target, part.rule), []).append(part)
    verdicts = {key: worst(found) for key, found in sorted(parts.items())}
    collected = {rule_id for report in ordered for rule_id in report.part.units}
    unjudged = _not_judged(ordered)
    found = document.Found(
        halves=frozenset(first.halves),
        specs={(target.subject, target.spec): _described(target) for target in _targets(ordered)},
        verdicts=verdicts.values(),
        states=dict.fromkeys(collected, "not_judged"),
        blocks=first.blocks,
    )
    made = {
        **_header(ordered),
        "complete": all(report.complete for report in ordered) and not unjudged,
        "not_judged": unjudged,
        "targets": document.targets(found),
    }
    _check_can_be_read(made)
    grouped: dict[tuple[str, str], list[Verdict]] = {}
    for (subject, target, _), verdict in verdicts.items():
        grouped.setdefault((subject, target), []).append(verdict)
    return Merged(made, grouped, tuple(_failures(ordered, list(parts.values()), unjudged)))


def _check_can_be_read(made: dict[str, Any]) -> None:
    """Refuse what no reader takes, as where numbers that were added up are too large. Raises BadReport."""
    try:
        loaded.decode(json.dumps(encodable(made), allow_nan=False).encode())
    except (ValueError, RecursionError) as error:
        raise BadReport(one_line(f"what they come to {error}", shards.LONGEST)) from None


def _not_judged(reports: Sequence[ShardReport]) -> list[str]:
    """Rules of which a unit has no verdict of its own, sorted."""
    units = (
        (rule_id, block)
        for report in reports
        for rule_id, blocks in report.part.units.items()
        for block in blocks
    )
    return not_judged(units, (part for report in reports for part in report.part.parts))


def _targets(reports: Sequence[ShardReport]) -> list[shards.Target]:
    """Each target as the first shard that needed it describes it."""
    found: dict[str, shards.Target] = {}
    for target in (target for report in reports for target in report.targets):
        if target.subject not in found or not found[target.subject].was_opened:
            found[target.subject] = target
    return list(found.values())


def _described(target: shards.Target) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(target)
    return {key: value for key, value in data.items() if key not in _NO_PART}


def _header(reports: Sequence[ShardReport]) -> dict[str, Any]:
    """What the report says of the run; of machines that are not alike, what the first says."""
    first = reports[0]
    same = ("halves", "catalogue", "tool", "python", "platform", "seed", "profile")
    return {
        "schema": document.SCHEMA,
        **{name: msgspec.to_builtins(getattr(first, name)) for name in same},
        "started": min(report.started for report in reports),
        "finished": max(report.finished for report in reports),
        "options": first.options | {"qnn_shard": None},
        **({"submission": first.submission} if first.submission else {}),
        **_surroundings(reports),
        "merged": [
            {
                "shard": f"{report.part.number}/{report.part.of}",
                **{name: getattr(report, name) for name in ("started", "finished", "python", "platform")},
            }
            for report in reports
        ],
        "extra": {key: value for report in reports for key, value in report.extra.items()},
    }


def _surroundings(reports: Sequence[ShardReport]) -> dict[str, list[str]]:
    """What is said of the machines, each thing once."""
    told = [report.held_back for report in reports if report.held_back is not None]
    lacks = list(dict.fromkeys(text for report in reports for text in report.host_lacks))
    held = {} if not told else {"held_back": sorted({name for names in told for name in names})}
    return held | ({"host_lacks": lacks} if lacks else {})


def _failures(
    reports: Sequence[ShardReport], parts: Sequence[Sequence[Verdict]], unjudged: Sequence[str]
) -> list[str]:
    """Why pytest would have ended with status 1, had it judged everything itself."""
    strict = reports[0].options.get("qnn_strict") is True
    told = []
    for found in parts:
        own, whole = of_blocks(found), worst(found)
        if (own is not None and own.is_red(strict=strict)) or (
            whole.found_by and whole.is_red(strict=strict)
        ):
            told.append(f"{whole.rule} {whole.shown}")
    told += [f"{rule_id} not judged" for rule_id in unjudged]
    for target in _targets(reports):
        if target.declared is not msgspec.UNSET and target.declared.missing:
            told.append(f"{target.spec} lacks what is declared")
    for report in reports:
        if report.part.exit_status and not _explained(report, strict=strict):
            told.append(f"shard {report.part.number} ended with exit status {report.part.exit_status}")
    return told


def _explained(report: ShardReport, *, strict: bool) -> bool:
    """Whether a verdict of the shard, or one that is missing, is why pytest ended with status 1."""
    if report.part.exit_status != 1:
        return False
    lacks = any(each.declared is not msgspec.UNSET and each.declared.missing for each in report.targets)
    red = any(part.is_red(strict=strict) for part in report.part.parts)
    return lacks or red or bool(_not_judged([report]))
