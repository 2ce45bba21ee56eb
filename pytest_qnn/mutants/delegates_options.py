"""Reference delegates that heed parameters, options or their place among others wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy.typing as npt

from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.delegate_personalities import Limited
from pytest_qnn.reference.plan import PlanView, read_plan

Values = npt.NDArray[Any]
Operands = list[Values | None]


@faulty_delegate("ignores-dilation", "Claims dilated CONV_2D and leaves dilation out.", "PART-03")
class _IgnoresDilation(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        if node.same_padding:
            node = msgspec.structs.replace(node, dilation=(1, 1))
        return super().compute_node(kernel, node, operands)


class _WithOtherTensors(ReferenceDelegate):
    """Computes int8 nodes with another quantisation of their tensors."""

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        tensors = {index: self.seen(kernel.tensors[index]) for index in (*node.inputs, *node.outputs)}
        seen = Kernel(kernel.nodes, kernel.inputs, kernel.outputs, kernel.steps, tensors)
        return super().compute_node(seen, node, operands)

    def seen(self, tensor: Tensor) -> Tensor:
        """The tensor as this delegate takes it."""
        return tensor


@faulty_delegate("takes-raw-integers", "Checks operators only: computes int8 without scales.", "PART-03")
class _TakesRawIntegers(_WithOtherTensors):
    """As one that checks the operator and not the type of its operands."""

    def seen(self, tensor: Tensor) -> Tensor:
        if tensor.dtype != "int8":
            return tensor
        return msgspec.structs.replace(tensor, scales=(1.0,), zero_points=(0,))


@faulty_delegate("drops-zero-points", "Takes every zero point for 0.", "PART-03")
class _IgnoresZeroPoints(_WithOtherTensors):
    def seen(self, tensor: Tensor) -> Tensor:
        return msgspec.structs.replace(tensor, zero_points=(0,) * len(tensor.scales))


@faulty_delegate("drops-channel-scales", "Takes the first channel's scale for all.", "PART-03")
class _IgnoresChannels(_WithOtherTensors):
    def seen(self, tensor: Tensor) -> Tensor:
        return msgspec.structs.replace(tensor, scales=tensor.scales[:1] * len(tensor.scales))


@faulty_delegate("one-partition-more", "Makes a kernel more than the option allows.", "PART-12")
class _OneMore(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        self.most += self.most > 0
        return super().largest(partitions)


@faulty_delegate("nought-partitions", "Takes a limit of 0 for no partition at all.", "PART-12")
class _NoughtIsNone(Limited):
    def __init__(self, *, options: Mapping[str, str] | None = None, **arguments: Any) -> None:
        super().__init__(options=options, **arguments)
        self.none = bool(options) and self.OPTIONS[0] in (options or {}) and self.most <= 0

    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [] if self.none else super().largest(partitions)


@faulty_delegate("compares-totals", "Compares the nodes of all partitions with the least of one.", "PART-13")
class _ComparesTotals(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return partitions if sum(map(len, partitions)) >= self.least else []


@faulty_delegate("takes-the-first", "Keeps the first partitions, not the largest.", "PART-14")
class _TakesTheFirst(Limited):
    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return partitions[: self.most] if self.most > 0 else super().largest(partitions)


@faulty_delegate("claims-in-turns", "Leaves the last node out every second time.", "PART-17")
class _ClaimsInTurns(ReferenceDelegate):
    """A counter that outlives the delegate decides on the last node."""

    prepared = 0

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        _ClaimsInTurns.prepared += 1
        chosen = super().choose(plan)
        return chosen if self.prepared % 2 else chosen[:-1]


@faulty_delegate(
    "stops-at-foreign-kernels", "Looks at the plan up to the first foreign kernel only.", "PREC-04"
)
class _StopsAtForeignKernels(ReferenceDelegate):
    def read(self, context: int) -> PlanView:
        view = super().read(context)
        known = read_plan(context).nodes
        foreign = next((place for place, index in enumerate(view.plan) if index not in known), len(view.plan))
        return PlanView(view.plan[:foreign], view.nodes, view.tensors, view.constants)
