"""What hangs, and what is only slow: a waiting child, a computing one, one whose calls come back."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fast_run import later
from native import qnn_library
from sandboxed import CASE, HARMLESS

from pytest_qnn.isolation import hangs, processes, supervisor
from pytest_qnn.isolation.observe import cpu_time
from pytest_qnn.isolation.observe.cpu_time import Usage, usage
from pytest_qnn.qnn.cases import plain as qnn_plain
from pytest_qnn.qnn.cases.case import ContextCreate, Lived, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.script import Invoke, Open, Repeat, ScriptCase
from pytest_qnn.tflite.runner import plain as tflite_plain

LIMIT = 1.0
"""Seconds for a case."""
SPIN = (
    "struct timespec from,now;clock_gettime(3,&from);do clock_gettime(3,&now);"
    "while((now.tv_sec-from.tv_sec)*1e3+(now.tv_nsec-from.tv_nsec)/1e6<%d)"
)
"""So many milliseconds of the thread's own processor time."""
HEADERS = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static void* spin(void* p) { for (volatile int on = 1; on;) {} return p; }
static void* look(void* p) { for (;;) usleep(20000); return p; }
"""


@contextlib.contextmanager
def opened(folder: Path, behaviour: str, limit: float = LIMIT) -> Iterator[MemoryTarget]:
    target = open_memory_target(
        str(qnn_library(folder, behaviour, before=HEADERS)), "emulated", "fork", limit
    )
    try:
        yield target
    finally:
        target.close()


def detail_of(target: MemoryTarget, case: MemoryCase = CASE) -> str:
    """Why it hangs: in the one call that the library of these tests makes long."""
    death = target.run(case).death
    assert death is not None
    assert (death.kind, death.evidence.during) == ("hang", "QnnContext_create")
    return death.detail


@pytest.mark.parametrize("beside", ["", "static pthread_t t;pthread_create(&t,0,look,0);"])
def test_who_waits_for_nothing_hangs_at_once_and_says_where(tmp_path: Path, beside: str) -> None:
    with opened(tmp_path, f"{beside}for(;;)pause()") as target:
        started = time.monotonic()
        assert detail_of(target) == "no answer: used no processor time for 1 s"
        assert time.monotonic() - started < 2 * LIMIT
        assert target.run(HARMLESS).death is None


def test_a_call_in_which_the_target_hung_three_times_is_told_sooner(tmp_path: Path) -> None:
    longer = 1.25
    with opened(tmp_path, "for(;;)pause()", longer) as target:
        details = [detail_of(target) for _ in range(4)]
    told = "no answer: used no processor time for"
    assert details == [*[f"{told} 1.25 s"] * 3, f"{told} 1 s, as the call had hung 3 times"]


def test_one_call_that_hangs_makes_no_other_one_hang() -> None:
    calls = hangs.Calls(10.0)
    for _ in range(2):
        calls.note("invoke of kernel 0, nodes 0 (ADD), 1 (ADD)")
    assert calls.patience("invoke of kernel 0, node 3 (MUL)") == 10.0
    calls.note("invoke of kernel 1, node 0 (ADD)")
    assert calls.patience("invoke of kernel 0, node 3 (MUL)") == 1.0
    assert calls.patience("prepare of kernel 0, node 3 (MUL)") == calls.patience("") == 10.0
    short = hangs.Calls(0.4)
    for _ in range(3):
        short.note("QnnMem_register")
    assert short.patience("QnnMem_register") == 0.4


@pytest.mark.parametrize(
    "behaviour",
    [
        later("static pthread_t t;pthread_create(&t,0,spin,0);for(;;)pause()", name="thread"),
        later("if(!fork())spin(0);for(;;)pause()", name="child"),
        pytest.param("if(!fork()){setsid();if(fork())_exit(0);spin(0);}for(;;)pause()", id="daemon"),
    ],
)
def test_threads_and_children_that_compute_are_the_childs_own(tmp_path: Path, behaviour: str) -> None:
    with opened(tmp_path, behaviour) as target:
        assert detail_of(target).startswith("no answer: still computing after ")


def test_who_computes_longer_than_the_time_of_a_case_is_slow_only(tmp_path: Path) -> None:
    # The plain case makes one context too, and the case four.
    case = MemoryCase(tuple(ContextCreate(f"c{number}") for number in range(4)))
    with opened(tmp_path, SPIN % 400) as target:
        assert target.run(case).death is None


def test_who_sleeps_in_each_of_many_calls_is_slow_only(tmp_path: Path) -> None:
    case = MemoryCase(tuple(ContextCreate(f"c{number}") for number in range(30)))
    with opened(tmp_path, "usleep(80000)") as target:
        assert target.run(case).death is None


STOPPED = """
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase
from pytest_qnn.qnn.target import open_memory_target
target = open_memory_target({library!r}, "emulated", "fork", {limit})
case = MemoryCase(tuple(ContextCreate(f"c{{number}}") for number in range(3)))
print("opened", flush=True)
print(target.run(case).death)
target.close()
"""


def test_time_in_which_all_of_them_are_stopped_is_nobodys(tmp_path: Path) -> None:
    """As by Ctrl-Z, or where the machine sleeps."""
    library = str(qnn_library(tmp_path, "usleep(600000)", before=HEADERS))
    code = STOPPED.format(library=library, limit=LIMIT)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "opened\n"
        time.sleep(0.3)
        (supervisor_id, *others) = processes.descendants(client.pid)
        for each in (client.pid, supervisor_id, *others):
            os.kill(each, signal.SIGSTOP)
        time.sleep(3 * LIMIT)
        for each in (client.pid, supervisor_id):
            os.kill(each, signal.SIGCONT)
        time.sleep(0.3)
        for each in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
        assert client.stdout.read() == "None\n"


def test_of_many_cycles_there_is_an_end_too(tmp_path: Path) -> None:
    case = MemoryCase(tuple(ContextCreate(f"c{number}") for number in range(60)))
    with opened(tmp_path, "usleep(300000)") as target:
        started = time.monotonic()
        assert detail_of(target, case).endswith(" of processor time")
        assert time.monotonic() - started > 4.9 * LIMIT


def _loop(parent: int) -> None:
    while os.getppid() == parent:
        pass


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    loops = [multiprocessing.Process(target=_loop, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


@pytest.mark.full
def test_beside_four_busy_loops_a_case_has_as_much_processor_time(tmp_path: Path) -> None:
    with opened(tmp_path, SPIN % 600) as target, busy(4):
        assert target.run(CASE).death is None


class Told:
    """What a child and a clock say in turn: (seconds, usage, cases answered, steps begun)."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, turns: Sequence[tuple[float, Usage, int, int]]
    ) -> None:
        self.now, self.usage = 0.0, Usage()
        self._turns = turns
        monkeypatch.setattr(hangs.time, "monotonic", lambda: self.now)

    def first(self, watch: hangs.Watch) -> tuple[float, str]:
        """When and why it hangs."""
        for now, used, answered, progress in self._turns:
            self.now, self.usage = now, used
            why = watch.hangs(answered, progress)
            if why:
                return now, why
        return self.now, ""


