"""What a library does while it is loaded reaches neither the supervisor nor the cases."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fast_run import later
from hostile import DEEDS, HEADERS, LIMIT, relatives
from native import qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.isolation import processes
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.runner.library import open_library
from pytest_qnn.qnn.target import open_memory_target

pytestmark = pytest.mark.usefixtures("temporary")

_FLOOD = "for(;;){for(int i=3;i<1024;++i)write(i,calloc(9,1),9);usleep(99);}"
_HELPER = r"""
static int to_helper[2], from_helper[2];
static void start_helper(int orphaned) {
  pipe(to_helper); pipe(from_helper);
  if (fork()) return;
  if (orphaned && fork()) _exit(0);
  for (char byte; read(to_helper[0], &byte, 1) == 1;) write(from_helper[1], &byte, 1);
  _exit(0);
}
static void ask_helper(void) {
  char byte = 7, answer = 0;
  if (write(to_helper[1], &byte, 1) != 1 || read(from_helper[0], &answer, 1) != 1 || answer != 7) abort();
}
"""
LOADS = {
    "umask": "umask(0777);",
    "alarm": "alarm(1);",
    "interval-timer": "setitimer(ITIMER_REAL,&(struct itimerval){{1,0},{1,0}},0);",
    "posix-timer": "timer_t t;timer_create(CLOCK_MONOTONIC,0,&t);"
    "timer_settime(t,0,&(struct itimerspec){{1,0},{1,0}},0);",
    "ignored-children": "signal(SIGCHLD,SIG_IGN);",
    "reaped-children": "signal(SIGCHLD,reap);",
    "ignored-signals": "for(int i=1;i<65;++i)signal(i,SIG_IGN);",
    "blocked-signals": "sigset_t s;sigfillset(&s);sigprocmask(SIG_SETMASK,&s,0);",
    "folder": 'chdir("/proc");',
    "descriptor-limit": "setrlimit(RLIMIT_NOFILE,&(struct rlimit){8,1024});",
    "file-limit": "setrlimit(RLIMIT_FSIZE,&(struct rlimit){0,RLIM_INFINITY});",
    "undumpable": "prctl(PR_SET_DUMPABLE,0);",
    "no-subreaper": "prctl(PR_SET_CHILD_SUBREAPER,0);prctl(PR_SET_PDEATHSIG,0);",
    "closed-descriptors": "for(int i=3;i<1024;++i)close(i);",
    "garbage": 'for(int i=3;i<1024;++i)write(i,"garbage garbage",15);',
    "zeros": "for(int i=3;i<1024;++i)write(i,calloc(9,1),9);",
    "flooding-daemon": f"if(!fork()){{setsid();if(!fork()){{{_FLOOD}}}_exit(0);}}",
}
FAST = ("umask", "alarm", "reaped-children", "zeros", "flooding-daemon")
BEFORE = (
    f"{HEADERS}\n#include <sys/resource.h>\n#include <sys/time.h>\n#include <sys/wait.h>\n#include <time.h>\n"
    "static void reap(int n) { (void)n; while (waitpid(-1, 0, WNOHANG) > 0) {} }\n"
)


@pytest.mark.parametrize("name", [name if name in FAST else later(name) for name in LOADS])
def test_what_loading_does_to_its_process_reaches_no_case(tmp_path: Path, name: str) -> None:
    """A case that dies, one that leaves files and processes, and one that does nothing: each as ever."""
    litter = DEEDS["litter"]
    dies = f'if(!access("{tmp_path}/dies",0))abort();if(!fork()){{setsid();sleep(60);}}{litter.body}'
    library = qnn_library(tmp_path, dies, on_load=LOADS[name], before=f"{BEFORE}\n{litter.before}")
    target = open_memory_target(str(library), "emulated", "fork", LIMIT)
    try:
        for _ in range(2):
            assert target.run(CASE).death is None
            assert target.run(HARMLESS).death is None
        if name in ("alarm", "interval-timer", "posix-timer"):
            time.sleep(1.2)
        (tmp_path / "dies").touch()
        death = target.run(CASE).death
        assert death is not None
        assert death.detail == "the process died of SIGABRT"
        assert target.provenance()["isolation"] == "fork"
    finally:
        target.close()


@pytest.mark.parametrize("name", list(map(later, ("umask", "ignored-signals", "alarm", "descriptor-limit"))))
def test_the_same_in_a_fresh_interpreter(tmp_path: Path, name: str) -> None:
    library = qnn_library(tmp_path, "sleep(2);abort()", on_load=LOADS[name], before=BEFORE)
    target = open_memory_target(str(library), "emulated", "spawn", 5.0)
    try:
        assert target.run(HARMLESS).death is None
        death = target.run(CASE).death
        assert death is not None
        assert death.detail == "the process died of SIGABRT"
    finally:
        target.close()


@pytest.mark.parametrize("way", ["absolute", "relative", "/proc/self/cwd"])
def test_a_link_to_a_library_is_loaded_as_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A folder of links: what the library needs lies beside the link, where ``$ORIGIN`` leads."""
    on_load = 'if(!dlopen("$ORIGIN/libneighbour.so",RTLD_NOW))abort();'
    loads = {"on_load": on_load if way != "/proc/self/cwd" else ""}
    library = qnn_library(tmp_path, "", before="#include <dlfcn.h>\n", **loads)
    folder = tmp_path / "vendor" / "lib"
    folder.mkdir(parents=True)
    (folder / "libqnn.so").symlink_to(library)
    (folder / "libneighbour.so").symlink_to(qnn_library(tmp_path, ""))
    monkeypatch.chdir(folder)
    named = {"absolute": str(folder / "libqnn.so"), "relative": "libqnn.so"}.get(way, f"{way}/libqnn.so")
    wanted = library if way == "/proc/self/cwd" else folder / "libqnn.so"
    for mode in ("fork", "spawn"):
        target = open_memory_target(named, "emulated", mode, 5.0)
        try:
            assert target.run(HARMLESS).death is None
            found = target.provenance()
            assert found["library"] == target.spec == str(wanted)
            assert found["library_sha256"] == hashlib.sha256(library.read_bytes()).hexdigest()
        finally:
            target.close()


