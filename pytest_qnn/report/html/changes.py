"""What is new, gone or changed since an earlier report (``--qnn-report-before``), as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytest_qnn.report.causes import FINDINGS

WORDS = ("new", "gone", "changed", "other")
"""What has become of a rule: a finding that was none, none that was one, another finding, something else."""
_OF_SEVERAL = ("regression", "no longer offered", "improvement", "other verdict")
"""Kinds of `pytest_qnn.report.compare.data` that are shown of what is no finding in either report."""


class Change(NamedTuple):
    """A rule of which the two reports do not say the same."""

    word: str
    id: str
    anchor: str
    """The element that is about it; empty: this report does not have the rule."""
    level: str
    kind: str
    sentence: str
    old: Mapping[str, Any]
    """Verdict and what was seen, as `pytest_qnn.report.compare.data.Seen`; empty: there is nothing."""
    new: Mapping[str, Any]


class Changes(NamedTuple):
    """What has changed of one target."""

    started: str
    """When the earlier run began."""
    matched: bool
    """The earlier report has the target, or one to compare it with."""
    spec: str
    """The earlier one's specification."""
    counts: Mapping[str, int]
    """Of rules, by word; those that are shown."""
    rows: Sequence[Change]
    settings: Sequence[Mapping[str, str]]
    """What the runs differ in: ``name``, ``old``, ``new``."""

    @property
    def new(self) -> frozenset[str]:
        """Ids of the rules whose finding is new."""
        return frozenset(row.id for row in self.rows if row.word == "new")


def changes(
    comparison: Mapping[str, Any] | None, target: Mapping[str, Any], anchors: Mapping[str, str]
) -> Changes | None:
    """What has changed of a target.

    Args:
        comparison: `pytest_qnn.report.compare.data.Comparison` as JSON data; None: there is none.
        target: as the report has it.
        anchors: the id of the element about each of its rules.
    """
    if comparison is None:
        return None
    started = comparison["old"]["started"]
    wanted = target["subject"], target["spec"]
    for each in comparison["targets"]:
        if (each["subject"], each["new"]) == wanted:
            rows = sorted(_rows(each["rules"], anchors), key=lambda row: (WORDS.index(row.word), row.id))
            counts = {word: sum(row.word == word for row in rows) for word in WORDS}
            settings = [*comparison["settings"], *each["provenance"]]
            return Changes(started, True, each["old"], counts, rows, settings)
    return Changes(started, False, "", {}, (), ())


def _rows(rules: Sequence[Mapping[str, Any]], anchors: Mapping[str, str]) -> list[Change]:
    rows = []
    for rule in rules:
        old, new = rule["old"] or {}, rule["new"] or {}
        word = _word(old.get("verdict", ""), new.get("verdict", ""))
        if word != "other" or rule["kind"] in _OF_SEVERAL:
            about = (anchors.get(rule["id"], ""), rule["level"], rule["kind"], rule["sentence"])
            rows.append(Change(word, rule["id"], *about, old, new))
    return rows


def _word(old: str, new: str) -> str:
    was, is_one = old in FINDINGS, new in FINDINGS
    if was and is_one:
        return "changed"
    return "new" if is_one else "gone" if was else "other"
