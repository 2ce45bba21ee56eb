"""The step `Parallel` of kind ``histories``: what threads call, what is seen of it, what is drawn."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.search import Search
from pytest_qnn.core.target import Control
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.isolation.host import call_threads
from pytest_qnn.qnn.cases.case import ContextCreate, Execute, MemoryCase, Parallel, Read, ThreadCall
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.cases.valid import check_memory
from pytest_qnn.qnn.controls.calls import controls
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.mutants import races, table
from pytest_qnn.qnn.rules.qthr import rules
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen, ThreadCounts, WrongBytes
from tests.faults import faults

CALLS: tuple[ThreadCall, ...] = get_args(ThreadCall)
EACH: tuple[ThreadCall, ...] = ("memRegister", "graphExecute", "memDeRegister")
OWN: tuple[ThreadCall, ...] = (
    "contextCreate",
    "graphCreate",
    "graphCreate",
    "kept",
    "contextFree",
    "backendCreate",
    "backendFree",
)


def of(*calls: tuple[Any, ...], **fields: Any) -> Parallel:
    return Parallel("histories", threads=len(calls), rounds=fields.pop("rounds", 20), calls=calls, **fields)


def carried_out(step: Parallel, target: str = "reference", sandbox: str = "off") -> MemoryTrace:
    opened = open_memory_target(target, "emulated", sandbox, 5.0)
    try:
        return opened.run(MemoryCase((step,)))
    finally:
        opened.close()


STEPS = [
    of(EACH, EACH),
    of(("refused", *EACH), ("graphExecute",), EACH, shared=True, mem_type=2),
    of(OWN, (*OWN[:-1], *EACH), own=True, mem_type=2),
    of(("graphExecute",), ("graphExecute", "graphExecute"), mem_type=0),
    of(EACH, EACH, EACH, ops=("ElementWiseAdd", "Relu", "ElementWiseMultiply"), dtype="FLOAT_32"),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("machine_code", [True, False])
def test_threads_on_the_reference_are_answered_as_alone(
    monkeypatch: pytest.MonkeyPatch, step: Parallel, machine_code: bool
) -> None:
    if not machine_code:
        monkeypatch.setattr(call_threads, "is_possible", lambda: False)
    (seen,) = carried_out(step).steps
    assert (seen.code, seen.calls, seen.skipped) == (0, (), "")
    assert isinstance(seen.counts, ThreadCounts)
    assert seen.counts.threads == step.threads
    assert seen.counts.rounds > 0


def test_what_has_nothing_to_work_on_is_left_out(tmp_path: Any) -> None:
    never = ("memDeRegister", "graphCreate", "kept", "contextFree", "backendFree", "contextCreate")
    step = of(never, ("graphExecute",))
    library = str(faults.build(tmp_path, "memory", "example", faults.conforming("memory")))
    trace = carried_out(step, library, "fork")
    assert trace.steps[0].calls == ()
    assert trace.death is None


def test_a_target_that_refuses_without_other_threads_is_not_judged() -> None:
    (seen,) = carried_out(of(EACH, EACH, mem_type=77)).steps
    assert seen.skipped.startswith("without other threads, too, memRegister: ")


def test_memory_of_one_registration_is_not_another_ones() -> None:
    found = [carried_out(of(EACH, EACH, rounds=500), "mutant:thread-batches").steps[0] for _ in range(20)]
    assert any(seen.calls for seen in found)


# The rule.


FACTS = MemoryFacts(
    capabilities={1101: 0, 502: 0, 1102: 0, 1103: 0, 1104: 0},
    operators=(("ElementWiseAdd", "UFIXED_POINT_8"), ("Relu", "UFIXED_POINT_8")),
)


def drawn(facts: MemoryFacts) -> list[Parallel]:
    found: list[Parallel] = []
    for case in Search(rules.histories(facts), 300, seed=1):
        check_memory(case)
        found += case.steps
    return found


def test_two_to_four_threads_make_two_to_five_calls_each() -> None:
    steps = drawn(FACTS)
    assert {step.threads for step in steps} == {2, 3, 4}
    lengths = {len(calls) for step in steps for calls in step.calls}
    assert lengths == {2, 3, 4, 5}
    assert {call for step in steps for calls in step.calls for call in calls} == set(CALLS)
    assert {step.own for step in steps} == {step.shared for step in steps} == {True, False}
    assert any(len(set(step.calls)) == 1 for step in steps)
    assert any(len(set(step.calls)) == step.threads for step in steps)
    assert any(len(set(step.ops)) > 1 for step in steps)


def test_calls_of_a_thread_have_something_to_work_on() -> None:
    for step in drawn(FACTS):
        for calls in step.calls:
            there: set[str] = set()
            for call in calls:
                made = {"memDeRegister": "memRegister", "backendFree": "backendCreate"}.get(call)
                made = "contextCreate" if call in ("contextFree", "graphCreate", "kept") else made
                assert made is None or made in there
                there.add(call)
                if call in ("memDeRegister", "backendFree", "contextFree"):
                    there.discard(str(made))


def test_without_memory_nothing_is_registered_and_without_executes_none_is_made() -> None:
    raw = drawn(msgspec.structs.replace(FACTS, capabilities={1101: 1000}))
    assert {step.mem_type for step in raw} == {0}
    registers = {"memRegister", "memDeRegister", "kept"}
    assert not registers & {call for step in raw for calls in step.calls for call in calls}
    refusing = [calls for step in raw for calls in step.calls if "refused" in calls]
    assert refusing
    assert all("graphExecute" in calls for calls in refusing)  # which is refused then, with a NULL handle
    composed = drawn(msgspec.structs.replace(FACTS, capabilities={**FACTS.capabilities, 311: 1000}))
    executes = {"graphExecute", "graphCreate"}
    assert not executes & {call for step in composed for calls in step.calls for call in calls}


def judged(**seen: Any) -> Examined:
    trace = MemoryTrace(session=(("backendCreate", 0),), steps=(StepSeen(**seen),), facts=FACTS)
    return rules.qthr_06(MemoryCase((of(EACH, EACH),)), trace)


def test_any_other_answer_breaks_the_rule() -> None:
    # What was examined is the same however many rounds there was time for; without one it is nothing.
    assert (
        judged(counts=ThreadCounts(2, 700)).count == judged(counts=ThreadCounts(2, 1)).count == 2 * len(EACH)
    )
    assert judged(counts=ThreadCounts(2, 0)).count == 0
    with pytest.raises(Violation, match="memRegister answers 8003"):
        judged(calls=(("memRegister", 8003),), counts=ThreadCounts(2, 7))
    with pytest.raises(Violation, match="memRegister answers 0"):
        judged(calls=(("memRegister", 0),), counts=ThreadCounts(2, 7))
    with pytest.raises(Violation, match="wrong output"):
        judged(calls=(("wrong output", 0),), counts=ThreadCounts(2, 7))
    wrong = WrongBytes(1, b"\x01\x02", b"\x01\x05")
    with pytest.raises(Violation, match="graphExecute of thread 2 gave, at byte 1: 05 instead of 02"):
        judged(calls=(("wrong output", 0),), counts=ThreadCounts(2, 7), wrong=wrong)
    with pytest.raises(Unsupported, match="without other threads"):
        judged(skipped="without other threads, too, memRegister: 8005")


def test_the_slow_races_are_no_mutants_of_the_plan() -> None:
    assert len(races()) >= 15
    assert not set(races()) & set(table())
    assert {mutant.kills for mutant in races().values()} == {("QTHR-06",)}


# Cases.


def test_a_case_has_calls_for_each_of_its_threads() -> None:
    check_memory(MemoryCase((of(EACH, EACH),)))
    for step in (of(EACH, EACH, rounds=10_001), msgspec.structs.replace(of(EACH, EACH), threads=3)):
        with pytest.raises(BadCase):
            check_memory(MemoryCase((step,)))
    with pytest.raises(BadCase, match="calls of 1 threads, and not of 0"):
        check_memory(MemoryCase((Parallel("race", calls=(EACH,)),)))


def test_a_case_is_reduced_to_two_threads_and_a_call_each() -> None:
    step = of(EACH, EACH, EACH, ops=("Relu", "Relu", "ElementWiseAdd"), own=True, shared=True, mem_type=2)
    case = MemoryCase((step,))
    while True:
        least = [found for found in smaller_memory(case) if found.steps]
        if not least:
            break
        check_memory(case := least[0])
    assert case == MemoryCase((of(("memDeRegister",), ("memDeRegister",), mem_type=0),))


def test_a_death_in_threads_is_looked_for_without_other_threads_first() -> None:
    step = of(EACH, ("graphExecute",), ops=("Relu", "ElementWiseAdd"), own=True)
    found = list(controls(MemoryCase((step,)), (1,), died=True))
    alone = [each for each in found if isinstance(each.case.steps[0], Parallel)]
    # A session, or an execute with handles, that dies is no matter of threads, and has an owner of its own.
    begin = found.index(alone[0])
    session, *executes = found[:begin]
    assert session.case.steps == (ContextCreate("c0"),)
    assert all(isinstance(each.case.steps[-1], Execute | Read) for each in executes)
    assert found[begin : begin + len(alone)] == alone
    assert all(each.case.steps[0].threads == 1 and each.owners == ("CTX-09",) for each in alone)
    calls = [each.case.steps[0].calls for each in alone]
    assert calls == [(("memRegister", "memDeRegister"),), (("memRegister",),), (EACH,), (("graphExecute",),)]
    assert [each.case.steps[0].op for each in alone[2:]] == ["Relu", "ElementWiseAdd"]
    assert isinstance(alone[0], Control)
