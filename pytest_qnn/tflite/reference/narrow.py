"""Conforming delegates that choose by what documents leave to them: size, rank, type, partition, place."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Final

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.reference.previewing import Preview

LEAST_ELEMENTS: Final = 1000
LEAST_NODES: Final = 4


class LargeTensors(ReferenceDelegate):
    """Nodes of which an operand or the result has many elements: others are not worth the transfer."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """The larger of the first operand and the result counts."""
        largest = max(prod(tensors[index].shape) for index in (node.inputs[0], node.outputs[0]))
        return largest >= LEAST_ELEMENTS and super().supports(node, tensors, constants)


class RankFour(ReferenceDelegate):
    """Nodes whose first operand and result have four dimensions, as images have."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """Both tensors are images."""
        ranks = {len(tensors[index].shape) for index in (node.inputs[0], node.outputs[0])}
        return ranks == {4} and super().supports(node, tensors, constants)


class FloatOnly(ReferenceDelegate):
    """Float32 nodes only."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """The node's result is float32."""
        return tensors[node.outputs[0]].dtype == "float32" and super().supports(node, tensors, constants)


class LongPartitions(Preview):
    """Partitions of several nodes only: a short one costs more than it saves."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """The nodes of the partitions that are long enough."""
        partitions = self.preview(ReferenceDelegate.choose(self, plan))
        return tuple(index for nodes in partitions if len(nodes) >= LEAST_NODES for index in nodes)


class LargestPartition(Preview):
    """One partition of each graph, the largest: the device runs one at a time."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """The nodes of the largest partition, the first of equal ones."""
        partitions = self.preview(ReferenceDelegate.choose(self, plan))
        return max(partitions, key=len, default=())


class MainOnly(ReferenceDelegate):
    """Nodes of the primary subgraph only."""

    def prepare(self, context: int) -> int:
        """As the reference; which subgraph it is asked about needs the context."""
        self._is_main = _is_primary(context)
        return super().prepare(context)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """Nothing in the subgraphs that others call."""
        return super().choose(plan) if self._is_main else ()


def _is_primary(context: int) -> bool:
    table = layouts.Context.from_address(context)
    found = ctypes.c_void_p()
    if layouts.AcquireSubgraph(table.AcquireSubgraphContext)(context, 0, ctypes.addressof(found)):
        return False
    layouts.ReleaseSubgraph(table.ReleaseSubgraphContext)(context, 0)
    return found.value == context
