"""Ordinary life: carried out on the reference, told where it goes wrong, and with a log that listens."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.verdict import Examined, Violation
from pytest_qnn.isolation.observe.process import snapshot
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import ContextCreate, Lived, Logged, MemoryCase, Observe
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.series import lived as module
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import LivedCounts, MemoryTrace
from pytest_qnn.rules import catalogue

KINDS = ("buffers", "registrations", "contexts", "refused", "turns")


def run(*steps: Any, backend: ReferenceBackend | None = None) -> MemoryTrace:
    backend, rpcmem = backend or ReferenceBackend(), EmulatedRpcmem()
    try:
        return run_memory_case(MemoryCase(steps), QnnEntry(backend.get_providers, backend), rpcmem)
    finally:
        assert not backend.escaped
        backend.close()
        rpcmem.close()


@pytest.mark.parametrize("mem_type", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_life_on_a_conforming_backend_has_no_surprise(kind: Any, mem_type: int) -> None:
    if kind == "turns" and not mem_type:
        pytest.skip("turns are taken with registered memory")
    before = snapshot()
    trace = run(ContextCreate("c0"), Lived(kind, "c0", 7, mem_type=mem_type), Observe())
    seen = trace.steps[1]
    assert (seen.code, seen.calls, seen.counted(LivedCounts).rounds) == (0, (), 7)
    assert not any(code for _, code in trace.closing)
    assert snapshot().fds == before.fds


def test_kept_buffers_stay_until_the_end() -> None:
    trace = run(ContextCreate("c0"), Observe(), Lived("buffers", rounds=9, kept=4), Observe())
    before, after = (trace.steps[i].counts for i in (1, 3))
    assert after.memfds - before.memfds == 4  # type: ignore[union-attr]


class Tired(ReferenceBackend):
    """From the 12th registration on it refuses."""

    number = 0

    def register_one(self, *arguments: Any) -> Any:
        self.number += 1
        if self.number >= 12:
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return super().register_one(*arguments)


@pytest.mark.parametrize(("kind", "rounds"), [("registrations", 11), ("contexts", 11), ("refused", 5)])
def test_the_first_surprise_ends_it_and_is_told(kind: Any, rounds: int) -> None:
    trace = run(ContextCreate("c0"), Lived(kind, "c0", 50), backend=Tired())
    seen = trace.steps[1]
    assert seen.calls == (("memRegister", int(Error.MEM_ERROR_MAPPING)),)
    assert seen.counted(LivedCounts).rounds <= rounds


class ThirdTurn(ReferenceBackend):
    """The third execute of all computes zeros."""

    executes = 0

    def write_output(self, graph: Any, binding: Any, stored: Any) -> None:
        self.executes += 1
        super().write_output(graph, binding, stored * (self.executes != 3))


def test_a_wrong_output_is_told() -> None:
    seen = run(ContextCreate("c0"), Lived("turns", rounds=5), backend=ThirdTurn()).steps[1]
    assert (seen.calls, seen.counted(LivedCounts).rounds) == ((("wrong output", 0),), 1)
    assert seen.wrong is not None
    assert (seen.wrong.client, seen.wrong.turn, set(seen.wrong.seen)) == (0, 1, {0})
    assert len(seen.wrong.wanted) == len(seen.wrong.seen)


FACTS = MemoryFacts(
    capabilities=dict.fromkeys((1101, 502, 1102, 1103), 0),
    operators=(("ElementWiseAdd", "UFIXED_POINT_8"),),
)


def test_a_finding_says_which_call_gave_which_wrong_value() -> None:
    """It read "wrong output", and nobody knew of what."""
    case = MemoryCase((ContextCreate("c0"), Lived("turns", rounds=5)))
    trace = run(*case.steps, backend=ThirdTurn())
    wrong = trace.steps[1].wrong
    assert wrong is not None
    at = next(place for place, byte in enumerate(wrong.wanted) if byte)
    with pytest.raises(Violation) as raised:
        catalogue()["EXE-01"].check(case, msgspec.structs.replace(trace, facts=FACTS))
    told = raised.value
    assert told.expected == "round 2: the output that graphExecute with raw memory gives"
    shown = f"graphExecute of context 1 in round 2 gave, at byte {at}: 00 00"
    assert told.seen.startswith(shown)
    assert f" instead of {wrong.wanted[at]:02x} " in told.seen
    assert told.where == "step 1, lived what turns, rounds 5"


@pytest.mark.parametrize(
    ("rule_id", "call"),
    [
        ("REG-01", "memRegister"),
        ("DRG-01", "memDeRegister"),
        ("EXE-01", "wrong output"),
        ("CTX-08", "contextFree"),
    ],
)
def test_one_rule_judges_each_call_of_ordinary_life(rule_id: str, call: str) -> None:
    rule, target = catalogue()[rule_id], open_memory_target("reference", "emulated", "off", 5.0)
    case = MemoryCase((ContextCreate("c0"), Lived("registrations", "c0", 3)))
    trace = target.run(case)
    assert isinstance(judge_case(rule, target, case), Examined)
    steps = list(trace.steps)
    steps[1] = type(steps[1])(code=8003, calls=((call, 8003),), counts=LivedCounts(2))
    changed = MemoryTrace(session=trace.session, steps=tuple(steps), closing=trace.closing, facts=trace.facts)
    with pytest.raises(Violation) as raised:
        rule.check(case, changed)
    assert raised.value.expected == "round 3 to go as the others"


def test_the_session_opens_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    whole = module.Listener

    def listener(*arguments: Any, **named: Any) -> Any:
        made.append(whole(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(module, "Listener", listener)
    trace = run(Logged(5), ContextCreate("c0"), Lived("registrations", "c0", 3))
    assert trace.steps[2].counted(LivedCounts).rounds == 3
    assert made[0].counts["messages"] >= 6


@pytest.mark.parametrize(
    ("step", "logs", "calls"),
    [
        (Logged(4, "own"), [(False, 4)], ["getProviders", "logCreate", "backendCreate", "deviceCreate"]),
        (Logged(1, "none"), [], ["getProviders", "backendCreate", "deviceCreate"]),
    ],
)
def test_a_session_opens_without_a_callback_or_without_a_log(
    step: Logged, logs: list[tuple[bool, int]], calls: list[str]
) -> None:
    class Noting(ReferenceBackend):
        def log_create(self, callback: int | None, level: int, out: Any) -> None:
            super().log_create(callback, level, out)
            noted.append((bool(callback), level))

        def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
            assert bool(log) == bool(logs)
            super().backend_create(log, config, out)

    noted: list[tuple[bool, int]] = []
    trace = run(step, ContextCreate("c0"), backend=Noting(PERSONALITIES["default"]))
    assert trace.session == tuple((call, 0) for call in calls)
    assert trace.steps[1].code == 0
    assert noted == logs


def test_a_backend_without_a_log_stands_beside_one_that_has_one() -> None:
    class Noting(ReferenceBackend):
        def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
            super().backend_create(log, config, out)
            noted.append(bool(log))

    noted: list[bool] = []
    backend = Noting(PERSONALITIES["default"])
    trace = run(Logged(1, "none", beside=True), ContextCreate("c0"), backend=backend)
    assert noted == [True, False]
    assert trace.session == tuple((call, 0) for call in ("getProviders", "backendCreate", "deviceCreate"))
    assert trace.steps[1].code == 0
    assert not backend.backends
    assert not backend.logs


def test_a_log_comes_too_late_for_a_session_that_is_open() -> None:
    trace = run(ContextCreate("c0"), Logged(5))
    assert "open already" in trace.steps[1].skipped


def test_nothing_is_lived_without_a_session() -> None:
    class NoBackend(ReferenceBackend):
        def backend_create(self, *arguments: Any) -> None:
            del arguments
            raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)

    seen = run(Lived("contexts", rounds=3), backend=NoBackend(PERSONALITIES["default"])).steps[0]
    assert "no session" in seen.skipped
