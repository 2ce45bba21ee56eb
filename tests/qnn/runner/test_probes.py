"""What the probing steps and the unusual ways of preparing and executing leave in the trace."""

from __future__ import annotations

import ctypes
import math
from typing import Any, get_args

import msgspec
import pytest
from case_mutations import refusal

from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    FREED,
    MAPPED,
    Alloc,
    AnyStep,
    Binding,
    Churn,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Environment,
    Execute,
    Interface,
    MemoryCase,
    MendedMistake,
    Message,
    Miscompose,
    Mistake,
    Misuse,
    Parallel,
    Prepare,
    QnnOp,
    Register,
    TensorMistake,
    Version,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.expected import walk
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.model.operators import expected
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.rules.iface.rules import if_10
from pytest_qnn.qnn.rules.qthr.rules import qthr_03
from pytest_qnn.qnn.rules.reg.descriptors import reg_18
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, PrepareCounts, StepSeen, Versions

CONTEXT = ContextCreate("c0")
GRAPH = (CONTEXT, Prepare("g0", "c0"))
RAW = (Binding(seed=1), Binding(seed=2), Binding())


def carried_out(*steps: AnyStep, target: str = "reference") -> MemoryTrace:
    opened = open_memory_target(target, "emulated", "off", 10.0)
    try:
        return opened.run(MemoryCase(steps))
    finally:
        opened.close()


def last(*steps: AnyStep) -> StepSeen:
    return carried_out(*steps).steps[-1]


def test_the_interface_is_seen_byte_by_byte() -> None:
    first, second = carried_out(Interface(), Interface()).steps
    assert first == second
    assert first.data[1] == b"PYTEST_QNN_REFERENCE"
    assert len(first.data[0]) == 608
    assert first.counted(Versions).core[:2] == (2, 32)


def test_the_version_needs_no_session() -> None:
    trace = carried_out(Version(), Version("build"), Version("build", null=True))
    assert trace.session == ()
    assert [seen.code for seen in trace.steps] == [0, 0, 4004]
    assert trace.steps[1].data == (b"pytest-qnn reference",)


def test_a_message_shows_its_text_and_what_became_of_the_pointer() -> None:
    known, unknown, null = carried_out(Message(8002), Message(999), Message(8002, null=True)).steps
    assert (known.code, known.values) == (0, (1,))
    assert b"ALREADY_REGISTERED" in known.data[0]
    assert (unknown.code, unknown.values, unknown.data) == (10001, (0,), ())
    assert null.code == 10000


def test_a_freed_backend_is_none_of_the_session() -> None:
    trace = carried_out(CONTEXT, Misuse("backendFree", FREED), Prepare("g0", "c0"))
    assert [seen.code for seen in trace.steps] == [0, 4011, 0]


def test_a_misuse_of_a_live_object_is_no_misuse() -> None:
    case = MemoryCase((CONTEXT, Misuse("contextGetBinary", "c0")))
    trace = MemoryTrace(steps=(StepSeen(code=0, values=(7,)), StepSeen(code=0)))
    assert if_10(case, trace).count == 0


def test_a_misuse_of_a_freed_context_is_judged() -> None:
    case = MemoryCase((CONTEXT, ContextFree("c0"), Misuse("contextGetBinary", "c0")))
    trace = MemoryTrace(steps=(StepSeen(code=0, values=(7,)), StepSeen(code=0), StepSeen(code=0)))
    with pytest.raises(Violation, match="5002"):
        if_10(case, trace)


@pytest.mark.parametrize(
    ("mistake", "code", "before"),
    [
        ("name", 6003, ["graphCreate"]),
        ("tensor", 6005, ["graphCreate", *["tensorCreateGraphTensor"] * 3]),
        ("late", 6024, ["graphCreate", *["tensorCreateGraphTensor"] * 3, "graphAddNode", "graphFinalize"]),
    ],
)
def test_a_mistake_in_composing_comes_after_calls_that_are_right(
    mistake: Mistake, code: int, before: list[str]
) -> None:
    seen = last(CONTEXT, Miscompose("c0", mistake))
    assert seen.code == code
    assert seen.calls == (
        *((call, 0) for call in before),
        (before[0] if mistake == "name" else "graphAddNode", code),
    )


