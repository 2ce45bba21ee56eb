"""Hosts that lack something: it is said, and done without where that is possible; no target is blamed."""

from __future__ import annotations

import errno
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import fake_suite
import pytest
from fast_run import later
from native import qnn_library

from pytest_qnn.isolation import libc, processes, warm_start, wire
from pytest_qnn.isolation.host import exit_watch, lacks
from pytest_qnn.isolation.host.exit_watch import ExitWatch
from pytest_qnn.isolation.host.shared_memory import shared_memory
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner import registrations
from pytest_qnn.qnn.target import open_memory_target

REFUSE = """
import ctypes, struct

def refuse(*calls):
    # A seccomp filter, as a container's profile is one: (number, first argument or None), answered by ENOSYS.
    load, equal, leave = 0x20, 0x15, 0x06
    steps = []
    for number, argument in calls:
        answer = [(leave, 0, 0, 0x00050000 | 38)]
        if argument is not None:
            answer = [(load, 0, 0, 16), (equal, 0, 1, argument), *answer]
        steps += [(load, 0, 0, 0), (equal, 0, len(answer), number), *answer]
    code = b"".join(struct.pack("<HBBI", *step) for step in (*steps, (leave, 0, 0, 0x7FFF0000)))
    filters = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.prctl(38, 1, 0, 0, 0)
    assert not libc.prctl(22, 2, program, 0, 0), ctypes.get_errno()

MEMFD, PIDFD, PRCTL = 319, 434, 157
"""
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of calls of x86-64")


