"""Namespaces of the supervisor's own, where the kernel allows them and the target is the same in them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fast_run import first, later
from hostile import HEADERS, LIMIT, relatives
from native import delegate_library, qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.isolation import namespaces
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.tflite.target import open_delegate_target

BEFORE = "\n#include ".join((HEADERS, *(f"<sys/{name}.h>\n" for name in ("ipc", "shm", "sem", "resource"))))


def _allowed() -> bool:
    pid = os.fork()
    if not pid:
        os._exit(not namespaces.separate_children())
    return os.waitpid(pid, 0)[1] == 0


pytestmark = [
    pytest.mark.skipif(not _allowed(), reason="needs CAP_SYS_ADMIN: run the tests as root"),
    pytest.mark.usefixtures("temporary"),
]


@pytest.fixture(autouse=True)
def namespaces_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(namespaces.SWITCH, "1")


@contextlib.contextmanager
def opened(
    folder: Path, behaviour: str = "", mode: str = "fork", on_load: str = ""
) -> Iterator[MemoryTarget]:
    library = qnn_library(folder, behaviour, on_load=on_load, before=BEFORE)
    with contextlib.closing(open_memory_target(str(library), "emulated", mode, LIMIT)) as target:
        yield target


@pytest.mark.parametrize("mode", first(["fork", "spawn"]))
def test_a_case_has_a_process_id_and_shared_memory_of_its_own_and_no_rights(
    tmp_path: Path, mode: str
) -> None:
    note = tmp_path / "note"
    look = (
        f'FILE*n=fopen("{note}","w");FILE*s=fopen("/proc/self/status","r");char line[256];'
        'fprintf(n,"%d %d\\n",getpid(),getppid());'
        "while(fgets(line,256,s))fputs(line,n);fclose(s);"
        'DIR*d=opendir("/proc");for(struct dirent*e;(e=readdir(d));)if(atoi(e->d_name))'
        'fprintf(n,"process %s\\n",e->d_name);fclose(n);'
    )
    with opened(tmp_path, look, mode) as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "own"
    seen = note.read_text()
    pid, parent = map(int, seen.splitlines()[0].split())
    assert parent == 1
    assert f"\nPid:\t{pid}\n" in seen
    assert re.search(r"^NoNewPrivs:\t1$", seen, re.MULTILINE)
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert re.search(rf"^Cap{kind}:\t0+$", seen, re.MULTILINE)
    assert len(re.findall("^process ", seen, re.MULTILINE)) <= 4


_DEEDS = (
    "for(int i=0;i<1000;++i)kill(getppid(),SIGSTOP);",
    "for(int i=1;i<65;++i)kill(1,i);",
    "kill(-1,SIGKILL);",
    "prctl(PR_SET_PDEATHSIG,0);setsid();kill(-1,SIGSTOP);",
    "if(!fork()){setsid();if(!fork()){for(;;)sleep(9);}_exit(0);}",
    "kill(PYTEST,SIGKILL);",
    "prlimit(PYTEST,RLIMIT_NOFILE,&(struct rlimit){3,3},0);",
    "for(int i=0;i<300;++i)if(!fork()){setsid();for(;;)sleep(9);}",
)


@pytest.mark.parametrize(
    "deed",
    [
        "kill(getppid(),SIGKILL);kill(-1,SIGKILL);",
        *map(later, _DEEDS),
    ],
)
def test_nothing_outside_is_reached(tmp_path: Path, deed: str) -> None:
    """The deed is done inside only: whether the target is the same there is found out by a run outside."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    deed = deed.replace("PYTEST", str(os.getpid()))
    with opened(tmp_path, f"if(getppid()==1){{{deed}}}") as target:
        for _ in range(3):
            assert target.run(CASE).death is None
            assert target.run(HARMLESS).death is None
        assert target.provenance()["namespaces"] == "own"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


def test_shared_memory_of_a_case_ends_with_it_and_that_of_the_library_does_not(tmp_path: Path) -> None:
    name = f"pytest-qnn-{os.getpid()}"
    note = tmp_path / "note"
    count = (
        f'FILE*n=fopen("{note}","a");int files=0;DIR*d=opendir("/dev/shm");'
        "while(readdir(d))++files;closedir(d);"
        'fprintf(n,"%d %d %d %d\\n",files-2,shmget(7,1,0)>=0,shmget(8,1,0)>=0,semget(8,1,0)>=0);fclose(n);'
    )
    # Inside only: of what it leaves outside, nobody can tell whose it is.
    make = (
        f'if(getppid()==1){{close(shm_open("/{name}-case",O_CREAT|O_RDWR,0600));'
        f'mkdir("/dev/shm/{name}-folder",0700);close(open("/dev/shm/{name}-folder/f",O_CREAT|O_RDWR,0600));'
        "shmget(8,4096,IPC_CREAT|0600);semget(8,1,IPC_CREAT|0600);}"
    )
    load = (
        f'if(getpid()==1){{close(shm_open("/{name}-load",O_CREAT|O_RDWR,0600));'
        "shmget(7,4096,IPC_CREAT|0600);}"
    )
    with opened(tmp_path, count + make, on_load=load) as target:
        note.unlink(missing_ok=True)
        for _ in range(3):
            assert target.run(CASE).death is None
    assert note.read_text() == "1 1 0 0\n" * 3
    assert not list(Path("/dev/shm").glob(f"{name}-*"))
    assert ctypes.CDLL(None).shmget(7, 1, 0) == -1


