from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from case_mutations import refusal
from kept import keep

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Outcome, Violation
from pytest_qnn.qnn.abi import layouts as abi
from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    ApplySection,
    Binding,
    ContextCreate,
    ContextFromBinary,
    Execute,
    GetBinary,
    GetSection,
    MemoryCase,
    Observe,
    Prepare,
    Retrieve,
    SectionMemory,
    UpdateWeights,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.reference import sections
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts, StepSeen, WrittenCounts
from pytest_qnn.rules import catalogue

RULE = catalogue()["MSC-01"]
MADE: tuple[AnyStep, ...] = (ContextCreate("c"), Prepare("g", "c", weights=1, weights_as="updatable"))
WRITTEN: tuple[AnyStep, ...] = (*MADE, GetBinary("c", "f"), UpdateWeights("g", 9))
LOADED: tuple[AnyStep, ...] = (ContextFromBinary("d", "f"), Retrieve("r", "d", "g"))
TAKEN = GetSection("c", "g", "s")
APPLIED = ApplySection("d", "r", "s")
RAW = (Binding(seed=1), Binding())
EXECUTED, AGAIN = Execute("g", RAW), Execute("r", RAW)


def output(weights: int) -> bytes:
    inputs = (contents("UFIXED_POINT_8", seed, 8) for seed in (1, weights))
    return expected("ElementWiseAdd", "UFIXED_POINT_8", *inputs)


def carry_out(*steps: AnyStep, personality: str = "binary-sections") -> tuple[MemoryCase, MemoryTrace]:
    case, rpcmem = MemoryCase(steps), EmulatedRpcmem()
    backend = ReferenceBackend(PERSONALITIES[personality])
    try:
        trace = run_memory_case(case, QnnEntry(backend.get_providers, backend), rpcmem)
        assert backend.escaped == []
        return case, trace
    finally:
        backend.close()
        rpcmem.close()


def last(*steps: AnyStep, personality: str = "binary-sections") -> StepSeen:
    return carry_out(*steps, personality=personality)[1].steps[-1]


@contextmanager
def opened(spec: str, sandbox: str = "off") -> Iterator[MemoryTarget]:
    target = open_memory_target(spec, "emulated", sandbox, 10.0)
    try:
        yield target
    finally:
        target.close()


def test_the_buffer_of_a_section_is_laid_out_as_in_the_header() -> None:
    v1 = abi.ContextBuffer.v1.offset
    assert ctypes.sizeof(abi.ContextBuffer) == 32
    assert (v1, v1 + abi.ContextBufferV1.memHandle.offset) == (8, 16)
    assert v1 + abi.ContextBufferV1.binaryBuf.offset + abi.BinaryBuffer.dataSize.offset == 24


def test_updated_weights_are_in_effect_after_finalising_again() -> None:
    _, trace = carry_out(*MADE, EXECUTED, UpdateWeights("g", 9), EXECUTED)
    assert [trace.steps[at].data for at in (2, 4)] == [(output(1),), (output(9),)]
    assert trace.steps[3].calls == (("tensorUpdateGraphTensors", 0), ("graphFinalize", 0))


def test_weights_that_are_not_updatable_are_not_updated() -> None:
    case, trace = carry_out(ContextCreate("c"), Prepare("g", "c", weights=1), UpdateWeights("g", 9))
    code = Error.TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE
    assert trace.steps[-1].calls == (("tensorUpdateGraphTensors", code),)
    allowed = list(walk(case, trace))[-1].allowed
    assert allowed.only(Fault.NOT_UPDATABLE)
    assert allowed.codes == {7004, 7005, 7007}


@pytest.mark.parametrize("code", [7004, 7005, 7006, 6000, 0])
def test_a_tensor_that_is_not_updatable_is_refused_with_a_code_for_tensors(
    code: int,
) -> None:
    """QnnTensor.h lists three for the call, and does not say which is that of a STATIC tensor."""
    steps = (*MADE, TAKEN, Prepare("k", "c", weights=1), UpdateWeights("k", 9))
    case, trace = carry_out(*steps)
    seen = msgspec.structs.replace(trace.steps[-1], code=code, calls=(("tensorUpdateGraphTensors", code),))
    facts = MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),))
    answered = msgspec.structs.replace(trace, steps=(*trace.steps[:-1], seen), facts=facts)
    if code in (7004, 7005):
        assert catalogue()["MSC-04"].check(case, answered).count == 1
    else:
        with pytest.raises(Violation, match="7004"):
            catalogue()["MSC-04"].check(case, answered)


