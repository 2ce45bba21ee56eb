"""pytest in a process of its own that does not outlive this one, where more than one run is asked for."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

SUITE = ("--pyargs", "pytest_qnn.conformance")
"""Arguments that collect the suite."""
JUDGED = (0, 1)
"""Exit statuses of pytest that came to its end: all tests passed, or some failed."""
_TIME_TO_END = 60.0
"""Seconds that an interrupted run has to end its processes."""
_TIME_OF_ITS_OWN = 10.0
"""The same of a run that a terminal has interrupted together with this process, before it is told to end."""


class RunFailed(Exception):  # noqa: N818 - the run failed, and not the suite in it
    """A run gave no verdicts; the text is the sentence that says which and how it ended."""


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process as an exception, so that the run is ended and its folders are removed.

    Not outside the main thread, where Python cannot.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def status(
    command: Sequence[str],
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """The exit status of a process, which ends before this function does.

    Args:
        command: the program and its arguments.
        stdout: the file descriptor that it writes to; None: this process' own.
        stderr: the same of its messages.
        cwd: its working directory; None: this process' own.
        env: its environment; None: this process' own.

    Returns:
        As `subprocess.Popen.wait`: negative where a signal ended it.
    """
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=cwd, env=env
    ) as process:
        try:
            return process.wait()
        except BaseException as error:
            _end(process, interrupted=isinstance(error, KeyboardInterrupt))
            raise


def _end(process: subprocess.Popen[bytes], *, interrupted: bool) -> None:
    """End a run; where this process was interrupted, mostly the run was too: it says what it has found."""
    if interrupted:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TIME_OF_ITS_OWN)
            return
    process.terminate()
    try:
        process.wait(_TIME_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
