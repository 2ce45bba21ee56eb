"""History and scale are taken away again, in few runs, where the fault does not need them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from stratified import decoders, stratified

from pytest_qnn.core.engine import judge_case
from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.cases.case import (
    Alloc,
    ContextCreate,
    Descriptor,
    Lived,
    Logged,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.reduce import smaller_memory
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue

MOST_RUNS = 60
FAULTS = {
    "REG-09": "reg-any-type",
    "REG-10": "reg-null-dimensions",
    "REG-11": "reg-no-elements",
}
"""A rule, and a mutant that it must find."""
Fails = Callable[[MemoryCase], bool]


@functools.cache
def target(name: str) -> MemoryTarget:
    return open_memory_target(name, "emulated", "off", 5.0)


def reduced(case: MemoryCase, fails: Fails, until: Fails = lambda _: False) -> tuple[MemoryCase, int]:
    """The smallest case that fails, and in how many runs it was found; known results cost none."""
    known: dict[MemoryCase, bool] = {}
    shrinking = True
    while shrinking and not until(case):
        shrinking = False
        for candidate in smaller_memory(case):
            if candidate not in known:
                known[candidate] = fails(candidate)
            if known[candidate]:
                case, shrinking = candidate, True
                break
    return case, len(known)


def lived(case: MemoryCase) -> bool:
    return any(isinstance(step, Lived | Logged) for step in case.steps)


@pytest.mark.parametrize("rule_id", FAULTS)
def test_history_goes_where_the_fault_does_not_need_it(rule_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, faulty = catalogue()[rule_id], target(f"mutant:{FAULTS[rule_id]}")
    ((size, decode),) = decoders(rule, faulty.facts, monkeypatch)

    def fails(case: MemoryCase) -> bool:
        return isinstance(judge_case(rule, faulty, case), Violation)

    cases = [decode(data) for seed in range(3) for data in stratified(size, 20, seed)]
    failing = [case for case in cases if lived(case) and fails(case)]
    assert failing
    for case in failing:
        left, runs = reduced(case, fails, until=lambda found: not lived(found))
        assert not lived(left)
        assert runs <= MOST_RUNS


def rounds_of(case: MemoryCase) -> int:
    return sum(step.rounds for step in case.steps if isinstance(step, Lived))


@pytest.mark.parametrize("needed", [1, 8, 100, 257])
def test_as_many_rounds_are_left_as_the_fault_needs(needed: int) -> None:
    steps = (Logged(5), ContextCreate("c0"), Lived("registrations", "c0", 300))
    left, runs = reduced(MemoryCase(steps), lambda case: rounds_of(case) >= needed)
    assert rounds_of(left) == needed
    assert not any(isinstance(step, Logged) for step in left.steps)
    assert runs <= MOST_RUNS


def shapes(case: MemoryCase) -> list[tuple[int, ...]]:
    graphs = [step.shape for step in case.steps if isinstance(step, Prepare)]
    return graphs + [
        each.shape for step in case.steps if isinstance(step, Register) for each in step.descriptors
    ]


def large_case() -> MemoryCase:
    far, shape = 1 << 32, (1, 1, 1, 1, 2, 1 << 20)
    batch = tuple(Descriptor(f"b{i}", shape, mem_type=2, offset=far) for i in range(64))
    return MemoryCase(
        (
            ContextCreate("c0"),
            Prepare("g0", "c0", shape=shape, version=2),
            *(Alloc(f"b{i}", far + (1 << 21), own=True) for i in range(64)),
            Register("c0", batch, tuple(f"h{i}" for i in range(64))),
        )
    )


def test_scale_goes_where_the_fault_does_not_need_it() -> None:
    def fails(case: MemoryCase) -> bool:
        graphs = any(isinstance(step, Prepare) for step in case.steps)
        return graphs and any(isinstance(step, Register) for step in case.steps)

    left, runs = reduced(large_case(), fails)
    (batch,) = (step for step in left.steps if isinstance(step, Register))
    (graph,) = (step for step in left.steps if isinstance(step, Prepare))
    (alloc,) = (step for step in left.steps if isinstance(step, Alloc))
    assert (len(batch.descriptors), graph.version) == (1, 1)
    assert all(len(shape) <= 4 and shape[-1] <= 8 for shape in shapes(left))
    assert (batch.descriptors[0].offset, alloc.size) == (0, 1 << 21)
    assert runs <= 3 * MOST_RUNS


@pytest.mark.parametrize("rank", [5, 6])
def test_a_fault_that_needs_rank_or_size_keeps_it(rank: int) -> None:
    left, _ = reduced(large_case(), lambda case: any(len(shape) >= rank for shape in shapes(case)))
    assert any(len(shape) >= rank for shape in shapes(left))
    big: Any = lambda case: any(shape[-1] > 1 << 16 for shape in shapes(case))  # noqa: E731
    left, _ = reduced(large_case(), big)
    assert big(left)
