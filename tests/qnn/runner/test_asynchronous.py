from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import pytest
from case_mutations import refusal
from kept import keep

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome, Violation
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import (
    NULL,
    OVER_INPUT,
    OVER_OUTPUT,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Read,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Job
from pytest_qnn.qnn.reference.objects import Context, Graph, QnnError
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner import asynchronous
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import AsyncCounts, MemoryTrace
from pytest_qnn.rules import catalogue

RULE = catalogue()["EXE-18"]
OF_MEMORY = catalogue()["EXE-22"]
ASYNCHRONOUS = PERSONALITIES["asynchronous"]
NAMES = ("a", "b", "o")
RIGHT = expected(
    "ElementWiseAdd", "UFIXED_POINT_8", contents("UFIXED_POINT_8", 1, 8), contents("UFIXED_POINT_8", 2, 8)
)
RAW = (Binding(seed=1), Binding(seed=2), Binding())
HANDLES = tuple(Binding("handle", f"h{name}") for name in NAMES)
MADE: tuple[AnyStep, ...] = (ContextCreate("c"), Prepare("g", "c"))
REGISTERED: tuple[AnyStep, ...] = (
    *MADE,
    *(step for name in NAMES for step in (Alloc(name, 16), Fill(name))),
    Register(
        "c", tuple(Descriptor(name, (1, 2, 2, 2)) for name in NAMES), tuple(f"h{name}" for name in NAMES)
    ),
)
LOADED: tuple[AnyStep, ...] = (Write("a", 8, 0, 1), Write("b", 8, 0, 2))


def later(bindings: tuple[Binding, ...], **fields: Any) -> Execute:
    return Execute("g", bindings, asynchronous=1, **fields)


def carry_out(*steps: AnyStep, backend: ReferenceBackend | None = None) -> tuple[MemoryCase, MemoryTrace]:
    case, backend, rpcmem = MemoryCase(steps), backend or ReferenceBackend(ASYNCHRONOUS), EmulatedRpcmem()
    try:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), rpcmem)
        assert backend.escaped == []
        return case, trace
    finally:
        backend.close()
        rpcmem.close()


@contextmanager
def opened(spec: str) -> Iterator[MemoryTarget]:
    target = open_memory_target(spec, "emulated", "off", 10.0)
    try:
        yield target
    finally:
        target.close()


@pytest.mark.parametrize("steps", [(*MADE, later(RAW)), (*REGISTERED, *LOADED, later(HANDLES))])
def test_the_output_is_there_when_the_one_notification_comes(steps: tuple[AnyStep, ...]) -> None:
    seen = carry_out(*steps)[1].steps[-1]
    assert (seen.code, seen.data) == (0, (RIGHT,))
    assert seen.calls == (("graphExecuteAsync", 0), ("notify", 0))
    assert seen.counts == AsyncCounts(notified=1)


def test_the_client_writes_over_its_memory_once_it_is_notified_and_the_model_knows() -> None:
    case, trace = carry_out(*REGISTERED, *LOADED, later(HANDLES), *(Read(name) for name in NAMES))
    bytes_of = [seen.data[0] for seen in trace.steps[-3:]]
    assert bytes_of[0] == bytes_of[1] == bytes([OVER_INPUT]) * 8 + b"\xee" * 8
    assert bytes_of[2] == bytes([OVER_OUTPUT]) * 8 + b"\xee" * 8
    assert [(seen.where, seen.difference) for seen in compare(case, trace)] == [
        ("output", ""),
        *[("buffer", "")] * 3,
    ]


def test_each_of_several_calls_has_its_own_memory_and_its_own_notification() -> None:
    three = msgspec.structs.replace(later(HANDLES), asynchronous=3)
    case, trace = carry_out(*REGISTERED, *LOADED, three)
    seen = trace.steps[-1]
    assert seen.calls == (("graphExecuteAsync", 0),) * 3 + (("notify", 0),) * 3
    assert seen.counts == AsyncCounts(notified=1)
    assert seen.data[0] == RIGHT
    assert len(set(seen.data)) == 3
    assert [each.difference for each in compare(case, trace)] == [""] * 3


def test_a_refused_call_leaves_those_before_it_in_the_queue_alone() -> None:
    refused = later((Binding("handle", NULL), *RAW[1:]))
    _, trace = carry_out(*MADE, msgspec.structs.replace(refused, asynchronous=2))
    seen = trace.steps[-1]
    assert seen.calls == (
        ("graphExecuteAsync", 0),
        ("graphExecuteAsync", Error.GRAPH_ERROR_INVALID_TENSOR),
        ("notify", 0),
    )
    assert seen.counts == AsyncCounts()


