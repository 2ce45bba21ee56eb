"""What a child leaves that dies: stderr, the fault, the call at work, a native backtrace, the calls."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import struct
import subprocess
import threading
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from native import delegate_library, qnn_library
from sandboxed import CASE, HARMLESS

from pytest_qnn.core.engine.checking import died
from pytest_qnn.core.evidence import Evidence, Frame
from pytest_qnn.core.target import Death
from pytest_qnn.isolation import wire
from pytest_qnn.isolation.evidence import call_log, crash_handler
from pytest_qnn.isolation.evidence.stderr import KEPT, Stderr
from pytest_qnn.isolation.evidence.symbols import named, symbolised
from pytest_qnn.native import machine_code
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import open_delegate_target

SEGV = "*(volatile int*)8=0"
PAIR = Tensor((1, 2))
GRAPH = Graph((PAIR,) * 3, (Node("ADD", (0, 0), (1,)), Node("MUL", (1, 0), (2,))), (0,), (2,))


def opened(library: Path, mode: str = "fork", timeout: float = 5.0) -> closing[MemoryTarget]:
    return closing(open_memory_target(str(library), "emulated", mode, timeout))


def death_of(library: Path, mode: str = "fork", timeout: float = 5.0) -> Death:
    with opened(library, mode, timeout) as target:
        death = target.run(CASE).death
        assert target.run(HARMLESS).death is None
    assert death is not None
    return death


def left_by(library: Path, mode: str = "fork") -> Evidence:
    return symbolised(death_of(library, mode).evidence)


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_a_fault_has_its_place_and_its_calls(tmp_path: Path, mode: str) -> None:
    left = left_by(qnn_library(tmp_path, SEGV), mode)
    assert (left.during, left.fault) == ("QnnContext_create", "SEGV_MAPERR at 0x8, near NULL")
    assert [frame.text.partition(" ")[2] for frame in left.frames] == ["(context_create+0x19)"]
    assert [call.text for call in left.calls][-2:] == [
        "QnnDevice_create -> 0 QNN_SUCCESS",
        "QnnContext_create did not return",
    ]


def test_two_runs_say_the_same(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, SEGV)
    assert left_by(library) == left_by(library)


def test_a_failed_assertion_is_in_the_finding(tmp_path: Path) -> None:
    before = "#include <assert.h>\n"
    death = death_of(qnn_library(tmp_path, 'assert(!"enough")', before=before))
    assert re.search(r"libqnn0.c:\d+: context_create: Assertion `!\"enough\"' failed", death.evidence.said)
    violation = died(death)
    assert violation.seen.startswith("the process died of SIGABRT; stderr: ")
    assert violation.where == 'in QnnContext_create, step 1 (ContextCreate {"context":"c0"})'
    names = [frame.text for frame in symbolised(death.evidence).frames]
    assert any("(abort+" in name for name in names)
    assert "(context_create+" in names[-1]


def test_of_much_on_stderr_the_end_is_kept_and_nobody_waits(tmp_path: Path) -> None:
    lines = 'for(int i=0;i<99999;++i)fputs("some words of a log\\n",stderr);'
    flood = lines + 'fputs("last\\033[1m\\n",stderr);abort()'
    left = death_of(qnn_library(tmp_path, flood)).evidence
    assert left.stderr.splitlines()[-2:] == ["some words of a log", r"last\x1b[1m"]
    assert len(left.stderr) < 1 << 15


def test_who_writes_a_mebibyte_to_stderr_waits_for_nobody() -> None:
    """Where the kernel lets a pipe hold so much: it does not once a user has 64 MiB in pipes (pipe(7))."""
    own = os.dup(2)
    try:
        kept = Stderr()
        holds = fcntl.fcntl(2, fcntl.F_GETPIPE_SZ)
        written = os.write(2, b"x" * (holds - 4) + b" end")
        said = kept.take()
    finally:
        os.dup2(own, 2)
        os.close(own)
    os.close(kept.fileno())
    assert (holds, written) == (1 << 20, 1 << 20)
    assert (len(said), said[-4:]) == (KEPT, " end")


def test_who_writes_without_end_hangs(tmp_path: Path) -> None:
    death = death_of(qnn_library(tmp_path, 'for(;;)fputs("some words of a log\\n",stderr)'), timeout=0.3)
    assert (death.kind, death.evidence.during) == ("hang", "QnnContext_create")
    assert "\nsome words of a log\n" in death.evidence.stderr


def test_what_an_earlier_case_wrote_is_not_put_down_to_a_later_one(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, 'fputs("x",stderr);abort()', on_backend='fputs("opened\\n",stderr)')
    with opened(library) as target:
        assert target.run(HARMLESS).death is None
        for _ in range(2):
            death = target.run(CASE).death
            assert death is not None
            assert death.evidence.stderr == "opened\nx"


def test_of_a_hang_the_call_is_known(tmp_path: Path) -> None:
    death = death_of(qnn_library(tmp_path, "for(;;)"), timeout=0.3)
    assert (death.kind, death.evidence.during) == ("hang", "QnnContext_create")


def test_an_exit_has_no_backtrace(tmp_path: Path) -> None:
    left = left_by(qnn_library(tmp_path, "_exit(3)"))
    assert (left.during, left.fault, left.frames) == ("QnnContext_create", "", ())


def test_a_full_stack_is_told_from_a_wild_pointer(tmp_path: Path) -> None:
    deep = "int deep(int k) { volatile char b[4000]; b[0] = k; return deep(k + 1) + b[0]; }\n"
    left = left_by(qnn_library(tmp_path, "deep(1)", before=deep))
    assert left.fault == "SEGV_MAPERR, the stack is full"
    assert "(deep+" in left.frames[5].text


_BEHIND = """
#include <pthread.h>
#include <sys/mman.h>
static void* wild(void* place) { return (void*)(long)*(volatile char*)place; }
static void behind(void) {
  char* area = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(area + (1 << 17), 1 << 17);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, area, 1 << 17);
  pthread_t thread;
  pthread_create(&thread, &attributes, wild, area + (1 << 17) + 64);
  pthread_join(thread, 0);
}
"""


def test_what_lies_behind_a_stack_is_not_the_stack(tmp_path: Path) -> None:
    # A thread's stack in the lower half of an area of which the upper half is gone.
    left = left_by(qnn_library(tmp_path, "behind()", before=_BEHIND))
    assert left.fault.startswith("SEGV_MAPERR at 0x")
    assert left.fault.endswith(", where nothing is mapped")


def test_a_call_to_no_code_shows_its_caller(tmp_path: Path) -> None:
    left = left_by(qnn_library(tmp_path, "((void(*)(void))0)()"))
    assert left.frames[0].text == "no code (a call to NULL)"
    assert "(context_create+" in left.frames[1].text


HANDLER = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void theirs(int number, siginfo_t* info, void* context) {
  (void)context;
  fprintf(stderr, "handled %d %d %p", number, info->si_code, info->si_addr);
  _exit(9);
}
static void handle(int number) {
  struct sigaction action = {0};
  action.sa_sigaction = theirs;
  action.sa_flags = SA_SIGINFO;
  sigaction(number, &action, 0);
}
"""


