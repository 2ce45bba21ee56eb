from __future__ import annotations

import random
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Free,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.model.expected import Allowed, Model, walk
from pytest_qnn.qnn.model.notes import Event, Fault
from pytest_qnn.qnn.strategies.scene import Tape
from pytest_qnn.qnn.strategies.sequences import memory_sequences
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import StepSeen

FACTS = MemoryFacts(
    provider="made up",
    backend_id=6,
    capabilities={502: 0, 1101: 0, 1102: 0, 1103: 0, 1104: 1000},
    operators=(("Relu", "UFIXED_POINT_8"),),
)
ION = Descriptor("b0", (4,))
SHARED = Descriptor("b0", (4,), mem_type=2)
ONE = Register("c0", (ION,), ("h0",))
GRAPH = Prepare("g0", "c0", "Relu", shape=(4,))
START: tuple[AnyStep, ...] = (ContextCreate("c0"), Alloc("b0", 4096))
ODDS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def after(*steps: AnyStep) -> Model:
    """A model that saw a context, a page of memory, and ``steps`` answered as a conforming target does."""
    model = Model(FACTS)
    values = iter(range(1, 1000))
    for step in (*START, *steps):
        allowed = model.expect(step)
        made = tuple(next(values) for _ in range(4))
        code = None if isinstance(step, Alloc | Free) else min(allowed.codes, default=0)
        model.follow(step, StepSeen(code=code, values=made), allowed)
    return model


def allowed(step: AnyStep, *before: AnyStep) -> Allowed:
    return after(*before).expect(step)


@pytest.fixture(scope="module", params=["default", "small-reused-handles", "no-ion", "no-memory"])
def reference(request: pytest.FixtureRequest) -> Iterator[MemoryTarget]:
    target = open_memory_target(f"reference:{request.param}", "emulated", "off", 10)
    yield target
    target.close()


OVER = {8000, 8003, 8004}
FAULTS: list[tuple[str, AnyStep, tuple[AnyStep, ...], set[int]]] = [
    ("null-descriptors", msgspec.structs.replace(ONE, null_descriptors=True), (), {8000}),
    ("null-handles", msgspec.structs.replace(ONE, null_handles=True), (), {8000}),
    ("count-zero", msgspec.structs.replace(ONE, count=0), (), {0, 8000}),
    ("bad-context", Register(NULL, (ION,), ("h0",)), (), {8001}),
    ("bad-context", ONE, (ContextFree("c0"),), {8001}),
    ("type-unknown", Register("c0", (Descriptor("b0", (4,), mem_type=9),), ("h0",)), (), {8000, 8005}),
    ("type-unsupported", Register("c0", (Descriptor("b0", (4,), mem_type=3),), ("h0",)), (), {8005}),
    ("bad-shape", Register("c0", (Descriptor("b0", (4, 0)),), ("h0",)), (), {8000, 8004}),
    ("fd-minus-one", Register("c0", (Descriptor("b0", (4,), fd="minus-one"),), ("h0",)), (), {8000, 8003}),
    ("fd-unmappable", Register("c0", (Descriptor("b0", (4,), fd="pipe"),), ("h0",)), (), {8003}),
    ("small-buffer", Register("c0", (Descriptor("b0", (4097,)),), ("h0",)), (), OVER),
    ("past-end", Register("c0", (Descriptor("b0", (4,), mem_type=2, offset=4093),), ("h0",)), (), OVER),
    (
        "huge-offset",
        Register("c0", (Descriptor("b0", (4,), mem_type=2, offset=1 << 32),), ("h",)),
        (),
        OVER,
    ),
    (
        "size-too-large",
        Register("c0", (Descriptor("b0", (4,), mem_type=2, size=4097),), ("h",)),
        (),
        OVER,
    ),
    (
        "size-mismatch",
        Register("c0", (Descriptor("b0", (4,), mem_type=2, size=64, offset=8),), ("h1",)),
        (Register("c0", (SHARED,), ("h0",)),),
        {8000},
    ),
    ("duplicate", Register("c0", (ION,), ("h1",)), (ONE,), {8002}),
    ("duplicate-in-batch", Register("c0", (ION, ION), ("h0", "h1")), (), {8002}),
    ("null-handles", Deregister((), null_handles=True, count=1), (), {8000}),
    ("bad-handle", Deregister((BOGUS,)), (), {8001}),
    ("bad-handle", Deregister(("c0",)), (ONE,), {8001}),
    ("dead-handle", Deregister(("h0",)), (ONE, Deregister(("h0",))), {8001}),
    ("repeated-handle", Deregister(("h0", "h0")), (ONE,), {8001}),
    ("bad-context", ContextFree(NULL), (), {5002}),
    ("dead-context", ContextFree("c0"), (ContextFree("c0"),), {5002}),
    ("bad-context", Prepare("g0", BOGUS), (), {6001}),
    ("preset", msgspec.structs.replace(GRAPH, preset=(True,)), (), {7004}),
    ("bad-graph", Execute("g0", (Binding(), Binding())), (), {6001}),
    ("null-handle", Execute("g0", (Binding("handle", NULL), Binding())), (GRAPH,), {6004}),
    ("bad-handle", Execute("g0", (Binding(), Binding("handle", BOGUS))), (GRAPH,), {6004}),
    (
        "dead-handle",
        Execute("g0", (Binding("handle", "h0"), Binding())),
        (GRAPH, ONE, Deregister(("h0",))),
        {6004},
    ),
    (
        "foreign-handle",
        Execute("g0", (Binding("handle", "h1"), Binding())),
        (GRAPH, ContextCreate("c1"), Register("c1", (ION,), ("h1",))),
        {6004},
    ),
    (
        "short-handle",
        Execute("g1", (Binding("handle", "h0"), Binding())),
        (ONE, Prepare("g1", "c0", "Relu", shape=(5,))),
        {6000, 6004},
    ),
]


