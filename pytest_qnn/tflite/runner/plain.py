"""The plain case of delegates, with which slow ones are compared, and how many of it a case is worth."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.plugin import Cycle, PluginCase
from pytest_qnn.tflite.cases.script import AnyScriptStep, Parallel, Repeat, ScriptCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor

_IMAGE: Final = (1, 2, 2, 2)
_PAIRS: Final[tuple[Op, ...]] = ("ADD", "SUB", "MUL", "MAXIMUM")
_SINGLES: Final[tuple[Op, ...]] = ("RELU", "ABS", "NEG")


def _floats(*shape: int) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    return Tensor(shape, data=struct.pack(f"<{count}f", *[0.5] * count))


def _integers(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", data=struct.pack(f"<{len(values)}i", *values))


def _graph() -> Graph:
    """A node of each common operator; a constant stands where it is first used."""
    tensors = [Tensor(_IMAGE)]
    nodes: list[Node] = []

    def node(op: Op, operands: tuple[int | Tensor, ...], *shape: int, axis: int = 0) -> int:
        inputs = []
        for operand in operands:
            if isinstance(operand, Tensor):
                tensors.append(operand)
            inputs.append(len(tensors) - 1 if isinstance(operand, Tensor) else operand)
        tensors.append(Tensor(shape))
        nodes.append(Node(op, tuple(inputs), (len(tensors) - 1,), axis=axis))
        return len(tensors) - 1

    last = 0
    for op in _PAIRS:
        last = node(op, (last, 0), *_IMAGE)
    for op in _SINGLES:
        last = node(op, (last,), *_IMAGE)
    last = node("PRELU", (last, _floats(1, 2, 2)), *_IMAGE)
    last = node("CONV_2D", (last, _floats(2, 1, 1, 2), _floats(2)), *_IMAGE)
    joined = node("CONCATENATION", (last, 0), 1, 2, 4, 2, axis=2)
    flat = node("RESHAPE", (joined, _integers(2, 8)), 2, 8)
    ends = (
        node("FULLY_CONNECTED", (flat, _floats(3, 8), _floats(3)), 2, 3),
        node("MEAN", (flat, _integers(1)), 2),
    )
    return Graph(tuple(tensors), tuple(nodes), inputs=(0,), outputs=ends)


PLAIN: Final = DelegateCase(_graph())
"""The target takes what it wants of the graph, and it is invoked once."""
_STEPS: Final = 7
"""Steps of a script that does as much: make, open, apply, allocate, set inputs, invoke, close."""
_CYCLE_PARTS: Final = 4
"""A `Cycle` creates and destroys so many times its number."""


def cycles(case: Any) -> int:
    """How often, at least once, a case does what `PLAIN` does once; larger graphs count more."""
    if isinstance(case, PluginCase):
        return sum(_CYCLE_PARTS * step.times if isinstance(step, Cycle) else 1 for step in case.steps) or 1
    if isinstance(case, ScriptCase):
        times = 1 + _performed(case.steps) // _STEPS
        return (times + _before(case.history)) * max(map(_size, case.graphs), default=1)
    if isinstance(case, DomainCase | CellsBeside):
        return len(case.cells)
    delegate: DelegateCase = case
    again = 2 if delegate.again or delegate.baseline else 1
    times = max(1, delegate.invokes + delegate.redo + delegate.late) * max(1, len(delegate.applications))
    return (times * again + _before(delegate.history)) * _size(delegate.graph)


def _performed(steps: Iterable[AnyScriptStep]) -> int:
    """How many steps are carried out, in all turns and branches."""
    count = 0
    for step in steps:
        if isinstance(step, Repeat):
            count += step.times * len(step.steps)
        elif isinstance(step, Parallel):
            count += sum(map(_performed, step.branches))
        else:
            count += 1
    return count


def _before(history: History | None) -> int:
    if history is None:
        return 0
    used = (history.used + history.kept) * (history.invokes + history.resized)
    return history.made + history.failed + used + history.warm


def _size(graph: Graph) -> int:
    return max(1, -(-len(graph.nodes) // len(PLAIN.graph.nodes)))
