from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import left
import pytest
from fast_run import first, part
from hostile import (
    DEEDS,
    HEADERS,
    HOARD,
    LIMIT,
    LOOP,
    THIRD_CALL,
    THROWN,
    Deed,
    relatives,
    resident,
    state,
    third_process,
)
from native import qnn_library

from pytest_qnn.isolation import sandbox
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.cases.case import Alloc, ContextCreate, MemoryCase, Providers, Read
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target

pytestmark = pytest.mark.usefixtures("temporary")

SPAWNED = [
    "segv",
    "exit-0",
    "close-descriptors",
    "garbage-everywhere",
    "grandchild",
    "remove-folder",
    "litter",
]
SPAWN_LIMIT = 5.0
"""Seconds for a case with a fresh interpreter."""
CASE = MemoryCase(steps=(Providers(), ContextCreate("c0")))
HARMLESS = MemoryCase(steps=(Providers(), Providers()))


@contextlib.contextmanager
def opened(folder: Path, deed: Deed, mode: str = "fork", limit: float = LIMIT) -> Iterator[MemoryTarget]:
    library = qnn_library(folder, "deed()", before=deed.source(), beside=deed.beside)
    target = open_memory_target(str(library), "emulated", mode, limit)
    try:
        yield target
    finally:
        target.close()


def check(target: MemoryTarget, deed: Deed) -> None:
    """The deed ends the case as it must, and the harmless case after it ends well."""
    death = target.run(CASE).death
    if deed.kind:
        assert death is not None
        assert (death.kind, death.step) == (deed.kind, -1 if "watched" in death.detail else 1)
        assert deed.detail in death.detail
    else:
        assert death is None
    trace = target.run(HARMLESS)
    assert trace.death is None
    assert [step.code for step in trace.steps] == [0, 0]


@pytest.mark.parametrize("name", part(DEEDS, 2, 4))  # part 1: in test_delegates.py
def test_a_deed_costs_its_case_and_nothing_else(tmp_path: Path, name: str) -> None:
    before, memory = state(), resident()
    started = time.monotonic()
    with opened(tmp_path, DEEDS[name]) as target:
        for _ in range(2):
            check(target, DEEDS[name])
            assert len(relatives(tempfile.gettempdir())) == 3, "beside guardian, supervisor, waiting child"
    assert time.monotonic() - started < 2 * (5 * LIMIT + 2.0)
    assert state() == before
    assert resident() - memory < 64 << 20
    assert left.children() == []


@pytest.mark.parametrize("name", first(SPAWNED, 2))
def test_the_same_in_a_fresh_interpreter(tmp_path: Path, name: str) -> None:
    before = state()
    with opened(tmp_path, DEEDS[name], "spawn", SPAWN_LIMIT) as target:
        check(target, DEEDS[name])
        assert len(relatives(tempfile.gettempdir())) == 2, "processes beside guardian and supervisor"
    assert state() == before


@pytest.mark.parametrize("name", THROWN)
def test_an_exception_that_nobody_can_catch_ends_the_process(tmp_path: Path, name: str) -> None:
    deed = THROWN[name]._replace(kind="signal", detail="SIGABRT")
    with opened(tmp_path, deed) as target:
        check(target, deed)


def test_a_crash_on_the_third_call_is_a_death_at_that_step(tmp_path: Path) -> None:
    calls = [ContextCreate(f"c{number}") for number in range(4)]
    with opened(tmp_path, THIRD_CALL) as target:
        for _ in range(3):  # the count begins anew with every case
            death = target.run(MemoryCase(steps=(*calls,))).death
            assert death is not None
            assert (death.kind, death.step) == ("signal", 2)
            assert target.run(MemoryCase(steps=(*calls[:2],))).death is None


def test_a_crash_in_every_third_process_is_a_death_in_every_third_case(tmp_path: Path) -> None:
    with opened(tmp_path, third_process(tmp_path / "note")) as target:
        began = len((tmp_path / "note").read_bytes()) if (tmp_path / "note").exists() else 0
        died = [target.run(CASE).death is not None for _ in range(9)]
    assert died == [(began + number) % 3 == 0 for number in range(1, 10)]


def test_a_removed_descriptor_is_charged_to_the_step_that_removed_it(tmp_path: Path) -> None:
    case = MemoryCase(steps=(Providers(), ContextCreate("c0"), Providers(), Providers()))
    with opened(tmp_path, DEEDS["close-descriptors"]) as target:
        death = target.run(case).death
    assert death is not None
    assert (death.kind, death.step) == ("garbage", 1)


def test_memory_that_a_target_used_up_is_charged_to_it(tmp_path: Path) -> None:
    case = MemoryCase(steps=(Alloc("b", 4 << 20), ContextCreate("c0"), Read("b")))
    with opened(tmp_path, HOARD, limit=5.0) as target:
        death = target.run(case).death
        assert death is not None
        assert (death.kind, death.detail[:43]) == ("garbage", "the case used up the memory of its process,")
        assert death.step == 2
        assert target.run(HARMLESS).death is None