def watched(
    monkeypatch: pytest.MonkeyPatch,
    turns: Sequence[tuple[float, Usage, int, int]],
    plain: float,
    cycles: Sequence[int] = (1,),
) -> tuple[float, str]:
    told = Told(monkeypatch, turns)
    return told.first(hangs.Watch(10.0, cycles, lambda: told.usage, lambda: plain))


def seconds(count: int, cpu: float, waited: float = 0.0) -> list[tuple[float, Usage, int, int]]:
    return [(float(now), Usage(now * cpu, now * waited), 0, 0) for now in range(count)]


@pytest.mark.parametrize(
    ("plain", "cycles", "end"),
    [
        (0.01, 1, 10),  # a tenth of a second would do
        (0.1, 20, 20),
        (0.1, 1000, 50),
        (3.0, 1, 30),
        (0.0, 1, 50),  # it died
        (float("inf"), 1, 10),
    ],
)
def test_who_computes_gets_ten_times_what_its_cycles_cost(
    monkeypatch: pytest.MonkeyPatch, plain: float, cycles: int, end: int
) -> None:
    now, why = watched(monkeypatch, seconds(100, 1.0), plain, [cycles])
    assert now == end
    assert why == f"still computing after {end} s, of which {end} s of processor time"


def test_what_others_took_of_the_processors_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, why = watched(monkeypatch, seconds(100, 0.4, 0.6), 0.01)
    assert now == 25
    assert why == "still computing after 25 s, of which 10 s of processor time"
    assert watched(monkeypatch, seconds(300, 0.005, 0.995), 0.01)[0] == 200


