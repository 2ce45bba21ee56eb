"""Delegates that compute in another order, more precisely, or with other special values."""

from __future__ import annotations

import numpy as np

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.numerics import quantisation
from pytest_qnn.tflite.numerics.kernels import COPIES, compute
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from tests.gallery.tflite.odd import note, oddity

ORDER = "seed 003: how a partition is computed is the delegate's own; only inputs and outputs are the graph's"
_ARITHMETIC = frozenset(("ADD", "SUB", "MUL"))


@oddity(
    "backwards",
    "computes a node when its result is asked for, the outputs first",
    ORDER,
    "nothing",
)
class Backwards(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        makers = {node.outputs[0]: node for node in kernel.steps}
        values: dict[int, Values] = {}
        order: list[Node] = []
        with np.errstate(all="ignore"):
            for index in reversed(kernel.outputs):
                self._demand(context, kernel, makers, values, order, index)
        wanted = [node for node in kernel.steps if node.outputs[0] in values]
        note(self, order != wanted)
        for index in kernel.outputs:
            self.write_output(context, index, values[index])
        return layouts.OK

    def _demand(
        self,
        context: int,
        kernel: Kernel,
        makers: dict[int, Node],
        values: dict[int, Values],
        order: list[Node],
        wanted: int,
    ) -> None:
        """Without recursion: a chain may be longer than Python's stack."""
        waiting = [wanted]
        while waiting:
            node = makers[waiting[-1]]
            missing = [index for index in node.inputs if index in makers and index not in values]
            if node.outputs[0] in values:
                waiting.pop()
            elif missing:
                waiting.extend(missing)
            else:
                given = [values[i] if i in values else self.read_input(context, i) for i in node.inputs]
                values[node.outputs[0]] = self.compute_node(kernel, node, given)
                order.append(node)
                waiting.pop()


@oddity(
    "latest-ready",
    "computes among nodes that are ready the one that stands last in the model",
    ORDER,
    "nothing",
)
class LatestReady(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is None:
            return None
        waiting, steps = list(kernel.steps), []
        missing = {node.outputs[0] for node in waiting}
        while waiting:
            node = next(node for node in reversed(waiting) if missing.isdisjoint(node.inputs))
            waiting.remove(node)
            missing.discard(node.outputs[0])
            steps.append(node)
        note(self, tuple(steps) != kernel.steps)
        kernel.steps = tuple(steps)
        return kernel


@oddity(
    "wide-floats",
    "computes float32 partitions in float64 and rounds what leaves them",
    "seed 003: what is inside a partition is the delegate's; common.h, allow_fp32_relax_to_fp16",
    "last bits differ from the CPU's, nearer to the exact result",
    "NUM-01",
)
class WideFloats(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        if all(kernel.tensors[step.outputs[0]].dtype == "float32" for step in kernel.steps):
            note(self, len(kernel.steps) > 1)
            operands = [
                one.astype(np.float64) if one is not None and one.dtype == np.float32 else one
                for one in operands
            ]
        return super().compute_node(kernel, node, operands)


@oddity(
    "sums-in-order",
    "adds up products one after another in float32, as a plain loop does",
    "tflite/kernels/internal/reference/fully_connected.h: float total, one product after another",
    "last bits of FULLY_CONNECTED and MEAN differ",
)
class SumsInOrder(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value, other = (*operands, None)[:2]
        if node.op != "FULLY_CONNECTED" or value is None or other is None or value.dtype != np.float32:
            return super().compute_node(kernel, node, operands)
        rows = value.reshape(-1, other.shape[1])
        total = np.zeros((rows.shape[0], other.shape[0]), np.float32)
        for at in range(other.shape[1]):
            total += rows[:, at : at + 1] * other[:, at]
        note(self, other.shape[1] > 2)
        # The rest of the node, bias and activation, is the reference's: of sums by an identity.
        identity = np.eye(other.shape[0], dtype=np.float32)
        if not np.isfinite(total).all():
            return super().compute_node(kernel, node, operands)
        return super().compute_node(kernel, node, [total, identity, *operands[2:]])


@oddity(
    "eight-lanes",
    "adds up products in eight float32 sums, and these at the end, as vector units do",
    "tflite/kernels/internal/optimized: sums of vector registers, added at the end",
    "last bits of FULLY_CONNECTED differ",
)
class EightLanes(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value, other = (*operands, None)[:2]
        if node.op != "FULLY_CONNECTED" or value is None or other is None or value.dtype != np.float32:
            return super().compute_node(kernel, node, operands)
        rows = value.reshape(-1, other.shape[1])
        lanes = np.zeros((8, rows.shape[0], other.shape[0]), np.float32)
        for at in range(other.shape[1]):
            lanes[at % 8] += rows[:, at : at + 1] * other[:, at]
        total = np.add.reduce(lanes)
        note(self, other.shape[1] > 8)
        if not np.isfinite(total).all():
            return super().compute_node(kernel, node, operands)
        return super().compute_node(
            kernel, node, [total, np.eye(other.shape[0], dtype=np.float32), *operands[2:]]
        )


@oddity(
    "half-up",
    "rounds int8 results with halves upwards",
    "legal-choices.md, the 8-bit specification: operators are off by one at most; halves are not specified",
    "int8 results that lie between two numbers are the greater one",
)
class HalfUp(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        output = kernel.tensors[node.outputs[0]]
        if output.dtype != "int8" or node.op in COPIES:
            return super().compute_node(kernel, node, operands)
        tensors = {i: kernel.tensors[i] for i in (*node.inputs, *node.outputs) if i >= 0}
        present = zip(node.inputs, operands, strict=True)
        reals = [
            quantisation.real_values(tensors[i], one) if tensors[i].scales else one
            for i, one in present
            if one is not None
        ]
        plain = {i: type(one)(one.shape) if one.scales else one for i, one in tensors.items()}
        real = compute(_without_activation(node), plain, list(reals))
        units = np.floor(real / output.scales[0] + 0.5) + output.zero_points[0]
        least, greatest = quantisation.limits(output, node.activation)
        note(self)
        return np.clip(units, least, greatest).astype(np.int8)


def _without_activation(node: Node) -> Node:
    return Node(**{name: getattr(node, name) for name in node.__struct_fields__} | {"activation": "NONE"})


@oddity(
    "no-infinity",
    "gives the greatest float32 for infinite results of ADD, SUB and MUL, as the built-in kernels do",
    "facts/tflite-delegates.md 10: the CPU clamps to the float range, XNNPACK does not; both are legal",
    "FLT_MAX where XNNPACK has infinity",
)
class NoInfinity(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if node.op not in _ARITHMETIC or value.dtype != np.float32:
            return value
        most = np.finfo(np.float32).max
        note(self, int(np.isinf(value).any()))
        return np.where(np.isinf(value), np.copysign(most, value), value).astype(np.float32)


@oddity(
    "no-negative-zero",
    "gives 0 where NEG and MUL of float32 have -0",
    "facts/tflite-delegates.md 10: kernels differ legally in the sign of zero",
    "the sign of a zero",
)
class NoNegativeZero(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if node.op not in ("NEG", "MUL") or value.dtype != np.float32:
            return value
        note(self, int(((value == 0) & np.signbit(value)).any()))
        return value + np.float32(0)


@oddity(
    "first-of-equals",
    "gives the first of two equal numbers as their MAXIMUM, the runtimes the second",
    "IEEE 754-2019, 9.6: maximum of zeros of either sign; facts/tflite-delegates.md 10",
    "the sign of a zero",
)
class OtherComparisons(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        one, other = (*operands, None)[:2]
        if node.op != "MAXIMUM" or one is None or other is None or one.dtype != np.float32:
            return super().compute_node(kernel, node, operands)
        value = super().compute_node(kernel, node, operands)
        equal = np.broadcast_to(one == other, value.shape)
        note(self, int(equal.any()))
        first: Values = np.where(equal, np.broadcast_to(one, value.shape), value)
        return first.astype(np.float32)
