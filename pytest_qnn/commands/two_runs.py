"""The suite run twice, in processes of their own, on two targets that shall be compared."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_qnn.core.printable import printable, shell_line
from pytest_qnn.report import loaded
from pytest_qnn.report.loaded import Report
from pytest_qnn.session import pytest_process
from pytest_qnn.session.pytest_process import JUDGED, SUITE, RunFailed

_SEED = "--qnn-seed"
_REPORT = "--qnn-report"
_STDERR = 2


def wrong_options(old: str, new: str, more: Sequence[str]) -> str:
    """What is wrong with the options of two runs, in a sentence; empty: nothing.

    Args:
        old: options of the old run, as a shell would split them.
        new: the same of the new run.
        more: options of both.
    """
    for text in (old, new):
        try:
            words = shlex.split(text)
        except ValueError as error:
            return f"--run: {text!r} cannot be split into options: {error}"
        if _has(_SEED, words):
            return f"--run: {_SEED} is for both runs: write it behind --"
    if _has(_REPORT, more):
        return f"--run: both runs would write one {_REPORT}: give each a path of its own"
    return ""


def _has(flag: str, words: Sequence[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def reports(old: str, new: str, more: Sequence[str]) -> tuple[Report, Report]:
    """The reports of two runs with the same seed. What pytest prints goes to stderr.

    Args:
        old: options of the old run.
        new: options of the new run.
        more: options of both. Without a seed among them the new run has the one that the old run drew.

    Raises:
        RunFailed: a run did not come to its end.
        pytest_qnn.report.loaded.BadReport: a run left no report that can be read.
    """
    with (
        pytest_process.exit_on_sigterm(),
        tempfile.TemporaryDirectory(prefix="pytest-qnn-compare-") as folder,
    ):
        first = _report("old", [*shlex.split(old), *more], Path(folder) / "old.json")
        seed = [] if _has(_SEED, more) else [f"{_SEED}={first.seed}"]
        second = _report("new", [*shlex.split(new), *more, *seed], Path(folder) / "new.json")
    return first, second


def _report(name: str, options: Sequence[str], path: Path) -> Report:
    """Run the suite, and read what it wrote. Raises RunFailed and BadReport."""
    command = [sys.executable, "-m", "pytest", *SUITE, *options, f"{_REPORT}={path}"]
    print(f"{name} run: {printable(shell_line(command[1:]))}", file=sys.stderr, flush=True)
    status = pytest_process.status(command, stdout=_STDERR)
    if status not in JUDGED:
        raise RunFailed(f"the {name} run ended with exit status {status}: {shell_line(options)}")
    return loaded.read(path)
