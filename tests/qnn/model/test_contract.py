from __future__ import annotations

from functools import lru_cache

import pytest
from kept import keep
from msgspec.structs import replace

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    ContextCreate,
    ContextFree,
    Descriptor,
    Fill,
    Free,
    FreeParent,
    MemoryCase,
    Read,
    Register,
)
from pytest_qnn.qnn.model.expected import Model
from pytest_qnn.qnn.model.notes import Relation
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import AllocCounts, StepSeen


@lru_cache(None)
def target() -> MemoryTarget:
    return keep(open_memory_target("reference:dma-buf", "emulated", "off", 10))


def run(*steps: AnyStep) -> tuple[StepSeen, ...]:
    return target().run(MemoryCase(steps)).steps


START = (ContextCreate("c"), Alloc("b", 64))
RIGHT = Descriptor("b", (64,))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (replace(RIGHT, null="dimensions"), 8000),
        (replace(RIGHT, shape_config="unknown"), 8004),
        (replace(RIGHT, data_type=0x0BAD), 8000),
        (replace(RIGHT, mem_type=2, null="custom"), 8000),
        (replace(RIGHT, mem_type=3, pointer="null"), 8000),
        (replace(RIGHT, junk=True), 0),
        (replace(RIGHT, mem_type=3, pointer="foreign"), 0),
    ],
)
def test_a_field_of_the_descriptor_reaches_the_target(wrong: Descriptor, code: int) -> None:
    seen = run(*START, Register("c", (wrong,), ("h",)))
    assert seen[-1].code == code


def test_a_buffer_of_the_clients_own_is_registered_and_read_like_any_other() -> None:
    steps = (Alloc("o", 64, own=True), Fill("o", 7), Register("c", (replace(RIGHT, buffer="o"),), ("h",)))
    *_, registered, read, freed, again = run(*START, *steps, Read("o", "fd"), Free("o"), Read("o"))
    assert registered.code == 0
    assert read.data == (bytes([7]) * 64,)
    assert not freed.skipped
    assert again.skipped


def test_a_wide_allocation_has_all_its_bytes() -> None:
    (seen,) = run(Alloc("w", (1 << 32) + 4096, wide=True))
    assert seen.counts == AllocCounts(first_writable=True, last_writable=True)


def test_contexts_go_with_the_backend_they_stand_on_and_not_before() -> None:
    refused = run(*START, FreeParent("device"), Register("c", (RIGHT,), ("h",)))
    gone = run(*START, FreeParent("backend"), Register("c", (RIGHT,), ("h",)), ContextFree("c"))
    assert [seen.code for seen in refused[2:]] == [14003, 0]
    assert [seen.code for seen in gone[2:]] == [0, 8001, 5002]


def test_a_dup_is_the_same_memory_to_the_model_only_as_a_question() -> None:
    model = Model()
    steps: tuple[AnyStep, ...] = (*START, Register("c", (RIGHT,), ("h",)))
    for step, seen in zip(steps, run(*steps), strict=True):
        model.follow(step, seen)
    again = model.expect(Register("c", (replace(RIGHT, fd="dup"),), ("i",)))
    other = model.expect(Register("c", (replace(RIGHT, shape=(8,)),), ("i",)))
    assert Relation.DUPLICATE_FD in again.notes
    assert Relation.SAME_FD in other.notes
    assert not again.specified
    assert not other.specified