@pytest.mark.parametrize("when", ["when it was loaded", "in the case"])
@pytest.mark.parametrize(
    ("deed", "said"), [(SEGV, "handled 11 1 0x8"), ("kill(getpid(), SIGABRT)", "handled 6 0 ")]
)
def test_a_handler_of_the_library_is_called_as_without_ours(
    tmp_path: Path, when: str, deed: str, said: str
) -> None:
    install = "handle(11);handle(6)"
    early = when == "when it was loaded"
    library = qnn_library(
        tmp_path, deed if early else f"{install};{deed}", on_load=install if early else "", before=HANDLER
    )
    death = death_of(library)
    assert (death.kind, death.evidence.frames) == ("exit", ())
    assert "exit status 9" in death.detail
    assert death.evidence.stderr.startswith(said)


PROBES = r"""
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf back;
static volatile int probing;
static void theirs(int number) { if (probing) siglongjmp(back, 1); signal(number, SIG_DFL); }
static void handle(void) {
  struct sigaction action = {0};
  action.sa_handler = theirs;
  sigaction(SIGSEGV, &action, 0);
  sigaction(SIGILL, &action, 0);
}
__attribute__((noinline)) void probe(void) {
  probing = 1;
  if (!sigsetjmp(back, 1)) PROBE;
  probing = 0;
}
__attribute__((noinline)) void the_bug(void) { *(volatile int*)8 = 0; __asm__ volatile(""); }
"""


