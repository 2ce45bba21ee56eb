"""RUN: a plain run of a graph, which every other rule takes for granted."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.trace import DelegateTrace


@rule(
    "RUN-01",
    Level.MUST,
    "A delegate that is made, applied to a graph, prepared, invoked and destroyed neither ends the process "
    "nor blocks it.",
    source="tflite/core/c/common.h: Prepare, and prepare and invoke of a registration, return a TfLiteStatus",
    subject="delegate",
    cases=delegates.anything,
)
def comes_back(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """A case that was carried out to its end, whatever failed in it. How a process died the engine sees.

    It owns what ends or blocks the process in a plain run of a graph (`pytest_qnn.tflite.controls`).
    """
    del case
    return Examined(sum(applied.prepared or applied.ok for applied in trace.applied), "plain runs")
