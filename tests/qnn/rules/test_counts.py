from __future__ import annotations

import pytest

from pytest_qnn.core.verdict import Retained, Violation, WrongOutput
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    Free,
    GetBinary,
    MemoryCase,
    Observe,
    Prepare,
    Register,
    ReleaseBinary,
    Retrieve,
    ToFd,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.binaries import executed_after_release
from pytest_qnn.qnn.rules.drg.rules import drg_09
from pytest_qnn.qnn.rules.exe.rules import exe_05, exe_10
from pytest_qnn.qnn.rules.rpc.rules import rpc_08, rpc_11
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace, ProcessCounts, StepSeen

FACTS = MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),))
LOOK = StepSeen(counts=ProcessCounts(fds=5, memfds=1, mappings=40))
Seen = tuple[AnyStep, StepSeen]


def traced(*steps: Seen) -> tuple[MemoryCase, MemoryTrace]:
    case = MemoryCase(tuple(step for step, _ in steps))
    return case, MemoryTrace(steps=tuple(seen for _, seen in steps), facts=FACTS)


def gave(*values: int) -> StepSeen:
    return StepSeen(values=values)


def test_rounds_in_which_nothing_was_allocated_are_not_counted() -> None:
    looked: Seen = (Observe(), LOOK)
    rounds: list[Seen] = [(Alloc("b", 64), gave(0))] * 8
    assert rpc_11(*traced(looked, *rounds, looked)).count == 0
    real: list[Seen] = [(Alloc("b", 64), gave(4096)), (Free("b"), gave(4096))] * 8
    assert rpc_11(*traced(looked, *real, looked)).count == 8


def freed_twice(second: int) -> tuple[MemoryCase, MemoryTrace]:
    """A freed pointer is freed again; another block lives at ``second``, and goes if it is the same."""
    less = StepSeen(counts=ProcessCounts(fds=4, memfds=0, mappings=39))
    return traced(
        (Alloc("gone", 64), gave(4096)),
        (Free("gone"), gave(4096)),
        (Alloc("kept", 64), gave(second)),
        (ToFd("kept"), gave(7)),
        (Observe(), LOOK),
        (Free("gone"), gave(4096)),
        (Observe(), LOOK if second != 4096 else less),
    )


def test_a_pointer_that_was_given_out_again_may_be_freed_again() -> None:
    assert rpc_08(*freed_twice(4096)).count == 0
    assert rpc_08(*freed_twice(8192)).count == 1


def test_what_is_written_behind_an_output_is_told_in_bytes() -> None:
    execute = Execute("g", (Binding(), Binding(), Binding()))
    seen = StepSeen(code=0, counts=ExecuteCounts(output_overrun=3))
    steps: list[Seen] = [(ContextCreate("c"), StepSeen(code=0)), (Prepare("g", "c"), StepSeen(code=0))]
    with pytest.raises(WrongOutput) as raised:
        exe_10(*traced(*steps, (execute, seen)))
    assert raised.value.seen == "bytes written behind the output: 3"


def test_only_executes_after_the_release_of_a_binary_count() -> None:
    done = StepSeen(code=0)
    executed: Seen = (Execute("r", (Binding(), Binding(), Binding())), done)
    begun: list[Seen] = [
        (ContextCreate("c"), StepSeen(code=0, values=(1,))),
        (Prepare("g", "c"), done),
        (GetBinary("c", "f"), done),
        (ContextFromBinary("d", "f"), StepSeen(code=0, values=(2,))),
        (Retrieve("r", "d", "g"), done),
        executed,
    ]
    assert executed_after_release(*traced(*begun)) == 0
    released: Seen = (ReleaseBinary("d"), StepSeen())
    assert executed_after_release(*traced(*begun, released, executed, executed)) == 2


def test_the_value_of_a_context_that_may_be_another_object_is_judged_only_while_it_is_none() -> None:
    prepared: list[Seen] = [
        (ContextCreate("c"), StepSeen(code=0, values=(1,))),
        (Prepare("g", "c"), StepSeen(code=0, values=(1, 1, 2, 3))),
    ]
    bound = Execute("g", (Binding("handle", "c"), Binding(), Binding()))
    assert exe_05(*traced(*prepared, (bound, StepSeen(code=6004)))).count == 1
    assert (
        exe_05(*traced(*prepared, (ContextFree("c"), StepSeen(code=0)), (bound, StepSeen(code=6001)))).count
        == 0
    )


def deregistered(fds: int, mapped: tuple[int, ...]) -> tuple[MemoryCase, MemoryTrace]:
    """A round of DRG-09 that ends with so many open descriptors, and so many mappings of two buffers."""
    done = StepSeen(code=0, values=(1,))
    buffers = ("b", "other")
    return traced(
        (ContextCreate("c"), done),
        (Alloc("b", 8), gave(4096)),
        (Observe(buffers=buffers), StepSeen(counts=ProcessCounts(fds=4, mapped=(1, 1)))),
        (Observe(), StepSeen(counts=ProcessCounts(fds=5))),
        (Register("c", (Descriptor("b", (8,)),), ("h",)), done),
        (Deregister(("h",)), StepSeen(code=0)),
        (Observe(patient=True), StepSeen(counts=ProcessCounts(fds=fds))),
        (Observe(buffers=buffers), StepSeen(counts=ProcessCounts(fds=fds, mapped=mapped))),
    )


def test_a_thread_may_have_closed_what_a_backend_had_open_at_the_first_look() -> None:
    drg_09(*deregistered(4, (1, 1)))


def test_descriptors_that_are_opened_or_are_the_clients_count() -> None:
    with pytest.raises(Retained, match="5 open descriptors"):
        drg_09(*deregistered(6, (1, 1)))
    with pytest.raises(Violation, match="the descriptor of other open"):
        drg_09(*deregistered(4, (1, -1)))