@pytest.mark.parametrize("probe", ["*(volatile int*)0xdead000 = 0", "__builtin_trap()"])
def test_a_fault_that_the_library_has_survived_is_not_the_one_it_died_of(tmp_path: Path, probe: str) -> None:
    before = PROBES.replace("PROBE", probe)
    deeds = {"on_load": "handle()", "on_backend": "probe();probe()"}
    left = left_by(qnn_library(tmp_path, "the_bug()", before=before, **deeds))
    assert left.fault == "SEGV_MAPERR at 0x8, near NULL"
    assert "(the_bug+" in left.frames[0].text
    assert "(context_create+" in left.frames[1].text


RACES = """
#include <pthread.h>
#include <sys/mman.h>
static volatile int begun;
static void* worker(void* a) { begun = 1; *(volatile int*)8 = 0; return a; }
static void race(void) {
  pthread_t t;
  /* The more mappings, the longer it takes to record them. */
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  for (int i = 0; i < 12000; ++i) mmap(0, 4096, i % 2 ? PROT_READ : PROT_NONE, flags, -1, 0);
  pthread_create(&t, 0, worker, 0);
  while (!begun) {}
  usleep(50);
}
"""


def test_a_fault_of_another_thread_is_not_forgotten_where_a_call_returns(tmp_path: Path) -> None:
    """While it is being recorded calls of this thread return."""
    library = qnn_library(tmp_path, "race()", before=RACES)
    steps = tuple(ContextCreate(f"c{number}") for number in range(20))
    with opened(library) as target:
        for _ in range(5):
            death = target.run(MemoryCase(steps)).death
            assert death is not None
            assert death.evidence.fault == "SEGV_MAPERR at 0x8, near NULL"
            assert "(worker+" in target.symbolised(death.evidence).frames[0].text


def test_what_python_says_of_a_crash_is_not_the_library_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    assert left_by(qnn_library(tmp_path, SEGV)).stderr == ""


def test_of_another_thread_the_backtrace_is_that_thread_s(tmp_path: Path) -> None:
    before = f"#include <pthread.h>\nstatic void* worker(void* a) {{ {SEGV}; return a; }}\n"
    deed = "{pthread_t t; pthread_create(&t, 0, worker, 0); pthread_join(t, 0);}"
    left = left_by(qnn_library(tmp_path, deed, before=before))
    assert "(worker+" in left.frames[0].text
    assert left.during == "QnnContext_create"


