"""What is said of bad input, and that it is said in time."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest


def refusal(result: pytest.RunResult) -> str:
    """The one sentence of a run that was refused."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "PASSED" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    (line,) = [line for line in result.stderr.str().splitlines() if line]
    assert line.startswith("ERROR: ")
    return line.removeprefix("ERROR: ")


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError where it takes longer, also in a system call that waits."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
