from __future__ import annotations

from typing import Any

import pytest

from pytest_qnn.qnn.cases.case import (
    FLIPPED_BYTES,
    AllocNeeded,
    AnyStep,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Damage,
    Deregister,
    Descriptor,
    GetBinary,
    MemoryCase,
    NewProcess,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.cases.lives import made_by, used_by
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.expected import Allowed, Model, walk
from pytest_qnn.qnn.model.notes import Fault, Note
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

FACTS = MemoryFacts(backend_id=6, capabilities={202: 0, 215: 0, 217: 0, 1101: 0, 1102: 0, 1103: 0})
OK = StepSeen(code=0)
PREPARE = Prepare("g", "c", weights=3)
SAVED = [
    (ContextCreate("c"), StepSeen(code=0, values=(1,))),
    (PREPARE, StepSeen(code=0, calls=(("graphFinalize", 0),))),
    (GetBinary("c", "b"), OK),
]
DEFERRED = [
    *SAVED,
    (ContextFromBinary("d", "b", defer=True), StepSeen(code=0, values=(2,))),
    (ContextProperty("d", (1, 2, 3)), StepSeen(code=0, values=(4096, 4096, 8192))),
    (AllocNeeded("w", "d", 3), StepSeen(values=(1 << 20, 8192))),
    (AllocNeeded("s", "d", 2), StepSeen(values=(1 << 21, 4096))),
]
WEIGHTS = Descriptor("w", (), mem_type=2, htp_type=2)
SPILL = Descriptor("s", (), mem_type=2, htp_type=3)
GIVEN = [*DEFERRED, (Register("d", (WEIGHTS,), ("h",)), StepSeen(code=0, values=(9,)))]
AGAIN = (ContextFromBinary("e", "b", defer=True), StepSeen(code=0, values=(3,)))
FINALISED = (ContextFinalize("d"), OK)
REFUSED = {1005, 8000, 8001, 8002, 8003, 8004, 8005}
LARGE = (AllocNeeded("l", "d", 3, extra=8192), StepSeen(values=(1 << 22, 16384)))


def allowed(story: list[Any], step: AnyStep) -> Allowed:
    model = Model(FACTS)
    for before, seen in story:
        model.follow(before, seen)
    return model.expect(step)


def register(descriptor: Descriptor, context: str = "d") -> Register:
    return Register(context, (descriptor,), ("x",))


@pytest.mark.parametrize(
    ("story", "step", "fault", "codes"),
    [
        (SAVED, GetBinary("c", "x", null="size"), "null-argument", {5000}),
        (SAVED, GetBinary("c", "x", missing=1), "too-small", {5000, 5007}),
        (SAVED, ContextCreate("x", defer=True), "defer-create", {1000, 5000, 5010}),
        (SAVED, ContextFromBinary("x", "b", damage="garbage"), "damaged", {5004, 5005, 5008}),
        (SAVED, ContextFromBinary("x", "b", damage="empty"), "damaged", {5000, 5004, 5005, 5008}),
        (SAVED, ContextFromBinary("x", "b", True, (12,)), "incompatible", {1000, 5010}),
        (SAVED, ContextFinalize("c"), "nothing-pending", {1000, 5000}),
        (DEFERRED, GetBinary("d", "x"), "deserialised", {1005}),
        (DEFERRED, Prepare("n", "d"), "read-only", {1005}),
        (DEFERRED, Retrieve("x", "d", "g"), "pending", set()),
        (DEFERRED, ContextProperty("d", (1,), null_list=True), "null-list", {5000}),
        (DEFERRED, ContextProperty("d", (1, 4)), "unknown-option", {1000, 5000}),
        (DEFERRED, ContextProperty("BOGUS", (1,)), "bad-context", {5002}),
        ([*DEFERRED, FINALISED], ContextFinalize("d"), "nothing-pending", {1000, 5000}),
        ([*DEFERRED, FINALISED], register(WEIGHTS), "not-open", set()),
        (DEFERRED, register(WEIGHTS, "c"), "not-open", set()),
        (DEFERRED, register(Descriptor("s", (), mem_type=2, htp_type=2)), "external-small", REFUSED),
        (
            DEFERRED,
            register(Descriptor("w", (), mem_type=2, htp_type=3, offset=8)),
            "external-misaligned",
            REFUSED,
        ),
        (
            DEFERRED,
            register(Descriptor("w", (), mem_type=2, htp_type=2, fd="pipe")),
            "not-dma",
            REFUSED,
        ),
        (GIVEN, register(WEIGHTS), "second-external", REFUSED),
        (GIVEN, register(Descriptor("w", (4,))), "other-use", REFUSED),
        (GIVEN, register(Descriptor("w", (4,)), "c"), "other-use", REFUSED),
        ([*GIVEN, FINALISED], Deregister(("h",)), "fixed-handle", set()),
        ([*GIVEN, FINALISED, (ContextFree("d"), OK)], Deregister(("h",)), "dead-handle", {8001}),
    ],
)
def test_what_is_wrong_with_a_step(story: list[Any], step: AnyStep, fault: str, codes: set[int]) -> None:
    found = allowed(story, step)
    assert found.specified
    assert (found.faults, found.codes) == ({Fault(fault)}, codes)


@pytest.mark.parametrize(
    ("story", "step"),
    [
        (SAVED, ContextFromBinary("x", "b")),
        (SAVED, ContextFromBinary("x", "b", defer=False)),
        (DEFERRED, ContextFinalize("d")),
        (DEFERRED, register(WEIGHTS)),
        (GIVEN, Deregister(("h",))),
        (GIVEN, register(SPILL)),
        ([*GIVEN, FINALISED], Retrieve("x", "d", "g")),
        ([*DEFERRED, AGAIN, (Register("d", (SPILL,), ("h",)), OK)], ContextProperty("e", (3,))),
    ],
)
def test_what_is_in_order(story: list[Any], step: AnyStep) -> None:
    assert allowed(story, step).valid


@pytest.mark.parametrize(
    ("size", "specified"),
    [(None, False), (8192, False), (12288, True)],
    ids=["the whole buffer", "what is needed", "good by both readings"],
)
def test_what_the_size_of_weights_means_beside_an_offset_is_open(
    size: int | None, *, specified: bool
) -> None:
    found = allowed(
        [*DEFERRED, LARGE], register(Descriptor("l", (), mem_type=2, htp_type=2, offset=4096, size=size))
    )
    assert (found.specified, found.faults) == (specified, set())


def test_the_weights_of_another_context_are_taken() -> None:
    asked = (ContextProperty("e", (1, 2, 3)), StepSeen(code=0, values=(4096, 4096, 8192)))
    found = allowed([*GIVEN, AGAIN, asked], register(WEIGHTS, "e"))
    assert (found.only(Fault.WEIGHTS_SHARED), found.codes) == (True, REFUSED)


def test_the_spill_fill_memory_of_another_context_is_not() -> None:
    asked = (ContextProperty("e", (1, 2, 3)), StepSeen(code=0, values=(4096, 4096, 8192)))
    given = (Register("d", (SPILL,), ("h",)), StepSeen(code=0, values=(9,)))
    found = allowed([*DEFERRED, given, AGAIN, asked], register(SPILL, "e"))
    assert found.valid
    assert Note.SPILL_SHARED in found.notes


@pytest.mark.parametrize("damage", ["flipped", "flipped-end", *FLIPPED_BYTES])
def test_a_flipped_bit_may_go_unnoticed(damage: Damage) -> None:
    assert not allowed(SAVED, ContextFromBinary("x", "b", damage=damage)).specified


def test_a_graph_that_was_begun_keeps_a_context_from_being_written() -> None:
    begun = (Prepare("n", "c", preset=(True,)), StepSeen(code=7004, calls=(("graphCreate", 0), ("t", 7004))))
    assert allowed([*SAVED, begun], GetBinary("c", "x")).only(Fault.UNFINISHED)


def test_a_graph_that_is_not_finalised_keeps_a_context_from_being_written() -> None:
    composed = (Prepare("n", "c", finalise=False), StepSeen(code=0, calls=(("graphCreate", 0),)))
    assert allowed([*SAVED, composed], GetBinary("c", "x")).only(Fault.UNFINISHED)


def test_nothing_but_binaries_outlives_a_process() -> None:
    story = [*GIVEN, (NewProcess(), StepSeen())]
    assert allowed(story, ContextFinalize("d")).only(Fault.BAD_CONTEXT)
    after = [*story, (ContextFromBinary("d", "b"), StepSeen(code=0, values=(1,)))]
    assert allowed(after, Retrieve("x", "d", "g")).valid


def test_a_refused_deregistration_leaves_external_memory_registered() -> None:
    steps = [*GIVEN, FINALISED, (Deregister(("h",)), StepSeen(code=1005)), (Deregister(("h",)), OK)]
    case = MemoryCase(tuple(step for step, _ in steps))
    trace = MemoryTrace(steps=tuple(seen for _, seen in steps), facts=FACTS)
    assert list(walk(case, trace))[-1].allowed.only(Fault.FIXED_HANDLE)


def test_steps_on_binaries_know_what_they_stand_on() -> None:
    retrieve = Retrieve("x", "d", "g")
    assert (made_by(retrieve), set(used_by(retrieve))) == (("x",), {"d", "g"})
    load = ContextFromBinary("d", "b")
    assert (made_by(load), used_by(load)) == (("d",), ("b",))


def test_without_the_binary_nothing_is_left_of_what_came_out_of_it() -> None:
    steps = (ContextCreate("c"), PREPARE, GetBinary("c", "b"), ContextFromBinary("d", "b"))
    whole = MemoryCase((*steps, Retrieve("x", "d", "g"), ContextFinalize("d")))
    assert MemoryCase(steps[:2]) in set(smaller_memory(whole))