@pytest.mark.parametrize("memory", ["raw", "handle"])
@pytest.mark.parametrize("mem_type", [1, 2])
def test_a_section_carries_weights_into_a_graph_that_was_written_before(
    memory: SectionMemory, mem_type: int
) -> None:
    applied = ApplySection("d", "r", "s", memory, mem_type)
    case, trace = carry_out(*WRITTEN, TAKEN, *LOADED, AGAIN, applied, AGAIN)
    assert [trace.steps[at].data for at in (-3, -1)] == [(output(1),), (output(9),)]
    assert [seen.difference for seen in compare(case, trace)] == ["", ""]


def test_a_section_is_the_same_behind_a_handle_as_in_raw_memory_and_nothing_lies_behind_it() -> None:
    raw, behind = carry_out(*WRITTEN, TAKEN, GetSection("c", "g", "t", "handle"))[1].steps[-2:]
    assert raw.code == behind.code == 0
    assert raw.data == behind.data != ()
    assert raw.values == behind.values == (len(raw.data[0]),) * 2
    assert raw.counts == behind.counts == WrittenCounts()


@pytest.mark.parametrize(
    ("memory", "code"),
    [
        ("null", Error.CONTEXT_ERROR_INVALID_ARGUMENT),
        ("unknown", Error.CONTEXT_ERROR_INVALID_ARGUMENT),
        ("dead", Error.CONTEXT_ERROR_INVALID_ARGUMENT),
        ("short", Error.CONTEXT_ERROR_GET_BINARY_FAILED),
    ],
)
def test_a_handle_that_is_none_takes_no_section(memory: SectionMemory, code: Error) -> None:
    case, trace = carry_out(*MADE, GetSection("c", "g", "s", memory))
    assert trace.steps[-1].code == code
    assert trace.steps[-1].counts in (None, WrittenCounts())
    allowed = list(walk(case, trace))[-1].allowed
    assert allowed.only(Fault.SHORT if memory == "short" else Fault.UNREGISTERED)


@pytest.mark.parametrize("memory", ["null", "unknown", "dead", "short"])
def test_what_is_refused_leaves_the_weights_as_they_are(memory: SectionMemory) -> None:
    steps = (*WRITTEN, TAKEN, *LOADED, ApplySection("d", "r", "s", memory), AGAIN)
    refused, executed = carry_out(*steps)[1].steps[-2:]
    assert refused.code == Error.CONTEXT_ERROR_INVALID_ARGUMENT
    assert executed.data == (output(1),)


def test_a_context_out_of_a_binary_gives_no_section() -> None:
    seen = last(*WRITTEN, *LOADED, GetSection("d", "r", "s"))
    assert seen.calls == (("contextGetBinarySectionSize", Error.COMMON_ERROR_OPERATION_NOT_PERMITTED),)


FOREIGN: tuple[AnyStep, ...] = (
    *MADE,
    ContextCreate("e"),
    Prepare("h", "e", weights=1, weights_as="updatable"),
)


@pytest.mark.parametrize(
    ("section", "calls"),
    [
        (
            GetSection("c", "h", "s"),
            (("contextGetBinarySectionSize", Error.CONTEXT_ERROR_INVALID_ARGUMENT),),
        ),
        (
            GetSection("c", "h", "s", size_of="g"),
            (
                ("contextGetBinarySectionSize", 0),
                ("contextGetBinarySection", Error.CONTEXT_ERROR_INVALID_ARGUMENT),
            ),
        ),
    ],
)
def test_a_context_gives_no_section_of_another_contexts_graph(
    section: GetSection, calls: tuple[tuple[str, int], ...]
) -> None:
    case, trace = carry_out(*FOREIGN, section)
    assert trace.steps[-1].calls == calls
    assert list(walk(case, trace))[-1].allowed.only(Fault.FOREIGN_GRAPH)


