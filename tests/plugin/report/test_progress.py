"""What is shown while rules are judged: a line below pytest's on a terminal, elsewhere one now and then."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import fake_suite
import pyte
import pytest

from pytest_qnn.core import activity
from pytest_qnn.report.progress import HEARTBEAT, Display, Progress, Status
from pytest_qnn.state import Session


class Judged(NamedTuple):
    id: str
    subject: str = "memory"


RULES = {f"test_reg_0{number}": Judged(f"REG-0{number}") for number in range(1, 9)}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def session(**verdicts: bool) -> Session:
    """A run of eight rules, of which those that are named have a verdict, red or not."""
    stub = SimpleNamespace(
        expected={rule.id for rule in RULES.values()},
        verdicts={
            name: SimpleNamespace(is_red=lambda strict, red=red: strict and red)
            for name, red in verdicts.items()
        },
        rule_of_test=lambda test: RULES.get(test.rpartition("::")[2]),
        spec={"memory": "libfoo.so"}.get,
    )
    return cast("Session", stub)


def test_the_text_says_how_far_it_is_and_what_goes_on(clock: Clock) -> None:
    status = Status(session(one=True, two=False), clock)
    assert status.text() == "qnn: 0 of 8 rules, 1 finding; between two rules"
    status.begin("x.py::test_reg_01")
    status.doing("judging")
    assert status.text() == "qnn: 0 of 8 rules, 1 finding; judging REG-01 on libfoo.so"
    status.doing("shrinking a finding of")
    status.doing("")
    clock.now += 7
    assert status.text() == "qnn: 0 of 8 rules, 1 finding; shrinking a finding of REG-01 on libfoo.so for 7 s"
    status.end("x.py::test_reg_01")
    status.end("x.py::test_of_somebody_else")
    status.begin("x.py::test_reg_02")
    status.begin("x.py::test_reg_03")
    text = "qnn: 1 of 8 rules, 1 finding, about 49 s left; judging REG-02 and REG-03 on libfoo.so"
    assert status.text() == text


def test_a_verdict_may_come_while_another_thread_looks(clock: Clock) -> None:
    looked_at = session()

    def is_red(*, strict: bool) -> bool:
        looked_at.verdicts["memory", "libfoo.so", "REG-02"] = cast("Any", None)
        return strict

    looked_at.verdicts["memory", "libfoo.so", "REG-01"] = cast("Any", SimpleNamespace(is_red=is_red))
    assert Status(looked_at, clock).text() == "qnn: 0 of 8 rules, 1 finding; between two rules"


def test_before_the_first_test_the_target_is_learned(clock: Clock) -> None:
    status = Status(session(), clock)
    status.doing("learning libfoo.so")
    assert status.text() == "qnn: 0 of 8 rules, 0 findings; learning libfoo.so"


def test_a_file_gets_a_line_every_half_minute(clock: Clock) -> None:
    file = io.StringIO()
    display = Display(file, live=False, clock=clock)
    texts = iter(["first", "second"])
    for _ in range(65):
        clock.now += 1
        display.show(lambda: next(texts), now=True)
        display.clear()
    assert HEARTBEAT == 30
    assert file.getvalue() == "\nfirst\n\nsecond\n"


@pytest.mark.parametrize("lines", [2, 40])
def test_a_terminal_keeps_it_below_what_pytest_writes(clock: Clock, lines: int) -> None:
    """Also where the screen is full, and scrolls."""
    screen = pyte.Screen(60, 8)
    stream = pyte.Stream(screen)
    file = cast("Any", SimpleNamespace(write=stream.feed, flush=lambda: None, fileno=lambda: -1))
    display = Display(file, live=True, clock=clock)
    for number in range(lines):
        stream.feed(f"line {number} .")
        clock.now += 1
        display.show(lambda: "qnn: what goes on")
        screen_now = [line.rstrip() for line in screen.display if line.strip()]
        assert screen_now[-2:] == [f"line {number} .", "qnn: what goes on"]
        display.clear()
        stream.feed(".\r\n")
    left = [line.rstrip() for line in screen.display if line.strip()]
    assert left == [f"line {number} .." for number in range(lines)][-7:]


def test_a_terminal_that_goes_away_ends_nothing(clock: Clock) -> None:
    file = io.StringIO()
    display = Display(file, live=True, clock=clock)
    file.close()
    asked: list[float] = []
    for _ in range(2):
        clock.now += 1
        display.show(lambda: asked.append(clock.now) or "qnn: what goes on")
        display.clear()
    assert asked == [101.0]  # from then on it is a file, which has a line now and then


def test_what_judges_is_heard_until_the_end(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    progress = Progress(session(), Display(file, live=False, clock=clock), spread=False)
    progress.begin()
    clock.now += HEARTBEAT
    activity.still()
    assert file.getvalue().strip().startswith("qnn: 0 of 8 rules")
    assert file.getvalue().count("qnn:") == 1
    told: list[str] = []
    monkeypatch.setattr(Display, "show", lambda *_: told.append("more"))
    progress.pytest_sessionfinish()
    clock.now += HEARTBEAT
    activity.doing("judging")
    assert (file.closed, told) == (True, [])


def on_a_terminal(folder: Path, *options: str) -> pyte.Screen:
    """The screen after a run of the made-up suite; whatever it showed meanwhile is in ``screen.seen``."""
    (folder / "test_rules.py").write_text(fake_suite.suite("REG-01", "REG-08"))
    (folder / "soon.py").write_text("from pytest_qnn.report import progress\nprogress._REDRAWN = 0.0\n")
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "fake_suite",
        "-p",
        "soon",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    environment = os.environ | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=theirs, stdin=theirs, stderr=theirs
    )
    os.close(theirs)
    screen = pyte.Screen(120, 60)
    stream = pyte.ByteStream(screen)
    seen = b""
    while data := _read(ours):
        seen += data
        stream.feed(data)
    os.close(ours)
    assert process.wait() == pytest.ExitCode.TESTS_FAILED
    screen.seen = seen.decode()
    return screen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has its other end open any more
        return b""


@pytest.mark.usefixtures("fakes_outside")
def test_a_run_on_a_terminal_shows_its_rules_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    screen = on_a_terminal(tmp_path, "--qnn-strict")
    assert "qnn: 0 of 2 rules, 0 findings; judging REG-01 on" in screen.seen
    text = [line.rstrip() for line in screen.display]
    assert not any("of 2 rules" in line for line in text)
    assert any(line.startswith("test_rules.py .F") for line in text)
