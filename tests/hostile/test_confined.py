"""What a target reaches without namespaces of its own, and when it is tried without."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_run import later
from hostile import HEADERS, LIMIT, Deed
from native import qnn_library
from sandboxed import CASE, HARMLESS

from pytest_qnn.isolation import namespaces, processes
from pytest_qnn.isolation.host import capabilities, confined
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target

pytestmark = pytest.mark.usefixtures("temporary")

BEFORE = "\n#include ".join(
    (HEADERS, *(f"<{name}.h>\n" for name in ("errno", "sys/ipc", "sys/shm", "sys/mount", "sys/resource")))
)


def scopes_signals() -> bool:
    try:
        os.close(confined._ruleset())
    except OSError:
        return False
    return True


@contextlib.contextmanager
def opened(folder: Path, behaviour: str, on_load: str = "", before: str = BEFORE) -> Iterator[MemoryTarget]:
    library = qnn_library(folder, behaviour, on_load=on_load, before=before)
    with contextlib.closing(open_memory_target(str(library), "emulated", "fork", LIMIT)) as target:
        yield target


@pytest.mark.skipif(not scopes_signals(), reason="needs Linux 6.12 with Landlock")
def test_no_other_process_is_signalled_or_limited(tmp_path: Path) -> None:
    note, folder = tmp_path / "note", tmp_path / "mounted"
    folder.mkdir()
    pid, guardian = os.getpid(), "parent_of(getppid())"
    tried = (
        f"kill({pid},SIGKILL)",
        f"kill({guardian},SIGSTOP)",
        f"prlimit({pid},RLIMIT_NOFILE,&(struct rlimit){{3,3}},0)",
        "kill(getpid(),0)",
        "setrlimit(RLIMIT_CORE,&(struct rlimit){0,0})",
        "prlimit(getppid(),RLIMIT_CORE,0,&(struct rlimit){0,0})",
    )
    writes = "".join(f'fprintf(n,"%d ",{one}?errno:0);' for one in tried)
    mounts = f'mount("none","{folder}","tmpfs",0,0);'
    before = f"{BEFORE}\n#include <stdio.h>\n{_PARENT}"
    with opened(tmp_path, f'FILE*n=fopen("{note}","w");{writes}fclose(n);{mounts}', before=before) as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "shared"
    assert note.read_text().split() == ["1", "1", "1", "0", "0", "0"]
    assert not os.path.ismount(folder)


_I386 = """
static long limited_by_i386(int pid) { /* as a program of 32 bits calls prlimit64 */
  unsigned long long* limits = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  long result;
  limits[0] = limits[1] = 9;
  __asm__ volatile("int $0x80" : "=a"(result)
                   : "a"(340), "b"((long)pid), "c"((long)RLIMIT_NOFILE), "d"((long)limits), "S"(0L)
                   : "memory");
  return (int)result;
}
"""


@pytest.mark.skipif(not os.path.exists("/proc/sys/abi/vsyscall32"), reason="the kernel runs no i386 programs")
def test_nor_is_one_limited_as_a_program_of_32_bits_does(tmp_path: Path) -> None:
    note = tmp_path / "note"
    writes = f'FILE*n=fopen("{note}","w");fprintf(n,"%ld",limited_by_i386({os.getpid()}));fclose(n);'
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with opened(tmp_path, writes, before=f"{BEFORE}\n#include <stdio.h>\n{_I386}") as target:
        assert target.run(CASE).death is None
    assert note.read_text() == "-1"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


_PARENT = """
static int parent_of(int pid) {
  char path[64]; int parent = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* file = fopen(path, "r");
  if (file) { if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1) parent = 0; fclose(file); }
  return parent;
}
"""


def _own_namespaces() -> bool:
    pid = os.fork()
    if not pid:
        os._exit(not namespaces.separate_children())
    return os.waitpid(pid, 0)[1] == 0


_AS_ROOT = pytest.mark.skipif(not _own_namespaces(), reason="needs CAP_SYS_ADMIN: run the tests as root")


@_AS_ROOT
def test_root_keeps_no_capability_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case tries and what it could gain by starting a program; a driver's are there as before."""
    monkeypatch.setenv(namespaces.SWITCH, "0")
    note = tmp_path / "note"
    copies = f'system("cat /proc/self/status >{note}");'
    with opened(tmp_path, copies) as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "shared"
    lines = dict(line.split(":\t") for line in note.read_text().splitlines() if line.startswith("Cap"))
    mine = dict(
        line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if line[:3] == "Cap"
    )
    of_the_system = sum(1 << number for number in capabilities.OF_THE_SYSTEM)
    assert all(int(lines[name], 16) & of_the_system == 0 for name in lines)
    assert int(lines["CapEff"], 16) == int(mine["CapEff"], 16) & ~of_the_system


