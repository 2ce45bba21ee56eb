"""Delegates that choose nodes by what the nodes are.

Seed 004: a delegate looks at the kind of a node and at whether its parameters are what the accelerator wants.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from math import prod

from pytest_qnn.tflite.abi import peek
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from tests.gallery.tflite.odd import note, oddity, tensor

SEED = "seed 004, IsNodeSupportedByDelegate: the kind of a node and its parameters"
LEFT = "nodes of other kinds stay on the CPU, between kernels"
_ELEMENTWISE = frozenset(("ADD", "SUB", "MUL", "MAXIMUM", "PRELU"))

Tensors = Mapping[int, Tensor]


class _ByNode(ReferenceDelegate):
    """Takes what the reference takes and `wants` wants."""

    def supports(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        if not super().supports(node, tensors, constants):
            return False
        wanted = self.wants(node, tensors, constants)
        note(self, not wanted)
        return wanted

    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        raise NotImplementedError


@oddity("low-rank", "claims nodes whose result has at most two dimensions", SEED, LEFT)
class LowRank(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        return len(tensors[node.outputs[0]].shape) <= 2


@oddity("small-only", "claims nodes of at most 64 elements", SEED, LEFT)
class SmallOnly(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        return all(prod(tensors[i].shape) <= 64 for i in (*node.inputs, *node.outputs) if i >= 0)


@oddity("no-broadcast", "leaves element-wise nodes whose operands differ in shape", SEED, LEFT)
class NoBroadcast(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        return node.op not in _ELEMENTWISE or len({tensors[i].shape for i in node.inputs}) == 1


@oddity("no-activation", "leaves nodes with a fused activation", SEED, LEFT)
class NoActivation(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        return node.activation == "NONE"


@oddity("windows-inside", "leaves convolutions whose window is larger than their image", SEED, LEFT)
class WindowsInside(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        if node.op != "CONV_2D":
            return True
        image, kernel = (tensors[index].shape for index in node.inputs[:2])
        reach = ((kernel[axis] - 1) * step + 1 for axis, step in zip((1, 2), node.dilation, strict=True))
        return all(length <= image[axis] for axis, length in zip((1, 2), reach, strict=True))


@oddity("no-constants", "leaves nodes that read a constant", SEED, LEFT)
class NoConstants(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        return constants.isdisjoint(node.inputs)


@oddity("symmetric", "claims int8 nodes only where every zero point is 0, and all of float32", SEED, LEFT)
class Symmetric(_ByNode):
    def wants(self, node: Node, tensors: Tensors, constants: set[int]) -> bool:
        named = [tensors[i] for i in (*node.inputs, *node.outputs) if i >= 0]
        return not any(zero for one in named for zero in one.zero_points)


class _ByPlan(ReferenceDelegate):
    """Takes of what the reference takes what `pick` picks."""

    def prepare(self, context: int) -> int:
        self.context = context
        return super().prepare(context)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        found = self.able(super().choose(plan), plan)
        picked = self.pick(found, plan)
        note(self, len(picked) < len(found))
        return picked

    def able(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        """Those that it implements."""
        return found

    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        raise NotImplementedError


def _without_two(self: _ByPlan, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
    """RELU and ADD are not implemented."""
    return tuple(index for index in found if plan.nodes[index].op not in ("RELU", "ADD"))


@oddity("odd-index", "claims nodes of odd index", SEED, "partitions of single nodes in a chain")
class OddIndex(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return tuple(index for index in found if index % 2)


@oddity(
    "by-name",
    "claims nodes by the name of their result",
    "common.h, TfLiteTensor.name",
    "a choice as by chance",
)
class ByName(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return tuple(index for index in found if self._sum(plan.nodes[index].outputs[0]) % 3)

    def _sum(self, index: int) -> int:
        return zlib.crc32(peek.text(tensor(self.context, index).name or 0).encode())


@oddity(
    "first-three",
    "claims three nodes of a graph at most",
    SEED,
    "the rest is the CPU's",
)
class FirstThree(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return found[:3]


@oddity(
    "inner",
    "leaves the first and the last node of a plan",
    SEED,
    "inputs and outputs are the CPU's; another delegate's kernel may be the last node",
    "PREC-04",
)
class Inner(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return tuple(index for index in found if index not in (plan.plan[0], plan.plan[-1]))


@oddity(
    "few-left",
    "claims only where at most two nodes are left to the CPU",
    "seed 003: many changes between delegate and CPU cost more than they save",
    "other graphs stay on the CPU as a whole",
    "PREC-04",
)
class FewLeft(_ByPlan):
    able = _without_two

    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return found if len(plan.plan) - len(found) <= 2 else ()


@oddity(
    "whole-or-nothing",
    "claims all nodes of a graph or none",
    "seed 003: a graph may end as one node; seed 000: a fully delegated model benefits most",
    "one kernel, or the CPU's plan",
    "PREC-04",
)
class WholeOrNothing(_ByPlan):
    able = _without_two

    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        return found if len(plan.plan) == len(found) else ()


@oddity(
    "frequent",
    "claims the operator that a graph has most of",
    SEED,
    "other operators stay on the CPU",
    "PREC-04",
)
class Frequent(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        counted = Counter(plan.nodes[index].op for index in found).most_common(1)
        return tuple(index for index in found if plan.nodes[index].op == counted[0][0])


@oddity(
    "in-company",
    "claims nodes only beside others that it takes, which a second look in Prepare finds",
    "common.h, TfLiteContext.GetExecutionPlan: a delegate traverses the plan as it likes",
    "a single node between others of the CPU stays there",
    "PREC-04",
)
class InCompany(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        nodes = {index: plan.nodes[index] for index in found}
        makers = {output: index for index, node in nodes.items() for output in node.outputs}
        beside = {
            index
            for reader, node in nodes.items()
            for maker in {makers[i] for i in node.inputs if i in makers}
            for index in (reader, maker)
        }
        return tuple(index for index in found if index in beside)


@oddity(
    "no-ends",
    "leaves nodes whose result no other node reads",
    SEED,
    "graph outputs are made by the CPU",
    "PREC-04",
)
class NoEnds(_ByPlan):
    def pick(self, found: tuple[int, ...], plan: PlanView) -> tuple[int, ...]:
        read = {index for node in plan.nodes.values() for index in node.inputs}
        return tuple(index for index in found if not read.isdisjoint(plan.nodes[index].outputs))
