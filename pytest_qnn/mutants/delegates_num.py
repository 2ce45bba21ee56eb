"""Reference delegates that compute wrongly."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.delegate_strategies import SUMS
from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.oracle.kernels import run_node
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]
Operands = list[Values | None]


@faulty_delegate("approximates", "Rounds float32 results to 12 bits.", "NUM-01", "NUM-02")
class _Approximates(ReferenceDelegate):
    """As reciprocal and other approximations without a refining step give."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        if result.dtype != np.float32:
            return result
        return (np.ascontiguousarray(result).view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)


@faulty_delegate("adds-up-in-half", "Adds up in float16.", "NUM-02", "NUM-08")
class _AddsUpInHalf(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.op not in SUMS or operands[0] is None or operands[0].dtype != np.float32:
            return super().compute_node(kernel, node, operands)
        halved = [_half(operand) for operand in operands]
        result = _half(super().compute_node(kernel, node, halved))
        return result if result is not None else np.empty(0, np.float32)


def _half(values: Values | None) -> Values | None:
    if values is None or values.dtype != np.float32:
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


@faulty_delegate("truncates", "Keeps six bits of an int8 result.", "NUM-03")
class _Truncates(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result & np.int8(-4) if result.dtype == np.int8 else result


@faulty_delegate("wraps-around", "Lets int8 results wrap around.", "NUM-04")
class _WrapsAround(ReferenceDelegate):
    """Computes in float32 and keeps the low eight bits of the rounded result."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        output = kernel.tensors[node.outputs[0]]
        if output.dtype != "int8":
            return super().compute_node(kernel, node, operands)
        tensors = {i: _as_float(kernel.tensors[i]) for i in (*node.inputs, *node.outputs) if i >= 0}
        reals = [
            None if values is None else _real(values, kernel.tensors[index])
            for index, values in zip(node.inputs, operands, strict=True)
        ]
        result = run_node(node, tensors, reals) / output.scales[0] + output.zero_points[0]
        wrapped: Values = np.floor(result + 0.5).astype(np.int64).astype(np.int8)
        return wrapped


def _as_float(tensor: Tensor) -> Tensor:
    return Tensor(tensor.shape) if tensor.scales else tensor


def _real(values: Values, tensor: Tensor) -> Values:
    """The real numbers that quantised values stand for."""
    if not tensor.scales:
        return values
    along = [1] * values.ndim
    along[tensor.axis] = -1
    scale, zero = (np.array(parts).reshape(along) for parts in (tensor.scales, tensor.zero_points))
    return np.asarray((values.astype(np.int64) - zero) * scale, np.float32)


@faulty_delegate(
    "ignores-activation", "Leaves fused activations out.", "NUM-01", "NUM-04", "NUM-06", "PART-03"
)
class _IgnoresActivation(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return super().compute_node(kernel, msgspec.structs.replace(node, activation="NONE"), operands)