@pytest.mark.full
def test_processes_that_multiply_come_to_an_end(tmp_path: Path) -> None:
    """Where the limit is the system's own, this would end the system."""
    note = tmp_path / "note"
    before = Path("/proc/sys/kernel/pid_max").read_text()
    limited = f'FILE*n=fopen("{note}","w"),*p=fopen("/proc/sys/kernel/pid_max","r");int max=0;'
    many = (
        "if(max==1024&&!fork()){setsid();for(int n=0;n<2000;++n)if(!fork())for(;;)sleep(9);}usleep(300000);"
    )
    with opened(
        tmp_path, f'{limited}fscanf(p,"%d",&max);fprintf(n,"%d",max);fclose(n);fclose(p);{many}'
    ) as target:
        for _ in range(2):
            assert target.run(CASE).death is None
            assert target.run(HARMLESS).death is None
    assert Path("/proc/sys/kernel/pid_max").read_text() == before
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 14):
        assert note.read_text() == "1024"


@pytest.mark.parametrize(
    "on_load",
    [
        *first(
            [
                "if(getpid()==1)interface.name=calloc(9,1)",
                "if(getpid()==1)exit(3)",
                "if(getpid()==1)abort()",
                'if(access(FRIEND,0))interface.name="NO FRIEND"',
            ]
        ),
    ],
)
def test_a_target_that_is_another_in_them_is_judged_outside(tmp_path: Path, on_load: str) -> None:
    friend = Path(f"/dev/shm/pytest-qnn-friend-{os.getpid()}")
    friend.touch()
    on_load = on_load.replace("FRIEND,", f'"{friend}",')
    try:
        with opened(tmp_path, "if(getppid()==1)abort()", on_load=on_load) as target:
            assert target.facts.provider == "MISBEHAVING"
            assert target.run(CASE).death is None
            assert target.run_fresh(CASE).death is None
            assert target.provenance()["namespaces"] == "shared"
    finally:
        friend.unlink()


def test_a_target_that_dies_in_them_only_is_judged_outside(tmp_path: Path) -> None:
    with opened(tmp_path, "if(getppid()==1)abort()") as target:
        assert target.run(CASE).death is None
        assert target.provenance()["namespaces"] == "shared"


def test_a_library_that_cannot_be_loaded_anywhere_says_why_it_cannot_outside(tmp_path: Path) -> None:
    with (
        pytest.raises(TargetUnusable, match="died of SIGABRT while loading it"),
        opened(tmp_path, on_load="abort()"),
    ):
        pass


@pytest.mark.full
def test_a_delegate_is_judged_in_them_too(tmp_path: Path) -> None:
    library = delegate_library(tmp_path, on_prepare="if (getppid() == 1) kill(-1, 9)", before=HEADERS)
    with contextlib.closing(
        open_delegate_target([(str(library), {})], "tflite_runtime", "fork", LIMIT)
    ) as target:
        assert target.provenance()["namespaces"] == "own"


def test_every_kind_of_child_is_in_them(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with opened(tmp_path, f'FILE*n=fopen("{note}","a");fprintf(n,"%d\\n",getppid());fclose(n);') as target:
        measuring = MemoryCase((*CASE.steps,), ends=True)
        for run in (target.run, target.run_fresh):
            for case in (CASE, measuring):
                note.unlink()
                assert run(case).death is None
                # Each of the four kinds; a child may be given the case again, or begin before it has one.
                assert set(note.read_text().splitlines()) == {"1"}


def test_the_end_of_pytest_is_the_end_of_all(tmp_path: Path, temporary: Path) -> None:
    note = tmp_path / "note"
    pid = os.fork()
    if not pid:
        try:
            action = f'fclose(fopen("{note}","w"));if(!fork()){{setsid();sleep(60);}}sleep(60);'
            with opened(tmp_path, action) as target:
                target.run(CASE)
        finally:
            os._exit(0)
    # Not while a supervisor is being started, whose folder is nobody's then.
    assert within(20.0, note.exists)
    time.sleep(0.2)
    assert relatives(str(temporary))
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert within(5.0, lambda: relatives(str(temporary)) == [] and list(temporary.iterdir()) == [])
