"""The child that is made ahead of its case: what comes between never shows in a verdict."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import left
import pytest
from fast_run import first
from native import qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.isolation import child_process, processes
from pytest_qnn.isolation.worker import Worker
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target


@contextlib.contextmanager
def opened(folder: Path, behaviour: str = "", before: str = "", limit: float = 5.0) -> Iterator[MemoryTarget]:
    library = qnn_library(folder, behaviour, before=before)
    with contextlib.closing(open_memory_target(str(library), "emulated", "fork", limit)) as target:
        yield target


def supervised(target: MemoryTarget) -> tuple[int, list[int]]:
    """The supervisor of a target, and its children."""
    sandbox = target._executor._sandbox
    assert sandbox is not None
    assert sandbox._process is not None
    (pid,) = processes.children(sandbox._process.pid)  # of the guardian
    return pid, processes.children(pid)


def waiting(target: MemoryTarget) -> int:
    """The child that waits for the next case."""
    assert within(5.0, lambda: len(supervised(target)[1]) == 1)
    return supervised(target)[1][0]


@pytest.mark.parametrize("by", first([signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP], 2))
def test_a_waiting_child_that_was_lost_is_replaced_and_not_charged_to_a_case(
    tmp_path: Path, by: signal.Signals
) -> None:
    with opened(tmp_path, "abort()") as target:
        supervisor_pid, _ = supervised(target)
        for case, death in ((HARMLESS, ""), (CASE, "signal"), (HARMLESS, "")):
            lost = waiting(target)
            os.kill(lost, by)
            trace = target.run(case)
            assert (trace.death.kind if trace.death else "") == death
            assert waiting(target) != lost
        assert supervised(target)[0] == supervisor_pid


_OTHERS = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void others(int number) {
  DIR* all = opendir("/proc");
  for (struct dirent* entry; (entry = readdir(all));) {
    char path[300];
    int pid = atoi(entry->d_name), parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE* file = pid > 0 && pid != getpid() ? fopen(path, "r") : 0;
    if (!file) continue;
    int read = fscanf(file, "%*d (%*[^)]) %*c %d", &parent);
    if (read == 1 && parent > 1 && parent == getppid()) kill(pid, number);
    fclose(file);
  }
  closedir(all);
}
"""


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP", "SIGTERM"])
def test_a_case_that_signals_its_siblings_spoils_no_other_case(tmp_path: Path, number: str) -> None:
    with opened(tmp_path, f"others({number})", before=_OTHERS) as target:
        started = time.monotonic()
        for _ in range(2):
            assert target.run(CASE).death is None
            assert target.run(HARMLESS).death is None
        assert time.monotonic() - started < 15.0


@pytest.mark.parametrize("call", first(["kill(0,SIGKILL)", "kill(-getpgrp(),SIGKILL)", "killpg(0,SIGKILL)"]))
def test_a_case_that_kills_its_group_dies_alone(tmp_path: Path, call: str) -> None:
    with opened(tmp_path, call) as target:
        for _ in range(2):
            first, _ = supervised(target)
            death = target.run(CASE).death
            assert death is not None
            assert (death.kind, death.step) == ("signal", 1)
            assert death.detail == (
                "the process died of SIGKILL; so it was 3 times, each in a fresh supervisor"
            )
            assert death.evidence.during == "QnnContext_create"
            last, _ = supervised(target)  # the third, which the case has not killed
            assert last != first
            assert target.run(HARMLESS).death is None
            assert supervised(target)[0] == last


def test_a_child_that_was_made_while_a_case_died_is_not_used(tmp_path: Path) -> None:
    note = tmp_path / "note"
    source = _OTHERS.replace("kill(pid, number);", f'fprintf(fopen("{note}", "w"), "%d", pid), fflush(0);')
    behaviour = "usleep(200000);others(0);abort()"
    with opened(tmp_path, behaviour, before=source) as target:
        for _ in range(2):
            note.unlink(missing_ok=True)
            assert target.run(CASE).death is not None
            assert waiting(target) != int(note.read_text())
        assert target.run(HARMLESS).death is None


