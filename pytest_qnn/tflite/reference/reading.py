"""From TensorFlow Lite's C structures to the project's Graph types, as far as these go."""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.graph.graph import Activation, DType, Node, Op, Tensor

_TENSOR: Final = struct.Struct("=i12xQ8xi44xi4xQ")
"""TfLiteTensor: type, dims, allocation_type, quantization type and params."""
_NODE: Final = struct.Struct("=QQ24xQ")
"""TfLiteNode: inputs, outputs, builtin_data."""
_QUANTIZATION: Final = struct.Struct("=QQi")
_CODE: Final = layouts.Registration.builtin_code.offset

_OPS: Final[dict[int, Op]] = {
    0: "ADD",
    2: "CONCATENATION",
    3: "CONV_2D",
    9: "FULLY_CONNECTED",
    18: "MUL",
    19: "RELU",
    22: "RESHAPE",
    40: "MEAN",
    41: "SUB",
    54: "PRELU",
    55: "MAXIMUM",
    59: "NEG",
    101: "ABS",
}
"""TfLiteBuiltinOperator values that are known here."""
_TYPES: Final[dict[int, DType]] = {
    layouts.TYPE_FLOAT32: "float32",
    layouts.TYPE_INT32: "int32",
    layouts.TYPE_INT8: "int8",
}
_ACTIVATIONS: Final[dict[int, Activation]] = {0: "NONE", 1: "RELU", 3: "RELU6"}
"""TfLiteFusedActivation values that are known here."""


_CUSTOM: Final = 32
_NAME: Final = layouts.Registration.custom_name.offset
_UNKNOWN: Final = "Unknown"
"""What the names of the suite's own custom operators begin with (`pytest_qnn.tflite.cases.edits`)."""
_WITH_OPTIONS: Final = frozenset(("ADD", "SUB", "MUL", "CONV_2D", "FULLY_CONNECTED", "CONCATENATION", "MEAN"))


_IF: Final = 118
_WHILE: Final = 119


class Unknown(Exception):  # noqa: N818 - not an error: the node is left to the CPU
    """An operator, type or option that the Graph types cannot express."""


def read_tensor(tensors: int, index: int) -> tuple[Tensor, bool]:
    """Tensor ``index`` of the array at ``tensors``, without contents, and whether it is a constant.

    Raises:
        Unknown: the type or the quantisation cannot be expressed.
    """
    kind, dims, allocation, quantization, params = _TENSOR.unpack_from(peek.MEMORY, tensors + 112 * index)
    dtype = _TYPES.get(kind)
    if dtype is None:
        raise Unknown(f"tensor {index} has type {kind}")
    constant = allocation == layouts.ALLOCATION_MMAP_RO
    if not quantization:
        return Tensor(peek.integers(dims), dtype), constant
    if quantization != layouts.QUANTIZATION_AFFINE:
        raise Unknown(f"tensor {index} has quantisation {quantization}")
    scale, zero_point, axis = _QUANTIZATION.unpack_from(peek.MEMORY, params)
    shape = peek.integers(dims)
    return Tensor(shape, dtype, peek.floats(scale), peek.integers(zero_point), axis), constant


def read_node(node: int, registration: int, *, custom: bool = False) -> Node:
    """The operator behind a TfLiteNode and its TfLiteRegistration.

    ``custom``: a custom operator of the suite's own is the builtin one that its name ends with.

    Raises:
        Unknown: the operator (a delegate's kernel, 51, included) or an option cannot be expressed.
    """
    code = peek.integer(registration + _CODE)
    op = _custom(registration) if custom and code == _CUSTOM else _OPS.get(code)
    if op is None:
        raise Unknown(f"operator {code}")
    inputs, outputs, options = _NODE.unpack_from(peek.MEMORY, node)
    operands = peek.integers(inputs), peek.integers(outputs)
    if not options and op in _WITH_OPTIONS:
        raise Unknown(f"{op} without options")
    if op in ("ADD", "SUB", "MUL"):
        return Node(op, *operands, activation=_activation(peek.integer(options)))
    if op == "CONV_2D":
        return _conv(operands, options)
    if op == "FULLY_CONNECTED":
        return _fully_connected(operands, options)
    if op == "CONCATENATION":
        params = layouts.ConcatenationParams.from_address(options)
        return Node(op, *operands, activation=_activation(params.activation), axis=params.axis)
    if op == "MEAN":
        return Node(op, *operands, keep_dims=layouts.ReducerParams.from_address(options).keep_dims)
    return Node(op, *operands)


def _custom(registration: int) -> Op | None:
    """The builtin operator without options that a custom operator of the suite's own stands for."""
    name = ctypes.string_at(peek.pointer(registration + _NAME)).decode(errors="replace")
    known = (op for op in _OPS.values() if op not in _WITH_OPTIONS)
    return next((op for op in known if name == _UNKNOWN + op), None)


def called_subgraphs(node: int, registration: int) -> tuple[int, ...]:
    """The subgraphs that an IF or WHILE calls (TfLiteIfParams, TfLiteWhileParams); none of other nodes."""
    options = _NODE.unpack_from(peek.MEMORY, node)[2]
    if not options or peek.integer(registration + _CODE) not in (_IF, _WHILE):
        return ()
    return peek.integer(options), peek.integer(options + 4)


def _conv(operands: tuple[tuple[int, ...], tuple[int, ...]], options: int) -> Node:
    params = layouts.ConvParams.from_address(options)
    if params.padding not in (layouts.PADDING_SAME, layouts.PADDING_VALID):
        raise Unknown(f"padding {params.padding}")
    return Node(
        "CONV_2D",
        *operands,
        activation=_activation(params.activation),
        same_padding=params.padding == layouts.PADDING_SAME,
        stride=(params.stride_height, params.stride_width),
        dilation=(params.dilation_height_factor, params.dilation_width_factor),
    )


def _fully_connected(operands: tuple[tuple[int, ...], tuple[int, ...]], options: int) -> Node:
    params = layouts.FullyConnectedParams.from_address(options)
    if params.weights_format:
        raise Unknown(f"weights format {params.weights_format}")
    return Node("FULLY_CONNECTED", *operands, activation=_activation(params.activation))


def _activation(value: int) -> Activation:
    if value not in _ACTIVATIONS:
        raise Unknown(f"fused activation {value}")
    return _ACTIVATIONS[value]
