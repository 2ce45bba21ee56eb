"""Memory: the most that a run of pytest holds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.timing import Effort, Row

RUN = """
import re, sys, pytest
status = int(pytest.main(sys.argv[1:]))
print()
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
sys.exit(status)
"""
"""VmHWM and not ru_maxrss, in which a process inherits the peak of the one that started it."""
_SUITE = ("--pyargs", "pytest_qnn.conformance")
RUNS = {
    "no tests": ("-p", "no:hypothesispytest"),
    "rule REG-08": (*_SUITE, "-k", "test_reg_08"),
    "rule PART-01": (*_SUITE, "-k", "test_part_01"),
    "memory, quick": ("--pyargs", "pytest_qnn.conformance.qnn"),
    "delegate, quick": ("--pyargs", "pytest_qnn.conformance.tflite"),
}


def rows(effort: Effort) -> Iterator[Row]:
    """MiB at the peak of a run in profile quick, once: it hardly varies."""
    del effort
    for name, arguments in RUNS.items():
        yield Row(name, "peak RSS", "MiB", value=_peak(*arguments))


def _peak(*arguments: str) -> float:
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "--qnn-profile=quick", "--qnn-seed=1", *arguments)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", RUN, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 5}:
        raise RuntimeError(f"{command} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return int(done.stdout.splitlines()[-1]) / 1024
