"""Seed 001's table on the reference: what facts/qnn-memory.md, section 6.2, measured, row by row."""

from __future__ import annotations

import pytest

from pytest_qnn.core.verdict import Unsupported
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Observe,
    Prepare,
    Read,
    Register,
    Write,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.io_buffers import Row, require_htp, require_visible, rows
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts, StepSeen

SHAPE = (1, 3, 1000, 1001)
T = 3 * 1000 * 1001
RESIDENT = -(-T // 4096) * 4096
"""A mapping of T bytes that was written from end to end."""
LOOK = Observe(T)


def row_case(prepared: int, executed: str) -> MemoryCase:
    """One add of T bytes per tensor: prepared raw (0) or memhandle (1), executed with raw or handle."""
    steps: list[AnyStep] = [
        ContextCreate("c0"),
        LOOK,
        Prepare("g0", "c0", shape=SHAPE, mem_types=(prepared,) * 3),
        LOOK,
    ]
    if executed == "handle":
        for tensor in range(3):
            buffer = f"b{tensor}"
            steps += [Alloc(buffer, T), Fill(buffer)]
            steps.append(Register("c0", (Descriptor(buffer, SHAPE),), (f"h{tensor}",)))
        steps += [Write("b0", T, seed=5), Write("b1", T, seed=6)]
        bindings = tuple(Binding("handle", f"h{tensor}") for tensor in range(3))
    else:
        bindings = (Binding(seed=5), Binding(seed=6), Binding())
    steps += [LOOK, Execute("g0", bindings), LOOK]
    return MemoryCase((*steps, Read("b2")) if executed == "handle" else tuple(steps))


def carry_out(prepared: int, executed: str) -> tuple[MemoryTrace, Row]:
    target = open_memory_target("reference", "emulated", "off", 10.0)
    case = row_case(prepared, executed)
    trace = target.run(case)
    target.close()
    assert all(not seen.code for seen in trace.steps), trace.steps
    (row,) = rows(case, trace)
    return trace, row


@pytest.mark.parametrize(
    ("prepared", "executed", "at_prepare", "at_execute", "resident"),
    [
        (0, "raw", 3, 0, [RESIDENT] * 3),
        (0, "handle", 3, 0, [0] * 3),
        (1, "raw", 0, 3, []),
        (1, "handle", 0, 0, []),
    ],
    ids=["raw/raw", "raw/memhandle", "memhandle/raw", "memhandle/memhandle"],
)
def test_each_row_allocates_and_copies_as_the_table_says(
    prepared: int, executed: str, at_prepare: int, at_execute: int, resident: list[int]
) -> None:
    _, row = carry_out(prepared, executed)
    (inference,) = row.inferences
    assert len(row.at_prepare) == at_prepare
    assert len(inference.new) == at_execute
    assert list(inference.after.values()) == resident
    assert all(held == RESIDENT for held in inference.new.values())


def test_all_four_rows_give_the_same_output() -> None:
    outputs = set()
    for prepared in (0, 1):
        for executed in ("raw", "handle"):
            trace, _ = carry_out(prepared, executed)
            outputs.add(next(seen.data[0] for seen in trace.steps if seen.data and seen.code == 0))
    assert len(outputs) == 1
    assert len(set(outputs.pop())) > 100


def synthetic(regions: list[dict[int, int]], growth: int = 0) -> list[Row]:
    """Rows of a prepared raw, executed raw graph on a made-up trace with these looks."""
    case = row_case(0, "raw")
    looks = iter([*regions[:2], regions[1], regions[2]])
    steps = []
    vm = 0
    for step in case.steps:
        if isinstance(step, Observe):
            vm += growth
            steps.append(StepSeen(regions=tuple(next(looks).items()), counts=ProcessCounts(vm=vm)))
        else:
            steps.append(StepSeen(code=0))
    return rows(case, MemoryTrace(steps=tuple(steps)))


def test_a_process_that_shows_no_io_buffer_in_any_row_cannot_be_judged() -> None:
    with pytest.raises(Unsupported, match="no IO buffer can be seen from outside in this process"):
        require_visible(synthetic([{1: 0}, {1: 0}, {1: 0}]))


def test_a_process_that_shows_an_io_buffer_in_one_row_is_judged() -> None:
    require_visible(synthetic([{}, {}, {}]) + synthetic([{}, {1: 0}, {1: T}]))


def test_growth_in_mappings_of_other_sizes_proves_nothing() -> None:
    with pytest.raises(Unsupported, match="cannot be told apart"):
        require_visible(synthetic([{}, {1: 0}, {1: 0}], growth=2 * T))


def test_mappings_that_were_there_before_are_no_io_buffers() -> None:
    (row,) = synthetic([{1: 0}, {1: 0, 2: 0}, {1: T, 2: T, 3: 0}])
    assert row.at_prepare == {2: 0}
    assert row.inferences[0].new == {3: 0}
    assert row.inferences[0].after == {2: T}


def test_seed_001_is_not_applied_to_other_backends() -> None:
    with pytest.raises(Unsupported, match="HTP"):
        require_htp(MemoryTrace(facts=MemoryFacts(backend_id=3)))
    require_htp(MemoryTrace(facts=MemoryFacts(backend_id=6)))