_LOOK = r"""
#include <stdio.h>
#include <unistd.h>
#include <dirent.h>
#include <fcntl.h>
static int kept = 0;
static void look(void) {
  FILE* note = fopen(NOTE, "a");
  int entries = 0, slots = 0, open_ones = 0;
  char here[4096] = "", line[4096];
  DIR* folder = opendir(getcwd(here, 4096));
  while (readdir(folder)) ++entries;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) slots += strstr(line, "pytest-qnn-slot") != 0;
  for (int fd = 0; fd < 1024; ++fd) open_ones += fcntl(fd, F_GETFD) >= 0;
  fprintf(note, "%d %d %d %d\n", kept++, entries, slots, open_ones);
  fclose(note);
  close(creat("left", 0600));
}
"""


def test_cases_in_a_row_share_no_memory_no_folder_and_no_descriptor(tmp_path: Path) -> None:
    note = tmp_path / "note"
    source = "#include <string.h>\n" + _LOOK.replace("NOTE", f'"{note}"')
    with opened(tmp_path, "look()", before=source) as target:
        note.unlink(missing_ok=True)
        for _ in range(6):
            assert target.run(CASE).death is None
    seen = note.read_text().splitlines()
    assert len(seen) == 6
    assert len(set(seen)) == 1, seen
    assert seen[0].startswith("0 2 1 ")  # nothing kept, an empty folder, one slot mapped


def test_closing_ends_the_child_that_waits(tmp_path: Path) -> None:
    with opened(tmp_path) as target:
        target.run(CASE)
        pids = [supervised(target)[0], waiting(target)]
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_a_killed_supervisor_takes_the_child_that_waits_with_it_and_no_case(tmp_path: Path) -> None:
    with opened(tmp_path) as target:
        next_one = waiting(target)
        killed, _ = supervised(target)
        os.kill(killed, signal.SIGKILL)
        assert within(5.0, lambda: not Path(f"/proc/{next_one}").exists())
        assert target.run(HARMLESS).death is None
        assert supervised(target)[0] != killed


def test_a_supervisor_keeps_nothing_of_the_cases_it_had(tmp_path: Path) -> None:
    with opened(tmp_path, "abort()") as target:

        def kept() -> tuple[int, int]:
            waiting(target)
            proc = Path(f"/proc/{supervised(target)[0]}")
            slots = (proc / "maps").read_text().count("pytest-qnn-slot")
            return len(list((proc / "fd").iterdir())), slots

        target.run(HARMLESS)
        before = kept()
        for case in (HARMLESS, CASE) * 5:
            target.run(case)
        deadline = time.monotonic() + 2.0
        while kept() != before and time.monotonic() < deadline:
            time.sleep(0.05)  # a child may be on its way, and the supervisor has a descriptor more for it
        assert kept() == before
        assert before[1] == 1


def test_the_time_of_a_case_begins_with_its_request(tmp_path: Path) -> None:
    with opened(tmp_path, "usleep(500000)", limit=1.0) as target:
        time.sleep(1.2)  # the next child has been waiting longer than a case may take
        assert target.run(CASE).death is None


def _slots() -> int:
    """Of this process, in which other tests may have made some."""
    return Path("/proc/self/maps").read_text().count("pytest-qnn-slot")


class _Unasked:
    """A target that no case is for."""

    careful = False

    def rehearse(self) -> None:
        """Nothing to carry out."""


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_a_child_that_cannot_be_watched_is_ended_and_leaves_nothing(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no descriptor is left for its pidfd: it was forgotten, with its pipe and its memory."""

    def refused(pid: int) -> None:
        raise OSError(errno.EMFILE, f"no descriptor for {pid}")

    monkeypatch.setattr(child_process, "ExitWatch", refused)
    before = os.listdir("/proc/self/fd"), left.children(), _slots()
    ways = {
        "fork": lambda: child_process.fork(cast("Worker", _Unasked()), tmp_path, (), ()),
        "spawn": lambda: child_process.spawn("", tmp_path, ""),
    }
    with pytest.raises(OSError, match="no descriptor for"):
        ways[mode]()
    assert (os.listdir("/proc/self/fd"), left.children(), _slots()) == before