@pytest.mark.parametrize("mistake", [each for each in get_args(TensorMistake) if each != "rank-zero"])
@pytest.mark.parametrize("op", ["ElementWiseAdd", "Reshape"])
def test_a_tensor_that_is_ruled_out_comes_behind_those_that_are_right(mistake: Mistake, op: QnnOp) -> None:
    seen = last(CONTEXT, Miscompose("c0", mistake, op))
    assert {call for call, _ in seen.calls} == {"graphCreate", "tensorCreateGraphTensor"}
    assert [code for _, code in seen.calls] == [*[0] * (len(seen.calls) - 1), 7004]
    assert (seen.code, len(seen.calls)) == (7004, 5 if op == "ElementWiseAdd" else 4)


def test_dimensions_beside_rank_0_are_not_looked_at() -> None:
    assert last(CONTEXT, Miscompose("c0", "rank-zero")).code == 0


def test_only_a_tensor_of_fixed_point_has_a_scale() -> None:
    assert last(CONTEXT, Miscompose("c0", "scale-zero", dtype="FLOAT_32")).skipped
    assert last(CONTEXT, Miscompose("c0", "zero-dimension", dtype="FLOAT_32")).code == 7004


@pytest.mark.parametrize(
    ("mutant", "taken"),
    [
        ("tensor-without-elements", {"zero-dimension"}),
        ("tensor-scale-unchecked", {"scale-zero", "scale-negative", "scale-nan"}),
    ],
)
def test_a_mutant_takes_the_tensors_of_its_own_fault(mutant: str, taken: set[str]) -> None:
    mistakes: tuple[Mistake, ...] = get_args(TensorMistake)
    trace = carried_out(CONTEXT, *(Miscompose("c0", each) for each in mistakes), target=f"mutant:{mutant}")
    assert {each for each, seen in zip(mistakes, trace.steps[1:], strict=True) if seen.code == 0} == taken | {
        "rank-zero"
    }


def test_the_address_of_memory_of_the_client_is_no_handle() -> None:
    bindings = (Binding("handle", MAPPED, seed=1), Binding(seed=2), Binding())
    assert last(*GRAPH, Execute("g0", bindings)).code == 6004
    assert last(CONTEXT, Deregister((MAPPED,))).code == 8001


def test_the_address_of_memory_of_the_client_leads_to_what_raw_memory_would_have() -> None:
    bindings = (Binding("handle", MAPPED, seed=1), Binding(seed=2), Binding())
    trace = carried_out(*GRAPH, Execute("g0", bindings), target="mutant:mapped-address-executes")
    inputs = (contents("UFIXED_POINT_8", seed, 8) for seed in (1, 2))
    assert trace.steps[-1].data == (expected("ElementWiseAdd", "UFIXED_POINT_8", *inputs),)
    assert trace.steps[-1].code == 0
    bogus = (Binding("handle", BOGUS), *bindings[1:])
    assert carried_out(*GRAPH, Execute("g0", bogus), target="mutant:mapped-address-executes").steps[-1].code


@pytest.mark.parametrize("mistake", ["few-inputs", "many-inputs"])
@pytest.mark.parametrize("op", ["ElementWiseAdd", "Relu"])
def test_an_operator_with_another_number_of_inputs_is_not_validated(mistake: Mistake, op: QnnOp) -> None:
    seen = last(CONTEXT, Miscompose("c0", mistake, op))
    assert seen.calls == (("backendValidateOpConfig", 0), ("backendValidateOpConfig", 3110))
    assert seen.code == 3110


REFUSED = {
    "name": 1,
    "data": 3,
    "handle": 2,
    "zero-dimension": 3,
    "data-type": 3,
    "early": 1,
    "input": 2,
    "output": 2,
    "late": 1,
}
"""Of a graph of two IO tensors, a STATIC one, and two nodes."""


@pytest.mark.parametrize("mistake", get_args(MendedMistake))
def test_mistakes_are_made_beside_the_right_calls_and_the_graph_is_as_it_would_be(
    mistake: MendedMistake,
) -> None:
    made = Prepare("g0", "c0", weights=3, relay=True, mistakes=(mistake,))
    run = Execute("g0", (Binding(seed=1), Binding()))
    trace = carried_out(CONTEXT, made, run)
    seen = trace.steps[1]
    assert (seen.code, seen.counted(PrepareCounts).refused) == (0, REFUSED[mistake])
    plain = carried_out(CONTEXT, msgspec.structs.replace(made, mistakes=()), run)
    assert seen.calls == plain.steps[1].calls
    assert trace.steps[2].data == plain.steps[2].data