def test_who_stops_computing_hangs_the_time_of_a_case_later(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [(float(now), Usage(min(now, 3.0)), 0, 0) for now in range(100)]
    assert watched(monkeypatch, turns, 0.0) == (13.0, "used no processor time for 10 s")
    assert watched(monkeypatch, turns, 0.01) == (10.0, "used no processor time for 7 s, the last of 10 s")


def test_each_case_has_its_own_time_and_its_own_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [(float(now), Usage(float(now)), now // 9, 0) for now in range(27)]
    turns += [(float(now), Usage(float(now)), 3, 0) for now in range(27, 100)]
    now, why = watched(monkeypatch, turns, 1.0, [1, 1, 1, 3])
    assert (now, why) == (57.0, "still computing after 30 s, of which 30 s of processor time")


def test_steps_that_begin_are_work(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [(float(now), Usage(), 0, now // 8) for now in range(40)]
    turns += [(float(now), Usage(), 0, 4) for now in range(40, 100)]
    assert watched(monkeypatch, turns, 0.0)[0] == 42.0


def test_the_time_of_processes_counts_their_descendants() -> None:
    before = usage([os.getpid()]).cpu
    with busy(1):
        time.sleep(0.3)
        deadline = time.monotonic() + 20
        while usage([os.getpid()]).cpu - before < 0.1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert usage([os.getpid()]).cpu - before >= 0.1
    assert usage([1 << 22]) == Usage()  # no such process


def test_who_has_ended_waited_as_long_for_each_second_as_who_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that starts one after another, each of which soon ends."""
    monkeypatch.setattr(cpu_time, "_threads", lambda _: ["1", "2"])
    monkeypatch.setattr(cpu_time, "_cpu", lambda _: 4.0)
    monkeypatch.setattr(cpu_time, "_schedule", lambda *_: (0.5, 1.5))
    monkeypatch.setattr(processes, "descendants", lambda _: [])
    assert usage([1]) == Usage(4.0, 12.0)
    monkeypatch.setattr(cpu_time, "_schedule", lambda *_: (0.001, 1.5))
    assert usage([1]) == Usage(4.0, 3.0)  # it has run too little to tell


def test_what_the_supervisor_waits_for_a_processor_its_case_waits_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as nobody takes what it writes to stderr, for one."""
    monkeypatch.setattr(cpu_time, "own_wait", lambda: 7.0)
    assert supervisor._used([1 << 22]) == Usage(0.0, 7.0)


def test_looks_that_are_costly_are_rare() -> None:
    """Of a case with a thousand processes; at its end there is one in time nevertheless."""

    def look() -> Usage:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return Usage()

    watch = hangs.Watch(2.0, (1,), look, lambda: 0.0)
    assert watch.pause() <= 0.05
    watch.hangs(0, 0)
    assert 0.4 <= watch.pause() <= 2.0
    short = hangs.Watch(0.1, (1,), look, lambda: 0.0)
    short.hangs(0, 0)
    assert short.pause() <= 0.1


def test_cycles_of_cases() -> None:
    assert qnn_plain.cycles(qnn_plain.PLAIN) == 1
    assert qnn_plain.cycles(MemoryCase((ContextCreate("c"), Lived("contexts", rounds=70)))) == 71
    assert tflite_plain.cycles(tflite_plain.PLAIN) == 1
    history = History(made=3, used=2, invokes=5)
    case = DelegateCase(tflite_plain.PLAIN.graph, invokes=4, again="interpreter", history=history)
    assert tflite_plain.cycles(case) == 4 * 2 + 3 + 2 * 5
    inner = (Open("i0"), Invoke("i0"))
    assert tflite_plain.cycles(ScriptCase((tflite_plain.PLAIN.graph,), (Repeat(70, inner),))) == 1 + 140 // 7
