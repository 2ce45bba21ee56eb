"""What a target does to its own process costs one case, never the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from native import qnn_library

from pytest_qnn.cases.memory import ContextCreate, MemoryCase, Providers
from pytest_qnn.run.targets import MemoryTarget, TargetUnusable, open_memory_target

CASE = MemoryCase(steps=(Providers(), ContextCreate("c0")))
HARMLESS = MemoryCase(steps=(Providers(),))


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryTarget]:
    behaviour, mode = request.param
    opened = open_memory_target(str(qnn_library(tmp_path, behaviour)), "emulated", mode, 1.0)
    yield opened
    opened.close()


def modes(behaviour: str) -> list[tuple[str, str]]:
    return [(behaviour, "fork"), (behaviour, "spawn")]


@pytest.mark.parametrize("target", modes("*(volatile int*)8=0"), indirect=True)
def test_a_segmentation_fault_is_a_death_by_signal_at_its_step(target: MemoryTarget) -> None:
    death = target.run(CASE).death
    assert death is not None
    assert (death.kind, death.step) == ("signal", 1)
    assert "SIGSEGV" in death.detail


@pytest.mark.parametrize("target", modes("abort()"), indirect=True)
def test_the_next_case_is_not_concerned(target: MemoryTarget) -> None:
    assert target.run(CASE).death is not None
    assert target.run(HARMLESS).death is None
    assert target.run(CASE).death is not None


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("call", ["exit", "_exit"])
def test_leaving_the_process_is_a_death_whatever_the_status(tmp_path: Path, call: str, status: int) -> None:
    library = qnn_library(tmp_path, f"{call}({status})")
    target = open_memory_target(str(library), "emulated", "fork", 5.0)
    try:
        death = target.run(CASE).death
    finally:
        target.close()
    assert death is not None
    assert (death.kind, death.step) == ("exit", 1)
    assert f"exit status {status}" in death.detail


@pytest.mark.parametrize("target", modes("signal(SIGTERM,SIG_IGN);for(;;)"), indirect=True)
def test_a_loop_is_a_hang_after_its_time_and_not_much_later(target: MemoryTarget) -> None:
    started = time.monotonic()
    death = target.run(CASE).death
    assert death is not None
    assert (death.kind, death.detail) == ("hang", "no answer within 1 s")
    assert time.monotonic() - started < 3.0


@pytest.mark.parametrize("target", [("for(int i=0;i<99999;++i)puts(__FILE__)", "fork")], indirect=True)
def test_a_flood_on_stdout_is_no_event(target: MemoryTarget) -> None:
    assert target.run(CASE).death is None


@pytest.mark.parametrize("target", [("for(int i=0;i<64;++i)close(i)", "fork")], indirect=True)
def test_closed_descriptors_cost_the_case_and_nothing_else(target: MemoryTarget) -> None:
    assert target.run(CASE).death is not None
    assert target.run(HARMLESS).death is None


@pytest.mark.parametrize("target", [("kill(getppid(),SIGKILL)", "fork")], indirect=True)
def test_a_killed_supervisor_is_replaced(target: MemoryTarget) -> None:
    death = target.run(CASE).death
    assert death is not None
    assert "watched over it" in death.detail
    assert target.run(HARMLESS).death is None


def test_a_grandchild_does_not_outlive_its_case(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    behaviour = f'if(!fork()){{sleep(1);fopen(\\"{note}\\",\\"w\\");_exit(0);}}'.replace('\\"', '"')
    target = open_memory_target(str(qnn_library(tmp_path, behaviour)), "emulated", "fork", 5.0)
    try:
        assert target.run(CASE).death is None
    finally:
        target.close()
    time.sleep(1.3)
    assert not note.exists()


def test_closing_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    library = str(qnn_library(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    target = open_memory_target(library, "emulated", "fork", 5.0)
    target.run(CASE)
    target.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("on_load", "said"),
    [
        ("exit(0)", "ended with exit status 0 while loading it"),
        ("abort()", "died of SIGABRT while loading it"),
    ],
)
def test_a_library_that_dies_when_loaded_is_unusable(tmp_path: Path, on_load: str, said: str) -> None:
    library = qnn_library(tmp_path, on_load=on_load)
    with pytest.raises(TargetUnusable, match=said):
        open_memory_target(str(library), "emulated", "fork", 5.0)


def test_a_library_that_starts_a_thread_when_loaded_is_not_forked(tmp_path: Path) -> None:
    on_load = "extern int pthread_create();static long t;pthread_create(&t,0,(void*)sleep,(void*)99)"
    target = open_memory_target(str(qnn_library(tmp_path, on_load=on_load)), "emulated", "auto", 5.0)
    try:
        assert target.provenance()["isolation"] == "spawn"
        assert target.run(CASE).death is None
    finally:
        target.close()


def test_a_target_that_dies_while_it_is_asked_is_still_judged(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, on_backend="*(volatile int*)8=0")
    target = open_memory_target(str(library), "emulated", "fork", 5.0)
    try:
        assert target.facts.deaths == ("all: the process died of SIGSEGV",)
        assert target.facts.provider == "MISBEHAVING"
        assert target.run(CASE).death is not None
    finally:
        target.close()
