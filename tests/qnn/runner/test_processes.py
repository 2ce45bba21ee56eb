from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from real_libraries import real_library

from pytest_qnn.core.target import Death
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    Binding,
    Carry,
    ContextCreate,
    ContextFromBinary,
    Execute,
    GetBinary,
    MemoryCase,
    NewProcess,
    Prepare,
    Retrieve,
)
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.runner import run as run_module
from pytest_qnn.qnn.runner.processes import run_in_processes
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

RAW = (Binding(seed=1), Binding())
SAVED: tuple[AnyStep, ...] = (ContextCreate("c"), Prepare("g", "c", weights=3), GetBinary("c", "b"))
LOADED: tuple[AnyStep, ...] = (ContextFromBinary("d", "b"), Retrieve("h", "d", "g"), Execute("h", RAW))
CASE = MemoryCase((*SAVED, Execute("g", RAW), NewProcess(), *LOADED))


@pytest.fixture(params=["off", "fork"])
def reference(request: pytest.FixtureRequest) -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", request.param, 10.0)
    yield target
    target.close()


def compared(target: MemoryTarget) -> list[tuple[bytes, str]]:
    trace = target.run(CASE)
    assert trace.death is None
    assert len(trace.steps) == len(CASE.steps)
    return [(seen.data, seen.difference) for seen in compare(CASE, trace)]


def test_a_binary_is_loaded_by_another_process(reference: MemoryTarget) -> None:
    (before, right), (after, also) = compared(reference)
    assert (right, also) == ("", "")
    assert before == after


def test_libqnnhtp_loads_its_binary_in_another_process() -> None:
    target = open_memory_target(str(real_library("libQnnHtp.so")), "emulated", "fork", 20.0)
    (before, right), (after, also) = compared(target)
    target.close()
    assert (right, also) == ("", "")
    assert before == after


def test_nothing_but_binaries_outlives_a_process(reference: MemoryTarget) -> None:
    steps = (*SAVED, NewProcess(), Execute("g", RAW), GetBinary("c", "x"))
    *_, execute, binary = reference.run(MemoryCase(steps)).steps
    assert execute.code == 6001
    assert "never made" in binary.skipped


def test_what_a_process_hands_on_is_a_case_of_its_own(reference: MemoryTarget) -> None:
    keep = msgspec.structs.replace(SAVED[2], keep=True)
    *_, binary = reference.run(MemoryCase((*SAVED[:2], keep))).steps
    assert binary.data
    handed: list[MemoryCase] = []

    def later(case: MemoryCase) -> MemoryTrace:
        handed.append(case)
        return reference.run(case)

    run_in_processes(MemoryCase((*SAVED, NewProcess(), *LOADED)), reference.run, later)
    (case,) = handed
    again = msgspec.json.decode(msgspec.json.encode(case), type=MemoryCase)
    assert isinstance(again.steps[0], Carry)
    assert (again.steps[0].data,) == binary.data
    assert reference.run(again).steps[-1].code == 0


def test_a_later_process_dies_at_its_own_step() -> None:
    seen = MemoryTrace(steps=(StepSeen(), StepSeen(), StepSeen(code=0, data=(b"binary",))))
    case = MemoryCase((*SAVED, NewProcess(), *LOADED))
    trace = run_in_processes(case, lambda _: seen, lambda _: Death("signal", "SIGSEGV", step=2))
    assert trace.death is not None
    assert case.steps[trace.death.step] == LOADED[1]


@pytest.mark.parametrize("mode", ["off", "fork"])
def test_a_process_that_is_killed_gives_nothing_back(mode: str) -> None:
    """Its contexts stay, and with them what the mutant's driver holds: which the next process meets."""
    target = open_memory_target("mutant:killed-keeps-lock", "emulated", mode, 10.0)
    try:
        for killed in (False, True):
            steps = (ContextCreate("c"), NewProcess(killed=killed), ContextCreate("d"), ContextCreate("e"))
            codes = [seen.code for seen in target.run(MemoryCase(steps)).steps]
            assert codes == [0, None, 1002 if killed else 0, 0]
    finally:
        target.close()


@pytest.mark.parametrize("mode", ["off", "fork"])
def test_a_case_that_is_killed_leaves_nothing_in_this_process(mode: str) -> None:
    """Such a case may come from a file, without a step that begins another process."""
    before = len(run_module._LEFT)
    target = open_memory_target("reference", "emulated", mode, 10.0)
    try:
        trace = target.run(MemoryCase((ContextCreate("c"),), killed=True))
    finally:
        target.close()
    assert ([seen.code for seen in trace.steps], trace.closing) == ([0], ())
    assert len(run_module._LEFT) == before
