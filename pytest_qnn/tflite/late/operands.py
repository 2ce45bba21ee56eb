"""Faults that depend on the ranks, the number or the identity of a node's operands."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.late.conditions import BINARY, Operands
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values


@faulty_delegate(
    "late-rank-five", "A float32 result of rank 5 repeats the first slice of its first dimension."
)
class _RankFive(ReferenceDelegate):
    """Four strides. facts, PART-03: shapes are checked before a node is claimed."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        if value.ndim != 5 or value.dtype != np.float32:
            return value
        repeated: Values = np.repeat(value[:1], len(value), axis=0)
        return repeated


@faulty_delegate(
    "late-rank-three-join",
    "CONCATENATION at rank 3 along the last axis puts whole operands one after another.",
)
class _RankThreeJoin(ReferenceDelegate):
    """The case of rank 3 was taken from that of the first axis. facts, NUM-01: bit-equal to the CPU."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        if node.op != "CONCATENATION" or value.ndim != 3 or node.axis not in (2, -1):
            return value
        flat: Values = np.concatenate([operand.ravel() for operand in operands if operand is not None])
        return flat.reshape(value.shape)


@faulty_delegate(
    "late-broadcast-middle",
    "An operand that is broadcast in a middle dimension only gives its first element for each whole row.",
)
class _BroadcastMiddle(ReferenceDelegate):
    """A stride of zero is applied to the next dimension too. facts, PART-03 (shapes) and NUM-01."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.op in BINARY:
            shape = kernel.tensors[node.outputs[0]].shape
            operands = [_first_of_rows(one, shape) for one in operands]
        return super().compute_node(kernel, node, operands)


def _first_of_rows(value: Values | None, shape: tuple[int, ...]) -> Values | None:
    if value is None or value.ndim != len(shape):
        return value
    differing = [at for at, lengths in enumerate(zip(value.shape, shape, strict=True)) if len({*lengths}) > 1]
    if len(differing) != 1 or not 0 < differing[0] < len(shape) - 1:
        return value
    return np.broadcast_to(value[..., :1], value.shape)


@faulty_delegate(
    "late-broadcast-left", "SUB of float32 turns its sign where only the first operand is broadcast."
)
class _BroadcastLeft(ReferenceDelegate):
    """The operands are swapped so that the second one is the broadcast one. facts, NUM-01."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        one, *others = operands
        if node.op == "SUB" and one is not None and others[0] is not None and one.dtype == np.float32:
            shape = kernel.tensors[node.outputs[0]].shape
            if one.shape != shape and others[0].shape == shape:
                operands = [others[0], one]
        return super().compute_node(kernel, node, operands)


@faulty_delegate("late-tensor-twice", "A node that reads one tensor twice reads zeros the second time.")
class _TensorTwice(ReferenceDelegate):
    """A buffer is bound to the first place that names it. facts, PART-10: any graph's operands."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        seen: set[int] = set()
        bound: Operands = []
        for index, value in zip(node.inputs, operands, strict=True):
            bound.append(np.zeros_like(value) if index in seen and value is not None else value)
            seen.add(index)
        return super().compute_node(kernel, node, bound)


@faulty_delegate(
    "late-fifth-operand", "CONCATENATION takes its fourth operand for each one behind it of the same size."
)
class _FifthOperand(ReferenceDelegate):
    """Four descriptors. facts, PART-03 and NUM-01; common.h, TfLiteNode.inputs."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.op == "CONCATENATION" and len(operands) > 4:
            fourth = operands[3]
            assert fourth is not None
            behind = [
                fourth if one is not None and one.shape == fourth.shape else one for one in operands[4:]
            ]
            operands = [*operands[:4], *behind]
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-three-axes", "MEAN of float32 over three axes or more divides by the first two lengths only."
)
class _ThreeAxes(ReferenceDelegate):
    """Two loops, and a third that came later. facts, NUM-02."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        source, axes = (*operands, None)[:2]
        if node.op != "MEAN" or source is None or axes is None or value.dtype != np.float32 or axes.size < 3:
            return value
        left_out = np.prod([source.shape[axis] for axis in axes.ravel()[2:]])
        return np.asarray(value * left_out, np.float32)


@faulty_delegate(
    "late-bias-of-the-last", "FULLY_CONNECTED without bias adds the bias of the one before it in its kernel."
)
class _BiasOfTheLast(ReferenceDelegate):
    """A register keeps its value. facts, MEM-08: an absent optional input (-1) is handled."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._biases: dict[tuple[Kernel, int], Values] = {}

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        value = super().compute_node(kernel, node, operands)
        if node.op != "FULLY_CONNECTED" or value.dtype != np.float32:
            return value
        bias = operands[2] if len(operands) > 2 else None
        place = kernel, value.shape[-1]
        if bias is not None:
            self._biases[place] = bias.copy()
        elif place in self._biases and node.activation == "NONE":
            return value + self._biases[place]
        return value

    def free(self, kernel: Kernel) -> None:
        self._biases = {place: bias for place, bias in self._biases.items() if place[0] is not kernel}
        super().free(kernel)


@faulty_delegate(
    "late-ninth-activation", "The ninth node of a kernel, and each later one, loses its fused activation."
)
class _NinthActivation(ReferenceDelegate):
    """Options of eight nodes are kept. facts, NUM-06: fused activations are applied."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.activation != "NONE" and kernel.steps.index(node) >= 8:
            node = msgspec.structs.replace(node, activation="NONE")
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "late-reused-scratch",
    "A node that reads a result of more than 16 nodes before it in its kernel reads a later one.",
)
class _ReusedScratch(ReferenceDelegate):
    """Sixteen scratch buffers in turn. facts, section 3: a kernel keeps what is inside itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._results: dict[tuple[Kernel, int], Values] = {}

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        places = (
            {step.outputs[0]: at for at, step in enumerate(kernel.steps)} if len(kernel.steps) > 17 else {}
        )
        now = places.get(node.outputs[0], 0)
        pairs = zip(node.inputs, operands, strict=True)
        operands = [self._held(kernel, places.get(index, now), now, value) for index, value in pairs]
        value = super().compute_node(kernel, node, operands)
        if places:
            self._results[kernel, now] = value
        return value

    def _held(self, kernel: Kernel, made: int, now: int, value: Values | None) -> Values | None:
        if value is None or now - made <= 16:
            return value
        later = self._results[kernel, now - 1 - (now - 1 - made) % 16]
        return np.resize(later, value.shape).astype(value.dtype)

    def free(self, kernel: Kernel) -> None:
        self._results = {place: value for place, value in self._results.items() if place[0] is not kernel}
        super().free(kernel)
