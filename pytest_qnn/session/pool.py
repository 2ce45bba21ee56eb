"""One shard of a campaign, judged in a process of its own, wherever a pool of workers has this called.

What goes there and what comes back is plain data: words, and the bytes of a report.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_qnn.core.printable import one_line
from pytest_qnn.session import pytest_process
from pytest_qnn.session.pytest_process import JUDGED, SUITE, RunFailed

_START = (
    "import sys; from pytest_qnn.isolation.processes import die_with_parent; die_with_parent();"
    "import pytest; sys.exit(pytest.console_main())"
)
"""A run ends with its worker, also with one that is killed: another one runs the shard again."""
_LONGEST = 300


def judge_shard(options: Sequence[str]) -> bytes:
    """Run the suite in an empty folder.

    Args:
        options: of pytest, without a report.

    Returns:
        The report in JSON.

    Raises:
        RunFailed: pytest did not come to its end.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-qnn-shard-") as folder:
        report, log = Path(folder) / "report.json", Path(folder) / "log.txt"
        command = [sys.executable, "-c", _START, *SUITE, *options, f"--qnn-report={report}"]
        with log.open("wb") as file:
            status = pytest_process.status(command, stdout=file.fileno(), stderr=file.fileno(), cwd=folder)
        if status not in JUDGED:
            said = log.read_text(errors="replace").strip().splitlines()
            raise RunFailed(
                one_line(f"exit status {status}: {said[-1] if said else 'nothing was printed'}", _LONGEST)
            )
        return report.read_bytes()