@pytest.mark.parametrize(
    ("fault", "step", "before", "codes"), FAULTS, ids=[f"{n}-{row[0]}" for n, row in enumerate(FAULTS)]
)
def test_fault_has_exactly_the_codes_of_the_catalogue(
    fault: str, step: AnyStep, before: tuple[AnyStep, ...], codes: set[int]
) -> None:
    found = allowed(step, *before)
    assert found.only(Fault(fault)), found
    assert found.codes == codes


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (ONE, ()),
        (Register("c0", (ION,), ("h1",)), (ONE, Deregister(("h0",)))),
        (Register("c1", (ION,), ("h1",)), (ONE, ContextCreate("c1"))),
        (
            Register("c0", (Descriptor("b0", (4,), mem_type=2, offset=4),), ("h1",)),
            (Register("c0", (SHARED,), ("h0",)),),
        ),
        (Register("c0", (Descriptor("b0", (4096,)),), ("h0",)), ()),
        (Deregister(("h0",)), (ONE, Free("b0"))),
        (Deregister(("h0",)), (ONE, Register("c0", (ION,), ("h1",)))),
        (Execute("g0", (Binding("handle", "h0"), Binding())), (GRAPH, ONE)),
        (ContextFree("c0"), (ONE,)),
    ],
)
def test_step_in_order_must_succeed(step: AnyStep, before: tuple[AnyStep, ...]) -> None:
    found = allowed(step, *before)
    assert found.valid
    assert found.codes == {0}


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (Deregister(("h0",)), (ONE, ContextFree("c0"))),
        (Register("c0", (Descriptor("b0", (2, 2)),), ("h1",)), (ONE,)),
        (Register("c0", (SHARED,), ("h1",)), (ONE,)),
        (ONE, (Free("b0"),)),
        (Register("c0", (Descriptor("b0", (4,), fd="readonly"),), ("h0",)), ()),
        (Execute("g0", (Binding("handle", "h0"), Binding("handle", "h0"))), (GRAPH, ONE)),
    ],
)
def test_where_documents_are_silent_nothing_is_demanded(step: AnyStep, before: tuple[AnyStep, ...]) -> None:
    assert not allowed(step, *before).specified


def test_a_size_too_large_of_memory_that_is_registered_may_be_told_as_a_repetition() -> None:
    wrong = Register("c0", (msgspec.structs.replace(SHARED, size=4097),), ("h1",))
    found = allowed(wrong, Register("c0", (SHARED,), ("h0",)))
    assert found.faults == {Fault.SIZE_TOO_LARGE, Fault.DUPLICATE}
    assert found.codes == {*OVER, 8002}
    other = Register("c0", (Descriptor("b0", (2, 2), mem_type=2, size=4097),), ("h1",))
    assert not allowed(other, Register("c0", (SHARED,), ("h0",))).specified


def test_several_faults_allow_the_codes_of_each() -> None:
    found = allowed(Register(BOGUS, (Descriptor("b0", (4,), fd="pipe"),), ("h0",), null_handles=True))
    assert found.faults == {Fault.BAD_CONTEXT, Fault.FD_UNMAPPABLE, Fault.NULL_HANDLES}
    assert found.codes == {8000, 8001, 8003}
    assert not found.only(*found.faults)


def test_a_value_given_out_again_is_not_held_against_the_target() -> None:
    model = after(ONE, Deregister(("h0",)))
    again = Register("c0", (Descriptor("b0", (9,)),), ("h1",))
    model.follow(again, StepSeen(code=0, values=(model.registrations["h0"].value,)))
    assert not model.expect(Deregister(("h0",))).specified
    model.follow(Deregister(("h0",)), StepSeen(code=0))
    assert not model.live()


def test_a_refused_batch_leaves_nothing_registered() -> None:
    bad = Register("c0", (ION, Descriptor("b0", (9,), fd="minus-one")), ("h0", "h1"))
    model = after(bad)
    assert not model.live()
    assert frozenset({Fault.FD_MINUS_ONE}) in model.expect(ONE).notes


def test_an_answer_outside_the_rules_makes_the_handle_unknown() -> None:
    model = after(ONE)
    model.follow(Deregister(("h0",)), StepSeen(code=8000))
    assert model.registrations["h0"].life == "unknown"
    assert not model.expect(Deregister(("h0",))).specified


