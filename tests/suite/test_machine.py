"""How much of the full tests `.ci/run` runs on a machine of some speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # The benchmarks are not installed; the path is taken back below.

from benchmarks.machine import parts  # noqa: E402

sys.path.remove(str(ROOT))


@pytest.mark.parametrize(("seconds", "wanted"), [(0.07, 10), (0.10, 10), (0.13, 20), (0.16, 30), (0.4, 30)])
def test_a_tenth_where_the_bars_were_set_and_less_on_slower_machines(seconds: float, wanted: int) -> None:
    assert parts(seconds) == wanted


def test_ci_asks_by_a_command_that_prints_a_number_and_nothing_else() -> None:
    command = [sys.executable, "-m", "benchmarks.machine", "--parts"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    assert int(said) in {10, 20, 30}
    assert "benchmarks.machine --parts" in (ROOT / ".ci" / "run").read_text()