_LEAVES = {
    "shared-memory": 'close(shm_open("/pytest-qnn-left",O_CREAT|O_RDWR,0600));',
    "system-v": "shmget(IPC_PRIVATE,4096,0600);",
    "queue": 'mq_open("/pytest-qnn-left",O_CREAT|O_RDWR,0600,0);',
}


@_AS_ROOT
@pytest.mark.parametrize(
    ("kind", "moment"),
    [("queue", "load"), later("system-v", "load"), later("shared-memory", "case"), later("queue", "case")],
)
def test_what_leaves_shared_memory_inside_is_not_tried_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: str
) -> None:
    monkeypatch.setenv(namespaces.SWITCH, "1")
    note = tmp_path / "note"
    outside = f'if(getppid()!=1)close(creat("{note}",0600));'
    leaves = _LEAVES[kind]
    on_load, case = (leaves, "") if moment == "load" else ("", leaves)
    before = f"{BEFORE}\n#include <mqueue.h>\n"
    with opened(tmp_path, outside + case, on_load, before) as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "own"
    assert not note.exists()


@_AS_ROOT
def test_what_leaves_nothing_inside_is_tried_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(namespaces.SWITCH, "1")
    note = tmp_path / "note"
    with opened(tmp_path, f'if(getppid()!=1)close(creat("{note}",0600));') as target:
        assert target.provenance()["namespaces"] == "own"
    assert note.exists()


_LIMITS = "setrlimit(RLIMIT_FSIZE,&(struct rlimit){0,0});setrlimit(RLIMIT_NOFILE,&(struct rlimit){9,9});"


def _lifts_limits() -> bool:
    """Not every root may: some machines take CAP_SYS_RESOURCE (bit 24) from all."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line]
    return bool(int(line.split()[1], 16) >> 24 & 1)


@_AS_ROOT
@pytest.mark.skipif(not _lifts_limits(), reason="needs CAP_SYS_RESOURCE, which root does not have here")
def test_limits_that_the_library_has_lowered_for_good_are_lifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(namespaces.SWITCH, "1")
    with opened(tmp_path, "", _LIMITS) as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "own"


@_AS_ROOT
@pytest.mark.full
@pytest.mark.parametrize(
    ("descriptors", "told"),
    [
        (9, "it uses up the descriptors of its process, which may have 9, while it is loaded"),
        (64, "it sets RLIMIT_FSIZE to 0 for good while it is loaded"),
    ],
)
def test_where_they_cannot_be_lifted_the_library_has_done_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: int, told: str
) -> None:
    """The guardian of a user without rights may lift no limit; 64 descriptors are enough for cases."""
    monkeypatch.setenv("PYTEST_QNN_NAMESPACES", "0")
    limits = _LIMITS.replace("{9,9}", f"{{{descriptors},{descriptors}}}")
    library = qnn_library(tmp_path, "", on_load=limits, before=BEFORE)
    pid = os.fork()
    if not pid:
        os._exit(_as_user(library, tmp_path / "said"))
    os.waitpid(pid, 0)
    assert told in (tmp_path / "said").read_text()


def _as_user(library: Path, note: Path) -> int:
    """Open the library without any capability, and write down what is said."""
    processes.gain_no_privileges()
    capabilities.drop_all()
    try:
        open_memory_target(str(library), "emulated", "fork", LIMIT).close()
    except Exception as error:
        note.write_text(str(error))
    return 0


_FILL = """
#include <stdint.h>
static void fill(int with) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4096], rights[8];
  unsigned long begin, end, first = 0, size = 0;
  while (maps && fgets(line, sizeof line, maps)) {
    if (!strstr(line, "memfd:pytest-qnn-slot")) continue;
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3) continue;
    if (rights[1] == 'w') { first = begin; size = 4096; }
  }
  if (maps) fclose(maps);
  if (first) memset((void*)first, with, size);
}
"""


@pytest.mark.parametrize("filled", [0, later(255)])
def test_answers_that_a_case_writes_over_are_not_lost_for_others(tmp_path: Path, filled: int) -> None:
    """Each of the others is as if it had been alone: nobody else is blamed for what is missing."""
    deed = Deed("", before=f"{BEFORE}\n{_FILL}")
    with opened(tmp_path, f"fill({filled});", before=deed.before) as target:
        cases = [HARMLESS, HARMLESS, CASE, HARMLESS, HARMLESS]
        traces = [trace for trace, _ in target.run_all(cases)]
    assert [trace.death for trace in (*traces[:2], *traces[3:])] == [None] * 4
    assert [len(trace.steps) for trace in (*traces[:2], *traces[3:])] == [len(HARMLESS.steps)] * 4


def test_no_signal_is_left_to_be_taken() -> None:
    """The tests above send none to this process."""
    assert signal.sigpending() == set()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3
