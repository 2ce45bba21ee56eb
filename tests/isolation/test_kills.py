"""SIGKILL that nobody here sent is tried again; and libraries that cannot be loaded any more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import relatives
from native import qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.core.target import TargetLost
from pytest_qnn.isolation import processes
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target

HEADERS = """
#include <fcntl.h>
#include <signal.h>
static int first_times(const char* note, int times) { /* whether it is called for one of the first times */
  char byte = 1;
  int fd = open(note, O_RDWR | O_CREAT | O_APPEND, 0600);
  long size = lseek(fd, 0, 2);
  if (size < times) write(fd, &byte, 1);
  close(fd);
  return size < times;
}
"""


@contextlib.contextmanager
def opened(
    folder: Path, behaviour: str = "", mode: str = "fork", on_load: str = "", limit: float = 20.0
) -> Iterator[MemoryTarget]:
    library = qnn_library(folder, behaviour, on_load=on_load, before=f"#include <unistd.h>\n{HEADERS}")
    target = open_memory_target(str(library), "emulated", mode, limit)
    try:
        yield target
    finally:
        target.close()


def killed_times(folder: Path, who: str, times: int) -> str:
    return f'if(first_times("{folder}/note",{times}))kill({who},SIGKILL)'


@pytest.mark.parametrize("who", ["getpid()", "getppid()"])
@pytest.mark.parametrize("mode", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_two_kills_are_forgiven(tmp_path: Path, mode: str, who: str) -> None:
    with opened(tmp_path, killed_times(tmp_path, who, 2), mode) as target:
        assert target.run(CASE).death is None
        assert (tmp_path / "note").stat().st_size == 2


@pytest.mark.parametrize("who", ["getpid()", "getppid()"])
def test_the_third_is_the_targets_own_doing(tmp_path: Path, who: str) -> None:
    with opened(tmp_path, killed_times(tmp_path, who, 99)) as target:
        death = target.run(CASE).death
        assert death is not None
        assert death.kind == ("signal" if who == "getpid()" else "garbage")
        assert death.detail.endswith("; so it was 3 times, each in a fresh supervisor")
        assert (tmp_path / "note").stat().st_size == 3
        assert target.run(HARMLESS).death is None


def test_who_was_ended_for_want_of_memory_before_is_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ended_for_memory", lambda: 7)
    with opened(tmp_path, "kill(getpid(),SIGKILL)") as target:
        for run in (target.run, target.run_fresh):  # the second has no supervisor yet
            death = run(CASE).death
            assert death is not None
            assert (
                death.detail == "the process died of SIGKILL; so it was 3 times, each in a fresh supervisor"
            )


_MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of 600 MB, where the first version's memory controller is there and we may use it."""
    folder = _MEMORY / f"pytest-qnn-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup of an own can be made below {_MEMORY} ({error.strerror})")
    try:
        (folder / "memory.limit_in_bytes").write_text("600000000")
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.full
def test_a_case_that_needs_more_memory_than_there_is_is_a_death_with_its_reason(
    tmp_path: Path, cgroup: Path
) -> None:
    taken = "char*all=malloc(1ul<<30);if(all){memset(all,1,1ul<<30);free(all);}"
    library = qnn_library(tmp_path, taken, before=f"#include <unistd.h>\n#include <stdlib.h>\n{HEADERS}")
    source = (
        f"import os; open({str(cgroup / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        "from pytest_qnn.qnn.target import open_memory_target\n"
        "import test_kills\n"
        f"target = open_memory_target({str(library)!r}, 'emulated', 'fork', 10.0)\n"
        "print(target.run(test_kills.CASE).death.detail)\n"
        "print(target.run(test_kills.HARMLESS).death)\n"
        "target.close()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    killed, harmless = ended.stdout.splitlines()
    assert re.search(r"SIGKILL; so it was 3 times, .*, while the kernel ended \d+ processes for want", killed)
    assert harmless == "None"


def test_a_kill_in_company_costs_none_of_the_cases(tmp_path: Path) -> None:
    with opened(tmp_path, killed_times(tmp_path, "getpid()", 1)) as target:
        traces = [trace for trace, _ in target.run_all([HARMLESS, HARMLESS, CASE, HARMLESS])]
    assert [trace.death for trace in traces] == [None] * 4


def test_a_child_that_somebody_kills_is_made_again(tmp_path: Path) -> None:
    note = tmp_path / "begun"
    with opened(tmp_path, f'if(first_times("{note}",1))pause()') as target:

        def kill() -> None:
            assert within(20.0, note.exists)
            before = {os.getpid()}
            for pid in _descendants(os.getpid()) - before:
                if _descendants(pid) == set():
                    with contextlib.suppress(ProcessLookupError):  # it may end meanwhile
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        assert target.run(CASE).death is None
        killer.join()


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it, or one of its threads, has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    found |= {child} | _descendants(child)
    return found


def test_a_kill_while_loading_is_forgiven_too(tmp_path: Path) -> None:
    with opened(tmp_path, on_load=killed_times(tmp_path, "getpid()", 2)) as target:
        assert target.run(CASE).death is None
    (tmp_path / "note").unlink()
    with pytest.raises(TargetUnusable, match="died of SIGKILL while loading") as raised:
        opened(tmp_path, on_load=killed_times(tmp_path, "getpid()", 3)).__enter__()
    assert "RLIMIT_DATA" not in str(raised.value)  # it can be loaded later, but not for more memory


def test_a_library_that_is_gone_is_one_death_with_the_call_before(tmp_path: Path) -> None:
    gone = 'unlink("%s")'
    with opened(tmp_path, gone % (tmp_path / "libqnn0.so"), "spawn") as target:
        assert target.run(CASE).death is None
        death = target.run(HARMLESS).death
        assert death is not None
        assert death.lost
        assert death.detail.startswith("the target cannot be loaded any more after QnnLog_free: ")
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(TargetLost, match="any more after QnnLog_free"):
                target.run(HARMLESS)
            assert time.monotonic() - started < 0.1


def test_a_supervisor_that_cannot_be_started_again_is_one_death(tmp_path: Path) -> None:
    ends = f'unlink("{tmp_path}/libqnn0.so");kill(getppid(),SIGKILL)'
    with opened(tmp_path, ends) as target:
        case = MemoryCase((ContextCreate("c0"),))
        death = target.run(case).death
        assert death is not None
        assert death.lost
        assert death.detail.startswith("the target cannot be loaded any more: ")
        with pytest.raises(TargetLost):
            next(iter(target.run_all([case, HARMLESS])))
    assert relatives(str(tmp_path)) == []
