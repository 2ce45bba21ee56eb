"""What a target does to its own process costs one case, never the run."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import left
import pytest
import sandboxed
from fast_run import first
from hostile import relatives
from native import qnn_library
from sandboxed import CASE, HARMLESS, within

from pytest_qnn.isolation import supervisor, wire
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target

LIMITS = {"fork": 1.0, "spawn": 4.0}
"""Seconds for a case; with a fresh interpreter, also on a busy machine."""


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryTarget]:
    behaviour, mode = request.param
    opened = open_memory_target(str(qnn_library(tmp_path, behaviour)), "emulated", mode, LIMITS[mode])
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


@pytest.mark.parametrize("target", first(modes("signal(SIGTERM,SIG_IGN);for(;;)")), indirect=True)
def test_a_loop_is_a_hang_after_its_time_and_not_much_later(target: MemoryTarget) -> None:
    started = time.monotonic()
    death = target.run(CASE).death
    assert death is not None
    limit = LIMITS[target.provenance()["isolation"]]
    assert (death.kind, death.evidence.during) == ("hang", "QnnContext_create")
    assert death.detail.startswith("no answer: still computing after ")
    assert death.detail.endswith(" of processor time")
    assert limit <= time.monotonic() - started < 5 * limit + 2.0


@pytest.mark.parametrize("target", [("for(int i=0;i<99999;++i)puts(__FILE__)", "fork")], indirect=True)
def test_a_flood_on_stdout_is_no_event(target: MemoryTarget) -> None:
    assert target.run(CASE).death is None


@pytest.mark.parametrize("target", [("for(int i=0;i<1024;++i)close(i)", "fork")], indirect=True)
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


@pytest.mark.parametrize("target", [("if(getsid(0)!=getpid())abort()", "fork")], indirect=True)
def test_a_case_has_a_session_of_its_own(target: MemoryTarget) -> None:
    """Where the kernel shares processors out by session, its processes leave the supervisor a part."""
    assert target.run(CASE).death is None


def test_a_copy_of_the_process_does_not_go_on_with_the_cases(tmp_path: Path) -> None:
    """Each of nine calls would double the processes, and the answers would be those of several."""
    note = tmp_path / "note"
    forks = f'fork();int fd=open("{note}",O_WRONLY|O_CREAT|O_APPEND,0600);write(fd,"!",1);close(fd);'
    library = qnn_library(tmp_path, forks, before="#include <fcntl.h>")
    cases = [MemoryCase(tuple(ContextCreate(f"c{number}") for number in range(3)))] * 3
    with contextlib.closing(open_memory_target(str(library), "emulated", "fork", 5.0)) as target:
        answers = list(target.run_all(cases))
    assert [(trace.death, len(trace.steps)) for trace, _ in answers] == [(None, 3)] * 3
    assert 9 <= len(note.read_bytes()) <= 2 * 9


def test_closing_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    library = str(qnn_library(tmp_path))
    before = left.descriptors()
    target = open_memory_target(library, "emulated", "fork", 5.0)
    target.run(CASE)
    target.close()
    assert left.descriptors() == before
    assert left.children() == []


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
        died = "the process died of SIGSEGV in QnnBackend_create"
        assert target.facts.deaths == (f"all: {died}", f"validated: {died}")
        assert target.facts.provider == "MISBEHAVING"
        assert target.run(CASE).death is not None
    finally:
        target.close()


@pytest.fixture
def slot() -> Iterator[wire.Slot]:
    made = wire.Slot.make()
    yield made
    made.close()


def test_a_slot_holds_no_descriptor_once_it_is_hidden() -> None:
    before = len(os.listdir("/proc/self/fd"))
    slot = wire.Slot.make()
    handed_on = wire.Slot(os.dup(slot.fileno()))
    handed_on.close_in_child()
    handed_on.step(7)
    handed_on.answer(b"answer")
    assert slot.result() == (7, False, [b"answer"])
    slot.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_slot_cannot_be_cut_off_under_the_supervisor(slot: wire.Slot) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(slot.fileno(), 0)


@pytest.mark.parametrize(
    ("header", "seen"),
    [
        (struct.pack("<qQQQ", -1, 0, 0, 0), (-1, False, [])),
        (struct.pack("<qQQQ", 1 << 62, 0, 0, 0), (-1, False, [])),
        (struct.pack("<qQQQQQ", -5, 0, 1, 9, 0, 1 << 63), (-1, False, [])),
        (struct.pack("<qQQQQQ", 3, 0, 1, 9, 0, wire.MAX_ANSWER + 1), (3, False, [])),
        (struct.pack("<qQQQQQ", 3, 7, 1 << 63, 9, 0, 1) + b"a" + b"\xc1" * 8, (3, True, [b"a"])),
        (struct.pack("<qQQQ", 3, 1, 1 << 63, 0), (3, True, [b""] * wire.MAX_REPLIES)),
        (b"\xc1" * 48, (-1, True, [])),
    ],
)
def test_an_absurd_slot_says_nothing(
    slot: wire.Slot, header: bytes, seen: tuple[int, bool, list[bytes]]
) -> None:
    os.pwrite(slot.fileno(), header, 0)
    assert slot.result() == seen


def test_a_request_is_found_in_the_slot_and_then_the_case_has_begun(slot: wire.Slot) -> None:
    slot.write_request(b"request")
    assert not slot.begun
    assert slot.result() == (-1, False, [])
    assert slot.read_request() == b"request"
    assert slot.begun
    answers = [b"an answer that is longer than the request", b"", b"the third"]
    for count, answer in enumerate(answers):
        assert slot.answered == count
        assert slot.answer(answer)
    assert slot.result() == (-1, False, answers)
    slot.stop()
    assert slot.result() == (-1, True, answers)


def test_an_answer_for_which_there_is_no_room_beside_others_is_left_out(slot: wire.Slot) -> None:
    assert slot.answer(b"first")
    assert not slot.answer(bytes(wire.MAX_ANSWER))
    assert slot.result() == (-1, False, [b"first"])


def test_a_request_larger_than_the_slot_is_refused(slot: wire.Slot) -> None:
    with pytest.raises(ValueError, match="more than"):
        slot.write_request(bytes(wire.MAX_REQUEST + 1))


def test_an_answer_larger_than_the_slot_is_refused(slot: wire.Slot) -> None:
    with pytest.raises(ValueError, match="more than"):
        slot.answer(bytes(wire.MAX_ANSWER + 1))


def test_garbage_for_an_answer_is_a_death_and_no_error() -> None:
    chance = random.Random(1)
    whole = b"\x81\xa7payload\xc4\x03abc"
    answers = [chance.randbytes(chance.randrange(40)) for _ in range(2000)]
    answers += [whole[:cut] for cut in range(len(whole))]
    answers += [b"\x81\xa1x" + b"\x91" * 1_000_000, b"\x81\xa7payload\xc6\xff\xff\xff\xff"]
    replies = supervisor.judge(0, 0, answers, whole=True)
    assert len(replies) == len(answers)
    assert {reply.death for reply in replies} == {"garbage"}
    assert [reply.payload for reply in supervisor.judge(0, 0, [whole, whole], whole=True)] == [b"abc"] * 2


def test_a_message_that_does_not_come_is_a_timeout_and_an_absurd_one_no_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<Q", 5) + b"half")
        with pytest.raises(TimeoutError):
            wire.receive(ours, time.monotonic() + 0.05)
        theirs.sendall(struct.pack("<Q", 1 << 62))
        with pytest.raises(wire.Closed, match="was announced"):
            wire.receive(ours, time.monotonic() + 1.0)
        with pytest.raises(TimeoutError):  # nobody reads it
            wire.send(theirs, bytes(16 << 20), time.monotonic() + 0.05)


def test_a_killed_pytest_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    note = tmp_path / "note"
    library = qnn_library(tmp_path, f'fopen("{note}", "w");for(;;)')
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from sandboxed import CASE\n"
        "from pytest_qnn.qnn.target import open_memory_target\n"
        "open_memory_target(sys.argv[1], 'emulated', 'fork', 60.0).run(CASE)"
    )
    command = [sys.executable, "-c", script, str(library), str(Path(sandboxed.__file__).parent)]
    host = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    try:
        assert within(20.0, note.exists)
        assert relatives(str(temporary))
    finally:
        host.kill()
        host.wait()
    assert within(5.0, lambda: not relatives(str(temporary)))
    assert list(temporary.iterdir()) == []
