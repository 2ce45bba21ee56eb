"""Reference delegates with one fault each, for the rules of DOM."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate
from pytest_qnn.tflite.reference.plan import PlanView

Values = npt.NDArray[Any]
Operands = list[Values | None]

_INT16: Final = 7
"""kTfLiteInt16."""


def _ranks(kernel: Kernel) -> set[int]:
    """Of all tensors of a kernel's nodes."""
    named = {index for node in kernel.steps for index in (*node.inputs, *node.outputs) if index >= 0}
    return {len(kernel.tensors[index].shape) for index in named}


@faulty_delegate(
    "aborts-at-rank-7", "Ends the process when it invokes a node of rank 7.", "DOM-01", deadly=True
)
class _AbortsAtRank7(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if 7 in _ranks(kernel):
            os.abort()
        return super().kernel_invoke(context, kernel)


@faulty_delegate("fails-at-rank-8", "Claims nodes of rank 8, and fails in kernel prepare.", "DOM-01")
class _FailsAtRank8(DynamicDelegate):
    """It allows dynamic tensors: allocate_tensors fails, and the runtime restores no plan."""

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        return layouts.ERROR if 8 in _ranks(kernel) else super().kernel_prepare(context, kernel)


@faulty_delegate("wrong-for-scalars", "Computes zero where all tensors are of rank 0.", "DOM-01")
class _WrongForScalars(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        values = super().compute_node(kernel, node, operands)
        return values * 0 if _ranks(kernel) == {0} else values


@faulty_delegate("claims-int16", "Claims nodes of int16, which it does not compute.", "DOM-01")
class _ClaimsInt16(ReferenceDelegate):
    """What nobody computes is zero."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return super().choose(plan) or (plan.plan if not plan.nodes and self._is_int16 else ())

    def prepare(self, context: int) -> int:
        self._is_int16 = view.tensor(context, 0).type == _INT16
        return super().prepare(context)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        if not self._is_int16:
            return super().init(context, nodes, inputs, outputs)
        return Kernel(nodes, inputs, outputs, (), {})

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if kernel.steps:
            return super().kernel_invoke(context, kernel)
        for index in kernel.outputs:
            tensor = view.tensor(context, index)
            ctypes.memset(tensor.data, 0, tensor.bytes)
        return layouts.OK


@faulty_delegate("fails-without-elements", "Fails in invoke where a tensor has no element.", "DOM-01")
class _FailsWithoutElements(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if any(operand is not None and not operand.size for operand in operands):
            raise ValueError("there is no element")
        return super().compute_node(kernel, node, operands)


@faulty_delegate("first-constant-is-zero", "Takes a constant for zero if it is the first of two.", "DOM-01")
class _FirstConstantIsZero(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._fixed: dict[int, set[int]] = {}
        """By kernel: the constants of its own subgraph, whose tensors have the numbers of another one's."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._fixed[id(kernel)] = self.plan.constants
        return kernel

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        first = operands[0]
        fixed = self._fixed[id(kernel)]
        if node.op in ("ADD", "SUB", "MUL") and first is not None and node.inputs[0] in fixed:
            operands = [first * first.dtype.type(0), *operands[1:]]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "hybrid-one-scale", "Takes one scale for all channels of int8 weights beside floats.", "DOM-01"
)
class _HybridOneScale(ReferenceDelegate):
    """It computes float32 nodes with weights of int8 too, exactly, and with the first channel's scale."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        if len(node.inputs) > 1 and _is_hybrid(*(tensors[index].dtype for index in node.inputs[:2])):
            weights = node.inputs[1]
            tensors = {**tensors, weights: Tensor(tensors[weights].shape)}
        return super().supports(node, tensors, constants)

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if len(node.inputs) > 1 and _is_hybrid(*(kernel.tensors[index].dtype for index in node.inputs[:2])):
            value, weights, *others = operands
            assert weights is not None
            scale = np.float32(kernel.tensors[node.inputs[1]].scales[0])
            operands = [value, weights.astype(np.float32) * scale, *others]
        return super().compute_node(kernel, node, operands)


def _is_hybrid(value: str, weights: str) -> bool:
    return value == "float32" and weights == "int8"


@faulty_delegate("takes-open-axes", "Claims MEAN by axes that are known only while the graph runs.", "DOM-01")
class _TakesOpenAxes(DynamicDelegate):
    """It works the result's shape out when it prepares, without axes."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        known = {*constants, *node.inputs[1:]} if node.op == "MEAN" else constants
        return super().supports(node, tensors, known)
