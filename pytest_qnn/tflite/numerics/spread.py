"""Real-number algebra of the operators: a result, and how far apart two results can be.

x is what the oracle has and x' what the target has, with |x' - x| <= t element by element. Rounding is
not in here: `pytest_qnn.tflite.numerics.bounds` adds what each number format rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node, Op
from pytest_qnn.tflite.numerics.window import taps

Array = npt.NDArray[Any]
Apart = Array | None
"""t, float64, of the value's shape; None: equal."""


def result(node: Node, values: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The operator on ``values`` in their own precision, without its fused activation."""
    if node.op in _ELEMENTWISE:
        return np.asarray(_ELEMENTWISE[node.op](*values))
    if node.op == "RESHAPE":
        return values[0].reshape(shape)
    if node.op == "CONCATENATION":
        return np.concatenate(values, node.axis)
    if node.op == "MEAN":
        return np.asarray(values[0].mean(tuple(values[1].tolist()))).reshape(shape)
    return products(node, *values).reshape(shape)


_ELEMENTWISE: dict[Op, Callable[..., Array]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "MAXIMUM": lambda a, b: np.where(a > b, a, b),
    "RELU": lambda a: np.where(a > 0, a, a.dtype.type(0)),
    "ABS": lambda a: np.where(a < 0, -a, a),
    "NEG": lambda a: -a,
    "PRELU": lambda a, slope: np.where(a < 0, a * slope, a),
}


def products(node: Node, value: Array, weights: Array, bias: Array | float = 0.0) -> Array:
    """Sums of products of FULLY_CONNECTED or CONV_2D, and the bias: [..., units]."""
    if node.op == "FULLY_CONNECTED":
        return np.asarray(value.reshape(-1, weights.shape[1]) @ weights.T + bias)
    return np.asarray(sum(met @ tap.T for met, tap in taps(node, value, weights)) + bias)


def apart(node: Node, values: Sequence[Array], ts: Sequence[Apart], shape: tuple[int, ...]) -> Apart:
    """How far apart two results can be whose operands are at most ``ts`` apart; None: equal.

    * ADD, SUB: t1 + t2. MUL: |x1| t2 + |x2| t1 + t1 t2. MAXIMUM: the larger t.
    * RELU, ABS, NEG and the copies: t. MEAN: the mean of t.
    * PRELU: max(1, |slope'|) t1 + |x| t2, since no piece is steeper than the larger slope.
    * FULLY_CONNECTED, CONV_2D: sum (t1 (|w| + t2) + |x| t2) + t3.
    """
    if all(t is None for t in ts):
        return None
    t1 = _filled(values, ts, 0)
    match node.op:
        case "RELU" | "ABS" | "NEG":
            return t1
        case "RESHAPE":
            return t1.reshape(shape)
        case "CONCATENATION":
            return np.concatenate([_filled(values, ts, i) for i in range(len(ts))], node.axis)
        case "MEAN":
            return np.asarray(t1.mean(tuple(values[1].tolist()))).reshape(shape)
    t2 = _filled(values, ts, 1)
    size1, size2 = (np.abs(value.astype(np.float64)) for value in values[:2])
    match node.op:
        case "ADD" | "SUB":
            bound = t1 + t2
        case "MUL":
            bound = size1 * t2 + size2 * t1 + t1 * t2
        case "MAXIMUM":
            bound = np.maximum(t1, t2)
        case "PRELU":
            bound = np.maximum(1.0, size2 + t2) * t1 + size1 * t2
        case _:
            bias = _filled(values, ts, 2) if len(values) > 2 else 0.0
            bound = products(node, t1, size2 + t2, bias) + products(node, size1, t2)
    return bound.reshape(shape)


def _filled(values: Sequence[Array], ts: Sequence[Apart], position: int) -> Array:
    t = ts[position]
    return np.zeros(values[position].shape) if t is None else t
