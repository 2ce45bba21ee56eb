"""Operators of neural networks' layers: products with weights, windows, and what normalises."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.domain.cell import ACTIVATIONS, QUANTISED, Cell, DType
from pytest_qnn.tflite.domain.node import Field, OneNode, Operand, Operator, Result, Scaling, Values
from pytest_qnn.tflite.domain.reduction import integers
from pytest_qnn.tflite.domain.values import EPSILON, activated, operand, real, result, same, shape_of, single

_PER_CHANNEL: Final = "hybrid per channel"
_HYBRID: Final = ("hybrid", _PER_CHANNEL)
"""Forms of float32 nodes with weights of int8, as converters make for models of dynamic range."""


def _activation(cell: Cell) -> int:
    return ACTIVATIONS.index(cell.activation)


def _weights(cell: Cell, shape: tuple[int, ...], axis: int) -> Operand:
    """Constant weights, of int8 with an int16 operand; with a scale per slice of the axis if so wanted."""
    dtype: DType = "int8" if cell.dtype == "int16" or cell.form in _HYBRID else cell.dtype
    if cell.quantisation == "channel" or cell.form == _PER_CHANNEL:
        count = shape[axis]
        scaling = Scaling(tuple(single(0.01 + 0.003 * at) for at in range(count)), (0,) * count, axis)
        plain = operand(Cell("", "int8", 0), shape, 7, "small")
        return Operand(np.clip(plain.values, -127, 127), True, scaling)
    unshifted = Cell("", dtype, 0)
    return operand(unshifted, shape, 7, "small", constant=True)


def _bias(cell: Cell, value: Operand, weights: Operand, count: int) -> Operand:
    if cell.dtype not in QUANTISED:
        return operand(cell, (count,), 9, constant=True)
    if value.scaling is None or weights.scaling is None:
        raise TypeError(cell.dtype)
    scales = tuple(single(value.scaling.scales[0] * scale) for scale in weights.scaling.scales)
    numbers = np.arange(count) * 37 % 101 - 50
    wide = np.int64 if cell.dtype == "int16" else np.int32
    return Operand(numbers.astype(wide), True, Scaling(scales, (0,) * len(scales)))


def _summed(cell: Cell, computed: Values, magnitudes: Values, count: int, within: Any = 0.0) -> Result:
    """A result that sums ``count`` products; ``within``: how far it may be off beside their rounding."""
    error = (count + 4) * magnitudes * EPSILON.get(cell.dtype, 0.0) + within
    computed = activated(cell.activation, computed)
    if cell.dtype in QUANTISED:
        return result(cell, computed, error=np.zeros_like(computed, np.float64))
    return result(cell, computed, error=error)


def _rounded_within(cell: Cell, value: Operand, weights: Operand, axis: int) -> Any:
    """How far a hybrid sum is off because the kernel may round its operand to int8; 0 of other forms.

    Args:
        cell: of the node.
        value: the operand, of float32.
        weights: of int8.
        axis: that of the results' channels in the weights.

    A kernel takes each row of the operand for steps of its largest magnitude over 127 (symmetric), or of its
    range over 255 with a zero point that is rounded too: each element is within one such step.
    """
    if cell.form not in _HYBRID:
        return 0.0
    step = np.max(np.abs(real(value)), initial=0.0) / 127
    others = tuple(at for at in range(weights.values.ndim) if at != axis)
    return step * np.abs(real(weights)).sum(axis=others)


def _fully_connected(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    value = operand(cell, shape)
    depth = shape[-1] if shape else 1
    weights = _weights(cell, (4, depth), 0)
    with_bias = cell.form != "no bias"
    bias = _bias(cell, value, weights, 4)
    numbers = real(value) if shape else real(value).reshape(1)
    matrix = real(weights).T
    computed, magnitudes = numbers @ matrix, np.abs(numbers) @ np.abs(matrix)
    if with_bias:
        computed, magnitudes = computed + real(bias), magnitudes + np.abs(real(bias))
    keeps = cell.form != "flat"
    if not keeps or not shape:
        computed, magnitudes = computed.reshape(-1, 4), magnitudes.reshape(-1, 4)
    fields: tuple[Field, ...] = ((0, "b", _activation(cell)), (2, "?", keeps))
    given = _summed(cell, computed, magnitudes, depth, _rounded_within(cell, value, weights, 0))
    return OneNode((value, weights, bias if with_bias else None), (given,), 8, fields)


def _batch_matmul(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    value = operand(cell, shape)
    second = (*shape[:-2], shape[-1], 3) if len(shape) > 1 else shape
    turned = cell.form == "transposed"
    if turned and len(shape) > 1:
        second = (*shape[:-2], 3, shape[-1])
    other = operand(cell, second, 2, constant=cell.form == "constant")
    one, two = real(value), real(other)
    if len(shape) > 1:
        two = np.swapaxes(two, -1, -2) if turned else two
        computed, magnitudes = one @ two, np.abs(one) @ np.abs(two)
    else:
        computed, magnitudes = one, np.abs(one)
    given = _summed(cell, computed, magnitudes, shape[-1] if shape else 1)
    if cell.dtype in ("int8", "int16"):
        given = result(cell, computed)
    return OneNode((value, other), (given,), 101, ((0, "?", False), (1, "?", turned)))


def _extent(length: int, window: int, stride: int, dilation: int, *, same_padding: bool) -> tuple[int, int]:
    """The length of the result, and the padding in front."""
    reach = (window - 1) * dilation + 1
    if not same_padding:
        return max(0, (length - reach + stride) // stride), 0
    count = -(-length // stride)
    return count, max(0, (count - 1) * stride + reach - length) // 2


class _Window:
    """How a window goes over an image."""

    def __init__(self, cell: Cell) -> None:
        self.size = {"tall": (3, 2), "flat": (1, 3)}.get(cell.form, (2, 3))
        self.same = cell.form != "valid"
        self.stride = {"stride": (2, 2), "uneven": (2, 1), "flat": (2, 1)}.get(cell.form, (1, 1))
        self.dilation = (2, 2) if cell.form == "dilation" else (1, 1)

    def places(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Lengths of the result's plane, and padding in front."""
        found = [
            _extent(shape[at + 1], self.size[at], self.stride[at], self.dilation[at], same_padding=self.same)
            for at in (0, 1)
        ]
        return (found[0][0], found[1][0]), (found[0][1], found[1][1])

    def taps(self, shape: tuple[int, ...]) -> Any:
        """For each place of the window: its row and column, and where it reads, with what lies inside."""
        lengths, front = self.places(shape)
        for row in range(self.size[0]):
            for column in range(self.size[1]):
                rows = np.arange(lengths[0]) * self.stride[0] + row * self.dilation[0] - front[0]
                columns = np.arange(lengths[1]) * self.stride[1] + column * self.dilation[1] - front[1]
                inside = ((rows >= 0) & (rows < shape[1]))[:, None] & ((columns >= 0) & (columns < shape[2]))[
                    None
                ]
                at = np.ix_(np.clip(rows, 0, max(0, shape[1] - 1)), np.clip(columns, 0, max(0, shape[2] - 1)))
                yield row, column, at, inside[None, :, :, None]

    def fields(self) -> tuple[Field, ...]:
        """Padding and strides, as the options of convolutions and pools begin."""
        return ((0, "b", not self.same), (1, "i", self.stride[1]), (2, "i", self.stride[0]))

    def dilations(self, first: int) -> tuple[Field, ...]:
        """The options of dilation, from this field on."""
        return ((first, "i", self.dilation[1]), (first + 1, "i", self.dilation[0]))


