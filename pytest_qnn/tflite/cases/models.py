"""The models of a script: its graphs, the first of them with the case's edits."""

from __future__ import annotations

from pytest_qnn.tflite.cases.edits import custom_operators, edited
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.model import emit


def graphs_of(case: ScriptCase) -> tuple[Graph, ...]:
    """The graphs as the files have them, but for custom operators."""
    if not case.edits:
        return case.graphs
    first, *others = case.graphs
    return (edited(first, case.edits), *others)


def models_of(case: ScriptCase) -> list[bytes]:
    """By number of the graph: its .tflite model."""
    first, *others = graphs_of(case)
    return [emit(first, custom_operators(case.edits)), *map(emit, others)]
