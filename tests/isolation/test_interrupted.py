"""What interrupts pytest while it waits for a supervisor costs one case, and no later answer is another's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from fast_run import alternating

from pytest_qnn.isolation.hangs import Watch
from pytest_qnn.isolation.observe.cpu_time import Usage
from pytest_qnn.isolation.remote import connection
from pytest_qnn.isolation.remote.messages import Call
from pytest_qnn.isolation.sandbox import NoProcess, Sandbox
from pytest_qnn.isolation.start import supervisors
from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase
from pytest_qnn.qnn.runner.sources import MemorySpec
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target


class Interruption(BaseException):
    """As pytest's own: no Exception."""


def raising_once(function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """The function, which raises the error at its first call."""
    errors = iter([error])

    def replaced(*arguments: Any, **more: Any) -> Any:
        for each in errors:
            raise each
        return function(*arguments, **more)

    return replaced


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    with closing(open_memory_target("reference", "emulated", "fork", 10.0)) as opened:
        yield opened


def steps_of(target: MemoryTarget, number: int) -> int:
    """Carry out a case of so many steps; how many its trace has."""
    case = MemoryCase((ContextCreate("c0"), *(Alloc(f"b{each}", 64) for each in range(number - 1))))
    trace = target.run(case)
    assert trace.death is None, trace.death
    return len(trace.steps)


def test_the_answer_that_nobody_waited_for_is_nobody_elses(
    target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_of(target, 1) == 1
    monkeypatch.setattr(Sandbox, "_receive", raising_once(Sandbox._receive, Interruption()))
    with pytest.raises(Interruption):
        steps_of(target, 2)
    assert [steps_of(target, number) for number in (3, 4, 5)] == [3, 4, 5]


def test_nor_is_that_of_the_fork_server(target: MemoryTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_of(target, 1) == 1  # there is a fork server
    server = supervisors._Server
    monkeypatch.setattr(server, "_answered", raising_once(server._answered, Interruption()))
    with pytest.raises(Interruption):
        open_memory_target("reference", "emulated", "fork", 10.0)
    for _ in range(2):
        with closing(open_memory_target("reference", "emulated", "fork", 10.0)) as again:
            assert steps_of(again, 3) == 3


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, "No space left on device"), NoProcess), (Interruption(), Interruption)],
)
def test_a_start_that_fails_once_is_made_again(
    error: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", raising_once(tempfile.mkdtemp, error))
    sandbox = Sandbox(MemorySpec("reference", "emulated"), "fork", 10.0)
    with closing(sandbox):
        with pytest.raises(raised):
            sandbox.start()
        sandbox.start()


@pytest.mark.parametrize(("mode", "start"), alternating(["spawn", "fork"], ["alone", "fork-server"]))
def test_whoever_starts_pytest_may_ignore_the_end_of_children(mode: str, start: str) -> None:
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from pytest_qnn.qnn.cases.plain import PLAIN\n"
        "from pytest_qnn.qnn.target import open_memory_target\n"
        f"target = open_memory_target('reference', 'emulated', {mode!r}, 10.0)\n"
        "print(target.run(PLAIN).death); target.close()\n"
    )
    variables = {**os.environ, "PYTEST_QNN_FORK_SERVER": "01"[start == "fork-server"]}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "None\n", "")


def test_a_case_whose_helpers_end_computes_on() -> None:
    """What processes used for which nobody waited is counted no more when they end."""
    begin = time.monotonic()

    def usage() -> Usage:
        taken = time.monotonic() - begin
        return Usage(taken if taken < 0.5 else taken - 0.5, 0.0)

    watch = Watch(0.4, [1], usage, lambda: 0.0)
    while not (why := watch.hangs(0, 0)):
        time.sleep(0.02)
    assert why.startswith("still computing")


def test_what_was_sent_ahead_is_answered_where_the_other_machine_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = connection.Connection.__new__(connection.Connection)
    ahead = connection.Pending(Call(7, 1, [b"case"], [1]))
    lost._pending = {7: ahead}
    monkeypatch.setattr(connection, "_PAUSES", (0.0,))
    monkeypatch.setattr(lost, "_connect", raising_once(lambda: None, Unusable("it is off")), raising=False)
    with pytest.raises(Unusable, match="it is off"):
        lost._reconnect("it said nothing")
    assert [(each.number, each.failure) for each in ahead.answers] == [(7, "unusable")]
    assert ahead.unanswered == 0
