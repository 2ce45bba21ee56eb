"""Logs with a callback: what the reference tells them, what the runner hears, what the rule makes of it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from case_mutations import refusal
from hypothesis import HealthCheck, Phase
from msgspec.structs import replace
from native import qnn_library
from qnn_mini import Client

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Unsupported, Violation
from pytest_qnn.qnn.abi.table import LogCallback
from pytest_qnn.qnn.cases.case import MemoryCase, Parallel
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.cases.valid import check_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.rules.qthr.rules import logs, qthr_04
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import LogCounts, MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue

INFO, VERBOSE = 3, 4
ADD = ("ElementWiseAdd", "UFIXED_POINT_8")


def carried_out(step: Parallel, target: str = "reference", sandbox: str = "off") -> MemoryTrace:
    opened = open_memory_target(target, "emulated", sandbox, 1.0)
    try:
        return opened.run(MemoryCase((step,)))
    finally:
        opened.close()


def counted(step: Parallel, target: str = "reference") -> LogCounts:
    (seen,) = carried_out(step, target).steps
    assert (seen.code, seen.calls) == (0, ())
    return seen.counted(LogCounts)


class Listener:
    """A client's callback that formats as printf does; ``said`` are (level, text)."""

    def __init__(self) -> None:
        self.said: list[tuple[int, bytes]] = []
        self.times: list[int] = []
        self._format: Any = ctypes.CDLL(None).vsnprintf
        self._format.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p)
        self.callback = LogCallback(self._hear)

    def _hear(self, text: bytes, level: int, timestamp: int, arguments: int) -> None:
        room, copied = ctypes.create_string_buffer(80), ctypes.create_string_buffer(32)
        ctypes.memmove(copied, arguments, 24)  # as va_copy does
        self._format(room, 80, text, ctypes.addressof(copied))
        self.said.append((level, room.value))
        self.times.append(timestamp)


def told(level: int, listener: Listener | None) -> list[tuple[int, bytes]]:
    """What a log of this level hears of a context, before it is lowered to WARN and after."""
    backend = ReferenceBackend()
    api = Client(backend.get_providers).api
    log, owner, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    callback = ctypes.cast(listener.callback, ctypes.c_void_p) if listener else None
    assert api.logCreate(callback, level, ctypes.byref(log)) == 0
    assert api.backendCreate(log, None, ctypes.byref(owner)) == 0
    assert api.contextCreate(owner, None, None, ctypes.byref(context)) == 0
    assert api.contextFree(context, None) == 0
    assert api.logSetLogLevel(log, 2) == 0
    assert api.contextCreate(owner, None, None, ctypes.byref(context)) == 0
    assert api.backendFree(owner) == 0
    assert api.logFree(log) == 0
    assert backend.escaped == []
    backend.close()
    return listener.said if listener else []


def test_the_reference_tells_of_contexts_until_the_level_is_lowered() -> None:
    assert told(INFO, Listener()) == [(INFO, b"context created"), (INFO, b"context freed")]


def test_timestamps_of_the_reference_do_not_go_back() -> None:
    listener = Listener()
    told(INFO, listener)
    assert listener.times == sorted(listener.times)
    assert listener.times[0] > 0


def test_the_reference_tells_nothing_above_the_level_and_nothing_without_a_callback() -> None:
    assert told(2, Listener()) == []
    assert told(VERBOSE, None) == []


def test_a_log_that_was_freed_too_early_is_left_alone() -> None:
    backend, listener = ReferenceBackend(), Listener()
    api = Client(backend.get_providers).api
    log, owner, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    api.logCreate(ctypes.cast(listener.callback, ctypes.c_void_p), VERBOSE, ctypes.byref(log))
    api.backendCreate(log, None, ctypes.byref(owner))
    assert api.logFree(log) == 0
    assert api.contextCreate(owner, None, None, ctypes.byref(context)) == 0
    backend.close()
    assert listener.said == []


def test_messages_come_from_every_thread_that_calls() -> None:
    counts = counted(Parallel("logs", threads=3, rounds=2))
    # Of each round: the context twice, the graph, the execute, two buffers twice.
    assert counts == LogCounts(threads=3, rounds=2, messages=3 * 2 * 8, from_threads=3)


def test_a_lowered_log_hears_only_what_it_wants() -> None:
    counts = counted(Parallel("logs", rounds=4, lowered=INFO, mem_type=0))
    assert counts.messages == 2 * (2 * 4 + 2 * 3)
    assert counts.loud == 0


def test_memory_handles_that_are_not_offered_are_done_without() -> None:
    assert counted(Parallel("logs", rounds=2), "reference:no-memory").messages == 2 * 2 * 4


@pytest.mark.parametrize(
    ("mutant", "count"),
    [("late", "late"), ("keeps-level", "loud"), ("null-format", "null_formats"), ("no-level", "strange")],
)
def test_what_is_amiss_with_messages_is_counted(mutant: str, count: str) -> None:
    counts = counted(Parallel("logs", rounds=2, lowered=1), f"mutant:log-{mutant}")
    assert getattr(counts, count) > 0
    assert counts.loudest == (VERBOSE if count == "loud" else 0)