def _image(cell: Cell) -> tuple[int, ...]:
    """[batch, height, width, depth]; of another rank than 4 what the cell says."""
    if cell.rank != 4:
        return shape_of(cell)
    if cell.size == "ones":
        return (1, 1, 1, 1)
    return (0 if cell.size == "zero" else 2, 5, 4, 17 if cell.size == "odd" else 3)


def _unjudged(cell: Cell, value: Operand) -> Result:
    """A result of a rank that the operator does not have: nothing is expected."""
    return result(cell, real(value), error=np.inf)


def _conv(cell: Cell) -> OneNode:
    shape, window = _image(cell), _Window(cell)
    value = operand(cell, shape)
    depth = shape[-1] if shape else 1
    weights = _weights(cell, (4, *window.size, depth), 0)
    bias = _bias(cell, value, weights, 4)
    fields = (*window.fields(), (3, "b", _activation(cell)), *window.dilations(4))
    if cell.rank != 4:
        return OneNode((value, weights, bias), (_unjudged(cell, value),), 1, fields)
    numbers, factors = real(value), real(weights)
    computed: Any = real(bias) + 0.0
    magnitudes: Any = np.abs(real(bias))
    for row, column, at, inside in window.taps(shape):
        read = np.where(inside, numbers[:, at[0], at[1], :], 0)
        computed = computed + read @ factors[:, row, column].T
        magnitudes = magnitudes + np.abs(read) @ np.abs(factors[:, row, column]).T
    count = window.size[0] * window.size[1] * depth
    given = _summed(cell, computed, magnitudes, count, _rounded_within(cell, value, weights, 0))
    return OneNode((value, weights, bias), (given,), 1, fields)


