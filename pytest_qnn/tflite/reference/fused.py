"""A conforming delegate that keeps more precision inside a partition than the CPU does.

int8 partitions are computed in real numbers: what stays inside is clamped to its tensor's range but not
rounded; only what leaves the partition is. Accelerators with wide accumulators do so, and no document
forbids it. Partitions with anything but int8 results are computed as the reference delegate does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Activation, Node, Tensor
from pytest_qnn.tflite.numerics import quantisation
from pytest_qnn.tflite.numerics.kernels import COPIES, compute
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]


class FusedDelegate(ReferenceDelegate):
    """As `ReferenceDelegate`, with one rounding for each int8 output of a partition."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """Compute the partition in float64 where all of its results are int8."""
        if any(kernel.tensors[node.outputs[0]].dtype != "int8" for node in kernel.steps):
            return super().kernel_invoke(context, kernel)
        reals: dict[int, Values] = {}
        with np.errstate(all="ignore"):
            for node in kernel.steps:
                operands = [self._real(context, kernel, reals, index) for index in node.inputs if index >= 0]
                real = compute(node, _as_floats(kernel, node), operands)
                output = kernel.tensors[node.outputs[0]]
                reals[node.outputs[0]] = self.clamped(output, _activation(node), real)
        for index in kernel.outputs:
            maker = next(node for node in kernel.steps if index in node.outputs)
            rounded = self.rounded(kernel, kernel.tensors[index], _activation(maker), reals[index])
            self.write_output(context, index, rounded.astype(np.int8))
        return layouts.OK

    def clamped(self, tensor: Tensor, activation: Activation, real: Values) -> Values:
        """``real`` within what the tensor can hold: every result, inside the partition too."""
        least, greatest = quantisation.limits(tensor, activation)
        scale, zero = tensor.scales[0], tensor.zero_points[0]
        return np.clip(real, scale * (least - zero), scale * (greatest - zero))

    def rounded(
        self,
        kernel: Kernel,  # noqa: ARG002 - for overriding steps
        tensor: Tensor,
        activation: Activation,
        real: Values,
    ) -> Values:
        """The whole numbers, float64, of a result that leaves the partition."""
        with np.errstate(over="ignore"):  # of a long row of products: it is clamped
            return quantisation.nearest(tensor, real, activation)

    def _real(self, context: int, kernel: Kernel, reals: dict[int, Values], index: int) -> Values:
        if index in reals:
            return reals[index]
        values, tensor = self.read_input(context, index), kernel.tensors[index]
        assert values is not None
        return quantisation.real_values(tensor, values) if tensor.scales else values


def _activation(node: Node) -> Activation:
    return "NONE" if node.op in COPIES else node.activation


def _as_floats(kernel: Kernel, node: Node) -> dict[int, Tensor]:
    """The node's tensors as if they were not quantised."""
    named = [index for index in (*node.inputs, *node.outputs) if index >= 0]
    tensors = {index: kernel.tensors[index] for index in named}
    return {index: Tensor(one.shape) if one.scales else one for index, one in tensors.items()}