@pytest.mark.parametrize("beside", ["link", "library"])
def test_the_system_library_is_found_beside_a_link_or_what_it_leads_to(tmp_path: Path, beside: str) -> None:
    library, folder = qnn_library(tmp_path, ""), tmp_path / "vendor"
    folder.mkdir()
    link = folder / "libqnn.so"
    link.symlink_to(library)
    system = (folder if beside == "link" else tmp_path) / "libQnnSystem.so"
    system.touch()
    assert open_library(str(link)).system == str(system)


@pytest.mark.parametrize("left", [0, later(5), later(20)])
def test_a_library_that_uses_up_descriptors_while_it_is_loaded_is_refused_for_that(
    tmp_path: Path, left: int
) -> None:
    on_load = f"while(dup(0)>=0);for(int i=0;i<{left};++i)close(1000-i);"
    limit = "setrlimit(RLIMIT_NOFILE,&(struct rlimit){1024,1<<19});"
    library = qnn_library(tmp_path, "", on_load=limit + on_load, before=BEFORE)
    with pytest.raises(TargetUnusable) as refused:
        open_memory_target(str(library), "emulated", "fork", LIMIT)
    why = r"it uses up the descriptors of its process, which may have \d+, while it is loaded"
    assert re.search(f"{why}$", str(refused.value))


@pytest.mark.parametrize("orphaned", [later(0), 1])
def test_a_process_that_the_library_started_while_it_was_loaded_ends_with_the_library(
    tmp_path: Path, temporary: Path, orphaned: int
) -> None:
    library = qnn_library(
        tmp_path, "ask_helper()", on_load=f"start_helper({orphaned});", before=BEFORE + _HELPER
    )
    target = open_memory_target(str(library), "emulated", "fork", LIMIT)
    try:
        for _ in range(3):
            assert target.run(CASE).death is None
        assert len(relatives(str(temporary))) == 4  # guardian, supervisor, waiting child, and the helper
    finally:
        target.close()


@pytest.mark.parametrize("wipe", [later("clearenv();"), "memset(environ[0],0,strlen(environ[0])+1000);"])
def test_a_process_without_environment_ends_with_a_supervisor_that_was_killed(
    tmp_path: Path, wipe: str
) -> None:
    note = tmp_path / "escaped"
    escape = (
        f"{wipe}"
        'if(!fork()){setsid();if(!fork()){execle("/bin/sleep","sleep","60",(char*)0,(char*[]){0});}'
        "_exit(0);}"
        f'usleep(200000);close(creat("{note}",0600));'
        "kill(getppid(),SIGKILL);sleep(60);"
    )
    before = f"{BEFORE}\nextern char** environ;\n"
    library = qnn_library(tmp_path, escape, before=before)
    known = set(_sleepers())
    target = open_memory_target(str(library), "emulated", "fork", LIMIT)
    try:
        death = target.run(CASE).death
        assert death is not None
        assert note.exists()
        assert within(5.0, lambda: set(_sleepers()) <= known)
    finally:
        target.close()


def _sleepers() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if command == b"sleep\x0060\x00":
            found.append(int(path.parent.name))
    return found


def test_a_signal_to_all_processes_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    library = qnn_library(tmp_path, "sleep(60)", before=BEFORE)
    source = (
        "from pytest_qnn.qnn.target import open_memory_target\n"
        "import sandboxed\n"
        f"target = open_memory_target({str(library)!r}, 'emulated', 'fork', 60.0)\n"
        "print('ready', flush=True)\n"
        "target.run(sandboxed.CASE)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", source], env=os.environ | environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        for pid in [process.pid, *processes.descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):  # some end with those before them
                os.kill(pid, 15)
        process.wait()
    assert within(5.0, lambda: not relatives(str(temporary)) and not list(temporary.iterdir()))


_NEEDS = "if(mmap(0,3L<<30,PROT_READ|PROT_WRITE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0)==MAP_FAILED)abort();"


def test_a_limit_of_ours_that_stops_a_library_from_loading_is_named(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, "", on_load=_NEEDS, before=BEFORE)
    with pytest.raises(TargetUnusable) as refused:
        open_memory_target(str(library), "emulated", "fork", LIMIT)
    assert str(refused.value).endswith(
        "died of SIGABRT while loading it; it can be loaded where a process has more than the 2 GiB of "
        "private memory (RLIMIT_DATA) that this suite allows"
    )


def test_nor_is_it_named_where_it_is_not_why(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, "", on_load="abort();", before=BEFORE)
    with pytest.raises(TargetUnusable, match=r"died of SIGABRT while loading it$"):
        open_memory_target(str(library), "emulated", "fork", LIMIT)