def _depthwise(cell: Cell) -> OneNode:
    shape, window = _image(cell), _Window(cell)
    value = operand(cell, shape)
    times = 2 if cell.form == "multiplier" else 1
    depth = (shape[-1] if shape else 1) * times
    weights = _weights(cell, (1, *window.size, depth), 3)
    bias = _bias(cell, value, weights, depth)
    fields = (*window.fields(), (3, "i", times), (4, "b", _activation(cell)), *window.dilations(5))
    if cell.rank != 4:
        return OneNode((value, weights, bias), (_unjudged(cell, value),), 2, fields)
    numbers, factors = np.repeat(real(value), times, -1), real(weights)
    computed: Any = real(bias) + 0.0
    magnitudes: Any = np.abs(real(bias))
    for row, column, at, inside in window.taps(shape):
        read = np.where(inside, numbers[:, at[0], at[1], :], 0) * factors[0, row, column]
        computed, magnitudes = computed + read, magnitudes + np.abs(read)
    count = window.size[0] * window.size[1]
    given = _summed(cell, computed, magnitudes, count, _rounded_within(cell, value, weights, 3))
    return OneNode((value, weights, bias), (given,), 2, fields)


def _transpose_conv(cell: Cell) -> OneNode:
    shape = _image(cell)
    value = operand(cell, shape)
    depth = shape[-1] if shape else 1
    weights = _weights(cell, (4, 2, 2, depth), 0)
    fields: tuple[Field, ...] = ((0, "b", 1), (1, "i", 2), (2, "i", 2))
    if cell.rank != 4:
        return OneNode((integers(*shape), weights, value), (_unjudged(cell, value),), 49, fields)
    numbers, factors = real(value), real(weights)
    batch, height, width, _ = shape
    computed = np.zeros((batch, 2 * height, 2 * width, 4))
    magnitudes = np.zeros_like(computed)
    for row in (0, 1):
        for column in (0, 1):
            computed[:, row::2, column::2] = numbers @ factors[:, row, column].T
            magnitudes[:, row::2, column::2] = np.abs(numbers) @ np.abs(factors[:, row, column]).T
    given = _summed(cell, computed, magnitudes, depth)
    return OneNode((integers(*computed.shape), weights, value), (given,), 49, fields)