@pytest.mark.parametrize(
    ("mutant", "mistake", "call"),
    [
        ("graph-names-twice", "name", "graphCreate"),
        ("preset-data", "data", "tensorCreateGraphTensor"),
        ("preset-handle", "handle", "tensorCreateGraphTensor"),
        ("tensor-without-elements", "zero-dimension", "tensorCreateGraphTensor"),
        ("node-any-tensor", "input", "graphAddNode"),
        ("node-after-finalise", "late", "graphAddNode"),
    ],
)
def test_where_a_mistake_is_taken_there_is_no_graph(mutant: str, mistake: MendedMistake, call: str) -> None:
    made = Prepare("g0", "c0", mistakes=(mistake,))
    trace = carried_out(CONTEXT, made, Execute("g0", RAW), target=f"mutant:{mutant}")
    assert trace.steps[1].skipped == f"{call} succeeds with the mistake {mistake!r}"
    assert trace.steps[2].lacking


def test_a_case_with_several_mistakes_becomes_one_with_one() -> None:
    made = Prepare("g0", "c0", mistakes=("input", "name", "late"))
    fewer = {
        step.mistakes
        for case in smaller_memory(MemoryCase((CONTEXT, made)))
        for step in case.steps
        if isinstance(step, Prepare)
    }
    assert {("input",), ("name",), ("late",)} <= fewer


def test_a_mistake_is_not_made_where_calls_before_it_fail() -> None:
    seen = last(CONTEXT, ContextFree("c0"), Miscompose("c0", "late"))
    assert (seen.code, seen.calls) == (None, (("graphCreate", 6001),))


def test_environments_are_not_offered_by_the_reference() -> None:
    assert last(*GRAPH, Environment("g0", 1)).code == 1000


def test_rounds_that_leave_something_behind_are_counted() -> None:
    seen = carried_out(
        CONTEXT, Alloc("b0", 256), Churn("register", "b0", "c0", 30), target="mutant:leak-registrations"
    ).steps[-1]
    assert seen.counted(GrowthCounts).heap >= 30 * 8192


def test_rounds_stop_at_the_first_surprise() -> None:
    seen = last(CONTEXT, Alloc("b0", 256), Churn("register", "b0", "c0", 30, mem_type=9))
    assert seen.calls == (("memRegister", 8005),)


def test_threads_in_sibling_contexts_find_nothing_on_the_reference() -> None:
    seen = last(Parallel("contexts", threads=3, rounds=3))
    assert (seen.code, seen.calls) == (0, ())


def test_a_wrong_output_of_a_thread_is_told_with_its_bytes() -> None:
    case = MemoryCase((Parallel("contexts", threads=2, rounds=3),))
    trace = carried_out(*case.steps, target="mutant:handle-output-off")
    (seen,) = trace.steps
    assert seen.wrong is not None
    assert seen.wrong.turn == 0
    flipped = bytes(byte ^ 0x40 for byte in seen.wrong.wanted)
    assert seen.wrong.seen == flipped
    with pytest.raises(Violation) as raised:
        qthr_03(case, trace)
    told = f"graphExecute of thread {seen.wrong.client + 1} in round 1 gave, at byte 0: {flipped[0]:02x} "
    assert raised.value.seen.startswith(told)


def test_a_race_ends_with_the_code_of_the_execute() -> None:
    assert last(Parallel("race")).calls == (("graphExecute", 6001),)


def test_the_order_of_the_inputs_does_not_change_the_output() -> None:
    trace = carried_out(*GRAPH, Execute("g0", RAW), Execute("g0", RAW, inputs=(1, 0)))
    wanted = expected("ElementWiseAdd", "UFIXED_POINT_8", *(contents("UFIXED_POINT_8", i, 8) for i in (1, 2)))
    assert [seen.data for seen in trace.steps[2:]] == [(wanted,), (wanted,)]


def test_scribbled_weights_are_those_of_the_creation() -> None:
    prepared = Prepare("g0", "c0", weights=2, weights_as="scribbled")
    seen = last(CONTEXT, prepared, Execute("g0", (Binding(seed=1), Binding())))
    inputs = (contents("UFIXED_POINT_8", seed, 8) for seed in (1, 2))
    assert seen.data == (expected("ElementWiseAdd", "UFIXED_POINT_8", *inputs),)