def test_of_handles_that_are_equal_in_a_batch_nothing_is_demanded() -> None:
    """That they differ is REG-02's: no other rule can know which memory one means."""
    model = after(Alloc("b1", 4096))
    batch = Register("c0", (ION, Descriptor("b1", (4,)), Descriptor("b0", (2,))), ("h0", "h1", "h2"))
    model.follow(batch, StepSeen(code=0, values=(77, 77, 78)))
    assert set(model.live("c0")) == {"h2"}
    assert [model.expect(Deregister((name,))).specified for name in ("h0", "h1", "h2")] == [
        False,
        False,
        True,
    ]


def test_a_surprising_success_is_followed() -> None:
    model = after(ONE)
    model.follow(Register("c0", (ION,), ("h1",)), StepSeen(code=0, values=(77,)))
    assert set(model.live("c0")) == {"h0", "h1"}


def test_what_others_lived_through_is_noted() -> None:
    other = Register("c1", (ION, Descriptor("b1", (4,))), ("h1", "h2"))
    model = after(ONE, ContextCreate("c1"), Alloc("b1", 9), other, Deregister(("h2",)), ContextFree("c1"))
    notes = model.expect(Deregister(("h0",))).notes
    assert {Event.OTHER_DEREGISTERED, Event.SIBLING_CONTEXT_FREED} <= notes


@ODDS
@given(data=st.data())
def test_reference_answers_within_the_model(reference: MemoryTarget, data: st.DataObject) -> None:
    case = data.draw(memory_sequences(reference.facts, 40))
    trace = reference.run(case)
    for walked in walk(case, trace):
        refused = walked.code == 1000 and not reference.facts.supports(1101)
        judged = walked.allowed.specified and walked.allowed.codes and not refused
        assert not judged or walked.code in walked.allowed.codes, walked


@ODDS
@given(data=st.data())
def test_live_handles_are_exactly_those_of_the_model(reference: MemoryTarget, data: st.DataObject) -> None:
    case = data.draw(memory_sequences(reference.facts, 30))
    model = Model(reference.facts)
    for step, seen in zip(case.steps, reference.run(case).steps, strict=True):
        model.follow(step, seen)
    probes = [Deregister((name,)) for name in model.live()]
    probes += [Deregister((name,)) for name, found in model.registrations.items() if found.life == "dead"]
    longer = MemoryCase((*case.steps, *probes))
    walked = [each for each in walk(longer, reference.run(longer)) if each.index >= len(case.steps)]
    assert all(each.code in each.allowed.codes for each in walked if each.allowed.specified)
    assert [each.code for each in walked[: len(model.live())]] == [0] * len(model.live())


@ODDS
@given(data=st.data())
def test_valid_sequences_have_no_fault(data: st.DataObject) -> None:
    case = data.draw(memory_sequences(FACTS, 40, invalid=False))
    target = open_memory_target("reference", "emulated", "off", 10)
    assert all(not walked.allowed.faults for walked in walk(case, target.run(case)))
    target.close()


@ODDS
@given(case=memory_sequences(FACTS, 25))
def test_sequences_keep_to_their_length_and_survive_json(case: MemoryCase) -> None:
    assert len(case.steps) <= 25
    assert msgspec.json.decode(msgspec.json.encode(case), type=MemoryCase) == case


@pytest.mark.parametrize("chosen", range(5))
def test_sequences_shrink_to_few_steps(chosen: int) -> None:
    """By seeds: of what is drawn otherwise, a case was seen that stopped at ten steps."""
    quick = settings(max_examples=2000, phases=(Phase.generate, Phase.shrink), database=None, deadline=None)
    smallest = find(
        memory_sequences(FACTS, 30),
        lambda case: any(isinstance(step, Deregister) and len(step.handles) > 1 for step in case.steps),
        settings=quick,
        random=random.Random(chosen),
    )
    assert len(smallest.steps) <= 6


def test_model_is_linear_in_steps() -> None:
    def cost(rounds: int) -> float:
        steps = [*START]
        for number in range(rounds):
            steps += [Register("c0", (ION,), (f"h{number}",)), Deregister((f"h{number}",))]
        model = Model(FACTS)
        started = time.process_time()
        for number, step in enumerate(steps):
            found = model.expect(step)
            model.follow(step, StepSeen(code=0, values=(number + 1,)), found)
        return time.process_time() - started

    short, long = (min(cost(rounds) for _ in range(5)) for rounds in (250, 2000))
    assert long < 24 * short


def test_tape_past_its_end_reads_the_simplest() -> None:
    tape = Tape(b"\x07\xff")
    assert [tape.below(5), tape.below(256), tape.below(9), tape.below(1000)] == [2, 255, 0, 0]


def test_only_declared_memory_types_are_used() -> None:
    assert memory_types(FACTS) == (1, 2)
    assert memory_types(msgspec.structs.replace(FACTS, backend_id=4)) == (1,)
    assert memory_types(MemoryFacts()) == (1,)
