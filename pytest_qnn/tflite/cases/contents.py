"""How many bytes of tensors the trace of a case can have, at most: what its child may answer.

Not what it will have. Each bound is well above it: an answer that is larger counts as the target's own doing.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import IMPOSSIBLE, Resize, ScriptCase, flat
from pytest_qnn.tflite.graph.graph import Graph

_ITEM = 8
"""Bytes of the largest element."""
_SIDES = 4
"""The delegate's and the CPU's, the first time and the last."""
_CELL = 1 << 14
"""Of all tensors of a cell: none has more than some hundred elements."""
_AROUND = 4
"""Times that tensors are read in a case without an invoke: inputs before and after, outputs of the CPU."""


def contents(case: Any) -> int:
    """Bytes of tensors that the trace of a case can have, at most."""
    if isinstance(case, DomainCase):
        return _CELL * len(case.cells)
    if isinstance(case, ScriptCase):
        steps = flat(case.steps)
        shapes = [step.shape for step in steps if isinstance(step, Resize) and prod(step.shape) < IMPOSSIBLE]
        largest = max((_tensors(graph, shapes) for graph in case.graphs), default=0)
        return _SIDES * len(steps) * largest
    assert isinstance(case, DelegateCase | PluginCase)
    times = case.invokes if isinstance(case, DelegateCase) else len(case.steps)
    return _SIDES * (_AROUND + times) * _tensors(case.graph, ())


def _tensors(graph: Graph, shapes: Iterable[tuple[int, ...]]) -> int:
    """Bytes of a graph's inputs and outputs, each with the longest dimensions of any, resized ones included.

    Without resizing: all its tensors, as they are.
    """
    own = [tensor.shape for part in (graph, *graph.subgraphs) for tensor in part.tensors]
    given = list(shapes)
    if not given:
        return _ITEM * sum(map(prod, own))
    every = [*own, *given]
    axes = range(1, 1 + max(map(len, every)))
    longest = [max(shape[-axis] for shape in every if axis <= len(shape)) for axis in axes]
    return _ITEM * max(1, prod(longest)) * len({*graph.inputs, *graph.outputs})
