"""A merged report for GitHub Actions: a step summary in Markdown, and annotations.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pytest_qnn.core.printable import FLOOD, LONGEST_LINE, one_line
from pytest_qnn.core.verdict import WORST_FIRST, Verdict
from pytest_qnn.report import failure
from pytest_qnn.report.merge.merged import Merged

_SPECIAL = re.compile(r"[^\w\s.,;:/()=+-]|_")
"""What Markdown or HTML might obey."""
_MOST_ROWS = 100
"""Rules that are listed: GitHub cuts a summary of more than a mebibyte."""


def append_summary(path: Path, found: Merged) -> list[str]:
    """Append the summary to a file; returns a sentence for each problem, at most one."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(_summary(found)) + "\n")
    except OSError as error:
        return [f"{path} could not be written: {error.strerror or error}"]
    return []


def _summary(found: Merged) -> Iterator[str]:
    for (subject, target), verdicts in found.verdicts.items():
        yield from ("", f"### {_text(subject)} target: {_text(target)}", "")
        counts = {name: sum(each.shown == name for each in verdicts) for name in WORST_FIRST}
        names = [name for name, count in counts.items() if count]
        yield f"| {' | '.join(names)} |"
        yield f"|{' --: |' * len(names)}"
        yield f"| {' | '.join(str(counts[name]) for name in names)} |"
        yield from _rows([each for each in verdicts if each.shown not in ("pass", "unsupported")])
    yield from ("", f"Failed: {_text(', '.join(found.failures))}" if found.failures else "Nothing failed.")


def _rows(verdicts: list[Verdict]) -> Iterator[str]:
    if verdicts:
        yield from ("", "| rule | level | verdict | seen |", "| --- | --- | --- | --- |")
    for each in verdicts[:_MOST_ROWS]:
        seen = _text(one_line(failure.seen(each)))
        yield f"| {_text(each.rule)} | {each.level.value} | {each.shown} | {seen} |"
    if len(verdicts) > _MOST_ROWS:
        yield from ("", f"and {len(verdicts) - _MOST_ROWS} more")


def _text(text: str) -> str:
    """Foreign text on one line, of which nothing is obeyed: neither Markdown nor HTML."""
    return _SPECIAL.sub(lambda sign: f"&#{ord(sign[0])};", one_line(text))


def errors(found: Merged) -> list[str]:
    """A workflow command for each reason for which the campaign has failed."""
    told = {each.rule: each for verdicts in found.verdicts.values() for each in verdicts}
    lines = []
    for reason in found.failures:
        verdict = told.get(reason.partition(" ")[0])
        more = "" if verdict is None else f": {verdict.sentence} Seen: {failure.seen(verdict)}"
        lines.append(f"::error title={_property(reason)}::{_data(reason + more, FLOOD)}")
    return lines


def _data(text: str, longest: int = LONGEST_LINE) -> str:
    return one_line(text, longest).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