@pytest.fixture
def delegate(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return delegate_library(tmp_path, **request.param)


@pytest.mark.parametrize(
    ("delegate", "where"),
    [
        ({"on_invoke": SEGV}, "in invoke of kernel 0, nodes 0 (ADD), 1 (MUL), invoke 0"),
        ({"on_prepare": SEGV}, "in Prepare of delegate 0, applying delegate 0"),
    ],
    indirect=["delegate"],
)
def test_of_a_delegate_the_callback_is_known(delegate: Path, where: str) -> None:
    with closing(open_delegate_target([(str(delegate), {})], "auto", "fork", 5.0)) as target:
        death = target.run(DelegateCase(GRAPH, (Application(),))).death
    assert death is not None
    assert died(death).where == where
    assert "Prepare of delegate 0" in [call.name for call in death.evidence.calls]


_NODES = "nodes 0 (ADD), 1 (MUL)"
_WARM = "allocating tensors, or in the invokes that its history asks for"
_PAST = "before the case's first step, where its history is carried out"


@pytest.mark.parametrize(
    ("history", "where"),
    [
        (History(used=1), f"in Interpreter.invoke, {_PAST}"),
        (History(repeated=1), f"in invoke of kernel 0, {_NODES}, {_PAST}"),
        (
            History(warm=1),
            f"in invoke of kernel 0, {_NODES}, {_WARM}",
        ),
    ],
    ids=["used", "repeated", "warm"],
)
def test_of_a_death_in_a_history_that_is_known(tmp_path: Path, history: History, where: str) -> None:
    library = delegate_library(tmp_path, on_invoke=SEGV)
    with closing(open_delegate_target([(str(library), {})], "auto", "fork", 5.0)) as target:
        death = target.run(DelegateCase(GRAPH, (Application(),), history=history)).death
    assert death is not None
    assert died(death).where == where


def test_the_log_keeps_the_last_calls_of_the_case(tmp_path: Path) -> None:
    memory = bytearray(call_log.SIZE)
    log = call_log.CallLog(memory, 0)
    log.end(log.begin(b"of the case before"), 0)
    log.restart()
    for number in range(600):
        log.end(log.begin(b"call %d" % number), -1 if number == 599 else number)
    log.begin(b"the last")
    assert call_log.progress(memory, 0) == (603, "the last")
    calls, during = call_log.read(bytes(memory))
    assert (len(calls), during) == (512, "the last")
    assert [(call.name, call.status) for call in calls[-3:]] == [
        ("call 598", 598),
        ("call 599", (1 << 64) - 1),
        ("the last", None),
    ]
    log.restart()
    log.begin_step(0)
    assert call_log.progress(memory, 0) == (605, "")
    assert call_log.read(bytes(memory)) == ((), "")


def test_a_call_whose_place_another_has_taken_ends_no_other() -> None:
    """A thread makes hundreds of calls while one of another thread is at work."""
    memory = bytearray(call_log.SIZE)
    log = call_log.CallLog(memory, 0)
    long = log.begin(b"the long one")
    for number in range(511):
        log.end(log.begin(b"call %d" % number), 0)
    at_work = log.begin(b"at work")
    log.end(long, 0)
    assert call_log.read(bytes(memory))[1] == "at work"
    log.end(at_work, 7)
    calls, during = call_log.read(bytes(memory))
    assert (calls[-1].name, calls[-1].status, during) == ("at work", 7, "")


def test_a_name_that_a_target_has_overwritten_has_no_control_characters() -> None:
    memory = bytearray(call_log.SIZE)
    log = call_log.CallLog(memory, 0)
    log.begin(b"\x1b[1m")
    memory[0:16] = b"\xff" * 16
    assert call_log.progress(memory, 0)[1] in ("", "?")
    assert [call.name for call in call_log.read(bytes(memory))[0]] == ["?"]


def test_a_name_that_does_not_fit_ends_with_the_mark_of_a_cut() -> None:
    memory = bytearray(call_log.SIZE)
    log = call_log.CallLog(memory, 0)
    long = "é" * 49
    for name in ("a" * 96, "a" * 97, long, "é" * 48, f"b{long}"):
        log.begin(name.encode())
    calls, during = call_log.read(bytes(memory))
    assert [call.name for call in calls] == [
        "a" * 96,
        "a" * 93 + "…",
        "é" * 46 + "…",
        "é" * 48,
        "b" + "é" * 46 + "…",
    ]
    assert during == call_log.progress(memory, 0)[1] == "b" + "é" * 46 + "…"


def test_what_is_no_record_is_none() -> None:
    assert crash_handler.read(bytes(crash_handler.SIZE)) is None
    assert crash_handler.read(b"\xff" * crash_handler.SIZE) is None
    crash = crash_handler.read(b"\x0b".ljust(crash_handler.SIZE, b"\0"))
    assert crash is not None
    assert (crash.signal, crash.frames) == (11, (("", 0),))


def test_a_source_file_may_have_a_name_in_any_encoding(tmp_path: Path) -> None:
    source = os.fsencode(tmp_path) + b"/caf\xe9.c"
    Path(os.fsdecode(source)).write_text("int crash(int* p) { return *p; }\n")
    library = tmp_path / "liblatin.so"
    subprocess.run([b"gcc", b"-g", b"-shared", b"-o", os.fsencode(library), source], check=True)
    listed = subprocess.run(["nm", str(library)], capture_output=True, text=True, check=True).stdout
    where = next(int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" T crash"))
    (frame,) = named([Frame(str(library), where)])
    assert frame.text.endswith("(crash+0x0)")
    assert frame.line.endswith("/caf\\xe9.c:1")


