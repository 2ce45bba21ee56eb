"""Nodes of graphs from files: operands, types, options, and the shape that the result must have.

Shapes follow the operators' definitions (tensorflow/lite/kernels/*.cc, Prepare).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod

from pytest_qnn.cases.graph import Node, Op, Tensor
from pytest_qnn.core.bounds import need, within

Shape = tuple[int, ...]
MOST_RANK = 4
MOST_STRIDE = 64
_FUSES = ("ADD", "SUB", "MUL", "FULLY_CONNECTED", "CONV_2D")
_WEIGHTED = ("FULLY_CONNECTED", "CONV_2D")
_INTEGER = ("ADD", "CONCATENATION")
"""They count, and put shapes together: on int32 too."""


def check_node(where: str, node: Node, tensors: Sequence[Tensor]) -> int:
    """Check one node whose indices are in range; give about how many operations it needs.

    Raises:
        pytest_qnn.core.bounds.BadCase: with ``where`` in front.
    """
    least, most, shape_of = _OPS[node.op]
    need(least <= len(node.inputs) <= most, f"{where} has {len(node.inputs)} operands")
    need(
        all(index >= 0 for index in node.inputs[:2]) and (-1 not in node.inputs or node.op in _WEIGHTED),
        f"{where} lacks an operand",
    )
    _check_options(where, node)
    need(node.activation == "NONE" or node.op in _FUSES, f"{where} cannot have an activation")
    operands = [tensors[index] for index in node.inputs if index >= 0]
    result = tensors[node.outputs[0]]
    _check_types(where, node, operands, result)
    shape = _stated(where, operands, result) if is_dynamic(node, tensors) else shape_of(where, node, operands)
    need(result.shape == shape, f"{where} gives {list(shape)}, and its result has {list(result.shape)}")
    return prod(shape) * (prod(operands[1].shape[1:]) if node.op in _WEIGHTED else len(operands))


def is_dynamic(node: Node, tensors: Sequence[Tensor]) -> bool:
    """Whether the shape of the result hangs on the contents of a tensor that is no constant."""
    return node.op == "RESHAPE" and tensors[node.inputs[1]].data is None


def result_shape(node: Node, operands: Sequence[Tensor]) -> Shape:
    """The shape of a node's result by those of its operands (with contents, where a shape hangs on them).

    Raises:
        pytest_qnn.core.bounds.BadCase: they do not match.
        KeyError: the operator has no rule of its own (it calls subgraphs or touches a resource).
    """
    return _OPS[node.op][2](node.op, node, operands)


def _stated(where: str, operands: Sequence[Tensor], result: Tensor) -> Shape:
    """The shape that the model states for a result of dynamic shape."""
    value, shape = operands
    need(shape.shape == (len(result.shape),), f"{where} has a shape of another rank than its result")
    need(prod(value.shape) == prod(result.shape), f"{where} changes the number of elements")
    return result.shape


def _check_options(where: str, node: Node) -> None:
    """Options in range, also where the operator has no such option."""
    within(f"{where}: axis", node.axis, -MOST_RANK, MOST_RANK - 1)
    for length in node.stride:
        within(f"{where}: stride", length, 1, MOST_STRIDE)
    for length in node.dilation:
        within(f"{where}: dilation", length, 1, MOST_STRIDE)


def _check_types(where: str, node: Node, operands: Sequence[Tensor], result: Tensor) -> None:
    values = operands
    if node.op in ("RESHAPE", "MEAN"):
        second = operands[1]
        need(
            second.dtype == "int32" and len(second.shape) == 1,
            f"{where} needs an int32 vector as its second operand",
        )
        need(second.data is not None or node.op == "RESHAPE", f"{where} needs constant axes")
        values = operands[:1]
    elif node.op in _WEIGHTED:
        bias_type = "int32" if result.dtype == "int8" else "float32"
        need(all(bias.dtype == bias_type for bias in operands[2:]), f"{where} has a bias of another type")
        values = operands[:2]
    elif node.op == "LESS":
        need({value.dtype for value in values} in ({"float32"}, {"int32"}), f"{where} cannot compare these")
        need(result.dtype == "bool", f"{where} gives bool, not {result.dtype}")
        return
    allowed = ("float32", "int8", "int32") if node.op in _INTEGER else ("float32", "int8")
    need(result.dtype in allowed, f"{where} cannot compute {result.dtype}")
    need(all(value.dtype == result.dtype for value in values), f"{where} has operands of different types")
    per_tensor = (values[0], result) if node.op in _WEIGHTED else (*values, result)
    need(all(len(tensor.scales) <= 1 for tensor in per_tensor), f"{where} has an activation of many scales")


def _same(_where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    return operands[0].shape


def _broadcast(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    rank = max(len(operand.shape) for operand in operands)
    shapes = [(1,) * (rank - len(operand.shape)) + operand.shape for operand in operands]
    lengths = []
    for pair in zip(*shapes, strict=True):
        need(len({length for length in pair if length != 1}) <= 1, f"{where} has operands that do not match")
        lengths.append(max(pair))
    return tuple(lengths)


def _prelu(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    need(_broadcast(where, node, operands) == operands[0].shape, f"{where} has slopes that do not match")
    return operands[0].shape


def _reshape(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = _integers(operands[1])
    need(
        all(length > 0 or length == -1 for length in shape) and shape.count(-1) <= 1,
        f"{where} has no positive shape",
    )
    size = prod(operands[0].shape)
    known = prod(length for length in shape if length > 0)
    shape = tuple(size // known if length < 0 else length for length in shape)
    need(prod(shape) == size, f"{where} changes the number of elements")
    return shape


def _mean(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = operands[0].shape
    rank = len(shape)
    axes = _integers(operands[1])
    need(all(-rank <= axis < rank for axis in axes), f"{where} has an axis out of range")
    reduced = {axis % rank for axis in axes}
    if node.keep_dims:
        return tuple(1 if axis in reduced else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in reduced)


def _concatenation(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = operands[0].shape
    rank = len(shape)
    within(f"{where}: axis", node.axis, -rank, rank - 1)
    axis = node.axis % rank
    for operand in operands:
        need(
            len(operand.shape) == rank
            and operand.shape[:axis] == shape[:axis]
            and operand.shape[axis + 1 :] == shape[axis + 1 :],
            f"{where} has operands that do not match",
        )
    return (*shape[:axis], sum(operand.shape[axis] for operand in operands), *shape[axis + 1 :])


def _fully_connected(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    value, weights, *bias = operands
    need(
        len(weights.shape) == 2 and value.shape[-1] == weights.shape[1],
        f"{where} has weights that do not match",
    )
    _check_weights(where, weights, bias)
    return (prod(value.shape[:-1]), weights.shape[0])


def _conv_2d(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    value, weights, *bias = operands
    need(
        len(value.shape) == len(weights.shape) == 4 and value.shape[3] == weights.shape[3],
        f"{where} has weights that do not match",
    )
    _check_weights(where, weights, bias)
    need(bias, f"{where} has no bias")  # tflite-runtime 2.14 refuses that
    image = []
    for axis in (0, 1):
        reach = (weights.shape[axis + 1] - 1) * node.dilation[axis] + 1
        room = value.shape[axis + 1] - (0 if node.same_padding else reach - 1)
        need(room > 0, f"{where} has a kernel beyond the image")
        image.append(-(-room // node.stride[axis]))
    return (value.shape[0], *image, weights.shape[0])


def _check_weights(where: str, weights: Tensor, bias: Sequence[Tensor]) -> None:
    units = weights.shape[0]
    need(weights.axis == 0, f"{where} has weights with scales along another axis than their units")
    need(all(each.shape == (units,) for each in bias), f"{where} has a bias that does not match")
    if weights.dtype == "int8":
        # The TensorFlow Lite 8-bit quantisation specification; its kernels refuse anything else.
        need(not any(weights.zero_points), f"{where} has weights with a zero point")


def _integers(tensor: Tensor) -> tuple[int, ...]:
    data = tensor.data or b""
    return struct.unpack(f"<{len(data) // 4}i", data)


_OPS: dict[Op, tuple[int, int, Callable[[str, Node, Sequence[Tensor]], Shape]]] = {
    "RELU": (1, 1, _same),
    "ABS": (1, 1, _same),
    "NEG": (1, 1, _same),
    "ADD": (2, 2, _broadcast),
    "SUB": (2, 2, _broadcast),
    "MUL": (2, 2, _broadcast),
    "MAXIMUM": (2, 2, _broadcast),
    "PRELU": (2, 2, _prelu),
    "RESHAPE": (2, 2, _reshape),
    "MEAN": (2, 2, _mean),
    "CONCATENATION": (1, 16, _concatenation),
    "FULLY_CONNECTED": (2, 3, _fully_connected),
    "CONV_2D": (2, 3, _conv_2d),
    "LESS": (2, 2, _broadcast),
}
"""Fewest and most operands, and the shape of the result."""
