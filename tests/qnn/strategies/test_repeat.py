"""A rule's own steps are done several times: in other objects, with some kept, each in its place."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    Free,
    MemoryCase,
    Observe,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.lives import EFFECTS, made_by
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.cases.repeat import (
    EVERYTHING,
    in_place,
    is_repetition,
    like,
    most_repetitions,
    repetitions,
)

DESCRIPTOR = Descriptor("b0", (8,))
STEPS: tuple[AnyStep, ...] = (
    ContextCreate("c0"),
    Alloc("b0", 8),
    Prepare("g0", "c0"),
    Register("c0", (DESCRIPTOR,), ("h0",)),
    Execute("g0", ()),
    Deregister(("h0",)),
    Free("b0"),
)


class Names:
    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        kind = like(name)
        self.made[kind] += 1
        return f"{kind}{self.made[kind]}"


def count(steps: tuple[AnyStep, ...]) -> Counter[type[AnyStep]]:
    return Counter(type(step) for step in steps)


def test_every_object_that_a_step_makes_is_of_a_known_sort() -> None:
    assert {field for effect in EFFECTS.values() for field in effect.makes} == EVERYTHING


def test_all_is_done_in_other_objects_and_at_last_as_it_is() -> None:
    found = repetitions(STEPS, 2, frozenset(), Names())
    assert found[-len(STEPS) :] == STEPS
    assert found[:7] == (
        ContextCreate("cr1"),
        Alloc("br1", 8),
        Prepare("g0", "cr1"),
        Register("cr1", (Descriptor("br1", (8,)),), ("hr1",)),
        Execute("g0", ()),
        Deregister(("hr1",)),
        Free("br1"),
    )
    assert len(found) == 3 * len(STEPS)


def test_a_graph_in_the_same_context_has_another_name() -> None:
    found = repetitions(STEPS, 1, frozenset({"context"}), Names())
    assert [step.graph for step in found if isinstance(step, Prepare)] == ["gr1", "g0"]
    assert count(found)[ContextCreate] == 1


def test_kept_objects_are_made_first_and_end_last() -> None:
    found = repetitions(STEPS, 3, EVERYTHING, Names())
    assert count(found) == {**count(STEPS), Execute: 4}
    assert isinstance(found[-1], Free)
    assert not any(is_repetition(name) for step in found for name in made_by(step))


def test_nothing_ends_before_the_last_where_objects_gather() -> None:
    found = repetitions(STEPS, 3, frozenset({"buffer"}), Names(), gathering=True)
    assert count(found)[Deregister] == 1
    assert count(found)[Register] == count(found)[ContextCreate] == 4
    assert count(found)[Alloc] == 1


def test_what_ended_first_stands_for_what_is_used_after_its_end() -> None:
    steps = (*STEPS[:4], Deregister(("h0",)), Deregister(("h0",)))
    found = repetitions(steps, 2, EVERYTHING - {"handles"}, Names())
    assert found[-2:] == (Register("c0", (DESCRIPTOR,), ("h0",)), Deregister(("hr1",)))


def test_each_step_is_done_in_its_place_and_what_it_makes_ends_at_once() -> None:
    found = in_place(STEPS, 2, frozenset({"h0"}), Names())
    assert found[:5] == (
        ContextCreate("cr1"),
        ContextFree("cr1"),
        ContextCreate("cr2"),
        ContextFree("cr2"),
        ContextCreate("c0"),
    )
    assert count(found)[Execute] == 3
    assert count(found)[Alloc] == 1
    registers = [step for step in found if isinstance(step, Register)]
    assert [step.descriptors[0].fd for step in registers] == ["buffer", "buffer", "closed", "buffer"]


@pytest.mark.parametrize(("steps", "most"), [(STEPS, 5), ((*STEPS, Observe()), 0), ((), 0)])
def test_steps_that_look_at_the_process_are_not_repeated(steps: tuple[AnyStep, ...], most: int) -> None:
    assert most_repetitions(steps, 36) == most


@pytest.mark.parametrize("kept", [frozenset[str](), EVERYTHING])
def test_repetitions_are_taken_away_in_few_steps(kept: frozenset[str]) -> None:
    case = MemoryCase(repetitions(STEPS, 10, kept, Names()))  # type: ignore[arg-type] # sorts are words
    runs = 0
    shrinking = True
    while shrinking:
        shrinking = False
        for candidate in smaller_memory(case):
            runs += 1
            if any(isinstance(step, Register) for step in candidate.steps):
                case, shrinking = candidate, True
                break
    assert len(case.steps) == 3
    assert runs < 40