def test_a_file_of_a_backtrace_that_is_a_fifo_by_now_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "lib.so (deleted)"
    os.mkfifo(fifo)
    naming = threading.Thread(target=named, args=([Frame(str(fifo), 4)],), daemon=True)
    naming.start()
    naming.join(20)
    waits = naming.is_alive()
    with contextlib.suppress(OSError):  # one that waits goes on
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    assert not waits


FORGE = r"""
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void die_with(const char* maps, size_t size) {
  unsigned long slot = 0;
  char line[4096];
  FILE* file = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, file)) if (strstr(line, "pytest-qnn-slot")) sscanf(line, "%lx", &slot);
  fclose(file);
  uint64_t record[8 + 64] = {SIGSEGV, 1, 8, 0x1010, 0, 0x1010, 0, size};
  for (int i = 8; i < 8 + 64; ++i) record[i] = 0x1010;
  memcpy((char*)slot + RECORD, record, sizeof record);
  memcpy((char*)slot + RECORD + sizeof record, maps, size);
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}
static void die_with_numbers(void) {
  const char* maps = "1000-f000 r-xp ffffffffffffffffff 08:01 12 /lib/a.so\n"
                     "1000-f000 r-xp -ffffffffffffffffff 08:01 12 /lib/b.so\n"
                     "1000-f000 r-xp ffffffffffffffff 08:01 12 /lib/c.so\n";
  die_with(maps, strlen(maps));
}
static void die_with_names(void) {
  static char maps[200000];
  memset(maps, 'x', sizeof maps);
  memcpy(maps, "1000-f000 r-xp 0 08:01 12 /", 27);
  die_with(maps, sizeof maps);
}
"""


@pytest.mark.parametrize("what", ["numbers", "names"])
def test_a_record_that_the_library_has_written_costs_no_more_than_its_case(tmp_path: Path, what: str) -> None:
    before = f"#define RECORD {wire._EVIDENCE_AT}\n{FORGE}"
    death = death_of(qnn_library(tmp_path, f"die_with_{what}()", before=before))
    assert death.text == "the process died of SIGSEGV in QnnContext_create"
    assert {frame.file for frame in death.evidence.frames} == {"/lib/c.so" if what == "numbers" else ""}


SECTION = struct.Struct("<IIQQQQIIQQ")


def _of_symbols(count: int, names: int, said: int = 0) -> bytes:
    """An ELF file with so many functions, whose names have so many bytes together, and no ends.

    Args:
        count: of functions.
        names: bytes that there are.
        said: bytes more that there are said to be.
    """
    symbols = b"".join(struct.pack("<IBBHQQ", 0, 0x12, 0, 1, number + 1, 1) for number in range(count))
    sections = (
        SECTION.pack(*[0] * 10)
        + SECTION.pack(0, 2, 0, 0, 64, len(symbols), 2, 0, 0, 0)
        + SECTION.pack(0, 3, 0, 0, 64 + len(symbols), names + said, 0, 0, 0, 0)
    )
    at = 64 + len(symbols) + names
    parts = (b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, 3, 2)
    return struct.pack("<16sHHIQQQIHHHHHH", *parts) + symbols + b"A" * names + sections


@pytest.mark.parametrize("said", [0, 1 << 60])
def test_a_file_that_lies_about_its_symbols_takes_little_memory(tmp_path: Path, said: int) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(_of_symbols(20_000, 1 << 20, said))
    tracemalloc.start()
    try:
        (frame,) = named([Frame(str(library), 4)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame.text.startswith("lib.so+0x4" + (" (AAA" if not said else ""))
    assert most < 64 << 20


def test_the_machine_code_is_that_of_the_source() -> None:
    version = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    if platform.machine() != "x86_64" or version.strip() != "12.2.0":
        pytest.skip("another compiler makes other code of the same source")
    assert machine_code.compiled(machine_code.SOURCES["crash_handler"]) == crash_handler.CODE
