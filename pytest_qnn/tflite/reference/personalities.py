"""Conforming delegates that differ from the reference in what or how they claim, or in how they add up.

Selected as ``--tflite-delegate reference:NAME``. Each decides by itself what it claims, as a plugin does. No
rule may accuse any of them: they stand for the delegates that the suite must be fair to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate, PropagatedDelegate
from pytest_qnn.tflite.reference.fused import FusedDelegate
from pytest_qnn.tflite.reference.half import HalfDelegate
from pytest_qnn.tflite.reference.narrow import (
    FloatOnly,
    LargestPartition,
    LargeTensors,
    LongPartitions,
    MainOnly,
    RankFour,
)
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.reference.previewing import Preview
from pytest_qnn.tflite.reference.profiled import ProfiledDelegate
from pytest_qnn.tflite.reference.variables import VariableDelegate

Values = npt.NDArray[Any]


class OneOperator(ReferenceDelegate):
    """ADD of two float32 tensors of one shape, without an activation: by type and parameters."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """ADD, and nothing that would need more than a loop over elements."""
        return (
            node.op == "ADD"
            and node.activation == "NONE"
            and len({(tensors[index].dtype, tensors[index].shape) for index in node.inputs}) == 1
            and tensors[node.outputs[0]].dtype == "float32"
            and super().supports(node, tensors, constants)
        )


class Int8Only(ReferenceDelegate):
    """8-bit quantised nodes only, as for the Hexagon delegate of seed 004."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
        """The node's result is int8."""
        return tensors[node.outputs[0]].dtype == "int8" and super().supports(node, tensors, constants)


class Nothing(ReferenceDelegate):
    """Claims no node of any graph."""

    def supports(self, node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:  # noqa: ARG002
        """Nothing is supported."""
        return False


class EverySecond(ReferenceDelegate):
    """Claims nodes of even index only, so that graphs fall into many partitions."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """What the reference would claim, as far as the index is even."""
        return tuple(index for index in super().choose(plan) if not index % 2)


class Limited(Preview):
    """Has the options of SimpleDelegate (simple_delegate.h): how many partitions, and how small ones."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("max_delegated_partitions", "min_nodes_per_partition")

    def __init__(self, *, options: Mapping[str, str] | None = None, **arguments: Any) -> None:
        """Raises ValueError for an option that is not a number."""
        super().__init__(**arguments)
        most, least = (int((options or {}).get(key, "0")) for key in self.OPTIONS)
        self.most = most
        """Partitions; zero or less: any number."""
        self.least = least
        """Nodes of each partition."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """The nodes of the largest partitions."""
        return tuple(index for nodes in self.largest(self.preview(super().choose(plan))) for index in nodes)

    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Of these partitions those that the options leave."""
        enough = [nodes for nodes in partitions if len(nodes) >= self.least]
        return sorted(enough, key=len, reverse=True)[: self.most if self.most > 0 else None]


class OtherOrder(ReferenceDelegate):
    """Adds up from the last term to the first."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Sequence[Values | None]) -> Values:
        """The same sums with the terms of the last dimension turned round; results are those of float32."""
        values = list(operands)
        if node.op in ("FULLY_CONNECTED", "CONV_2D"):
            values[:2] = [_reversed(value) for value in values[:2]]
        elif node.op == "MEAN" and values[0] is not None and values[0].shape[0] > 1:
            return self._mean(kernel, node, values)
        return super().compute_node(kernel, node, values)

    def _mean(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        """Turned round as a whole, before and after: every element meets its own terms backwards."""
        keep = kernel.tensors[node.outputs[0]].shape
        value = operands[0]
        assert value is not None
        result = super().compute_node(kernel, node, [np.flip(value), *operands[1:]])
        return np.asarray(np.flip(result.reshape(keep)))


def _reversed(value: Values | None) -> Values | None:
    return None if value is None else np.ascontiguousarray(value[..., ::-1])


@dataclasses.dataclass(frozen=True)
class DelegatePersonality:
    """A conforming variant of the reference delegate."""

    name: str
    summary: str
    delegate: type[ReferenceDelegate]


PERSONALITIES: dict[str, DelegatePersonality] = {
    personality.name: personality
    for personality in (
        DelegatePersonality("one-operator", "claims ADD float32 of equal shapes only", OneOperator),
        DelegatePersonality("int8-only", "claims 8-bit quantised nodes only", Int8Only),
        DelegatePersonality("float-only", "claims float32 nodes only", FloatOnly),
        DelegatePersonality("rank-4", "claims nodes of four dimensions only", RankFour),
        DelegatePersonality("large-tensors", "claims nodes of 1000 elements and more only", LargeTensors),
        DelegatePersonality("long-partitions", "claims partitions of four nodes or more", LongPartitions),
        DelegatePersonality("largest-partition", "claims the largest partition only", LargestPartition),
        DelegatePersonality("main-only", "claims nodes of the primary subgraph only", MainOnly),
        DelegatePersonality("nothing", "claims nothing at all", Nothing),
        DelegatePersonality("many-partitions", "claims every second node only", EverySecond),
        DelegatePersonality("preview", "previews the partitioning before it claims", Preview),
        DelegatePersonality("limited", "takes options that limit its partitions, and no others", Limited),
        DelegatePersonality(
            "half", "computes float32 graphs in float16, which is to be declared", HalfDelegate
        ),
        DelegatePersonality("other-order", "adds up in another order", OtherOrder),
        DelegatePersonality("fused", "rounds int8 results only where they leave a partition", FusedDelegate),
        DelegatePersonality("variables", "holds resource variables itself", VariableDelegate),
        DelegatePersonality("dynamic", "allows dynamic tensors, resizes its outputs", DynamicDelegate),
        DelegatePersonality(
            "propagated", "allows dynamic tensors, and requires propagated shapes", PropagatedDelegate
        ),
        DelegatePersonality("profiled", "reports to the profiler each of its operators", ProfiledDelegate),
        DelegatePersonality("device-buffers", "keeps its results in buffers of a device", DeviceBuffers),
    )
}
"""By name, as in the target specification ``reference:NAME``."""
