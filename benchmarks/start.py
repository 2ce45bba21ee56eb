"""What a run of pytest costs before its first verdict: nothing, one rule, and one finding again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import Effort, Row, process

_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
_SUITE = ("--qnn-seed=1", "--pyargs", "pytest_qnn.conformance", "-k")
_FAULTY = {
    "REG-08": "--qnn-backend=mutant:reg-keeps-first",
    "PART-01": "--tflite-delegate=mutant:claims-positions",
}
"""A rule of each half, and a target that breaks it: a finding is replayed on the reference."""


def rows(effort: Effort) -> Iterator[Row]:
    """Milliseconds of a process of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        empty = ("-p", "no:qnn", "-p", "no:hypothesispytest")
        yield from _rows("no tests, without plugin", empty, effort, folder)
        yield from _rows("no tests", ("-p", "no:hypothesispytest"), effort, folder)
        yield from _rows("no tests, Hypothesis", (), effort, folder)
        for rule, faulty in _FAULTY.items():
            yield from _rows(f"rule {rule}", (*_SUITE, _test(rule)), effort, folder)
            replay = f"--qnn-replay={_finding(rule, faulty, Path(folder))}"
            yield from _rows(f"replay of {rule}", (replay, _reference(faulty)), effort, folder)


def _rows(subject: str, arguments: tuple[str, ...], effort: Effort, folder: str) -> Iterator[Row]:
    yield Row(subject, "process", "ms", process((*_PYTEST, *arguments), effort, folder).times(1000))


def _test(rule: str) -> str:
    return f"test_{rule.lower().replace('-', '_')}"


def _reference(faulty: str) -> str:
    """The option that names the reference instead of the mutant."""
    return f"{faulty.partition('=')[0]}=reference"


def _finding(rule: str, faulty: str, folder: Path) -> Path:
    """The folder of a finding.

    Raises:
        RuntimeError: the mutant passed.
    """
    command = (*_PYTEST, faulty, *_SUITE, _test(rule))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    for found in folder.glob(f".pytest-qnn/*mutant*/{rule}"):
        return found
    raise RuntimeError(f"{command} left no finding: {done.stdout[-2000:]}")
