"""RUN: a plain run of a graph, which every other rule takes for granted."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.decode import HEADER, shape_of_rank
from pytest_qnn.tflite.graph.kinds import decode_graph, size_of
from pytest_qnn.tflite.graph.scales import NONE, scale_of
from pytest_qnn.tflite.graph.side_by_side import side_by_side
from pytest_qnn.tflite.strategies.claimed import mixed_kinds
from pytest_qnn.tflite.strategies.delegates import target_application
from pytest_qnn.tflite.trace import DelegateTrace

_EXTRA = 5
"""Bytes before the graphs': class of size, whether there is a claim, seed (2), contents."""
_FILLS: tuple[Fill, ...] = ("mixed", "extreme", "ramp")
_RANKS = (1, 2, 3, 4)
_LEAST, _MOST = 6, 12
"""Nodes of one rank."""


def plain(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs of each rank side by side: each kind of node is met soon; reduction leaves the one at fault."""
    kinds = mixed_kinds(facts)
    size = size_of(_MOST, 1)

    def decode(data: bytes) -> DelegateCase:
        choice, seed, fill = data[1], int.from_bytes(data[2:4], "big"), _FILLS[data[4] % len(_FILLS)]
        scale = scale_of(data[0], _MOST)
        choice |= scale.parted  # so that a steerable target has its claim
        parts = []
        for at, rank in enumerate(_RANKS):
            start = _EXTRA + at * size
            header, records = bytearray(data[start : start + HEADER]), data[start + HEADER : start + size]
            header[1] = data[_EXTRA + 1]  # one type of data for all
            header[2] = shape_of_rank(rank, header[2])
            # One of them is of a class of size: together they would be of several.
            own, least = (NONE, _LEAST) if at else (scale, 1)
            parts.append(decode_graph(bytes(header) + records, kinds, 1, least, _MOST, own))
        graph, claims = side_by_side(parts)
        return DelegateCase(graph, (target_application(facts, claims[0], choice),), data_seed=seed, fill=fill)

    return decoded(_EXTRA + len(_RANKS) * size, decode)


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
