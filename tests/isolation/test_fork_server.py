"""Supervisors that are forked from a fork server, and what happens where there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import left
import pytest
from native import qnn_library

from pytest_qnn.isolation import processes
from pytest_qnn.isolation.start import fork_server, supervisors
from pytest_qnn.isolation.start.supervisors import fork_servers
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, Prepare
from pytest_qnn.qnn.target import open_memory_target

CASE = MemoryCase((ContextCreate("c0"), Prepare("g0", "c0")))


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fork servers of each test's own, which those of other tests do not know."""
    own = supervisors._Servers()
    monkeypatch.setattr(supervisors, "_SERVERS", own)
    _BEFORE[:] = left.children()  # fork servers of other tests
    yield
    own.end()


_BEFORE: list[int] = []


def _supervisors() -> list[int]:
    """Their guardians: children of this process that are no fork servers."""
    return [pid for pid in left.children() if pid not in _BEFORE]


def _steps(library: Path) -> int:
    with closing(open_memory_target(str(library), "emulated", "fork", 5.0)) as target:
        trace = target.run(CASE)
    assert trace.death is None
    return len(trace.steps)


def test_a_supervisor_is_a_child_of_this_process_and_not_of_the_fork_server(tmp_path: Path) -> None:
    with closing(open_memory_target(str(qnn_library(tmp_path)), "emulated", "fork", 5.0)):
        (server,) = fork_servers()
        assert _supervisors()
        assert processes.children(server) == []
    assert _supervisors() == []


def test_it_outlives_its_fork_server_and_the_next_gets_another(tmp_path: Path) -> None:
    library = qnn_library(tmp_path)
    with closing(open_memory_target(str(library), "emulated", "fork", 5.0)) as target:
        (server,) = fork_servers()
        os.kill(server, signal.SIGKILL)
        assert target.run(CASE).death is None
    assert _steps(library) == 2  # of a fresh interpreter: the server is found to be gone
    assert _steps(library) == 2
    (other,) = fork_servers()
    assert other != server
    assert _supervisors() == []


def test_one_that_is_stopped_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = qnn_library(tmp_path)
    assert _steps(library) == 2
    (server,) = fork_servers()
    os.kill(server, signal.SIGSTOP)
    monkeypatch.setattr(supervisors, "_SECONDS", 0.2)
    monkeypatch.setattr(supervisors, "_END_SECONDS", 0.2)
    started = time.monotonic()
    assert _steps(library) == 2
    assert time.monotonic() - started < 30.0
    assert fork_servers() == {}


def test_one_whose_answer_is_late_leaves_no_second_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = supervisors._Server._answered
    late = iter((True, False))

    def is_late(server: supervisors._Server) -> int:
        """It has been asked, and answers when nobody waits any more."""
        if next(late):
            raise TimeoutError
        return answered(server)

    library = qnn_library(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(supervisors._Server, "_answered", is_late)
        assert _steps(library) == 2
    assert next(late, None) is None, "what it answers is read"
    assert _supervisors() == []
    assert fork_servers() == {}


def test_where_there_can_be_none_supervisors_are_fresh_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "MACHINES", ())
    assert _steps(qnn_library(tmp_path)) == 2
    assert fork_servers() == {}


@pytest.mark.full
def test_after_three_failures_no_other_one_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fails(*_: object) -> None:
        tried.append(1)
        raise OSError("none")

    monkeypatch.setattr(supervisors, "_Server", fails)
    library = qnn_library(tmp_path)
    for _ in range(5):
        assert _steps(library) == 2
    assert len(tried) == 3


def test_failures_before_a_success_count_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = qnn_library(tmp_path)
    for _ in range(4):
        assert _steps(library) == 2
        (server,) = fork_servers()
        os.kill(server, signal.SIGKILL)
        assert _steps(library) == 2  # of a fresh interpreter
        assert fork_servers() == {}


def test_variables_that_a_process_may_read_as_it_starts_are_those_of_a_server_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = qnn_library(tmp_path)
    assert _steps(library) == 2
    first = set(fork_servers())
    monkeypatch.setenv("LD_BIND_NOW", "1")
    assert _steps(library) == 2
    assert first < set(fork_servers())
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another (call)")
    assert _steps(library) == 2
    assert len(fork_servers()) == 2
    monkeypatch.setattr(supervisors, "_MOST_SERVERS", 3)
    for number in range(3):
        monkeypatch.setenv("LD_BIND_NOW", str(number))
        assert _steps(library) == 2
    assert len(fork_servers()) == 3
    assert _supervisors() == []


def test_its_environment_as_the_system_shows_it_has_its_own_folder(tmp_path: Path) -> None:
    with closing(open_memory_target(str(qnn_library(tmp_path)), "emulated", "fork", 5.0)):
        folders = {_variable(pid, fork_server.MARK) for pid in _supervisors()}
        assert all(Path(folder).is_dir() for folder in folders)
        (server,) = fork_servers()
        assert set(_variable(server, fork_server.MARK)) == {"/"}


def _variable(pid: int, name: str) -> str:
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(entry.partition("=")[2] for entry in entries if entry.startswith(f"{name}="))


def test_a_forked_process_has_no_part_in_its_parents_fork_servers(tmp_path: Path) -> None:
    _steps(qnn_library(tmp_path))
    pid = os.fork()
    if not pid:
        os._exit(len(fork_servers()))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(fork_servers()) == 1


def test_a_child_is_waited_for_as_one_of_subprocess() -> None:
    child = supervisors._Child(os.posix_spawn("/bin/sleep", ["sleep", "60"], {}))
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.kill()
    assert child.wait(10.0) == -signal.SIGKILL
    assert child.wait() == -signal.SIGKILL
    child.kill()  # the number may be another's by now


def test_the_fork_server_ends_with_this_process(tmp_path: Path) -> None:
    _steps(qnn_library(tmp_path))
    (server,) = fork_servers()
    supervisors._SERVERS.end()
    assert not Path(f"/proc/{server}").exists()
