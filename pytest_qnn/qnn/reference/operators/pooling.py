"""Pools over windows of (batch, spatial..., channels). Source of names, parameters and modes: QnnOpDef.h."""

from __future__ import annotations

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values
from pytest_qnn.qnn.reference.operators.windows import padded, sliding

_CEIL = 1
"""rounding_mode: a last window may hang over the end."""


def _overhang(call: Call) -> list[int]:
    """What a last, incomplete window of each axis needs behind the padding."""
    if int(call.number("rounding_mode", 0)) != _CEIL:
        return [0] * (call.inputs[0].ndim - 2)
    sizes, strides = call.integers("filter_size"), call.integers("stride")
    pads = np.reshape(call.integers("pad_amount"), (-1, 2)).sum(1).tolist()
    lengths = call.inputs[0].shape[1:-1]
    return [
        -(length + pad - size) % stride
        for length, pad, size, stride in zip(lengths, pads, sizes, strides, strict=True)
    ]


def _windows(call: Call, values: Values, filling: float, over: float) -> Values:
    spatial = values.ndim - 2
    inside = padded(values, call.integers("pad_amount", [0] * (2 * spatial)), filling)
    behind = [part for amount in _overhang(call) for part in (0, amount)]
    return sliding(
        padded(inside, behind, over), call.integers("filter_size"), call.integers("stride"), [1] * spatial
    )


def _inner(spatial: int) -> tuple[int, ...]:
    return tuple(range(-spatial, 0))


def _maximum(call: Call) -> Values:
    values = call.inputs[0].astype(np.float64)
    result: Values = _windows(call, values, -np.inf, -np.inf).max(_inner(values.ndim - 2))
    return result


def _average(call: Call) -> Values:
    """The mean of a window: of what is inside the tensor, or of its padding too (count_pad_for_edges)."""
    values = call.inputs[0].astype(np.float64)
    axes, pads_count = _inner(values.ndim - 2), float(bool(call.number("count_pad_for_edges", usual=False)))
    total = _windows(call, values, 0, 0).sum(axes)
    result: Values = total / _windows(call, np.ones_like(values), pads_count, 0).sum(axes)
    return result


_WINDOW = ("filter_size", "stride", "pad_amount", "rounding_mode")
DEFINITIONS: dict[str, Definition] = {
    **{f"PoolMax{n}d": operator("T>T", _maximum, *_WINDOW) for n in (2, 3)},
    **{f"PoolAvg{n}d": operator("T>T", _average, *_WINDOW, "count_pad_for_edges") for n in (2, 3)},
}