@pytest.mark.parametrize("shape", [(8,), (2, 3), (1, 2, 2, 2)])
def test_dimensions_that_are_read_again_are_too_small(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rank of 1 or 2, dimensions of 0xA5A5A5A5 were more than the tensor has, and no check saw them."""
    read_descriptor, deregister_one = ReferenceBackend.read_descriptor, ReferenceBackend.deregister_one
    given: list[int] = []

    def keeping(self: ReferenceBackend, descriptor: Any) -> Any:
        given.append(ctypes.addressof(descriptor.memShape.dimSize.contents))
        return read_descriptor(self, descriptor)

    def checking(self: ReferenceBackend, handle: int | None) -> bool:
        now = (ctypes.c_uint32 * len(shape)).from_address(given[-1])
        return math.prod(now) >= math.prod(shape) and deregister_one(self, handle)

    monkeypatch.setattr(ReferenceBackend, "read_descriptor", keeping)
    monkeypatch.setattr(ReferenceBackend, "deregister_one", checking)
    registered = Register("c0", (Descriptor("b0", shape),), ("h0",), scribble=True)
    case = MemoryCase((CONTEXT, Alloc("b0", 4096), registered, Deregister(("h0",))))
    opened = open_memory_target("reference", "emulated", "off", 10.0)
    try:
        with pytest.raises(Violation, match="the client owns its structs again"):
            reg_18(case, opened.run(case))
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("binding", "code"),
    [(Binding(mem_type=77), 6004), (Binding(short=3), 6004), (Binding(of="g1"), 6004)],
    ids=["memory type", "short", "foreign"],
)
def test_a_tensor_that_is_wrong_is_refused_by_the_reference(binding: Binding, code: int) -> None:
    other = Prepare("g1", "c0")
    seen = last(*GRAPH, other, Execute("g0", (binding, *RAW[1:])))
    assert (seen.code, seen.data) == (code, (b"\xee" * 8,))


def test_what_is_written_to_watched_structs_is_counted() -> None:
    seen = carried_out(CONTEXT, Prepare("g0", "c0", watch=True), target="mutant:create-writes-structs")
    assert seen.steps[-1].counted(PrepareCounts).tensor_bytes_changed == 3


FAULTS = {
    "tensors": Execute("g0", RAW, inputs=(0, 0)),
    "mem-type": Execute("g0", (Binding(mem_type=5), *RAW[1:])),
    "short-data": Execute("g0", (*RAW[:2], Binding(short=1))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_knows_what_is_wrong_with_an_execute(fault: str) -> None:
    case = MemoryCase((*GRAPH, FAULTS[fault]))
    facts = MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),))
    done = tuple(StepSeen(code=0, values=(1, 1, 2, 3)) for _ in case.steps)
    *_, walked = walk(case, MemoryTrace(steps=done, facts=facts))
    assert walked.allowed.only(Fault(fault))


def test_the_model_knows_a_graph_that_is_not_finalised() -> None:
    case = MemoryCase((CONTEXT, Prepare("g0", "c0", finalise=False), Execute("g0", RAW)))
    done = tuple(StepSeen(code=0, values=(1, 1, 2, 3)) for _ in case.steps)
    *_, walked = walk(case, MemoryTrace(steps=done))
    assert (walked.allowed.faults, walked.allowed.codes) == ({Fault.NOT_FINALISED}, {6023})


@pytest.mark.parametrize(
    "step",
    [
        Execute("g0", (Binding(mem_type=1),)),
        Execute("g0", (Binding(short=-1),)),
        Churn("register", "b0", rounds=1 << 20),
        Parallel("race", threads=1000),
        Message(-1),
    ],
    ids=["handle by type", "negative", "rounds", "threads", "code"],
)
def test_a_case_from_a_file_has_its_bounds(step: AnyStep) -> None:
    assert refusal(MemoryCase((step,)))


def test_a_misuse_goes_with_the_context_it_names() -> None:
    case = MemoryCase((CONTEXT, ContextFree("c0"), Misuse("graphCreate", "c0")))
    for smaller in smaller_memory(case):
        named = {step.handle for step in smaller.steps if isinstance(step, Misuse)}
        made = {step.context for step in smaller.steps if isinstance(step, ContextCreate)}
        assert named <= made