def _pool(kind: str) -> Any:
    def make(cell: Cell) -> OneNode:
        shape, window = _image(cell), _Window(cell)
        value = operand(cell, shape)
        fields = (
            *window.fields(),
            (3, "i", window.size[1]),
            (4, "i", window.size[0]),
            (5, "b", _activation(cell)),
        )
        if cell.rank != 4:
            return OneNode((value,), (_unjudged(cell, value),), 5, fields)
        numbers = real(value)
        lengths, _ = window.places(shape)
        sums = np.full((shape[0], *lengths, shape[3]), -np.inf if kind == "max" else 0.0)
        counts = np.zeros((1, *lengths, 1))
        for _, _, at, inside in window.taps(shape):
            read = numbers[:, at[0], at[1], :]
            counts = counts + inside
            if kind == "max":
                sums = np.maximum(sums, np.where(inside, read, -np.inf))
            else:
                sums = sums + np.where(inside, read if kind == "average" else read**2, 0)
        computed = sums if kind == "max" else sums / counts
        computed = np.sqrt(computed) if kind == "square" else computed
        computed = activated(cell.activation, computed)
        error = (window.size[0] * window.size[1] + 4) * 2.0 * EPSILON.get(cell.dtype, 0.0)
        given = result(cell, computed, error=error, scaling=value.scaling)
        return OneNode((value,), (given,), 5, fields)

    return make


