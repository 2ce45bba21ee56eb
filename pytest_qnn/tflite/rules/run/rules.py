"""RUN: a plain run of a graph, which every other rule takes for granted."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims
from pytest_qnn.tflite.strategies.claimed import mixed_kinds
from pytest_qnn.tflite.strategies.delegates import delegate_cases, target_application
from pytest_qnn.tflite.trace import DelegateTrace


def plain(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs of eight nodes and more: each kind of node is met soon; reduction leaves the one at fault."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (target_application(facts, claims[0], choice),))

    return delegate_cases(mixed_kinds(facts), make, 1, min_nodes=8, max_nodes=24)


@rule(
    "RUN-01",
    Level.MUST,
    "A delegate that is made, applied to a graph, prepared, invoked and destroyed neither ends the process "
    "nor blocks it.",
    source="tflite/core/c/common.h: Prepare, and prepare and invoke of a registration, return a TfLiteStatus",
    subject="delegate",
    cases=plain,
)
def comes_back(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """A case that was carried out to its end, whatever failed in it. How a process died the engine sees.

    It owns what ends or blocks the process in a plain run of a graph (`pytest_qnn.tflite.controls`).
    """
    del case
    return Examined(sum(applied.prepared or applied.ok for applied in trace.applied), "plain runs")
