"""Operators that make one number of many along axes, and TopK. Source of names and parameters: QnnOpDef.h."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values


def _reduce(function: Callable[..., Values]) -> Callable[[Call], Values]:
    def compute(call: Call) -> Values:
        axes = tuple(call.integers("axes", range(call.inputs[0].ndim)))
        return np.asarray(
            function(call.inputs[0], axis=axes, keepdims=bool(call.number("keep_dims", usual=False)))
        )

    return compute


def _sum_of_squares(values: Values, axis: tuple[int, ...], keepdims: bool) -> Values:
    return np.asarray(np.square(values).sum(axis=axis, keepdims=keepdims))


def _arg(function: Callable[..., Values]) -> Callable[[Call], Values]:
    """Index of the first of equals."""

    def compute(call: Call) -> Values:
        axis = call.axis()
        found = np.asarray(function(call.inputs[0], axis))
        return np.expand_dims(found, axis) if call.number("keep_dims", usual=False) else found

    return compute


def _top_k(call: Call) -> tuple[Values, Values]:
    """The k largest (or smallest) of the last axis, in order, and their indices; of equals the first."""
    values, count = call.inputs[0], int(call.number("k"))
    keys = -values if call.number("largest", usual=True) else values
    if count > values.shape[-1]:
        raise ValueError("there are not so many elements")
    indices = np.argsort(keys, -1, kind="stable")[..., :count]
    return np.take_along_axis(values, indices, -1), indices


def _cumulative_sum(call: Call) -> Values:
    """Sums of what comes up to each element: itself included, or not; from the end, if reversed."""
    axis, values = call.axis(), call.inputs[0]
    turned = np.flip(values, axis) if call.number("reverse", usual=False) else values
    total = np.cumsum(turned, axis)
    total = total - turned if call.number("exclusive", usual=False) else total
    return np.flip(total, axis) if call.number("reverse", usual=False) else total


_NAMES = ("axes", "keep_dims")
DEFINITIONS: dict[str, Definition] = {
    "ReduceMax": operator("T>T", _reduce(np.max), *_NAMES),
    "ReduceMean": operator("T>T", _reduce(np.mean), *_NAMES),
    "ReduceMin": operator("T>T", _reduce(np.min), *_NAMES),
    "ReduceProd": operator("T>T", _reduce(np.prod), *_NAMES),
    "ReduceSum": operator("T>T", _reduce(np.sum), *_NAMES),
    "ReduceSumSquare": operator("T>T", _reduce(_sum_of_squares), *_NAMES),
    "Argmax": operator("T>I", _arg(np.argmax), "axis", "keep_dims"),
    "Argmin": operator("T>I", _arg(np.argmin), "axis", "keep_dims"),
    "TopK": operator("T>TI", _top_k, "k", "largest"),
    "CumulativeSum": operator("T>T", _cumulative_sum, "axis", "exclusive", "reverse"),
}
