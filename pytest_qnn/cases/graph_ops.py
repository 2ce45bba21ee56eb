"""How each operator of a generated graph is made from a node record.

Every function takes the builder and the record's bytes, and adds exactly one node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytest_qnn.cases.graph import Op
from pytest_qnn.cases.graph_constants import (
    constant,
    float_weights,
    int8_weights,
    integers,
    slopes,
)
from pytest_qnn.cases.graph_decode import MAX_ELEMENTS, Builder, elements, fused


class Choices(NamedTuple):
    """What a node record says besides its operator: three bytes and the variant."""

    first: int
    """First operand."""
    second: int
    """Second operand; for a layer: seed and shape of the weights."""
    options: int
    out: int
    """Quantisation of the result."""


MakeNode = Callable[[Builder, Choices], None]


def _unary(op: Op) -> MakeNode:
    def make(build: Builder, choice: Choices) -> None:
        operand = build.operand(choice.first)
        shape = build.tensors[operand].shape
        build.node(op, (operand,), shape, build.out_params(choice.out), build.bound(operand))

    return make


def _binary(op: Op) -> MakeNode:
    product = op == "MUL"

    def make(build: Builder, choice: Choices) -> None:
        one = build.operand(choice.first)
        bound = build.bound(one)
        # The partner is not chosen yet: no bound is beyond the peak.
        growing = build.grows_beyond(bound * build.peak if product else bound + build.peak)
        other = build.partner(one, choice.second, same_params=False, growing=growing)
        limit = build.bound(other)
        result = bound * limit if product else bound + limit
        build.node(
            op,
            (one, other),
            build.tensors[one].shape,
            build.out_params(choice.out),
            result,
            fused(choice.options),
        )

    return make


def _maximum(build: Builder, choice: Choices) -> None:
    # The int8 kernel compares raw integers: operands and result share one quantisation.
    one = build.operand(choice.first)
    other = build.partner(one, choice.second, same_params=True, growing=False)
    bound = max(build.bound(one), build.bound(other))
    build.node("MAXIMUM", (one, other), build.tensors[one].shape, build.params_of(one), bound)


def _prelu(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    slope_shape = (1, 1, shape[3]) if len(shape) == 4 else shape[-1:]
    alpha = build.constant(slopes(slope_shape, bool(build.params), choice.second % 16))
    build.node("PRELU", (operand, alpha), shape, build.out_params(choice.out), build.bound(operand))


def _reshape(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    size = elements(shape)
    last = shape[-1]
    new = ((size,), (1, size), (size // last, last), (1, last, 1, size // last), (1, 1, size // last, last))[
        choice.options % 5
    ]
    build.node(
        "RESHAPE",
        (operand, build.constant(integers(new))),
        new,
        build.params_of(operand),
        build.bound(operand),
    )


def _mean(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    rank = len(shape)
    if rank == 4 and choice.options & 2:
        axes: tuple[int, ...] = (1, 2)
    else:
        axes = (rank - 1 - choice.second % rank,)
    keep = bool(choice.options & 1) or len(axes) == rank
    if keep:
        new = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    else:
        new = tuple(length for axis, length in enumerate(shape) if axis not in axes)
    operands = (operand, build.constant(integers(axes)))
    build.node("MEAN", operands, new, build.out_params(choice.out), build.bound(operand), keep_dims=keep)


def _concatenation(build: Builder, choice: Choices) -> None:
    one = build.operand(choice.first)
    shape = build.tensors[one].shape
    if 2 * elements(shape) > MAX_ELEMENTS:
        one = build.pool[0]
        shape = build.tensors[one].shape
    axis = len(shape) - 1 - (choice.options >> 2) % len(shape)
    if choice.second >= 208:
        cut = (*shape[:axis], 1, *shape[axis + 1 :])
        other = build.constant(constant(cut, build.params_of(one), choice.second % 16))
    else:
        other = build.partner(one, choice.second, same_params=True, growing=False)
    parts: tuple[int, ...] = (one, other)
    if choice.options & 3 == 3 and 3 * elements(shape) <= MAX_ELEMENTS:
        parts = (one, other, one)
    length = sum(build.tensors[part].shape[axis] for part in parts)
    new = (*shape[:axis], length, *shape[axis + 1 :])
    bound = max(map(build.bound, parts))
    # The format allows negative axes; the second lowest bit picks that spelling.
    spelled = axis - len(shape) if choice.options & 2 else axis
    build.node("CONCATENATION", parts, new, build.params_of(one), bound, axis=spelled)


def _weighted(
    build: Builder, operand: int, shape: tuple[int, ...], seed: int, per_channel: bool
) -> tuple[tuple[int, int, int], float]:
    """The operands of a layer with weights of ``shape``, and the bound of its result."""
    depth = elements(shape[1:])
    params = build.params_of(operand)
    if params is not None:
        weights, bias = int8_weights(shape, seed % 16, params[0], per_channel)
        return (operand, build.constant(weights), build.constant(bias)), 0.0
    bound = build.bound(operand)
    divisor = depth if build.grows_beyond(bound * depth) else 1
    weights, bias = float_weights(shape, seed % 16, divisor)
    result = bound * depth / divisor + 1
    return (operand, build.constant(weights), build.constant(bias)), result


def _fully_connected(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    units = 1 + (choice.options >> 2) % 5
    operands, bound = _weighted(
        build, operand, (units, shape[-1]), choice.second, per_channel=bool(choice.second & 16)
    )
    new = (elements(shape) // shape[-1], units)
    build.node("FULLY_CONNECTED", operands, new, build.out_params(choice.out), bound, fused(choice.options))


def _conv_2d(build: Builder, choice: Choices) -> None:
    # Two defects of tflite-runtime 2.14 (measured) are kept out, since no delegate is to blame for them.
    # Its CPU kernel is wrong for a kernel of just the image's size under SAME padding; its XNNPACK for a
    # stride longer than the kernel under SAME padding (1 x 1 is right), so there is no 2 x 1 kernel.
    operand = build.image(choice.first)
    batch, height, width, channels = build.tensors[operand].shape
    kernel = ((1, 1), (3, 3), (2, 2), (2, 3))[(choice.options >> 2) & 3]
    stride = ((1, 1), (1, 1), (2, 2), (1, 2))[(choice.options >> 4) & 3]
    dilation = ((1, 1), (1, 1), (1, 1), (2, 2))[(choice.options >> 6) & 3]
    if stride != (1, 1) or kernel == (height, width):
        dilation = (1, 1)
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True))
    same = kernel != (height, width) and (not choice.second & 32 or reach[0] > height or reach[1] > width)
    units = 1 + (choice.second >> 6)
    weights = (units, *kernel, channels)
    operands, bound = _weighted(build, operand, weights, choice.second, per_channel=bool(choice.second & 16))
    lost = (0, 0) if same else (reach[0] - 1, reach[1] - 1)
    rows = -(-(height - lost[0]) // stride[0])
    columns = -(-(width - lost[1]) // stride[1])
    build.node(
        "CONV_2D",
        operands,
        (batch, rows, columns, units),
        build.out_params(choice.out),
        bound,
        fused(choice.options),
        same_padding=same,
        stride=stride,
        dilation=dilation,
    )


MAKE: dict[Op, MakeNode] = {
    "RELU": _unary("RELU"),
    "ABS": _unary("ABS"),
    "NEG": _unary("NEG"),
    "ADD": _binary("ADD"),
    "SUB": _binary("SUB"),
    "MUL": _binary("MUL"),
    "MAXIMUM": _maximum,
    "RESHAPE": _reshape,
    "PRELU": _prelu,
    "MEAN": _mean,
    "CONCATENATION": _concatenation,
    "FULLY_CONNECTED": _fully_connected,
    "CONV_2D": _conv_2d,
}
"""From the simplest operator to the richest."""
