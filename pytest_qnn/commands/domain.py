"""The table of a JSON report of what was covered of the input domain of delegates, operator by operator.

A letter stands for a rank, from 0 on; why cells are not covered stands below, with the number of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core import regular_file
from pytest_qnn.core.printable import printable
from pytest_qnn.core.verdict import CoverageRow
from pytest_qnn.report import domain, loaded


class _Rule(msgspec.Struct, frozen=True):
    coverage: tuple[CoverageRow, ...] = ()


class _Target(msgspec.Struct, frozen=True):
    spec: str
    rules: tuple[_Rule, ...]


class _Report(msgspec.Struct, frozen=True):
    targets: tuple[_Target, ...]


def main(arguments: Sequence[str]) -> int:
    """Print the table.

    Returns:
        0; 2: the file cannot be read, or has no such table, said in one sentence.
    """
    parser = Parser(prog="python -m pytest_qnn domain", description=__doc__)
    parser.add_argument("report", type=Path, metavar="REPORT.json")
    parser.add_argument("--operator", metavar="NAME", default="", help="only this operator")
    given = parser.parse_args(arguments)
    try:
        text = regular_file.read(given.report, loaded.LARGEST_FILE)
        report = msgspec.json.decode(text, type=_Report)
    except OSError as error:
        return refuse("domain", f"{str(given.report)!r} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return refuse("domain", f"{str(given.report)!r} is no report: {error}")
    lines = list(_lines(report, given.operator))
    if not lines:
        return refuse("domain", f"{str(given.report)!r} {_why_nothing(report, given.operator)}")
    show(map(printable, lines))
    return 0


def _why_nothing(report: _Report, operator: str) -> str:
    if any(rule.coverage for target in report.targets for rule in target.rules):
        return f"says nothing of an operator {operator!r}"
    return "says nothing of the input domain: DOM-01 was not judged"


def _lines(report: _Report, operator: str) -> Iterator[str]:
    for target in report.targets:
        for rule in target.rules:
            rows = [row for row in rule.coverage if operator in ("", row.op)]
            if rows:
                yield f"target {target.spec}"
                yield domain.sums(rows)
                yield from domain.table(rows)