def script(body: str, *arguments: str) -> str:
    """What a process prints that can refuse system calls to itself and its children."""
    paths = os.pathsep.join([str(Path(fake_suite.__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", REFUSE + textwrap.dedent(body), *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(number: int) -> Callable[..., NoReturn]:
    def refused(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refused


@pytest.fixture(params=["ENOSYS", "EPERM", "EACCES", "absent"])
def no_memfd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "absent":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "memfd_create", refuse(getattr(errno, request.param)))


def link_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.mark.usefixtures("no_memfd")
def test_without_memfds_shared_memory_is_an_unlinked_file() -> None:
    fd = shared_memory("a/name", 1 << 20)
    try:
        assert not os.get_inheritable(fd)
        assert os.fstat(fd).st_size == 1 << 20
        assert os.fstat(fd).st_nlink == 0
        assert Path(link_of(fd)).name.startswith("memfd:a_name-")
        read_only = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # as cases about descriptors open theirs
        os.pwrite(fd, b"seen", 4096)
        assert os.pread(read_only, 4, 4096) == b"seen"
        os.close(read_only)
    finally:
        os.close(fd)


@pytest.mark.usefixtures("no_memfd")
def test_without_memfds_a_slot_carries_requests_and_replies() -> None:
    before = len(os.listdir("/proc/self/fd"))
    slot = wire.Slot.make()
    handed_on = wire.Slot(os.dup(slot.fileno()))
    handed_on.close_in_child()
    slot.write_request(b"request")
    assert handed_on.read_request() == b"request"
    assert handed_on.answer(b"answer")
    assert slot.result() == (-1, False, [b"answer"])
    slot.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.usefixtures("no_memfd")
def test_without_memfds_there_is_memory_for_cases() -> None:
    before = len(os.listdir("/proc/self/fd"))
    rpcmem = EmulatedRpcmem()
    pointer = rpcmem.alloc(25, 1, 4096)
    assert pointer
    assert Path(link_of(rpcmem.to_fd(pointer))).name.startswith("memfd:rpcmem-")
    rpcmem.free(pointer)
    live: set[mapping.Mapping] = set()
    mapping.anonymous("qnn-io", 4096, live).release()
    with registrations._odd_fd("readonly", 4096) as fd:
        assert os.fstat(fd).st_size == 4096
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(fd, b"x", 0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_memfd_is_taken_where_there_is_one() -> None:
    fd = shared_memory("x" * 300, 4096, fixed=True)
    try:
        assert link_of(fd) == f"/memfd:{'x' * 200} (deleted)"
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def test_a_descriptor_too_many_is_no_lack_of_memfds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", refuse(errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files"):
        shared_memory("name", 4096)


class Room:
    f_frsize = 4096

    def __init__(self, pages: int) -> None:
        self.f_bavail = pages


def test_a_file_is_made_where_there_is_room_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "memfd_create", refuse(errno.ENOSYS))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rooms = {"/dev/shm": 15, str(tmp_path): 16}
    monkeypatch.setattr(os, "statvfs", lambda folder: Room(rooms[folder]))
    fd = shared_memory("name", 16 * 4096)
    assert link_of(fd).startswith(f"{tmp_path}/memfd:name-")
    os.close(fd)
    assert list(tmp_path.iterdir()) == []
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=f"memfd_create is refused, .* /dev/shm or {tmp_path}, .* 69632 bytes"):
        shared_memory("name", 17 * 4096)
    assert len(os.listdir("/proc/self/fd")) == before


@X86
@pytest.mark.parametrize("mode", ["fork", later("spawn")])
def test_without_memfds_cases_run_in_children(tmp_path: Path, mode: str) -> None:
    said = script(
        """
        import sys
        refuse((MEMFD, None))
        from sandboxed import CASE, HARMLESS
        from pytest_qnn.qnn.target import open_memory_target
        target = open_memory_target(sys.argv[1], "emulated", sys.argv[2], 10.0)
        print(target.run(HARMLESS).death, target.run(CASE).death.detail, target.run(HARMLESS).death)
        target.close()
        """,
        str(qnn_library(tmp_path, "abort()")),
        mode,
    )
    assert said == "None the process died of SIGABRT None\n"


@X86
@pytest.mark.full
def test_without_memfds_the_reference_is_judged_as_with_them(tmp_path: Path) -> None:
    rules = "rpc_0 or reg_02 or reg_08 or ext_0 or shb_0 or qmg_01 or ctx_03 or drg_02"
    said = script(
        """
        import sys
        refuse((MEMFD, None))
        import pytest
        options = ["-q", "-n0", "-p", "no:cacheprovider", "--qnn-profile=quick", "--qnn-sandbox=fork"]
        report = "--qnn-report=" + sys.argv[2]
        sys.exit(pytest.main([*options, report, "--pyargs", "pytest_qnn.conformance", "-k", sys.argv[1]]))
        """,
        rules,
        str(tmp_path / "out.json"),
    )
    document = json.loads((tmp_path / "out.json").read_text())
    (lack,) = document["host_lacks"]
    assert lack.startswith("memfd_create is refused (Function not implemented): ")
    assert f"\nhost: {lack}\n" in said


@pytest.fixture(params=["pidfd", "ENOSYS", "EPERM", "absent"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a pidfd, and with each way of having none."""
    if request.param == "absent":
        monkeypatch.delattr(os, "pidfd_open")
    elif request.param != "pidfd":
        monkeypatch.setattr(os, "pidfd_open", refuse(getattr(errno, request.param)))
    return str(request.param)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its standard input does."""
    command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def watched(child: subprocess.Popen[bytes], way: str) -> ExitWatch:
    watch = ExitWatch(child.pid)
    assert len(watch.descriptors) == (way == "pidfd")
    return watch


def test_an_end_is_seen_soon_and_left_for_others_to_reap(child: subprocess.Popen[bytes], way: str) -> None:
    watch = watched(child, way)
    assert watch.wait(0.03, {}) == (False, frozenset())
    child.kill()
    started = time.monotonic()
    assert watch.wait(20.0, {}) == (True, frozenset())
    assert time.monotonic() - started < 10.0
    assert watch.wait(0.0, {}).ended
    assert child.wait() == -signal.SIGKILL
    assert way == "pidfd" or watch.wait(5.0, {}).ended  # reaped by somebody else
    watch.close()
    watch.close()
    assert watch.descriptors == ()


def test_a_descriptor_ends_the_wait_and_is_named(child: subprocess.Popen[bytes], way: str) -> None:
    watch = watched(child, way)
    read_fd, write_fd = os.pipe()
    other_fd, closed_fd = os.pipe()
    others = {read_fd: select.POLLIN, other_fd: select.POLLIN}
    assert watch.wait(0.02, others) == (False, frozenset())
    os.write(write_fd, b"!")
    started = time.monotonic()
    assert watch.wait(20.0, others) == (False, {read_fd})
    assert time.monotonic() - started < 10.0
    os.close(closed_fd)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert watch.wait(20.0, others) == (True, {read_fd, other_fd})
    watch.close()
    for fd in (read_fd, write_fd, other_fd):
        os.close(fd)


def test_the_last_that_a_child_did_is_seen_with_its_end(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pidfd_open", refuse(errno.ENOSYS))
    watch = ExitWatch(child.pid)
    read_fd, write_fd = os.pipe()

    def ends_now(_: int) -> bool:
        os.write(write_fd, b"!")  # after the descriptors were looked at
        return True

    monkeypatch.setattr(exit_watch, "_has_ended", ends_now)
    assert watch.wait(20.0, {read_fd: select.POLLIN}) == (True, {read_fd})
    os.close(read_fd)
    os.close(write_fd)


def test_a_time_that_is_over_is_kept(child: subprocess.Popen[bytes], way: str) -> None:
    watch = watched(child, way)
    for seconds in (-1.0, 0.0, 0.05):
        started = time.monotonic()
        assert watch.wait(seconds, {}) == (False, frozenset())
        assert seconds <= time.monotonic() - started < seconds + 2.0
    child.kill()
    assert watch.wait(float("inf"), {}).ended
    watch.close()


def test_looks_take_little_processor_time(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pidfd_open", refuse(errno.ENOSYS))
    watch = ExitWatch(child.pid)
    looks = []
    waitid = os.waitid
    monkeypatch.setattr(os, "waitid", lambda *arguments: (looks.append(1), waitid(*arguments))[1])
    assert not watch.wait(0.2, {}).ended
    assert 2 <= len(looks) <= 30


def test_a_descriptor_that_is_not_to_be_had_is_an_error(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pidfd_open", refuse(errno.EMFILE))
    with pytest.raises(OSError, match="Too many open files"):
        ExitWatch(child.pid)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.EAGAIN,
            (
                "no process could be started (Resource temporarily unavailable): the user's limit of "
                "processes (ulimit -u) or the container's (pids limit) is too low: raise it, "
                "or run fewer workers (-n)"
            ),
        ),
        (
            errno.ENOMEM,
            "no process could be started (Cannot allocate memory): the machine or the container has *",
        ),
        (errno.EMFILE, "no process could be started (Too many open files): *(ulimit -n)*"),
        (errno.EPERM, "no process could be started (Operation not permitted): *seccomp*"),
        (errno.EIO, "no process could be started (Input/output error)"),
    ],
)
def test_why_no_process_could_be_started(number: int, said: str) -> None:
    why = lacks.why_no_process(OSError(number, os.strerror(number)))
    before, star, after = said.partition("*")
    assert why.startswith(before)
    assert star or why == said
    assert all(part in why for part in after.split("*"))
    assert lacks.why_no_process(OSError("no number")) == "no process could be started (no number)"


@pytest.mark.parametrize("attempt", ["os.fork() or os._exit(0)", "subprocess.Popen(['/bin/true'])"])
def test_a_limit_of_processes_is_named(attempt: str) -> None:
    said = script(
        f"""
        import os, resource, subprocess
        from pytest_qnn.isolation.host.lacks import why_no_process
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        if os.geteuid() == 0:  # who is exempt from the limit
            os.setresuid(65534, 65534, 65534)
        try:
            {attempt}
        except OSError as error:
            print(why_no_process(error))
        """
    )
    assert said.startswith("no process could be started (Resource temporarily unavailable): ")
    assert "(ulimit -u)" in said


def test_a_folder_for_temporary_files_that_cannot_be_made_is_not_a_lack_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")  # where nobody makes one
    with pytest.raises(TargetUnusable) as refused:
        open_memory_target("reference", "emulated", "fork", 5.0)
    assert str(refused.value).endswith(
        "no folder for temporary files could be made, in TMPDIR or /tmp: No such file or directory"
    )


def test_a_warm_start_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", refuse(errno.EAGAIN))
    before = len(os.listdir("/proc/self/fd"))
    assert warm_start.written_by(lambda: None) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def afresh() -> Iterator[None]:
    for cached in (lacks.lacks, processes._kernel_lists_children):
        cached.cache_clear()
    yield
    for cached in (lacks.lacks, processes._kernel_lists_children):
        cached.cache_clear()


def sentences() -> tuple[str, ...]:
    lacks.lacks.cache_clear()
    return lacks.lacks()


@pytest.mark.usefixtures("afresh")
def test_a_host_that_has_everything_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it is known: each need that this host lacks is given to it."""
    assert len(sentences()) < len(lacks._NEEDS)
    for name in ("memfd_create", "pidfd_open"):
        monkeypatch.setattr(os, name, lambda *_: os.open(os.devnull, os.O_RDONLY), raising=False)
    opened = open
    monkeypatch.setattr(lacks, "open", lambda *_: opened(os.devnull, "rb"), raising=False)
    monkeypatch.setattr(libc, "set_as_it_is", lambda *_: None)
    before = len(os.listdir("/proc/self/fd"))
    assert sentences() == ()
    assert len(os.listdir("/proc/self/fd")) == before


def no_children(*_: object) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def refused_prctl(option: int) -> Callable[[int, int], None]:
    return lambda _, written: refuse(errno.EPERM)() if written == option else None


@pytest.mark.usefixtures("afresh")
@pytest.mark.parametrize(
    ("owner", "name", "value", "sentence"),
    [
        (
            os,
            "memfd_create",
            refuse(errno.ENOSYS),
            "memfd_create is refused (Function not implemented): memory *",
        ),
        (os, "memfd_create", None, "memfd_create is not in this Python: memory *"),
        (os, "pidfd_open", refuse(errno.EPERM), "pidfd_open is refused (Operation not permitted): whether *"),
        (
            lacks,
            "open",
            no_children,
            "/proc/PID/task/TID/children (CONFIG_PROC_CHILDREN) is refused (No such *",
        ),
        (
            *(libc, "set_as_it_is", refused_prctl(libc.PR_SET_CHILD_SUBREAPER)),
            "prctl(PR_SET_CHILD_SUBREAPER) is refused (Operation not permitted): a process *",
        ),
        (
            *(libc, "set_as_it_is", refused_prctl(libc.PR_SET_PDEATHSIG)),
            "prctl(PR_SET_PDEATHSIG) is refused (Operation not permitted): where pytest *",
        ),
    ],
)
def test_each_lack_is_a_sentence_with_its_consequence(
    owner: Any, name: str, value: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sentences()
    if value is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, value, raising=False)
    assert lacks.lacks() == before  # once for a process
    (added,) = [said for said in sentences() if said not in before]
    assert added.startswith(sentence.rstrip("*"))


@pytest.mark.usefixtures("afresh")
def test_a_bad_moment_is_no_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sentences()
    monkeypatch.setattr(os, "memfd_create", refuse(errno.EMFILE))
    assert [said for said in sentences() if said not in before] == []


@X86
def test_what_the_kernel_refuses_is_seen_and_nothing_is_changed() -> None:
    said = script(
        """
        import ctypes, time
        from pytest_qnn.isolation import libc as ours
        from pytest_qnn.isolation.host.lacks import lacks
        prctl = ctypes.CDLL(None).prctl
        prctl(ours.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(ours.PR_SET_PDEATHSIG, 10, 0, 0, 0)
        lacks()
        for get in (ours.PR_GET_CHILD_SUBREAPER, ours.PR_GET_PDEATHSIG):
            number = ctypes.c_int()
            prctl(get, ctypes.byref(number), 0, 0, 0)
            print(number.value)
        lacks.cache_clear()
        setters = ours.PR_SET_CHILD_SUBREAPER, ours.PR_SET_PDEATHSIG
        refuse((MEMFD, None), (PIDFD, None), *((PRCTL, setter) for setter in setters))
        print(sum("is refused (Function not implemented): " in lack for lack in lacks()))
        lacks.cache_clear()
        started = time.process_time()
        lacks()
        print(time.process_time() - started)
        """
    ).split()
    assert said[:3] == ["1", "10", "4"]
    assert float(said[3]) < 0.01  # seconds; 0.0001 on an idle machine


def test_children_are_found_without_the_kernels_list(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-S", "-c", "import os, time; os.fork(); print(flush=True); time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == parent.stdout.readline()
        try:
            listed = [sorted(processes.children()), processes.children(parent.pid)]
            monkeypatch.setattr(processes, "_kernel_lists_children", lambda: False)
            assert {child.pid, parent.pid} <= set(listed[0])
            assert len(listed[1]) == 1
            assert [sorted(processes.children()), processes.children(parent.pid)] == listed
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.usefixtures("fakes", "afresh")
def test_the_report_says_what_the_host_lacks(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01"))
    arguments = ("-p", "no:cacheprovider", "--qnn-report=out.json", "--qnn-report=out.html")
    monkeypatch.setattr(fake_suite.FakeTarget, "surroundings", lambda *_: ((), ("a <b>: c", "d: e")))
    result = pytester.runpytest_inprocess(*arguments)
    result.stdout.fnmatch_lines(["host: a <b>: c", "host: d: e"], consecutive=True)
    assert json.loads(Path("out.json").read_text())["host_lacks"] == ["a <b>: c", "d: e"]
    assert '<th scope="row">host</th><td>a &lt;b&gt;: c\nd: e</td>' in Path("out.html").read_text()
    monkeypatch.setattr(fake_suite.FakeTarget, "surroundings", lambda *_: ((), ()))
    result = pytester.runpytest_inprocess(*arguments)
    assert "host: " not in result.stdout.str()
    assert "host_lacks" not in json.loads(Path("out.json").read_text())
