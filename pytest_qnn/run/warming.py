"""A case that visits what most cases need: what a fork must copy on first use is copied then."""

from __future__ import annotations

import struct
from typing import Final

from pytest_qnn.cases.delegate import Application, DelegateCase
from pytest_qnn.cases.graph import Graph, Node, Op, Tensor

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


WARMING: Final = DelegateCase(_graph(), (Application("probe", claim=(0, 2, 3, 6, 8, 9, 11)),))
"""The suite's own delegate takes some of the nodes; the runtime's kernels compute all of them once."""
