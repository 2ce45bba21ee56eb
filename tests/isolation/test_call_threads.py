"""Threads of machine code: what they call, with what, and how they end."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_qnn.isolation.host import call_threads
from pytest_qnn.isolation.host.call_threads import Action, At, Wrong, run
from pytest_qnn.isolation.observe.cpu_time import usage
from pytest_qnn.native import machine_code

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or sys.platform != "linux", reason="the machine code is of x86-64"
    ),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)"),
]
SOURCE = """
#include <stdint.h>
#include <unistd.h>
typedef struct { uint64_t words[10]; } Ten;
static uint64_t racy, atomic;
static uint64_t door;
uint64_t sum(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
uint64_t last(uint64_t a, Ten ten) { return a * 100 + ten.words[9]; }
/* What is read is written some 100 ns later, as in the short calls of real libraries. */
uint64_t count(uint64_t* own) {
  ++*own;
  uint64_t seen = racy;
  for (volatile int i = 0; i < 100; ++i) {}
  racy = seen + 1;
  __atomic_add_fetch(&atomic, 1, __ATOMIC_SEQ_CST);
  return 0;
}
uint64_t lost(void) { return atomic - racy; }
uint64_t counted(void) { return atomic; }
/* Who comes first never returns. */
uint64_t hangs(void) {
  if (__atomic_add_fetch(&door, 1, __ATOMIC_SEQ_CST) == 1)
    for (;;) pause();
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("threads")
    (folder / "calls.c").write_text(SOURCE)
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", f"{folder}/calls.so", f"{folder}/calls.c"]
    subprocess.run(command, check=True)
    return lambda: ctypes.CDLL(f"{folder}/calls.so")


def of(library: Any, name: str, *arguments: int | At, expected: int = 0) -> Action:
    address = ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
    assert address
    return Action("call", arguments, address, expected)


def once(*actions: Action) -> list[Wrong]:
    rounds, wrong = run([actions], rounds=1, seconds=10.0, seed=1)
    assert rounds == 1
    return wrong


def test_the_machine_code_is_that_of_the_source() -> None:
    assert machine_code.compiled(machine_code.SOURCES["call_threads"]) == call_threads.CODE


def test_all_eight_arguments_arrive_and_those_at_an_address_are_read_then(library: Any) -> None:
    held = ctypes.c_uint64(6)
    at = At(ctypes.addressof(held))
    assert once(of(library, "sum", 1, 2, 3, 4, 5, at, 7, 8, expected=204)) == []
    assert once(of(library, "sum", 1, 2, 3, 4, 5, at, 7, 9, expected=204)) == [Wrong(0, 0, 212)]
    fresh = (ctypes.c_uint64 * 1)(5)
    copy = Action("copy", (ctypes.addressof(held), ctypes.addressof(fresh), 8))
    assert once(copy, of(library, "sum", at, expected=5)) == []


def test_a_struct_is_passed_by_value(library: Any) -> None:
    ten = (ctypes.c_uint64 * 10)(*range(10))
    call = of(library, "last", 3, ctypes.addressof(ten), expected=309)
    assert once(call._replace(kind="call-with-struct")) == []


@pytest.mark.parametrize(
    ("code", "expected", "right"),
    [
        *((0, 0, True), (7, 0, False), (0, 7, False), (0x10000, 0, False)),
        *((0x10007, 7, True), (0x10008, 7, False)),
    ],
)
def test_of_an_error_the_low_bits_count(library: Any, code: int, expected: int, right: bool) -> None:
    wrong = once(of(library, "sum", code, expected=expected))
    assert wrong == ([] if right else [Wrong(0, 0, code)])


def test_what_comes_out_otherwise_is_kept() -> None:
    seen, wanted, kept = (ctypes.create_string_buffer(text, 5) for text in (b"seen", b"same", b""))
    addresses = tuple(map(ctypes.addressof, (seen, wanted)))
    compare = Action("compare", (*addresses, 4, ctypes.addressof(kept)))
    assert once(compare._replace(arguments=(*addresses, 1, ctypes.addressof(kept)))) == []
    assert kept.value == b""
    assert once(compare) == [Wrong(0, 0, 1)]
    assert kept.value == b"seen"


def test_a_value_that_another_thread_has_is_told_until_it_is_withdrawn() -> None:
    places = (ctypes.c_uint64 * 4)(0, 0, 7, 8)
    own, first = (ctypes.c_uint64 * 2)(7, 9), ctypes.addressof(places)
    publish = Action("publish", (ctypes.addressof(own), 2, first, first, 4))
    assert once(publish) == [Wrong(0, 0, 1)]
    assert list(places) == [7, 9, 7, 8]
    places[2] = 0
    assert once(publish) == []
    own[0] = 0  # no handle is two objects' that is none
    assert once(publish) == []


def test_threads_meet(library: Any) -> None:
    own = [ctypes.c_uint64() for _ in range(2)]
    calls = [[of(library, "count", ctypes.addressof(each))] for each in own]
    before = library().counted()
    # Where other processes have the other core, threads may take turns for a second.
    for seed in range(200):
        run(calls, rounds=1 << 40, seconds=0.1, seed=seed)
        if library().lost():
            break
    assert library().counted() - before == own[0].value + own[1].value
    assert library().lost() > 0, "in 20 seconds no addition was lost"


def test_threads_that_meet_in_a_round_go_on_when_one_has_ended(library: Any) -> None:
    own = [ctypes.c_uint64() for _ in range(2)]
    meet = Action("meet", ())
    first, second = ([of(library, "count", ctypes.addressof(each)), meet] for each in own)
    assert run([first, second], rounds=30, seconds=60.0, seed=1) == (60, [])
    assert [each.value for each in own] == [30, 30]
    bad = of(library, "sum", 1)
    rounds, wrong = run([[*first, bad], second], rounds=30, seconds=60.0, seed=1)
    assert wrong == [Wrong(0, 2, 1)]
    assert rounds < 60


def test_no_round_begins_once_one_is_wrong(library: Any) -> None:
    own = ctypes.c_uint64()
    good, bad = of(library, "count", ctypes.addressof(own)), of(library, "sum", 1)
    rounds, wrong = run([[good], [bad, good]], rounds=1 << 40, seconds=60.0, seed=1)
    assert wrong == [Wrong(1, 0, 1)]
    assert rounds < 1000


def test_rounds_end_by_their_number_and_by_the_clock(library: Any) -> None:
    own = [ctypes.c_uint64() for _ in range(3)]
    calls = [[of(library, "count", ctypes.addressof(each))] for each in own]
    assert run(calls, rounds=50, seconds=60.0, seed=1) == (150, [])
    assert [each.value for each in own] == [50, 50, 50]
    started = time.monotonic()
    run(calls, rounds=1 << 40, seconds=0.05, seed=1)
    assert 0.05 <= time.monotonic() - started < 10


def test_whoever_waits_for_a_thread_that_hangs_takes_no_processor_time(library: Any) -> None:
    path = library()._name
    program = (
        "import ctypes\n"
        "from pytest_qnn.isolation.host.call_threads import Action, run\n"
        f"hangs = ctypes.cast(ctypes.CDLL({path!r}).hangs, ctypes.c_void_p).value\n"
        "print(flush=True)\n"
        "run([[Action('call', (), hangs)]] * 2, rounds=1 << 40, seconds=0.1, seed=1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as hung:
        assert hung.stdout is not None
        hung.stdout.readline()
        time.sleep(1)
        before = usage([hung.pid])
        time.sleep(1)
        used = usage([hung.pid])
        assert hung.poll() is None
        hung.kill()
    assert used.cpu - before.cpu < 0.2


def test_functions_of_python_are_called_as_others_are() -> None:
    seen: list[int] = []

    def call(number: int) -> int:
        seen.append(number)
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(call)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    calls = [[Action("call", (number,), address)] for number in range(4)]
    assert run(calls, rounds=5, seconds=60.0, seed=1) == (20, [])
    assert sorted(seen) == sorted(list(range(4)) * 5)
