"""What differs between two reports of the suite, or between two targets.

``compare OLD.json NEW.json`` reads two reports that `--qnn-report` wrote. ``compare --run OLD NEW -- MORE``
runs the suite with the pytest options OLD and MORE, then with NEW and MORE, and compares both reports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytest_qnn.commands import Parser, refuse, show, two_runs
from pytest_qnn.core import forms
from pytest_qnn.core.printable import encodable
from pytest_qnn.report import files, loaded
from pytest_qnn.report.compare import text
from pytest_qnn.report.compare.data import Comparison
from pytest_qnn.report.compare.differences import compare
from pytest_qnn.session.pytest_process import RunFailed

_USAGE = """\
python -m pytest_qnn compare [--json PATH.json] OLD.json NEW.json
       python -m pytest_qnn compare [--json PATH.json] --run OLD NEW [-- MORE ...]"""
_STATUS = (
    "Exit status: 0 nothing got worse, 1 something did, 2 the reports cannot be compared "
    "(docs/how-to/compare.md)."
)


class Arguments(NamedTuple):
    """The command line, in parts."""

    old: str
    """Path of the old report; with ``run`` the options of the old run, as a shell would split them."""
    new: str
    """The same of the new one."""
    run: bool
    """The suite is to be run."""
    more: tuple[str, ...]
    """With ``run``: arguments of both runs."""
    json: Path | None


def main(arguments: Sequence[str]) -> int:
    """Compare and print; returns the exit status."""
    given = parse(arguments)
    try:
        old, new = _reports(given)
    except (loaded.BadReport, RunFailed) as error:
        return refuse("compare", str(error))
    comparison = compare(old, new)
    before = "pytest " if given.run else ""
    show(text.lines(comparison, f"{before}{given.old}", f"{before}{given.new}"))
    if given.json:
        try:
            files.replace(given.json, _json(comparison))
        except OSError as error:
            return refuse("compare", f"--json: {given.json} could not be written: {error.strerror or error}")
    return 1 if comparison.worse else 0


def _reports(given: Arguments) -> tuple[loaded.Report, loaded.Report]:
    """Raises BadReport and RunFailed."""
    if given.run:
        return two_runs.reports(given.old, given.new, given.more)
    return loaded.read(Path(given.old)), loaded.read(Path(given.new))


def parse(arguments: Sequence[str]) -> Arguments:
    """The command line in parts; a wrong one ends the process with status 2, as argparse does."""
    parser = Parser(prog="python -m pytest_qnn compare", usage=_USAGE, description=__doc__, epilog=_STATUS)
    add = parser.add_argument
    add("reports", nargs="*", metavar="REPORT.json", help="the old one, the new one")
    add("--json", metavar="PATH.json", help="write the comparison as JSON, too")
    add(
        "--run",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="options of pytest for each of two runs; -- precedes more",
    )
    ours, run, more = _split(list(arguments))
    options = parser.parse_args(ours)
    pair = options.reports if run is None else run
    try:
        path = None if options.json is None else forms.report("--json", options.json, (".json",))
    except forms.BadOption as error:
        parser.error(str(error))
    if run is not None and options.reports:
        parser.error(
            f"--run makes its own reports, and {options.reports[0]} is named; -- precedes more options"
        )
    if len(pair) != 2:
        parser.error(f"{'--run: ' * (run is not None)}an old and a new one are needed, and {len(pair)} given")
    wrong = "" if run is None else two_runs.wrong_options(pair[0], pair[1], more)
    if wrong:
        parser.error(wrong)
    return Arguments(pair[0], pair[1], run is not None, tuple(more), path)


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None, list[str]]:
    """Our own arguments, the two behind --run if it is there, and those behind the ``--`` of --run.

    They are options of pytest, which argparse would take for ours.
    """
    if "--run" not in arguments:
        return arguments, None, []
    place = arguments.index("--run")
    rest = arguments[place + 3 :]
    end = rest.index("--") if "--" in rest else len(rest)
    return arguments[:place] + rest[:end], arguments[place + 1 : place + 3], rest[end + 1 :]


def _json(comparison: Comparison) -> bytes:
    return (json.dumps(encodable(msgspec.to_builtins(comparison)), indent=1) + "\n").encode()