def _softmax(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    numbers = real(value).astype(np.float64)
    axis: Any = -1 if cell.rank else None
    if numbers.size:
        powers = np.exp(numbers - numbers.max(axis=axis, keepdims=True))
        computed = powers / powers.sum(axis=axis, keepdims=True)
    else:
        computed = numbers
    fixed = {
        "int8": Scaling((1 / 256,), (-128,)),
        "uint8": Scaling((1 / 256,), (0,)),
        "int16": Scaling((1 / 32768,), (0,)),
    }
    given = result(cell, computed, rough=True, scaling=fixed.get(cell.dtype))
    return OneNode((value,), (given,), 9, ((0, "f", 1.0),))


def _log_softmax(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    numbers = real(value).astype(np.float64)
    axis: Any = -1 if cell.rank else None
    if numbers.size:
        below = numbers - numbers.max(axis=axis, keepdims=True)
        computed = below - np.log(np.exp(below).sum(axis=axis, keepdims=True))
    else:
        computed = numbers
    fixed = {"int8": Scaling((16 / 256,), (127,)), "uint8": Scaling((16 / 256,), (255,))}
    return OneNode((value,), (result(cell, computed, rough=True, scaling=fixed.get(cell.dtype)),), 36)


def _l2_norm(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell), 1, "positive")
    numbers = real(value).astype(np.float64)
    axis: Any = -1 if cell.rank else None
    lengths = np.sqrt(np.maximum((numbers**2).sum(axis=axis, keepdims=True), 1e-12))
    fixed = {"int8": Scaling((1 / 128,), (0,)), "uint8": Scaling((1 / 128,), (128,))}
    given = result(
        cell, activated(cell.activation, numbers / lengths), rough=True, scaling=fixed.get(cell.dtype)
    )
    return OneNode((value,), (given,), 12, ((0, "b", _activation(cell)),))


def _local_response(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    numbers = real(value).astype(np.float64)
    depth = shape_of(cell)[-1] if cell.rank else 1
    squares = np.zeros_like(numbers)
    for shift in (-1, 0, 1):
        for at in range(depth) if cell.rank else ():
            if 0 <= at + shift < depth:
                squares[..., at] += numbers[..., at + shift] ** 2
    computed = numbers / (1.0 + 0.5 * squares) ** 0.5
    fields = ((0, "i", 1), (1, "f", 1.0), (2, "f", 0.5), (3, "f", 0.5))
    return OneNode((value,), (result(cell, computed, rough=True),), 13, fields)


def _resize(code: str) -> Any:
    def make(cell: Cell) -> OneNode:
        shape = _image(cell)
        value = operand(cell, shape)
        align, half = cell.form == "align corners", cell.form == "half pixels"
        tag = 15 if code == "linear" else 74
        first = 2 if code == "linear" else 0
        fields: tuple[Field, ...] = ((first, "?", align), (first + 1, "?", half))
        size = (7, 6)
        if cell.rank != 4:
            return OneNode((value, integers(*size)), (_unjudged(cell, value),), tag, fields)
        places = [_sources(shape[at + 1], size[at], align=align, half=half) for at in (0, 1)]
        if code == "linear":
            numbers = real(value).astype(np.float64)
            for axis, at in enumerate(places, 1):
                numbers = _linear(numbers, np.clip(at, 0, shape[axis] - 1), axis)
            error = 64 * 2.0 * EPSILON.get(cell.dtype, 0.0)
            given = result(cell, numbers, error=error, scaling=value.scaling)
        else:
            shift = 0.5 if half else 0.0
            nearest = [_nearest(at + shift, shape[axis], align=align) for axis, at in enumerate(places, 1)]
            moved = value.values[:, nearest[0]][:, :, nearest[1]]
            given = same(cell.dtype, moved, value.scaling)
        return OneNode((value, integers(*size)), (given,), tag, fields)

    return make


def _sources(length: int, count: int, *, align: bool, half: bool) -> Values:
    """Where each element of the result reads, in lengths of the operand's elements."""
    scale = (length - 1) / (count - 1) if align and count > 1 else length / count
    at = np.arange(count)
    return (at + 0.5) * scale - (0.5 if half else 0) if half else at * scale


def _nearest(at: Values, length: int, *, align: bool) -> Values:
    found = np.floor(at + 0.5) if align else np.floor(at + 1e-9)
    return np.asarray(np.clip(found, 0, length - 1), int)


def _linear(numbers: Values, at: Values, axis: int) -> Values:
    length = numbers.shape[axis]
    low = np.clip(np.floor(at).astype(int), 0, length - 1)
    high = np.clip(low + 1, 0, length - 1)
    shape = [1] * numbers.ndim
    shape[axis] = -1
    part = (at - low).reshape(shape)
    mixed: Values = np.take(numbers, low, axis) * (1 - part) + np.take(numbers, high, axis) * part
    return mixed


_WINDOWS: Final = ("valid", "stride", "tall", "uneven", "flat")
_RESIZED: Final = ("align corners", "half pixels")

OPERATORS: Final = (
    Operator(
        "FULLY_CONNECTED",
        9,
        _fully_connected,
        True,
        ("no bias", "flat"),
        True,
        # Of version 5 tflite-runtime 2.14 takes the first channel's scale for all (measured); 12 it refuses.
        versions={"float32": 5, f"float32 {_PER_CHANNEL}": 12, "int8": 5, "uint8": 5, "int16": 7},
        hybrid=_HYBRID,
    ),
    Operator(
        "BATCH_MATMUL",
        126,
        _batch_matmul,
        False,
        ("transposed", "constant"),
        versions={"int8": 2, "int16": 3},
    ),
    Operator(
        "CONV_2D",
        3,
        _conv,
        True,
        (*_WINDOWS, "dilation"),
        True,
        versions={"int8": 3, "int16": 4},
        hybrid=_HYBRID,
    ),
    Operator(
        "DEPTHWISE_CONV_2D",
        4,
        _depthwise,
        True,
        (*_WINDOWS, "dilation", "multiplier"),
        True,
        versions={"float32": 2, "int8": 3, "int16": 4},
        # Both runtimes read behind one scale for all channels (measured); converters give one for each.
        hybrid=(_PER_CHANNEL,),
    ),
    Operator("TRANSPOSE_CONV", 67, _transpose_conv, channels=True, versions={"int8": 2, "int16": 3}),
    Operator("AVERAGE_POOL_2D", 1, _pool("average"), True, _WINDOWS, versions={"int8": 2, "int16": 3}),
    Operator("MAX_POOL_2D", 17, _pool("max"), True, _WINDOWS, versions={"int8": 2, "int16": 3}),
    Operator("L2_POOL_2D", 12, _pool("square"), True, _WINDOWS),
    Operator("SOFTMAX", 25, _softmax, versions={"int8": 2, "int16": 3}),
    Operator("LOG_SOFTMAX", 50, _log_softmax, versions={"int8": 2}),
    Operator("L2_NORMALIZATION", 11, _l2_norm, True, versions={"int8": 2}),
    Operator("LOCAL_RESPONSE_NORMALIZATION", 13, _local_response),
    Operator("RESIZE_BILINEAR", 23, _resize("linear"), False, _RESIZED, versions={"int8": 2, "float32": 3}),
    Operator(
        "RESIZE_NEAREST_NEIGHBOR", 97, _resize("nearest"), False, _RESIZED, versions={"int8": 2, "float32": 3}
    ),
)
