"""Operators that add up, computed in one order: bit for bit the same on every machine.

`pytest_qnn.tflite.numerics.kernels` leaves the order to numpy, which depends on the processor. Here each
product and each sum is an operation of IEEE 754 of its own, in float64; what a delegate gives differs in the
last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.numerics.quantisation import nearest, real_values
from pytest_qnn.tflite.numerics.window import taps

Array = npt.NDArray[Any]
_MOST_PRODUCTS = 1 << 26
"""Of one operator: about a second."""


def summed(node: Node, tensors: Sequence[Tensor], operands: Sequence[Array]) -> Array | None:
    """The result of a MEAN, FULLY_CONNECTED or CONV_2D, of the shape and dtype of its output.

    Args:
        node: the operator.
        tensors: of its graph.
        operands: its inputs, without those that are left out.

    Returns:
        None where it would take too long.
    """
    output = tensors[node.outputs[0]]
    if node.op != "MEAN" and prod(output.shape) * prod(operands[1].shape[1:]) > _MOST_PRODUCTS:
        return None
    real = [_real(tensors[index], value) for index, value in zip(node.inputs, operands, strict=False)]
    sums = _SUMS[node.op](node, real).reshape(output.shape)
    if output.dtype == "int8":
        return nearest(output, sums, node.activation).astype(np.int8)
    if node.activation != "NONE":
        sums = np.where(sums < 0, 0, sums)
    return np.asarray(np.minimum(sums, 6) if node.activation == "RELU6" else sums).astype(np.float32)


def _real(tensor: Tensor, value: Array) -> Array:
    """The numbers that an operand stands for, float64; axes as they are."""
    if tensor.scales:
        return real_values(tensor, value)
    return value.astype(np.float64) if value.dtype == np.float32 else value


def _mean(_: Node, operands: Sequence[Array]) -> Array:
    value, axes = operands
    reduced = sorted({axis % value.ndim for axis in axes.ravel().tolist()})
    front = np.moveaxis(value, reduced, range(len(reduced)))
    count = prod(value.shape[axis] for axis in reduced)
    sums: Array = np.add.accumulate(front.reshape(count, -1))
    mean: Array = sums[-1] / count
    return mean


def _fully_connected(_: Node, operands: Sequence[Array]) -> Array:
    weights = operands[1]
    return _with_bias(_products(operands[0].reshape(-1, weights.shape[1]), weights), operands)


def _convolved(node: Node, operands: Sequence[Array]) -> Array:
    sums = np.zeros(())
    for met, weights in taps(node, operands[0], operands[1]):
        sums = sums + _products(met, weights)
    return _with_bias(sums, operands)


def _products(values: Array, weights: Array) -> Array:
    """[..., n] times [units, n] is [..., units], added up from the first of n to the last."""
    sums = np.zeros((*values.shape[:-1], weights.shape[0]))
    for place in range(weights.shape[1]):
        sums += values[..., place, None] * weights[:, place]
    return sums


def _with_bias(sums: Array, operands: Sequence[Array]) -> Array:
    return sums + operands[2] if len(operands) > 2 else sums


_SUMS: dict[str, Callable[[Node, Sequence[Array]], Array]] = {
    "MEAN": _mean,
    "FULLY_CONNECTED": _fully_connected,
    "CONV_2D": _convolved,
}
SUMS = frozenset(_SUMS)
"""The operators."""
