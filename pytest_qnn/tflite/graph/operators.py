"""How each operator of a generated graph is made from a node record.

Every function takes the builder and the record's bytes, and adds exactly one node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytest_qnn.tflite.graph.combinations import Combination
from pytest_qnn.tflite.graph.constants import EXTREME, constant, float_weights, int8_weights, integers, slopes
from pytest_qnn.tflite.graph.decode import MAX_ELEMENTS, Builder, elements, fused, together
from pytest_qnn.tflite.graph.graph import Activation, Op


class Choices(NamedTuple):
    """What a node record says besides its operator: three bytes and the variant."""

    first: int
    """First operand."""
    second: int
    """Second operand; for a layer: seed and shape of the weights."""
    options: int
    out: int
    """Quantisation of the result."""
    want: Combination | None = None
    """The kind of node to make; None: any, as the bytes have it."""

    @property
    def rank(self) -> int:
        """The wanted rank of the first operand; 0: any."""
        return self.want.rank if self.want else 0

    @property
    def activation(self) -> Activation:
        """The fused activation."""
        return self.want.activation if self.want else fused(self.options)


MakeNode = Callable[[Builder, Choices], None]


def _unary(op: Op) -> MakeNode:
    def make(build: Builder, choice: Choices) -> None:
        operand = build.operand(choice.first, choice.rank)
        shape = build.tensors[operand].shape
        build.node(op, (operand,), shape, build.out_params(choice.out), build.bound(operand))

    return make


def _binary(op: Op) -> MakeNode:
    product = op == "MUL"

    def make(build: Builder, choice: Choices) -> None:
        one = build.operand(choice.first, choice.rank)
        bound = build.bound(one)
        # The partner is not chosen yet: no bound is beyond the peak.
        growing = build.grows_beyond(bound * build.peak if product else bound + build.peak)
        other = _second(build, one, choice, same_params=False, growing=growing)
        limit = build.bound(other)
        result = bound * limit if product else bound + limit
        shape, narrow = build.tensors[one].shape, build.tensors[other].shape
        # Where a combination is wanted, its rank is that of the first operand.
        may_swap = narrow != shape and (not choice.want or len(narrow) == len(shape))
        build.node(
            op,
            (other, one) if choice.options & 192 and may_swap else (one, other),
            together(shape, narrow),
            build.out_params(choice.out),
            result,
            choice.activation,
        )

    return make


def _second(build: Builder, one: int, choice: Choices, *, same_params: bool, growing: bool) -> int:
    """The second operand of a node whose operands may be of two shapes."""
    may_differ = not choice.want or choice.want.form == "broadcast"
    if build.scale.partner == "other shape" and may_differ and not growing:
        return build.apart(one, choice.second, same_params=same_params)
    return build.partner(one, _partner(choice), same_params=same_params, growing=growing)


def _partner(choice: Choices) -> int:
    """The byte for `Builder.partner`: a wanted form is brought into the range that stands for it."""
    second = choice.second
    if choice.want is None:
        return second
    if choice.want.form == "broadcast":
        return 208 + second % 32
    if choice.want.form == "constant":
        return 160 + second % 48
    return second - 160 if 160 <= second < 240 else second


def _maximum(build: Builder, choice: Choices) -> None:
    # The int8 kernel compares raw integers: operands and result share one quantisation.
    one = build.operand(choice.first, choice.rank)
    other = _second(build, one, choice, same_params=True, growing=False)
    bound = max(build.bound(one), build.bound(other))
    shape = together(build.tensors[one].shape, build.tensors[other].shape)
    build.node("MAXIMUM", (one, other), shape, build.params_of(one), bound)


def _prelu(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first, choice.rank)
    shape = build.tensors[operand].shape
    slope_shape = (1, 1, shape[3]) if len(shape) == 4 else shape[-1:]
    alpha = build.constant(slopes(slope_shape, bool(build.params), choice.second % 16))
    build.node("PRELU", (operand, alpha), shape, build.out_params(choice.out), build.bound(operand))


def _reshape(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first, choice.rank)
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


_RANK_OF_MANY = 3
"""Dimensions that a MEAN goes over at once, one in eight where there are as many."""


def _mean(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first, choice.rank)
    shape = build.tensors[operand].shape
    rank = len(shape)
    plane = choice.want.form.startswith("plane") if choice.want else bool(choice.options & 2)
    if rank == 4 and plane:
        axes: tuple[int, ...] = (1, 2)
    elif rank >= _RANK_OF_MANY and choice.options >> 5 == 7:
        axes = tuple(range(rank - _RANK_OF_MANY, rank))
    else:
        axes = (rank - 1 - choice.second % rank,)
    keep = choice.want.form.endswith("keep") if choice.want else bool(choice.options & 1)
    keep = keep or len(axes) == rank
    if keep:
        new = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    else:
        new = tuple(length for axis, length in enumerate(shape) if axis not in axes)
    operands = (operand, build.constant(integers(axes)))
    build.node("MEAN", operands, new, build.out_params(choice.out), build.bound(operand), keep_dims=keep)


def _concatenation(build: Builder, choice: Choices) -> None:
    one = build.operand(choice.first, choice.rank)
    shape = build.tensors[one].shape
    if 2 * elements(shape) > MAX_ELEMENTS:
        one = (build.ranks[choice.rank] if choice.rank else build.pool)[0]
        shape = build.tensors[one].shape
    axis = len(shape) - 1 - (choice.options >> 2) % len(shape)
    constant_too = choice.want.form == "constant" if choice.want else choice.second >= 208
    if constant_too:
        cut = (*shape[:axis], 1, *shape[axis + 1 :])
        other = build.constant(constant(cut, build.params_of(one), choice.second % 16))
    else:
        other = build.partner(one, _partner(choice), same_params=True, growing=False, whole=True)
    parts: tuple[int, ...] = (one, other)
    if choice.options & 3 == 3:
        # Three, or (of small tensors) more by turns.
        most = max(2, min(MAX_ELEMENTS // elements(shape), _MOST_PARTS))
        parts = ((one, other) * _MOST_PARTS)[: min(most, 3 + (choice.options >> 5))]
    length = sum(build.tensors[part].shape[axis] for part in parts)
    new = (*shape[:axis], length, *shape[axis + 1 :])
    bound = max(map(build.bound, parts))
    # The format allows negative axes; the second lowest bit picks that spelling.
    spelled = axis - len(shape) if choice.options & 2 else axis
    build.node("CONCATENATION", parts, new, build.params_of(one), bound, axis=spelled)


_MOST_PARTS = 10
"""Operands of a CONCATENATION."""


def _weighted(
    build: Builder, operand: int, shape: tuple[int, ...], seed: int, per_channel: bool, *, given: bool = False
) -> tuple[tuple[int, int, int], float]:
    """The operands of a layer with weights of ``shape``, and the bound of its result.

    ``given``: in float graphs an input has the weights, unless the result could be too large.
    """
    depth = elements(shape[1:])
    params = build.params_of(operand)
    if params is not None:
        weights, bias = int8_weights(shape, seed % 16, params[0], per_channel)
        return (operand, build.constant(weights), build.constant(bias)), 0.0
    bound = build.bound(operand)
    divisor = depth if build.grows_beyond(bound * depth) else 1
    weights, bias = float_weights(shape, seed % 16, divisor)
    result = bound * depth * EXTREME + 1
    if given and build.gives_weights and build.may_have_input and not build.grows_beyond(result):
        return (operand, build.graph_input(shape), build.constant(bias)), result
    result = bound * depth / divisor + 1
    return (operand, build.constant(weights), build.constant(bias)), result


def _fully_connected(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first, choice.rank)
    shape = build.tensors[operand].shape
    per_channel = _per_channel(choice)
    units = max(build.scale.units or 1 + (choice.options >> 2) % 5, 2 if per_channel and choice.want else 1)
    operands, bound = _weighted(
        *(build, operand, (units, shape[-1]), choice.second, per_channel), given=choice.second >= 192
    )
    new = (elements(shape) // shape[-1], units)
    build.node("FULLY_CONNECTED", operands, new, build.out_params(choice.out), bound, choice.activation)


def _per_channel(choice: Choices) -> bool:
    return choice.want.quantisation == "channel" if choice.want else bool(choice.second & 16)


def _conv_2d(build: Builder, choice: Choices) -> None:
    # Two defects of tflite-runtime 2.14 (measured) are kept out, since no delegate is to blame for them.
    # Its CPU kernel is wrong for a kernel of just the image's size under SAME padding; its XNNPACK for a
    # stride longer than the kernel under SAME padding (1 x 1 is right), so there is no 2 x 1 kernel.
    operand = build.operand(choice.first, 4)
    batch, height, width, channels = build.tensors[operand].shape
    window = _wanted_window if choice.want else _window
    kernel, stride, dilation, same = window(choice, (height, width))
    units = max(
        build.scale.units or 1 + (choice.second >> 6), 2 if choice.want and _per_channel(choice) else 1
    )
    weights = (units, *kernel, channels)
    operands, bound = _weighted(build, operand, weights, choice.second, per_channel=_per_channel(choice))
    reach = _reach(kernel, dilation)
    lost = (0, 0) if same else (reach[0] - 1, reach[1] - 1)
    rows = -(-(height - lost[0]) // stride[0])
    columns = -(-(width - lost[1]) // stride[1])
    build.node(
        "CONV_2D",
        operands,
        (batch, rows, columns, units),
        build.out_params(choice.out),
        bound,
        choice.activation,
        same_padding=same,
        stride=stride,
        dilation=dilation,
    )


Pair = tuple[int, int]
_KERNELS: tuple[Pair, ...] = ((1, 1), (3, 3), (2, 2), (2, 3))


def _window(choice: Choices, image: Pair) -> tuple[Pair, Pair, Pair, bool]:
    """Kernel, stride and dilation of a CONV_2D, and whether its padding is SAME."""
    kernel = _KERNELS[(choice.options >> 2) & 3]
    stride = ((1, 1), (1, 1), (2, 2), (1, 2))[(choice.options >> 4) & 3]
    dilation = ((1, 1), (1, 1), (1, 1), (2, 2))[(choice.options >> 6) & 3]
    if stride != (1, 1) or kernel == image:
        dilation = (1, 1)
    return kernel, stride, dilation, _is_same(choice, kernel, dilation, image)


def _wanted_window(choice: Choices, image: Pair) -> tuple[Pair, Pair, Pair, bool]:
    """As `_window`, of the wanted form. A dilated kernel has several elements, or nobody would notice."""
    form = choice.want.form if choice.want else ""
    kernels = [kernel for kernel in _KERNELS if kernel != image]
    if form == "dilation":
        kernel = kernels[-1 - (choice.options >> 2) % (len(kernels) - 1)]
        return kernel, (1, 1), (2, 2), _is_same(choice, kernel, (2, 2), image)
    kernel = kernels[(choice.options >> 2) % len(kernels)]
    if form == "stride":
        stride = (1, 2) if choice.options & 16 else (2, 2)
        return kernel, stride, (1, 1), _is_same(choice, kernel, (1, 1), image)
    if form == "valid" and (kernel[0] > image[0] or kernel[1] > image[1]):
        kernel = (1, 1)
    return kernel, (1, 1), (1, 1), form != "valid"


def _is_same(choice: Choices, kernel: Pair, dilation: Pair, image: Pair) -> bool:
    """The padding is SAME: as the byte has it, or since VALID padding would leave nothing."""
    reach = _reach(kernel, dilation)
    return kernel != image and (not choice.second & 32 or reach[0] > image[0] or reach[1] > image[1])


def _reach(kernel: Pair, dilation: Pair) -> Pair:
    return (kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1


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

SUMS: tuple[Op, ...] = ("MEAN", "FULLY_CONNECTED", "CONV_2D")
"""Operators that add up many terms, in an order of their own choice."""