BEGUN = Prepare("g", "c", weights=1, weights_as="updatable", finalise=False)


def test_a_graph_that_is_composed_still_has_no_section() -> None:
    case, trace = carry_out(ContextCreate("c"), BEGUN, GetSection("c", "g", "s"))
    allowed = list(walk(case, trace))[-1].allowed
    assert allowed.only(Fault.UNFINISHED)
    assert allowed.codes == {trace.steps[-1].code}


@pytest.mark.parametrize("code", [0, 6023])
def test_nothing_is_demanded_of_an_update_before_the_graph_is_finalised(code: int) -> None:
    """QnnTensor.h says that updates take effect with graphFinalize, and nothing of what came before."""
    case, trace = carry_out(*MADE, TAKEN, msgspec.structs.replace(BEGUN, graph="k"), UpdateWeights("k", 9))
    seen = msgspec.structs.replace(trace.steps[-1], code=code, calls=(("tensorUpdateGraphTensors", code),))
    facts = MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),))
    answered = msgspec.structs.replace(trace, steps=(*trace.steps[:-1], seen), facts=facts)
    assert not list(walk(case, answered))[-1].allowed.specified
    assert catalogue()["MSC-04"].check(case, answered).count == 0


def test_a_section_of_another_graph_is_not_applied() -> None:
    other = Prepare("h", "c", weights=1, weights_as="updatable")
    seen = last(*MADE, other, TAKEN, ApplySection("c", "h", "s"))
    assert seen.code == Error.CONTEXT_ERROR_INVALID_ARGUMENT


@pytest.mark.parametrize("cut", [4, 21])
def test_a_damaged_section_is_none(cut: int) -> None:
    data = sections.encode({"g": {2: b"abc"}})
    assert sections.decode(data + b"behind it") == {"g": {2: b"abc"}}
    with pytest.raises(ValueError, match=r"section|short"):
        sections.decode(data[:cut])


def test_without_the_property_there_are_no_updatable_weights() -> None:
    seen = last(*MADE, personality="default")
    assert seen.calls[-1] == ("tensorCreateGraphTensor", Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)


def test_the_memory_of_sections_is_given_back() -> None:
    rounds = [
        step
        for memory in ("handle", "short", "dead", "null")
        for step in (GetSection("c", "g", "t", memory), ApplySection("d", "r", "s", memory))
    ]
    _, trace = carry_out(*WRITTEN, TAKEN, *LOADED, *rounds, Observe(), *rounds, Observe())
    first, second = (trace.steps[at].counted(ProcessCounts) for at in (-1 - len(rounds) - 1, -1))
    assert (first.fds, first.memfds) == (second.fds, second.memfds)


@pytest.mark.parametrize("step", [UpdateWeights("g", -1), GetSection("c", "g", "s", "handle", 1 << 32)])
def test_a_file_has_numbers_that_fit_their_c_types(step: AnyStep) -> None:
    assert re.search(r"\$\.steps\[\d+\]\.(weights|mem_type)", refusal(MemoryCase((*MADE, step))))


def test_an_unknown_handle_shrinks_to_one_section() -> None:
    with opened("mutant:section-any-handle") as target:
        verdict = judge(RULE, target, PROFILES["default"].without_seconds(), seed=2)
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case, type=MemoryCase)
    context, graph, section = case.steps
    assert isinstance(context, ContextCreate)
    assert isinstance(graph, Prepare)
    assert isinstance(section, GetSection)
    assert section.memory == "unknown"


@pytest.mark.parametrize("personality", ["binary-sections", "default", "no-memory", "no-binaries"])
def test_the_rule_is_quiet_where_sections_conform(personality: str) -> None:
    target = keep(open_memory_target(f"reference:{personality}", "emulated", "off", 10.0))
    verdict = judge(RULE, target, PROFILES["default"], seed=7)
    wanted = Outcome.PASS if personality == "binary-sections" else Outcome.UNSUPPORTED
    assert verdict.outcome is wanted, verdict.finding or verdict.reason
    assert bool(verdict.examined) is (wanted is Outcome.PASS)
