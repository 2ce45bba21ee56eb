"""Reference kernels in numpy: what each operator computes, for one node or a whole graph.

float32 element-wise results are bit-equal to the runtimes' CPU kernels (the same IEEE operations, one
rounding each); accumulations stay within the bounds of `pytest_qnn.tflite.numerics.bounds`.

int8 operators are the real-valued operator on what the integers stand for, in float64, rounded once. The
runtimes' fixed-point multipliers round once or twice more, so that they differ by at most 1 LSB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.numerics.quantisation import nearest, real_values
from pytest_qnn.tflite.numerics.window import taps

Array = npt.NDArray[Any]

COPIES = frozenset(("RESHAPE", "CONCATENATION", "MAXIMUM"))
"""Operators that only move elements: on int8 they take the integers, all of one quantisation, as they are."""


class TensorTable(Protocol):
    """Anything that gives shape, dtype and quantisation by tensor index: a graph's tensors do."""

    def __getitem__(self, index: int, /) -> Tensor:
        """The tensor of this index."""


def run_node(node: Node, tensors: TensorTable, operands: Sequence[Array | None]) -> Array:
    """The result of one node.

    Args:
        node: the operator.
        tensors: shapes, dtypes and quantisation by tensor index.
        operands: contents of ``node.inputs`` in order, constants included; None for an absent one.

    Returns:
        An array of the output's shape and dtype. It may share memory with an operand (RESHAPE).

    Raises:
        KeyError: there is no kernel for this operator.
    """
    with np.errstate(all="ignore"):
        return compute(node, tensors, [operand for operand in operands if operand is not None])


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The contents of every tensor of ``graph``, by tensor index, for ``inputs`` in the graph's order.

    Raises:
        KeyError: there is no kernel for an operator, or a tensor is read or left that nobody has written.
    """
    tensors = graph.tensors
    values: dict[int, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for index, tensor in enumerate(tensors):
        if tensor.data is not None:
            values[index] = constant_value(tensor.data, tensor.dtype, tensor.shape)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [values[index] for index in node.inputs if index >= 0]
            values[node.outputs[0]] = compute(node, tensors, operands)
    return [values[index] for index in range(len(tensors))]


@lru_cache(8192)
def constant_value(data: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    """A constant's contents as a read-only array."""
    return np.frombuffer(data, dtype).reshape(shape)


def compute(node: Node, tensors: TensorTable, operands: list[Array]) -> Array:
    """As `run_node` for operands that are all there; ``np.errstate`` is the caller's, once for many nodes."""
    output = tensors[node.outputs[0]]
    if output.dtype != "int8":
        return _activated(node, _apply(node, operands, output.shape))
    if node.op in COPIES:
        return _apply(node, operands, output.shape)
    for position, operand in enumerate(operands):
        tensor = tensors[node.inputs[position]]
        if tensor.scales:
            operands[position] = real_values(tensor, operand)
    real = _apply(node, operands, output.shape)
    return nearest(output, real, node.activation).astype(np.int8)


def _activated(node: Node, values: Array) -> Array:
    if node.activation == "NONE":
        return values
    values = _relu(values)
    return np.minimum(values, 6) if node.activation == "RELU6" else values


def _apply(node: Node, operands: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The operator in the operands' own precision, without its fused activation."""
    elementwise = _ELEMENTWISE.get(node.op)
    if elementwise is not None:
        return elementwise(*operands)
    if node.op == "RESHAPE":
        return operands[0].reshape(shape)
    if node.op == "CONCATENATION":
        return np.concatenate(operands, node.axis)
    if node.op == "CONV_2D":
        return _with_bias(_convolved(node, operands), operands).reshape(shape)
    return _REDUCING[node.op](operands).reshape(shape)


def _mean(operands: Sequence[Array]) -> Array:
    value, axes = operands
    total: Array = value.sum(tuple(axes.ravel().tolist()), keepdims=True)
    return total / (value.size // total.size)


def _fully_connected(operands: Sequence[Array]) -> Array:
    weights = operands[1]
    return _with_bias(operands[0].reshape(-1, weights.shape[1]) @ weights.T, operands)


def _convolved(node: Node, operands: Sequence[Array]) -> Array:
    products = [met @ weights.T for met, weights in taps(node, operands[0], operands[1])]
    return products[0] if len(products) == 1 else np.add.reduce(products)


def _with_bias(sums: Array, operands: Sequence[Array]) -> Array:
    return np.add(sums, operands[2]) if len(operands) > 2 else sums


def _maximum(one: Array, other: Array) -> Array:
    # Of zeros of either sign numpy's maximum gives any; the CPU kernels give the second. So too in _relu.
    return np.where(one > other, one, other)


def _relu(value: Array) -> Array:
    return np.where(value < 0, np.float32(0), value)


def _prelu(value: Array, slope: Array) -> Array:
    return np.where(value >= 0, value, value * slope)


_ELEMENTWISE: dict[Op, Callable[..., Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": _maximum,
    "ABS": np.abs,
    "NEG": np.negative,
    "RELU": _relu,
    "PRELU": _prelu,
    "LESS": np.less,
}
_REDUCING: dict[Op, Callable[[Sequence[Array]], Array]] = {
    "MEAN": _mean,
    "FULLY_CONNECTED": _fully_connected,
}
