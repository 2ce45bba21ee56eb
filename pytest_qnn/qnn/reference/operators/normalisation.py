"""Softmax and the norms. Source of names and parameters: QnnOpDef.h; sums are made in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values


def _exponents(call: Call) -> tuple[Values, Values]:
    """Beta * x less its maximum along the axis, and the sum of the exponentials of that."""
    axis = call.axis(call.inputs[0].ndim - 1)
    scaled = call.inputs[0] * call.number("beta", 1.0)
    scaled = scaled - scaled.max(axis, keepdims=True)
    return scaled, np.exp(scaled).sum(axis, keepdims=True)


def _softmax(call: Call) -> Values:
    """exp(beta * x) / sum(exp(beta * x)) along the axis."""
    scaled, total = _exponents(call)
    result: Values = np.exp(scaled) / total
    return result


def _log_softmax(call: Call) -> Values:
    scaled, total = _exponents(call)
    result: Values = scaled - np.log(total)
    return result


def _scaled(call: Call, values: Values) -> Values:
    """Times the second operand plus the third, where they are; both broadcast from the last axis."""
    for index, function in ((1, np.multiply), (2, np.add)):
        other = call.operand(index)
        if other is not None:
            values = function(values, other)
    return values


def _normal(values: Values, axes: Sequence[int], epsilon: float, *, centred: bool = True) -> Values:
    """(x - mean) / sqrt(variance + epsilon) over the axes; not centred: x / sqrt(mean(x * x) + epsilon)."""
    difference = values - values.mean(tuple(axes), keepdims=True) if centred else values
    result: Values = difference / np.sqrt(np.square(difference).mean(tuple(axes), keepdims=True) + epsilon)
    return result


def _layer_norm(call: Call) -> Values:
    values = call.inputs[0]
    return _scaled(
        call, _normal(values, call.integers("axes", [values.ndim - 1]), call.number("epsilon", 1e-9))
    )


def _rms_norm(call: Call) -> Values:
    values = call.inputs[0]
    axes = call.integers("axes", [values.ndim - 1])
    return _scaled(call, _normal(values, axes, call.number("epsilon", 1e-6), centred=False))


def _instance_norm(call: Call) -> Values:
    """Over the spatial axes, the channels or both (region); not centred in the mode RMS."""
    values = call.inputs[0]
    spatial, channel = list(range(1, values.ndim - 1)), [values.ndim - 1]
    axes = (spatial, channel, spatial + channel)[int(call.number("region", 0))]
    if not call.number("normalize_variance", usual=True):
        raise ValueError("without variance there is nothing to divide by")
    centred = not call.number("mode", 0)
    return _scaled(call, _normal(values, axes, call.number("epsilon", 1e-12), centred=centred))


def _group_norm(call: Call) -> Values:
    """Over the spatial axes and the channels of a group."""
    values, groups = call.inputs[0], int(call.number("group"))
    parts = values.reshape(*values.shape[:-1], groups, values.shape[-1] // groups)
    axes = [*range(1, values.ndim - 1), values.ndim]
    return _scaled(call, _normal(parts, axes, call.number("epsilon", 1e-12)).reshape(values.shape))


def _batchnorm(call: Call) -> Values:
    """X * weights + bias for each channel: mean and variance are in these already."""
    return _scaled(call, call.inputs[0])


def _l2_norm(call: Call) -> Values:
    """X / sqrt(max(sum(x * x), epsilon)) along the axes."""
    values = call.inputs[0]
    axes = call.integers("axes", []) or [call.axis(values.ndim - 1)]
    total = np.square(values).sum(tuple(axes), keepdims=True)
    result: Values = values / np.sqrt(np.maximum(total, call.number("epsilon", 1e-12)))
    return result


def _lrn(call: Call) -> Values:
    """X / (bias + alpha * sum(x * x)) ** beta, summed over the neighbouring channels within the radius."""
    values, radius = call.inputs[0], int(call.number("radius"))
    if int(call.number("region", 0)):
        raise ValueError("only neighbouring channels are summed")
    padded = np.pad(np.square(values), [*[(0, 0)] * (values.ndim - 1), (radius, radius)])
    total = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1, -1).sum(-1)
    base = call.number("bias", 1.0) + call.number("alpha", 1.0) * total
    result: Values = values / base ** call.number("beta", 0.5)
    return result


_NORM = ("epsilon", "axes")
DEFINITIONS: dict[str, Definition] = {
    "Softmax": operator("T>T", _softmax, "axis", "beta"),
    "LogSoftmax": operator("T>T", _log_softmax, "axis", "beta"),
    "LayerNorm": operator("TK?K?>T", _layer_norm, *_NORM),
    "RmsNorm": operator("TK?K?>T", _rms_norm, *_NORM),
    "InstanceNorm": operator("TK?K?>T", _instance_norm, "epsilon", "mode", "normalize_variance", "region"),
    "GroupNorm": operator("TK?K?>T", _group_norm, "epsilon", "group"),
    "Batchnorm": operator("TKK>T", _batchnorm),
    "L2Norm": operator("T>T", _l2_norm, "axis", "axes", "epsilon"),
    "Lrn": operator("T>T", _lrn, "alpha", "beta", "bias", "radius", "region"),
}
