"""Put the reports of all shards of a campaign (--qnn-shard) together into one report.

It is the report that one run of the whole campaign would have written, apart from times and the folders of
findings. Reports that do not belong together are refused, and so are missing shards and those that are there
twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core import forms
from pytest_qnn.core.printable import printable
from pytest_qnn.report import files, loaded, terminal
from pytest_qnn.report.merge import github, merged, shards

_STATUS = (
    "Exit status: 0 or 1, that of one run of everything; 2 reports do not belong together or cannot be read, "
    "or the merged one cannot be written (docs/how-to/shards.md)."
)


def main(arguments: Sequence[str]) -> int:
    """Merge, write and print; returns the exit status."""
    given = _parse(arguments)
    try:
        found = merged.merge([shards.read(path) for path in given.reports])
    except loaded.BadReport as error:
        return refuse("merge", str(error))
    problems = files.write_all([path for path in (given.update, given.html) if path], found.document)
    if not problems and given.summary:
        problems = github.append_summary(given.summary, found)
    if problems:
        return refuse("merge", problems[0].removeprefix("--qnn-report: "))
    more = github.errors(found) if given.annotations else []
    show(map(printable, [*lines(found), *more]))
    return 1 if found.failures else 0


def lines(found: merged.Merged) -> list[str]:
    """A table for each target, with what did not pass, and why the campaign failed."""
    told = []
    for (subject, target), verdicts in found.verdicts.items():
        found_there = (line.text for line in terminal.findings(verdicts))
        told += [f"{subject} target: {target}", *terminal.table(verdicts), *found_there, ""]
    if not found.document["complete"]:
        told.append("the report is incomplete")
    return [*told, f"failed: {', '.join(found.failures)}" if found.failures else "nothing failed"]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m pytest_qnn merge", description=__doc__, epilog=_STATUS)
    add = parser.add_argument
    add("reports", nargs="+", type=Path, metavar="REPORT.json", help="of each shard one, in any order")
    add("--update", required=True, metavar="OUT.json", help="the merged report, replaced if it is there")
    add("--html", metavar="OUT.html", help="the same as a page")
    add("--summary", metavar="FILE.md", help="append a table in Markdown, such as GitHub's step summary")
    add(
        "--annotations", action="store_true", help="print a line ::error for each failure, for GitHub Actions"
    )
    given = parser.parse_args(arguments)
    try:
        given.update = forms.report("--update", given.update, (".json",))
        given.html = given.html and forms.report("--html", given.html, (".html",))
        given.summary = given.summary and forms.report(
            "--summary", given.summary, (Path(given.summary).suffix,)
        )
    except forms.BadOption as error:
        parser.error(str(error))
    return given