@pytest.mark.parametrize(
    ("bindings", "more", "code"),
    [
        ((Binding("handle", NULL), *RAW[1:]), {}, Error.GRAPH_ERROR_INVALID_TENSOR),
        ((Binding(short=8), *RAW[1:]), {}, Error.GRAPH_ERROR_INVALID_TENSOR),
        ((Binding(mem_type=77), *RAW[1:]), {}, Error.GRAPH_ERROR_INVALID_TENSOR),
        (RAW, {"inputs": (0,)}, Error.GRAPH_ERROR_INVALID_TENSOR),
        (RAW, {"outputs": ()}, Error.GRAPH_ERROR_INVALID_ARGUMENT),
    ],
)
def test_a_call_that_is_refused_has_the_code_of_an_execute_and_notifies_nobody(
    bindings: tuple[Binding, ...], more: dict[str, Any], code: Error
) -> None:
    wrong = later(bindings, **more)
    _, trace = carry_out(*MADE, wrong, msgspec.structs.replace(wrong, asynchronous=0))
    first, second = trace.steps[-2:]
    assert first.code == second.code == code
    assert first.counted(AsyncCounts).notified == 0
    assert first.data == second.data == (b"\xee" * 8,)


def test_without_the_property_the_call_answers_1000_to_anything() -> None:
    _, trace = carry_out(*MADE, later(RAW), Execute(NULL, RAW, asynchronous=1), backend=ReferenceBackend())
    assert [seen.code for seen in trace.steps[-2:]] == [Error.COMMON_ERROR_NOT_SUPPORTED] * 2


