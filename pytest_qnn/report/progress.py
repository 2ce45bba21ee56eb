"""What the run is doing: a status line on a terminal, elsewhere a line every half minute."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TextIO

import pytest

from pytest_qnn.core import activity
from pytest_qnn.core.printable import FLOOD, one_line
from pytest_qnn.state import Session

if TYPE_CHECKING:
    from pytest_qnn.core.rule import Demand

HEARTBEAT = 30.0
"""Seconds between two lines where the output is no terminal."""
_REDRAWN = 0.5
"""Seconds between two looks of the status line."""
_SOON, _ENOUGH = 5.0, 0.05
"""Seconds and share of the rules after which the rest of the time is estimated."""
# Down a line in the same column, where the screen scrolls if it ends, and up again: a line is below now.
_LINE_BELOW = "\x1bD\x1b[A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_CLEAR_BELOW = "\x1b[B\r\x1b[2K"


class Status:
    """How far a run is, as text.

    Args:
        session: the run.
        clock: seconds, of any origin.
    """

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._started = clock()
        self._running: dict[Demand, float] = {}
        """Rules whose tests run, several with workers of pytest-xdist, and since when."""
        self._done: set[str] = set()
        self._doing = ""

    def begin(self, test: str) -> None:
        """The test of this name or id starts."""
        rule = self._session.rule_of_test(test)
        if rule is not None:
            self._running[rule] = self._clock()
            self._doing = ""

    def end(self, test: str) -> None:
        """It is over."""
        rule = self._session.rule_of_test(test)
        if rule is not None:
            self._running.pop(rule, None)
            self._done.add(rule.id)

    def doing(self, what: str) -> None:
        """What this process does from now on; an empty text: it goes on."""
        self._doing = what or self._doing

    def text(self) -> str:
        """One line: rules done, findings, time left, and what is going on."""
        expected, done = len(self._session.expected), len(self._done)
        # A copy: where a thread looks, another may enter a verdict meanwhile, as of a worker that died.
        red = sum(each.is_red(strict=True) for each in list(self._session.verdicts.values()))
        parts = [f"{done} of {expected} rules", f"{red} finding{'' if red == 1 else 's'}"]
        left = self._left(done, expected)
        return f"qnn: {', '.join([*parts, *left])}; {self._now()}"

    def _left(self, done: int, expected: int) -> list[str]:
        """The time that the others take if they take what these took; nothing while that is a guess."""
        passed = self._clock() - self._started
        if passed < _SOON or done < _ENOUGH * expected or done == expected:
            return []
        left = round(passed * (expected - done) / done)
        return [f"about {left} s left" if left < 100 else f"about {round(left / 60)} min left"]

    def _now(self) -> str:
        if not self._running:
            return self._doing or "between two rules"
        rules = " and ".join(rule.id for rule in self._running)
        targets = dict.fromkeys(self._session.spec(rule.subject) for rule in self._running)
        seconds = int(self._clock() - min(self._running.values()))
        long = f" for {seconds} s" if seconds >= _SOON else ""
        return f"{self._doing or 'judging'} {rules} on {' and '.join(targets)}{long}"


class Display:
    """Where the text goes.

    Args:
        file: the terminal or file that pytest writes to. pytest itself captures standard output while a test
            runs, and this is written meanwhile: it must not be what is captured.
        live: it is a terminal that understands control sequences as xterm does: the text is kept on the line
            below the one that pytest writes.
        clock: seconds, of any origin.
    """

    def __init__(self, file: TextIO, *, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._live = live
        self._clock = clock
        self._written = clock()
        self._shown = False
        self.lock = threading.RLock()

    def show(self, text: Callable[[], str], *, now: bool = False) -> None:
        """Write the text, if it is time to; on a terminal also ``now``, where something else was written."""
        with self.lock:
            due = self._clock() - self._written >= (_REDRAWN if self._live else HEARTBEAT)
            if not (due or (now and self._live)):
                return
            self._written = self._clock()
            if self._live:
                self._write(f"{_LINE_BELOW}{_SAVE}{_CLEAR_BELOW}{one_line(text(), self._width())}{_RESTORE}")
                self._shown = True
            else:
                self._write(f"\n{one_line(text(), FLOOD)}\n")

    def clear(self) -> None:
        """Empty the line below, before somebody else writes there."""
        with self.lock:
            if self._shown:
                self._write(f"{_SAVE}{_CLEAR_BELOW}{_RESTORE}")
                self._shown = False

    def close(self) -> None:
        """Leave an empty line below, and close the file; closing again does nothing."""
        self.clear()
        with self.lock, contextlib.suppress(OSError, ValueError):
            self._file.close()

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._file.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return (columns or 80) - 1

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except (OSError, ValueError):
            self._live = False  # the terminal is gone; what pytest writes there says so


class Progress:
    """The hooks that keep the display true, in the process that the user started.

    With pytest-xdist that process judges nothing and waits in one call: there a thread looks at the clock. In
    a process that judges there is none, since it may fork, and measured rules count what it allocates; there
    `activity` says that time goes by.
    """

    def __init__(self, session: Session, display: Display, *, spread: bool) -> None:
        self._status = Status(session)
        self._display = display
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True) if spread else None

    def _look(self) -> None:
        while not self._ended.wait(_REDRAWN):
            self._display.show(self._status.text)

    def _told(self, what: str) -> None:
        self._status.doing(what)
        self._display.show(self._status.text)

    def begin(self) -> None:
        """Show from now on."""
        activity.show_to(self._told)
        if self._thread is not None:
            self._thread.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> Generator[None]:
        """A test starts, here or in a worker."""
        with self._display.lock:
            self._display.clear()
            self._status.begin(nodeid)
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None]:
        """Pytest writes its mark."""
        with self._display.lock:
            self._display.clear()
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> Generator[None]:
        """A test is over."""
        with self._display.lock:
            self._display.clear()
            yield
            self._status.end(nodeid)
            self._display.show(self._status.text, now=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End: what follows is the summary."""
        self._end()

    def pytest_unconfigure(self) -> None:
        """End also where no session was finished."""
        self._end()

    def _end(self) -> None:
        activity.show_to(None)
        self._ended.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self._display.close()


def begin(session: Session) -> None:
    """Show how the run goes on, from the learning of its targets to its last test.

    Not where pytest writes nothing, nor where its output is in memory only. Called outside tests, while
    pytest does not capture standard output, of which a duplicate is kept.
    """
    config = session.config
    if not config.pluginmanager.has_plugin("terminalreporter") or config.getoption("verbose") < -1:
        return
    try:
        file = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError, AttributeError):
        return
    # With -s a test's own output goes to the same screen, which then does not hold still.
    live = file.isatty() and os.environ.get("TERM", "dumb") != "dumb" and config.getoption("capture") != "no"
    spread = config.getoption("dist", "no") != "no"
    progress = Progress(session, Display(file, live=live), spread=spread)
    config.pluginmanager.register(progress, "qnn-progress")
    progress.begin()
