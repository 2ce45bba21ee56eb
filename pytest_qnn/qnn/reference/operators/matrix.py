"""Products: MatMul, FullyConnected, convolutions.

Sums are made in float64. Source of names and parameters: QnnOpDef.h. Activations are (batch, spatial...,
channels). Weights of a convolution are (spatial..., input channels / group, output channels), of a depthwise
one (spatial..., 1, output channels), of a transposed one (spatial..., input channels, output channels /
group), of FullyConnected (outputs, inputs).
"""

from __future__ import annotations

import math

import numpy as np

from pytest_qnn.qnn.reference.operators.call import Call, Definition, operator
from pytest_qnn.qnn.reference.operators.values import Values
from pytest_qnn.qnn.reference.operators.windows import padded, sliding


def _with_bias(call: Call, result: Values) -> Values:
    bias = call.operand(2)
    if bias is None:
        return result
    if bias.size not in (1, result.shape[-1]):
        raise ValueError("a bias has a number for each output channel")
    total: Values = result + bias.reshape(-1)
    return total


def _mat_mul(call: Call) -> Values:
    """Matrix product of the last two axes; the ones before them broadcast."""
    first, second = call.inputs[:2]
    if call.number("transpose_in0", usual=False):
        first = np.swapaxes(first, -1, -2)
    if call.number("transpose_in1", usual=False):
        second = np.swapaxes(second, -1, -2)
    return _with_bias(call, np.matmul(first, second))


def _fully_connected(call: Call) -> Values:
    """Rows of as many elements as the weights have inputs, times the transposed weights."""
    call.number("keep_dims", usual=False)
    values, weights = call.inputs[:2]
    result = _with_bias(call, values.reshape(-1, weights.shape[1]) @ weights.T)
    return result.reshape(call.outputs[0].shape)


def _convolve(call: Call) -> Values:
    """Sum over the window and over the input channels of a group."""
    values, weights = call.inputs[:2]
    spatial = values.ndim - 2
    size = weights.shape[:spatial]
    inside = padded(values, call.integers("pad_amount"), 0)
    dilation = call.integers("dilation", [1] * spatial)
    windows = sliding(inside, size, call.integers("stride"), dilation)
    groups, channels = int(call.number("group", 1)), values.shape[-1]
    if channels % groups or weights.shape[-1] % groups or weights.shape[-2] * groups != channels:
        raise ValueError("groups of channels do not fit the weights")
    kernel = np.moveaxis(weights, -2, 0)  # (channels, size..., outputs), as windows end
    axes = (tuple(range(spatial + 1, 2 * spatial + 2)), tuple(range(spatial + 1)))
    before = (slice(None),) * (spatial + 1)
    parts = [
        np.tensordot(windows[(*before, cut_in)], kernel[..., cut_out], axes)
        for cut_in, cut_out in _groups(groups, channels, weights.shape[-1])
    ]
    return _with_bias(call, np.concatenate(parts, -1))


def _groups(count: int, inputs: int, outputs: int) -> list[tuple[slice, slice]]:
    """Channels of each group, of input and output."""
    one_in, one_out = inputs // count, outputs // count
    return [
        (slice(at * one_in, (at + 1) * one_in), slice(at * one_out, (at + 1) * one_out))
        for at in range(count)
    ]


def _depthwise(call: Call) -> Values:
    """Each input channel by itself, with one filter or several; their outputs stand together."""
    values, weights = call.inputs[:2]
    spatial, channels = values.ndim - 2, values.shape[-1]
    size, several = weights.shape[:spatial], weights.shape[-1] // channels
    if weights.shape != (*size, 1, several * channels):
        raise ValueError("weights of a depthwise convolution are (size..., 1, output channels)")
    inside = padded(values, call.integers("pad_amount"), 0)
    dilation = call.integers("dilation", [1] * spatial)
    windows = sliding(inside, size, call.integers("stride"), dilation)
    area = math.prod(size)
    flat = windows.reshape(*windows.shape[: spatial + 2], area)
    result = np.einsum("...ck,kcm->...cm", flat, weights.reshape(area, channels, several))
    return _with_bias(call, result.reshape(*result.shape[:-2], several * channels))


def _transpose_convolve(call: Call) -> Values:
    """Each input element adds its filter to the output, ``stride`` apart; padding is cut off."""
    values, weights = call.inputs[:2]
    spatial, groups = values.ndim - 2, int(call.number("group", 1))
    size, stride = weights.shape[:spatial], call.integers("stride")
    dilation = call.integers("dilation", [1] * spatial)
    pads = np.reshape(call.integers("pad_amount"), (spatial, 2)).tolist()
    more = call.integers("output_padding", [0] * spatial)
    counts = values.shape[1:-1]
    whole = [
        (count - 1) * step + (width - 1) * gap + 1 + extra
        for count, step, width, gap, extra in zip(counts, stride, size, dilation, more, strict=True)
    ]
    result = np.zeros((values.shape[0], *whole, weights.shape[-1] * groups))
    for at in np.ndindex(*size):
        places = [
            slice(begin * gap, begin * gap + (count - 1) * step + 1, step)
            for begin, gap, count, step in zip(at, dilation, counts, stride, strict=True)
        ]
        for cut_in, cut_out in _groups(groups, values.shape[-1], weights.shape[-1] * groups):
            result[(slice(None), *places, cut_out)] += values[..., cut_in] @ weights[at][cut_in]
    kept = [slice(before, end - after) for (before, after), end in zip(pads, whole, strict=True)]
    return _with_bias(call, result[(slice(None), *kept)])


_WINDOW = ("stride", "pad_amount", "dilation")
_SPARSE = ("reuse_sparse_indices", "reuse_sparse_indicies")
"""Spelt so by QnnOpDef.h: the first for Conv2d, the second for Conv3d."""
DEFINITIONS: dict[str, Definition] = {
    "MatMul": operator("TKK?>T", _mat_mul, "transpose_in0", "transpose_in1"),
    "FullyConnected": operator("TKK?>K", _fully_connected, "keep_dims"),
    **{f"Conv{n}d": operator("TKK?>K", _convolve, *_WINDOW, "group", *_SPARSE) for n in (1, 2, 3)},
    **{f"DepthWiseConv{n}d": operator("TKK?>K", _depthwise, *_WINDOW) for n in (1, 2)},
    **{
        f"TransposeConv{n}d": operator("TKK?>K", _transpose_convolve, *_WINDOW, "group", "output_padding")
        for n in (1, 2, 3)
    },
}
