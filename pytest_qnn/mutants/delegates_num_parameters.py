"""Reference delegates that overlook a parameter: scales, zero points, activations, special values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.oracle.kernels import run_node
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]
Operands = list[Values | None]
_LEAST = np.finfo(np.float32).tiny


class _OtherTensors(ReferenceDelegate):
    """Computes as if each tensor were described as `described` says."""

    def described(self, tensor: Tensor) -> Tensor:
        return tensor

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        named = (*node.inputs, *node.outputs)
        tensors: Mapping[int, Tensor] = {
            index: self.described(kernel.tensors[index]) for index in named if index >= 0
        }
        return run_node(node, _Table(tensors), operands)


class _Table:
    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, index: int, /) -> Tensor:
        return self._tensors[index]


@faulty_delegate("uses-first-scale", "Takes the first channel's scale for all of them.", "NUM-05")
class _UsesFirstScale(_OtherTensors):
    def described(self, tensor: Tensor) -> Tensor:
        count = len(tensor.scales)
        return msgspec.structs.replace(tensor, scales=tensor.scales[:1] * count) if count > 1 else tensor


@faulty_delegate("ignores-zero-points", "Takes every zero point for 0.", "NUM-03", "NUM-05")
class _IgnoresZeroPoints(_OtherTensors):
    def described(self, tensor: Tensor) -> Tensor:
        zeros = (0,) * len(tensor.zero_points)
        return msgspec.structs.replace(tensor, zero_points=zeros) if any(tensor.zero_points) else tensor


class _OtherActivations(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        return super().compute_node(kernel, self.changed(kernel, node), operands)

    def changed(self, kernel: Kernel, node: Node) -> Node:  # noqa: ARG002 - for overriding steps
        return node


@faulty_delegate("takes-relu6-for-relu", "Does not stop at 6.", "NUM-06")
class _TakesSixForRelu(_OtherActivations):
    def changed(self, kernel: Kernel, node: Node) -> Node:
        del kernel
        return msgspec.structs.replace(node, activation="RELU") if node.activation == "RELU6" else node


@faulty_delegate(
    "activates-at-the-edge", "Applies fused activations only to what leaves the partition.", "NUM-06"
)
class _ActivatesAtTheEdge(_OtherActivations):
    def changed(self, kernel: Kernel, node: Node) -> Node:
        inside = not set(node.outputs).intersection(kernel.outputs)
        return msgspec.structs.replace(node, activation="NONE") if inside else node


class _FloatResults(ReferenceDelegate):
    """Changes float32 results by `changed`."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        result = super().compute_node(kernel, node, operands)
        return self.changed(result, node) if result.dtype == np.float32 else result

    def changed(self, result: Values, node: Node) -> Values:
        del node
        return result


@faulty_delegate("loses-nan", "Gives 0 for NaN.", "NUM-07")
class _LosesNan(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        del node
        return np.where(np.isnan(result), np.float32(0), result)


@faulty_delegate("bounds-infinity", "Clamps results to the range of float16 beside infinities.", "NUM-07")
class _BoundsInfinity(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        del node
        return np.clip(result, np.float32(-65504), np.float32(65504)) if np.isinf(result).any() else result


@faulty_delegate("flushes-copies", "Copies denormal numbers as 0.", "NUM-07")
class _FlushesCopies(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        copied = node.op in ("RESHAPE", "CONCATENATION")
        return np.where(np.abs(result) < _LEAST, np.float32(0), result) if copied else result


@faulty_delegate("drops-zero-signs", "Copies -0 as 0.", "NUM-07")
class _DropsZeroSigns(_FloatResults):
    def changed(self, result: Values, node: Node) -> Values:
        copied = node.op in ("RESHAPE", "CONCATENATION")
        return np.where(result == 0, np.float32(0), result) if copied else result
