"""The step `WholeSession`: a session from its beginning to its end, and what the process keeps of it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_qnn.core.verdict import Unsupported
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, WholeSession
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, StepSeen
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


def test_it_waits_for_no_session_that_is_open() -> None:
    *_, seen = run(ContextCreate("c"), WholeSession())
    assert "open already" in seen.skipped


class _Composes(ReferenceBackend):
    def graph_execute(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(1000)


def test_a_backend_that_executes_nothing_is_not_accused() -> None:
    """libQnnIr.so is one."""
    case = MemoryCase((WholeSession(),))
    trace = MemoryTrace(steps=run(*case.steps, backend=_Composes()), facts=MemoryFacts(operators=()))
    with pytest.raises(Unsupported, match="graphExecute answers 1000"):
        catalogue()["QLEAK-05"].check(case, trace)
