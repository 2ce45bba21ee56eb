"""What stands on the page, as data that templates lay out; the report's own data stay as they are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from pytest_qnn.report.causes import LEVELS, Cause, Rule, causes, is_finding
from pytest_qnn.report.failure import compact
from pytest_qnn.report.html import answer, areas, changes, partition
from pytest_qnn.report.html.answer import Answer, Left

_SLOWEST = 10
_NOTHING: Mapping[str, Any] = {"expected": "", "seen": "", "where": "", "picture": "", "evidence": None}
"""The violation of a verdict that has none, such as that of a worker that was killed."""
SUBJECTS = {"delegate": "TensorFlow Lite delegate", "memory": "QNN backend (memory)"}


class Finding(NamedTuple):
    """A finding with what it is shown by."""

    rule: Rule
    violation: Mapping[str, Any]
    anchor: str
    partition: partition.Picture | None
    timeline: Any
    """A `timeline.Timeline`, or None."""
    case: str
    """The minimal case as JSON text; empty: there is none."""
    debug: str
    """The replay command under a debugger, where a process died."""


class CauseView(NamedTuple):
    """A cause with its findings."""

    number: int
    cause: Cause
    findings: Sequence[Finding]


class Area(NamedTuple):
    """A row of the table of areas."""

    id: str
    name: str
    counts: Mapping[str, int]
    """Number of judged rules by verdict."""
    left: int
    """Rules without a verdict."""
    seconds: float


class Coverage(NamedTuple):
    """A row of the table of operators."""

    op: str
    cells: Sequence[Mapping[str, Any] | None]
    """Of each type the claim as the report has it; None: it was not asked."""


class Target(NamedTuple):
    """Everything that is said of one target."""

    number: int
    """From 1, in the order of the page."""
    subject: str
    """Which half, in words."""
    name: str
    """A short one, such as a library's file name."""
    spec: str
    answer: Answer
    changes: changes.Changes | None
    """Since an earlier report; None: there is none."""
    causes: Sequence[CauseView]
    left: Sequence[Left]
    counts: Mapping[str, int]
    areas: Sequence[Area]
    total: Area
    rules: Sequence[tuple[Rule, str, str]]
    """Each rule with its anchor, and that of its finding (empty: there is none)."""
    facts: Mapping[str, str]
    types: Sequence[str]
    coverage: Sequence[Coverage]
    data: Mapping[str, Any]
    """The target as the report has it."""
    slowest: Sequence[Rule]
    flaky: Sequence[Rule]


class Page(NamedTuple):
    """The whole page."""

    title: str
    document: Mapping[str, Any]
    targets: Sequence[Target]
    facts: Mapping[str, str]
    """Of the run."""
    levels: Sequence[str]
    verdicts: Sequence[str]
    areas: Sequence[tuple[str, str]]
    """What the rules can be filtered by; an area with its name."""
    findings: int


def page(document: Mapping[str, Any], comparison: Mapping[str, Any] | None = None) -> Page:
    """The page of a report of schema 2, and of what differs from an earlier one, if that is known."""
    given: set[str] = set()
    targets = [
        _target(number, each, document, given, comparison)
        for number, each in enumerate(document["targets"], 1)
    ]
    rules = [rule for each in targets for rule, _, _ in each.rules]
    ids = sorted({rule["area"] for rule in rules})
    return Page(
        title=" and ".join(f"{each.name}: {each.answer.words}" for each in targets) or "pytest-qnn report",
        document=document,
        targets=targets,
        facts=_run(document),
        levels=[level for level in LEVELS if any(rule["level"] == level for rule in rules)],
        verdicts=[*answer.counts(rule for rule in rules if rule["verdict"])],
        areas=[(area, areas.NAMES.get(area, "")) for area in ids],
        findings=sum(is_finding(rule) for rule in rules),
    )