class Waits(ReferenceBackend):
    """Deregisters or frees what an execution uses while it is in the queue."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(ASYNCHRONOUS)

    def run_job(self, job: Job) -> None:
        graph, sources, _ = job.admitted
        with self.lock:
            if self.what == "context":
                self.free_context(graph.context)
            elif sources[0].registration:
                self.forget(sources[0].registration)
        super().run_job(job)


@pytest.mark.parametrize(
    ("what", "code"),
    [("context", Error.GRAPH_ERROR_INVALID_CONTEXT), ("handle", Error.GRAPH_ERROR_INVALID_TENSOR)],
)
def test_what_ends_while_it_is_in_the_queue_is_told_by_the_notification(what: str, code: Error) -> None:
    _, trace = carry_out(*REGISTERED, *LOADED, later(HANDLES), Read("o"), backend=Waits(what))
    seen = trace.steps[-2]
    assert seen.calls == (("graphExecuteAsync", 0), ("notify", code))
    assert seen.code == code
    assert trace.steps[-1].data == (b"\xee" * 16,)


class TellsLater(ReferenceBackend):
    """Enqueues everything, and says by the notification what is wrong: documents leave that open."""

    def __init__(self) -> None:
        super().__init__(ASYNCHRONOUS)
        self.wrong: dict[int, int] = {}

    def graph_execute_async(self, *arguments: Any) -> None:
        try:
            super().graph_execute_async(*arguments)
        except QnnError as error:
            self.wrong[arguments[-1]] = error.code
            self.enqueue(Job((Graph(0, "", Context(0, 0, 0)), [], []), arguments[-2], arguments[-1]))

    def status_of(self, job: Job) -> int:
        code = self.wrong.get(job.parameter or 0)
        return super().status_of(job) if code is None else code


def test_a_refusal_may_be_told_by_the_notification() -> None:
    wrong = later((Binding("handle", NULL), *RAW[1:]))
    case, trace = carry_out(*MADE, wrong, later(RAW), backend=TellsLater())
    trace = msgspec.structs.replace(
        trace, facts=MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),))
    )
    assert trace.steps[-2].calls == (
        ("graphExecuteAsync", 0),
        ("notify", Error.GRAPH_ERROR_INVALID_TENSOR),
    )
    assert RULE.check(case, trace).count == 2


@pytest.mark.parametrize("calls", [-1, 9])
def test_a_file_asks_for_few_calls(calls: int) -> None:
    case = MemoryCase((msgspec.structs.replace(later(RAW), asynchronous=calls),))
    assert refusal(case).endswith("at `$.steps[0].asynchronous`")


class Silent(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(ASYNCHRONOUS)

    def notify(self, job: Job, status: int) -> None:
        pass


def test_without_a_notification_the_wait_ends_and_no_further_execution_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asynchronous, "_patience", 0.05)
    _, trace = carry_out(*MADE, later(RAW), later(RAW), ContextFree("c"), backend=Silent())
    silent, skipped, freed = trace.steps[-3:]
    assert (silent.code, silent.data, silent.counts) == (0, (), AsyncCounts(silent=1))
    assert "not notified" in skipped.skipped
    assert freed.code == 0


class Slow(ReferenceBackend):
    """Computes for a while, or until nobody waits any more, before it notifies."""

    def __init__(self, seconds: float) -> None:
        super().__init__(ASYNCHRONOUS)
        self.seconds = seconds

    def notify(self, job: Job, status: int) -> None:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            pass
        super().notify(job, status)


@pytest.mark.parametrize(("seconds", "silent"), [(0.5, 0), (2.5, 1)])
def test_a_target_that_computes_is_waited_for_longer_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, seconds: float, silent: int
) -> None:
    """A slow one, or one on a busy machine, was called silent after the time of one that does nothing."""
    monkeypatch.setattr(asynchronous, "_patience", 0.2)
    _, trace = carry_out(*MADE, later(RAW), backend=Slow(seconds))
    counts = trace.steps[-1].counts
    assert isinstance(counts, AsyncCounts)
    assert (counts.silent, counts.notified) == (silent, 1 - silent)


def test_an_idle_backend_has_no_thread() -> None:
    backend = ReferenceBackend(ASYNCHRONOUS)
    carry_out(*MADE, later(RAW), backend=backend)
    end = time.monotonic() + 10
    while backend.serving and time.monotonic() < end:
        time.sleep(0.001)
    assert not backend.serving


def test_smaller_cases_write_inputs_again_after_they_were_written_over() -> None:
    case = MemoryCase((*REGISTERED, *LOADED, later(HANDLES), *LOADED, later(HANDLES)))
    for smaller in smaller_memory(case):
        executes = [at for at, step in enumerate(smaller.steps) if isinstance(step, Execute)]
        for at in executes:
            bound = {binding.handle for binding in smaller.steps[at].bindings[:-1]}
            since = max((other for other in executes if other < at), default=0)
            written = {f"h{step.buffer}" for step in smaller.steps[since:at] if isinstance(step, Write)}
            assert {name for name in bound if name} <= written


def test_an_early_notification_shrinks_to_one_raw_execute() -> None:
    with opened("mutant:async-notifies-first") as target:
        verdict = judge(OF_MEMORY, target, PROFILES["default"], seed=4)
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case, type=MemoryCase)
    execute = Execute("g0", (Binding(), Binding(), Binding()), asynchronous=1)
    assert case.steps == (ContextCreate("c0"), Prepare("g0", "c0"), execute)


@pytest.mark.parametrize("personality", ["asynchronous", "default", "no-memory", "no-ion"])
@pytest.mark.parametrize("rule", [RULE, OF_MEMORY], ids=["EXE-18", "EXE-22"])
def test_the_rules_are_quiet_where_execution_conforms(rule: Any, personality: str) -> None:
    target = keep(open_memory_target(f"reference:{personality}", "emulated", "off", 10.0))
    verdict = judge(rule, target, PROFILES["default"], seed=7)
    wanted = Outcome.PASS if personality == "asynchronous" else Outcome.UNSUPPORTED
    assert verdict.outcome is wanted, verdict.finding or verdict.reason
    assert bool(verdict.examined) is (wanted is Outcome.PASS)


def test_a_handle_that_is_deregistered_after_the_notification_is_refused_later() -> None:
    _, trace = carry_out(*REGISTERED, *LOADED, later(HANDLES), Deregister(("ho",)), later(HANDLES))
    assert [trace.steps[at].code for at in (-3, -1)] == [0, Error.GRAPH_ERROR_INVALID_TENSOR]


def test_what_waits_when_its_context_is_freed_is_notified_once_each() -> None:
    with closing(open_memory_target("reference:asynchronous", "emulated", "off", 10.0)) as target:
        case = MemoryCase((*MADE, Execute("g", RAW, asynchronous=4, freed=True)))
        trace = target.run(case)
        seen = trace.steps[-1]
        assert seen.calls[-1] == ("contextFree", 0)
        statuses = [status for call, status in seen.calls if call == "notify"]
        assert len(statuses) == 4
        assert {*statuses} <= {0, int(Error.GRAPH_ERROR_INVALID_CONTEXT)}
        assert RULE.check(case, trace).count == 1
        calls = tuple((call, 1100 if call == "notify" else code) for call, code in seen.calls)
        wrong = msgspec.structs.replace(seen, code=1100, calls=calls)
        changed = msgspec.structs.replace(trace, steps=(*trace.steps[:-1], wrong))
        with pytest.raises(Violation, match="freed meanwhile"):
            RULE.check(case, changed)


def test_what_waits_still_waits_when_its_context_is_freed() -> None:
    """Of four calls the first has notified, and not returned from that: whatever the load of the machine."""
    with opened("reference:asynchronous") as target:
        for _ in range(20):
            trace = target.run(MemoryCase((*MADE, Execute("g", RAW, asynchronous=4, freed=True))))
            notified = [code for call, code in trace.steps[-1].calls if call == "notify"]
            assert len(notified) == 4
            assert 0 not in notified[2:]


def test_a_notification_in_the_call_itself_is_not_held() -> None:
    started = time.monotonic()
    asynchronous._Held().hold()
    assert time.monotonic() - started < asynchronous._HELD_AT_MOST / 2