@pytest.mark.parametrize("name", ["signals", "remove-folder", "litter", "float-environment"])
def test_a_case_finds_its_process_as_if_it_were_the_first(tmp_path: Path, name: str) -> None:
    surroundings = """
static void look(void) {
  char here[4096] = "", left[64] = "";
  FILE* note = fopen(NOTE, "a");
  sigset_t mask; sigprocmask(SIG_BLOCK, 0, &mask);
  struct sigaction term; sigaction(SIGTERM, 0, &term);
  DIR* folder = opendir(getcwd(here, 4096) ? here : "/"); int entries = 0;
  while (folder && readdir(folder)) ++entries;
  fprintf(note, "%s %d %d %d %d %x\\n", here, entries, sigismember(&mask, SIGTERM),
          term.sa_handler == SIG_DFL, fegetround(), _mm_getcsr() & 0xFFC0);
  fclose(note);
}
""".replace("NOTE", f'"{tmp_path / "note"}"').replace("\\\\", "\\")
    deed = DEEDS[name]
    before = f"{deed.before}\n{surroundings}"
    with opened(tmp_path, deed._replace(before=before, body=f"look(); {deed.body}")) as target:
        for _ in range(3):
            assert target.run(CASE).death is None
    seen = (tmp_path / "note").read_text().splitlines()
    assert len(seen) >= 3
    assert len(set(seen)) == 1
    assert seen[0].startswith(tempfile.gettempdir())
    assert seen[0].endswith("/case 2 0 1 0 1f80")


@pytest.mark.parametrize(
    ("on_load", "said"),
    [
        (f"for(int i=3;i<1024;++i)close(i);{LOOP}", "loading it took more than 1 s"),
        ("*(volatile int*)8=0;", "died of SIGSEGV while loading it"),
        (LOOP, "loading it took more than 1 s"),
        ("setsid();if(!fork()){setsid();sleep(60);}exit(3);", "exit status 3 while loading it"),
    ],
)
def test_what_is_done_while_loading_makes_the_target_unusable_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_load: str, said: str
) -> None:
    monkeypatch.setattr(sandbox, "_LOAD_TIMEOUT", 1.0)
    library = qnn_library(tmp_path, on_load=on_load, before=HEADERS)
    before, started = state(), time.monotonic()
    with pytest.raises(TargetUnusable, match=said):
        open_memory_target(str(library), "emulated", "fork", LIMIT)
    assert time.monotonic() - started < 4.0
    assert state() == before


def test_a_target_whose_destructor_never_ends_is_closed_at_once(tmp_path: Path) -> None:
    loop = f"__attribute__((destructor)) static void never(void) {{ {LOOP} }}"
    with opened(tmp_path, Deed("", before=loop)) as target:
        check(target, Deed(""))
        started = time.monotonic()
    assert time.monotonic() - started < 0.5


def test_closing_while_supervisor_and_guardian_are_stopped_ends_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_GRACE", 0.5)
    monkeypatch.setattr(sandbox, "_LOOK_INTERVAL", 60.0)  # in which the guardian would be continued

    def stop() -> None:  # from outside: Landlock, where there is one, keeps signals within the supervisor
        for pid in relatives(tempfile.gettempdir()):
            os.kill(pid, signal.SIGSTOP)

    with opened(tmp_path, Deed(LOOP)) as target:
        assert target.run(HARMLESS).death is None
        threading.Timer(0.5, stop).start()
        death = target.run(CASE).death
        assert death is not None
        assert (death.kind, death.detail) == ("hang", "no answer within 1 s, not even of the supervisor")
        assert relatives(tempfile.gettempdir()) == []
        assert target.run(HARMLESS).death is None


def test_a_supervisor_that_was_stopped_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path, Deed("for (int i = 0; i < 5; ++i) kill(getppid(), SIGSTOP);"), limit=5.0) as target:
        started = time.monotonic()
        assert target.run(CASE).death is None
        assert target.run(HARMLESS).death is None
        assert time.monotonic() - started < 2.0


def test_a_supervisor_that_is_stopped_without_end_is_given_up(tmp_path: Path) -> None:
    with opened(tmp_path, Deed("for (;;) kill(getppid(), SIGSTOP);")) as target:
        started = time.monotonic()
        death = target.run(CASE).death
        assert death is not None
        assert "watched over it" in death.detail
        assert time.monotonic() - started < 5.0
        assert target.run(HARMLESS).death is None


_MAPS = "while (mmap(0, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}"


@pytest.mark.parametrize("threads", [False, True])
def test_who_leaves_no_memory_dies_of_it_unless_threads_may_have_taken_it(
    tmp_path: Path, threads: bool
) -> None:
    thread = "pthread_t t; pthread_create(&t, 0, rest, 0); "
    before = (
        "#include <pthread.h>\n#include <sys/mman.h>\nstatic void* rest(void* p) { for (;;) sleep(9); }\n"
    )
    with opened(tmp_path, Deed(f"{thread * threads}{_MAPS}", before=before), limit=5.0) as target:
        death = target.run(CASE).death
        assert (death is None) is threads
        assert death is None or "used up the memory" in death.detail