def _target(
    number: int,
    data: Mapping[str, Any],
    document: Mapping[str, Any],
    given: set[str],
    comparison: Mapping[str, Any] | None,
) -> Target:
    rules: Sequence[Rule] = data["rules"]
    judged = [rule for rule in rules if rule["state"] == "judged"]
    found = causes(judged)
    anchors = {rule["id"]: _anchor(rule["id"], number, given) for rule in rules}
    types = sorted({claim["dtype"] for claim in data.get("claims", ())})
    strict = bool(document["options"].get("qnn_strict"))
    return Target(
        number=number,
        subject=SUBJECTS[data["subject"]],
        name=PurePath(data["spec"]).name or data["spec"],
        spec=data["spec"],
        answer=answer.answer(rules, found, complete=document["complete"], strict=strict),
        changes=changes.changes(comparison, data, anchors),
        causes=[_cause(place, cause, anchors) for place, cause in enumerate(found, 1)],
        left=answer.left(rules),
        counts=answer.counts(judged),
        areas=[_area(area, rules) for area in sorted({rule["area"] for rule in judged})],
        total=_area("", rules),
        rules=[
            (rule, f"rule-{anchors[rule['id']]}", _of_finding(rule, anchors)) for rule in _in_order(rules)
        ],
        facts={"options": " ".join(data["options"]), **data["provenance"]},
        types=types,
        coverage=_coverage(data.get("claims", ()), types),
        data=data,
        slowest=sorted(judged, key=lambda rule: -rule["seconds"])[:_SLOWEST],
        flaky=[rule for rule in judged if rule["flaky"] or rule["only_in_company"]],
    )


def _anchor(rule_id: str, number: int, given: set[str]) -> str:
    """An id of an element that no other target has."""
    anchor = rule_id if rule_id not in given else f"{rule_id}-target-{number}"
    given.add(anchor)
    return anchor


def _of_finding(rule: Rule, anchors: Mapping[str, str]) -> str:
    return anchors[rule["id"]] if is_finding(rule) else ""


def _in_order(rules: Iterable[Rule]) -> list[Rule]:
    """By id, those with a verdict first."""
    return sorted(rules, key=lambda rule: (rule["state"] != "judged", rule["id"]))


def _cause(number: int, cause: Cause, anchors: Mapping[str, str]) -> CauseView:
    return CauseView(number, cause, [_finding(rule, anchors[rule["id"]]) for rule in cause.findings])


def _finding(rule: Rule, anchor: str) -> Finding:
    violation = rule["violation"] or _NOTHING
    died = bool(violation["evidence"]) and "--qnn-replay" in rule["replay"]
    return Finding(
        rule=rule,
        violation=violation,
        anchor=anchor,
        partition=partition.picture(violation["picture"], rule["case"]),
        timeline=_timeline(rule["case"], violation["where"]),
        case="" if rule["case"] is None else compact(rule["case"]),
        debug=f"{rule['replay']} --qnn-debug=gdb" if died else "",
    )


def _timeline(case: Any, where: str) -> Any:
    """The time line of a case that has steps and is of QNN memory; of others nothing is loaded."""
    if not isinstance(case, dict) or "steps" not in case or "graphs" in case:
        return None
    # A page about delegates loads nothing of QNN.
    from pytest_qnn.report.html.timeline import timeline

    return timeline(case, where)


def _area(area: str, rules: Sequence[Rule]) -> Area:
    """The row of an area; of the empty one: the sum of all."""
    mine = [rule for rule in rules if area in ("", rule["area"])]
    judged = [rule for rule in mine if rule["state"] == "judged"]
    seconds = sum(rule["seconds"] for rule in judged)
    return Area(area, areas.NAMES.get(area, ""), answer.counts(judged), len(mine) - len(judged), seconds)


def _coverage(claims: Sequence[Mapping[str, Any]], types: Sequence[str]) -> list[Coverage]:
    found = {(claim["op"], claim["dtype"]): claim for claim in claims}
    return [
        Coverage(op, [found.get((op, dtype)) for dtype in types])
        for op in dict.fromkeys(claim["op"] for claim in claims)
    ]


def _run(document: Mapping[str, Any]) -> dict[str, str]:
    """What is said of the run, as text by name; what is empty is left out."""
    return {name: text for name, text in _said(document) if text}


def _said(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from document.get("submission", {}).items()
    for key in ("python", "platform", "started", "finished", "seed", "profile"):
        yield key, str(document[key])
    yield "shard", document["options"].get("qnn_shard") or ""
    yield "merged from", "\n".join(" ".join(map(str, each.values())) for each in document.get("merged", ()))
    yield "held back from child processes", ", ".join(document.get("held_back", ()))
    yield "host", "\n".join(document.get("host_lacks", ()))
    yield from ((name, str(version)) for name, version in document["tool"].items())
    yield from (
        (key, compact(value)) for key, value in document["options"].items() if value not in (None, [], "")
    )
    yield from ((key, compact(value)) for key, value in document["extra"].items())