LOGGER = r"""
#include <pthread.h>
#include <stdint.h>
typedef void (*Say)(const char*, int, uint64_t, void*);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* logger(void* say) {
  pthread_mutex_lock(&lock);
  ((Say)say)("a context", 3, 1, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
static void log_elsewhere(void* say) {
  pthread_t thread;
  pthread_create(&thread, 0, logger, say);
  pthread_join(thread, 0);
}
"""


def test_messages_may_come_from_threads_of_the_librarys_own(tmp_path: Path) -> None:
    library = qnn_library(tmp_path, "log_elsewhere(log_callback)", before=LOGGER)
    (seen,) = carried_out(Parallel("logs"), str(library), "fork").steps
    assert dict(seen.calls) == {"graphCreate": 1000}
    assert seen.counted(LogCounts).messages == 2


def test_a_call_that_waits_for_its_logger_hangs(tmp_path: Path) -> None:
    behaviour = "pthread_mutex_lock(&lock); log_elsewhere(log_callback); pthread_mutex_unlock(&lock)"
    library = qnn_library(tmp_path, behaviour, before=LOGGER)
    death = carried_out(Parallel("logs"), str(library), "fork").death
    assert death is not None
    assert (death.kind, death.step) == ("hang", 0)


def traced(counts: LogCounts, *calls: tuple[str, int], **fields: int) -> tuple[MemoryCase, MemoryTrace]:
    seen = StepSeen(code=calls[0][1] if calls else 0, calls=calls, counts=counts)
    return MemoryCase((Parallel("logs", **fields),)), MemoryTrace(steps=(seen,))


def test_every_message_is_looked_at() -> None:
    assert qthr_04(*traced(LogCounts(messages=7))).count == 7


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"late": 1}, r"seen 1 message \(step 0"),
        ({"null_formats": 2}, "2 messages with NULL"),
        ({"strange": 1}, "1 message of a lower level"),
        ({"loud": 2, "loudest": 9}, "2 messages too loud, up to 9"),
        ({"loud": 1, "loudest": 4}, r"up to 4 \(VERBOSE\)"),
    ],
)
def test_each_of_these_breaks_the_rule(counts: dict[str, int], text: str) -> None:
    with pytest.raises(Violation, match=text):
        qthr_04(*traced(replace(LogCounts(messages=7), **counts), lowered=1))


def test_a_call_that_fails_breaks_the_rule() -> None:
    with pytest.raises(Violation, match="graphExecute answers 1100"):
        qthr_04(*traced(LogCounts(messages=7), ("graphExecute", 1100)))


def test_a_target_that_tells_nothing_is_unsupported_once_it_was_asked_for_everything() -> None:
    for level, settled in ((INFO, False), (VERBOSE, True)):
        with pytest.raises(Unsupported, match="nothing is told") as raised:
            qthr_04(*traced(LogCounts(), level=level))
        assert raised.value.final is settled


def test_a_target_without_logs_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="logCreate answers 1000"):
        qthr_04(*traced(LogCounts(), ("logCreate", 1000)))


def drawn(facts: MemoryFacts) -> list[Parallel]:
    found: list[Parallel] = []

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=60, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(logs(facts))
    def collect(case: MemoryCase) -> None:
        check_memory(case)
        (step,) = case.steps
        assert isinstance(step, Parallel)
        found.append(step)

    collect()
    return found


def test_the_first_case_asks_for_much_and_then_for_little() -> None:
    first = drawn(MemoryFacts(operators=(ADD,)))[0]
    assert first == Parallel("logs", threads=2, rounds=2, mem_type=0, level=VERBOSE, lowered=1)


def test_memory_is_registered_only_where_its_type_is_offered() -> None:
    offered = MemoryFacts(operators=(ADD,), capabilities={1101: 0, 502: 0, 1102: 0, 1104: 0})
    assert {step.mem_type for step in drawn(offered)} == {1, 3}
    silent = MemoryFacts(operators=(ADD,), capabilities={1101: 0, 1102: 0})
    assert {step.mem_type for step in drawn(silent)} == {0}


@pytest.mark.parametrize(
    "step", [Parallel("logs", level=0), Parallel("logs", level=6), Parallel("logs", level=3, lowered=4)]
)
def test_levels_of_a_case_from_a_file_have_bounds(step: Parallel) -> None:
    assert refusal(MemoryCase((step,)))


def test_a_smaller_case_keeps_its_level_or_registers_nothing() -> None:
    step = Parallel("logs", mem_type=2, lowered=2)
    found = [case.steps for case in smaller_memory(MemoryCase((step,)))]
    assert found == [(Parallel("logs", mem_type=2),), (Parallel("logs", mem_type=0, lowered=2),)]


def test_a_finding_says_no_more_than_it_needs() -> None:
    target = open_memory_target("mutant:log-late", "emulated", "off", 10.0)
    try:
        verdict = judge(
            catalogue()["QTHR-04"],
            target,
            Profile("few", in_process_examples=10, isolated_examples=1),
            seed=3,
        )
    finally:
        target.close()
    assert verdict.outcome is Outcome.FAIL
    assert verdict.finding is not None
    assert '"lowered"' not in verdict.finding.case
    assert '"mem_type":0' in verdict.finding.case
