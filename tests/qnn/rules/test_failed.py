from __future__ import annotations

import os

import pytest
from case_mutations import refusal
from msgspec.structs import replace

from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.isolation.libc import few_descriptors
from pytest_qnn.isolation.observe.process import descriptors
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import (
    AllocNeeded,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Descriptor,
    Execute,
    GetBinary,
    MemoryCase,
    Observe,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.rules.ext.failed import ext_30
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts, StepSeen

FACTS = MemoryFacts(
    backend_id=6,
    capabilities=dict.fromkeys((202, 217, 1101, 1103), 0),
    operators=(("ElementWiseAdd", "UFIXED_POINT_8"),),
)
WEIGHTS = Descriptor("b", (), mem_type=2, htp_type=2)
SAVED: tuple[AnyStep, ...] = (
    ContextCreate("c"),
    Prepare("g", "c", weights=1),
    GetBinary("c", "f"),
    ContextFromBinary("d", "f", defer=True),
    ContextProperty("d", (1, 2, 3)),
    AllocNeeded("b", "d", 3),
    Register("d", (WEIGHTS,), ("h",)),
)
AGAIN: tuple[AnyStep, ...] = (
    ContextFromBinary("e", "f", defer=True),
    ContextProperty("e", (1, 2, 3)),
    Register("e", (WEIGHTS,), ("i",)),
    ContextFinalize("e"),
    Retrieve("r", "e", "g"),
    Execute("r", (Binding(seed=1), Binding())),
)


def carry_out(*steps: AnyStep) -> tuple[MemoryCase, MemoryTrace]:
    case, backend, rpcmem = MemoryCase(steps), ReferenceBackend(), EmulatedRpcmem()
    try:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), rpcmem)
        assert backend.escaped == []
        return case, MemoryTrace(session=trace.session, steps=trace.steps, facts=FACTS)
    finally:
        backend.close()


def codes(trace: MemoryTrace, first: int) -> list[int | None]:
    return [seen.code for seen in trace.steps[first:]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_so_many_descriptors_can_be_opened_and_no_more(count: int) -> None:
    with few_descriptors(count):
        opened = [os.dup(1) for _ in range(count)]
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(1)
    for each in opened:
        os.close(each)


def test_numbers_below_the_highest_cannot_be_had_either() -> None:
    first, second = os.dup(1), os.dup(1)
    os.close(first)
    try:
        with few_descriptors(0), pytest.raises(OSError, match="Too many open files"):
            os.dup(1)
    finally:
        os.close(second)


def test_afterwards_descriptors_are_as_before() -> None:
    before = descriptors()
    with few_descriptors(2):
        pass
    assert descriptors() == before
    os.close(os.dup(1))


def test_the_reference_finalises_nothing_without_memory_and_is_as_before() -> None:
    _, trace = carry_out(
        *SAVED,
        ContextFinalize("d", descriptors=0),
        Retrieve("r", "d", "g"),
        ContextFinalize("d"),
        Retrieve("r", "d", "g"),
    )
    wanted = [Error.CONTEXT_ERROR_MEM_ALLOC, Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED, 0, 0]
    assert codes(trace, len(SAVED)) == wanted


def test_the_memory_of_a_context_that_failed_serves_another() -> None:
    case, trace = carry_out(*SAVED, ContextFinalize("d", descriptors=0), ContextFree("d"), *AGAIN)
    assert codes(trace, len(SAVED) + 1) == [0] * (1 + len(AGAIN))
    assert [seen.difference for seen in compare(case, trace)] == [""]
    assert ext_30(case, trace).count == 1


def test_the_model_leaves_open_whether_memory_can_be_taken_back_after_a_failure() -> None:
    case, trace = carry_out(*SAVED, ContextFinalize("d", descriptors=0), Deregister(("h",)), *AGAIN)
    allowed = {walked.index: walked.allowed for walked in walk(case, trace)}
    back = len(SAVED) + 1
    assert not allowed[back].specified
    assert [allowed[back + 1 + at].valid for at in range(len(AGAIN))] == [True] * len(AGAIN)


def with_answer(index: int, seen: StepSeen, *steps: AnyStep) -> tuple[MemoryCase, MemoryTrace]:
    case, trace = carry_out(*steps)
    changed = (*trace.steps[:index], seen, *trace.steps[index + 1 :])
    return case, MemoryTrace(session=trace.session, steps=changed, facts=FACTS)


def test_a_finalise_that_needs_no_descriptor_cannot_be_judged() -> None:
    steps = (*SAVED, ContextFinalize("d", descriptors=0))
    with pytest.raises(Unsupported, match="nothing here can make it fail"):
        ext_30(*with_answer(len(SAVED), StepSeen(code=0), *steps))


def test_a_finalise_that_needs_fewer_descriptors_than_there_are_is_passed_over() -> None:
    assert ext_30(*carry_out(*SAVED, ContextFinalize("d", descriptors=3))).count == 0


def test_mappings_left_by_the_second_failure_are_a_violation_and_by_the_first_are_not() -> None:
    failing = (
        ContextFromBinary("e", "f", defer=True),
        ContextFinalize("e", descriptors=0),
        ContextFree("e"),
        Observe(),
    )
    steps = (*SAVED[:3], *failing, *failing)
    case, trace = carry_out(*steps)
    counts = trace.steps[-1].counted(ProcessCounts)
    assert ext_30(case, trace).count == 2
    more = StepSeen(counts=replace(counts, memfds=counts.memfds + 1))
    with pytest.raises(Violation, match="mappings of shared memory"):
        ext_30(*with_answer(len(steps) - 1, more, *steps))
    assert ext_30(*with_answer(6, StepSeen(counts=ProcessCounts()), *steps[:7])).count == 1


@pytest.mark.parametrize("count", [-1, 1 << 20])
def test_a_number_of_descriptors_that_makes_no_sense_is_refused(count: int) -> None:
    case = MemoryCase((ContextFinalize("d", descriptors=count),))
    assert refusal(case).endswith("at `$.steps[0].descriptors`")
