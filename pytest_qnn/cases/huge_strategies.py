"""Scripts in which a small graph is resized to millions of elements, or to more than any memory holds.

The contents of such tensors are never set nor read: they would cost more than all the rest of a case.
"""

from __future__ import annotations

from pytest_qnn.cases.graph import DType, Graph, Node, Op, Tensor
from pytest_qnn.cases.kinds import taken
from pytest_qnn.cases.script import Allocate, Apply, Invoke, MakeDelegate, Open, Resize, ScriptCase, SetInputs
from pytest_qnn.facts import DelegateFacts

Shape = tuple[int, ...]

BINARY: tuple[Op, ...] = ("ADD", "MUL", "SUB", "MAXIMUM")
UNARY: dict[DType, tuple[Op, ...]] = {"float32": ("RELU", "ABS", "NEG"), "int8": ("RELU",)}
MILLIONS, MORE = (1 << 21) + 1, (1 << 24) + 1
"""Elements: more than 20 bits count, and (int8 MAXIMUM, the cheapest to compute) more than float32 does."""
IMPOSSIBLE: tuple[Shape, ...] = ((1 << 24, 1 << 24), ((1 << 31) - 1, (1 << 31) - 1), (1 << 16,) * 3)
"""Shapes of more bytes than a process has addresses; in 32 bits their elements are 0, 1 and 0."""


def plain_kinds(facts: DelegateFacts) -> list[tuple[DType, Op]]:
    """What the target claims of operators that take operands of any shape."""
    known = {(kind.dtype, kind.op) for kind in taken(facts)}
    return [(dtype, op) for dtype in UNARY for op in (*UNARY[dtype], *BINARY) if (dtype, op) in known]


def grown(facts: DelegateFacts, kinds: list[tuple[DType, Op]], seed: int) -> ScriptCase:
    """Two nodes are run, resized to millions of elements, run, and resized back; all chosen by ``seed``.

    On a runtime that answers with an error when there is no memory, every third case asks for the
    impossible, and is not run then: a delegate that allows dynamic tensors is shown such shapes.
    tflite-runtime 2.14 throws instead (docs/runtimes.md), which no delegate is to be blamed for.
    """
    dtype, op = kinds[seed % len(kinds)]
    impossible = facts.runtime != "tflite_runtime" and seed // 8 % 3 == 2
    count = MORE if (dtype, op) == ("int8", "MAXIMUM") else MILLIONS
    shape = IMPOSSIBLE[seed % len(IMPOSSIBLE)] if impossible else _great(count, seed)
    small = tuple(min(length, 2) for length in shape)
    position = seed // 4 % max(1, len(facts.delegates))
    there = (Resize("i0", 0, shape), Allocate("i0"), *(() if impossible else (Invoke("i0"),)))
    steps = (
        *(MakeDelegate("d0", position=position), Open("i0"), Apply("i0", "d0"), Allocate("i0")),
        *there,
        *(Resize("i0", 0, small), Allocate("i0"), SetInputs("i0", seed), Invoke("i0")),
    )
    return ScriptCase((two_nodes(op, _tensor(small, dtype)),), steps)


def _great(count: int, seed: int) -> Shape:
    """A shape of about so many elements, in one dimension or in two."""
    return ((count,), (1, count), (count, 1, 1), (1 << 10, (count >> 10) + 1))[seed // 16 % 4]


def _tensor(shape: Shape, dtype: DType) -> Tensor:
    return Tensor(shape) if dtype == "float32" else Tensor(shape, dtype, (0.5,), (0,))


def two_nodes(op: Op, tensor: Tensor) -> Graph:
    """The operator applied to the graph's input, or to it twice, and once more to the result."""
    operands = 2 if op in BINARY else 1
    nodes = tuple(Node(op, (at,) * operands, (at + 1,)) for at in range(2))
    return Graph((tensor,) * 3, nodes, (0,), (2,))
