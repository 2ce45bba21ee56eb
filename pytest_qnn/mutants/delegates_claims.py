"""Reference delegates that claim wrongly, or treat the partitions they are given wrongly."""

from __future__ import annotations

from pytest_qnn.abi import tflite
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.plan import PlanView


@faulty_delegate("claims-positions", "Claims positions in the plan, not node indices.", "PART-01")
class _ClaimsPositions(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return tuple(position for position, index in enumerate(plan.plan) if index in chosen)


@faulty_delegate("claims-kernels", "Claims everything, other delegates' kernels too.", "PART-02")
class _ClaimsForeignKernels(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        return plan.plan


@faulty_delegate("fails-reshape", "Claims RESHAPE and fails in kernel prepare.", "PART-04")
class _FailsReshape(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if any(step.op == "RESHAPE" for step in kernel.steps):
            return tflite.ERROR
        return super().kernel_prepare(context, kernel)


@faulty_delegate("claims-twice", "Claims its nodes a second time in one Prepare.", "PART-01")
class _ClaimsTwice(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        return status or self.replace(context, self.choose(self.plan))


@faulty_delegate("repeats-output", "Gives all outputs the first one's values.", "PART-10")
class _RepeatsFirstOutput(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        first = self.read_input(context, kernel.outputs[0])
        for index in kernel.outputs[1:]:
            other = self.read_input(context, index)
            if first is not None and other is not None and other.size == first.size:
                self.write_output(context, index, first)
        return status


@faulty_delegate("writes-last-output", "Writes the last output only.", "PART-10", "PART-11")
class _WritesLastOutput(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        return super().init(context, nodes, inputs, outputs[-1:])


@faulty_delegate(
    "writes-terminal-outputs", "Writes only outputs that none of its own nodes reads.", "PART-11"
)
class _WritesTerminalOutputs(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        read = {tensor for index in nodes for tensor in self.plan.nodes[index].inputs}
        terminal = tuple(tensor for tensor in outputs if tensor not in read)
        return super().init(context, nodes, inputs, terminal)


@faulty_delegate("splits-claim", "Calls Replace once for each node.", "PART-15")
class _ReplacesEachNode(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        return max((super(_ReplacesEachNode, self).replace(context, (index,)) for index in nodes), default=0)


@faulty_delegate("fails-on-nothing", "Reports an error when it supports no node.", "PART-16")
class _FailsOnNothing(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        return super().replace(context, nodes) if nodes else tflite.ERROR


@faulty_delegate("assumes-dense-nodes", "Takes node indices for positions in the plan.", "PREC-03")
class _AssumesDenseNodes(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            kernel.steps = tuple(self.plan.nodes[self.plan.plan[index]] for index in nodes)
        return kernel
