"""Graphs of element-wise operators that take operands of any shape: they grow to millions of elements."""

from __future__ import annotations

from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Op, Tensor
from pytest_qnn.tflite.strategies.claimed import taken

Shape = tuple[int, ...]

BINARY: tuple[Op, ...] = ("ADD", "MUL", "SUB", "MAXIMUM")
UNARY: dict[DType, tuple[Op, ...]] = {"float32": ("RELU", "ABS", "NEG"), "int8": ("RELU",)}


def plain_kinds(facts: DelegateFacts) -> list[tuple[DType, Op]]:
    """What the target claims of operators that take operands of any shape."""
    known = {(kind.dtype, kind.op) for kind in taken(facts)}
    return [(dtype, op) for dtype in UNARY for op in (*UNARY[dtype], *BINARY) if (dtype, op) in known]


def plain_tensor(shape: Shape, dtype: DType) -> Tensor:
    """An activation; of int8 with the scale 0.5 and the zero point 0."""
    return Tensor(shape) if dtype == "float32" else Tensor(shape, dtype, (0.5,), (0,))


def two_nodes(op: Op, tensor: Tensor) -> Graph:
    """The operator applied to the graph's input, or to it twice, and once more to the result."""
    operands = 2 if op in BINARY else 1
    nodes = tuple(Node(op, (at,) * operands, (at + 1,)) for at in range(2))
    return Graph((tensor,) * 3, nodes, (0,), (2,))
