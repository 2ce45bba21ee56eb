"""The step `WholeSession`: a session from its beginning to its end, and what the process keeps of it."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from pytest_qnn.core.verdict import Measured, Unsupported
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, WholeSession
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.growth import FIRST_KEPT
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.trace import FirstCounts, GrowthCounts, MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue

LARGE = (1, 64, 64, 512)
MIB = 1 << 20


def run(*steps: Any, backend: ReferenceBackend | None = None) -> tuple[StepSeen, ...]:
    served, rpcmem = backend or ReferenceBackend(), EmulatedRpcmem()
    try:
        return run_memory_case(MemoryCase(steps), QnnEntry(served.get_providers, served), rpcmem).steps
    finally:
        served.close()
        rpcmem.close()


@pytest.mark.usefixtures("frozen")
def test_the_reference_keeps_nothing_of_a_session() -> None:
    (seen,) = run(WholeSession(shape=LARGE))
    counts = seen.counted(GrowthCounts)
    assert (seen.code, counts.rounds) == (0, 1)
    assert counts.heap < MIB
    assert counts.rss < MIB


class _Keeps(ReferenceBackend):
    """Each graph's weights."""

    def release_graphs(self, context: Any) -> None:
        tensors = [each for graph in context.graphs.values() for each in graph.tensors.values()]
        self.held = [each.data for each in tensors]
        super().release_graphs(context)


@pytest.mark.usefixtures("frozen")
def test_weights_that_are_kept_are_measured() -> None:
    (seen,) = run(WholeSession(shape=LARGE), backend=_Keeps())
    assert 2 * MIB <= seen.counted(GrowthCounts).heap < 3 * MIB


class _Full(ReferenceBackend):
    def context_create(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(1002)


def test_the_first_call_that_fails_is_named() -> None:
    (seen,) = run(WholeSession(), backend=_Full())
    assert (seen.code, seen.calls) == (1002, (("contextCreate", 1002),))


def test_the_reference_keeps_nothing_of_its_first_session() -> None:
    (seen,) = run(WholeSession(first=True))
    counts = seen.counted(FirstCounts)
    assert (seen.code, counts.left < MIB) == (0, True)


def _arena(size: int) -> mmap.mmap | None:
    """So many bytes, written, in a mapping of their own: malloc may give out what has been written before."""
    if not size:
        return None
    arena = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    for page in range(0, size, mmap.PAGESIZE):
        arena[page] = 1
    return arena


class _KeepsAnArena(ReferenceBackend):
    """``MEMORY`` bytes with each graph, of which ``KEPT`` outlive the backend."""

    MEMORY = 16 * MIB
    KEPT = 16 * MIB
    held: mmap.mmap | None = None

    def graph_finalize(self, *arguments: Any) -> None:
        super().graph_finalize(*arguments)
        self.held = _arena(self.MEMORY)

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        self.held = None
        self.held = _arena(self.KEPT)


class _GivesBack(_KeepsAnArena):
    KEPT = 0


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("kind", [_KeepsAnArena, _GivesBack])
def test_of_the_first_session_is_measured_what_it_took_and_what_is_left(kind: type[_KeepsAnArena]) -> None:
    (seen,) = run(WholeSession(first=True), backend=kind())
    counts = seen.counted(FirstCounts)
    assert kind.MEMORY <= counts.taken < kind.MEMORY + MIB
    assert kind.KEPT <= counts.left < kind.KEPT + MIB


@pytest.mark.parametrize("left", [FIRST_KEPT, FIRST_KEPT + 1])
def test_only_what_is_beyond_the_bound_is_told(left: int) -> None:
    seen = StepSeen(code=0, counts=FirstCounts(taken=left, left=left))
    trace = MemoryTrace(steps=(seen,), facts=MemoryFacts(operators=()))
    check, case = catalogue()["QLEAK-06"].check, MemoryCase((WholeSession(first=True),))
    if left > FIRST_KEPT:
        with pytest.raises(Measured, match=f"{left} more"):
            check(case, trace)
    else:
        assert check(case, trace).count == 1


def test_where_the_system_does_not_say_what_was_written_to_the_step_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_qnn.qnn.runner.run.written_bytes", lambda: None)
    (seen,) = run(WholeSession(first=True))
    assert "does not say" in seen.skipped


def test_it_waits_for_no_session_that_is_open() -> None:
    *_, seen = run(ContextCreate("c"), WholeSession())
    assert "open already" in seen.skipped


class _Composes(ReferenceBackend):
    def graph_execute(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(1000)


@pytest.mark.parametrize("rule_id", ["QLEAK-05", "QLEAK-06"])
def test_a_backend_that_executes_nothing_is_not_accused(rule_id: str) -> None:
    """libQnnIr.so is one."""
    case = MemoryCase((WholeSession(first=rule_id == "QLEAK-06"),))
    trace = MemoryTrace(steps=run(*case.steps, backend=_Composes()), facts=MemoryFacts(operators=()))
    with pytest.raises(Unsupported, match="graphExecute answers 1000"):
        catalogue()[rule_id].check(case, trace)
