"""Reference delegates that do not stand being prepared, applied or asked once more."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.delegate_personalities import Preview
from pytest_qnn.reference.plan import PlanView


@faulty_delegate("previews-positions", "Previews positions in the plan.", "PART-01")
class _PreviewsPositions(Preview):
    """Previews positions in the plan; claims the right nodes."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = ReferenceDelegate.choose(self, plan)
        self.preview(tuple(position for position, index in enumerate(plan.plan) if index in chosen))
        return chosen


@faulty_delegate("forgets-when-redone", "Leaves the last node out after a resize.", "PART-17")
class _ForgetsLastWhenRedone(ReferenceDelegate):
    """Its second Prepare, and each later one, leaves the last node to the CPU."""

    prepared = 0

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        self.prepared += 1
        chosen = super().choose(plan)
        return chosen if self.prepared == 1 else chosen[:-1]


@faulty_delegate("appends-when-redone", "Appends a partition's operators again at every Prepare.", "LIFE-02")
class _AppendsWhenRedone(ReferenceDelegate):
    """Keeps a list of each partition's operators, to which every Prepare adds."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._steps: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            known = self._steps.get(nodes, ())
            again = (
                msgspec.structs.replace(step, inputs=(step.outputs[0], *step.inputs[1:]))
                for step in kernel.steps
            )
            kernel.steps = self._steps[nodes] = (*known, *again) if known else kernel.steps
        return kernel


@faulty_delegate(
    "starts-over", "Its second Prepare for an interpreter empties the kernels of the first.", "PREC-08"
)
class _StartsOver(ReferenceDelegate):
    """Each Prepare gives up the steps of the kernels that an earlier one has made."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._made: dict[int, list[Kernel]] = {}

    def prepare(self, context: int) -> int:
        for kernel in self._made.pop(context, []):
            kernel.outputs = ()
        return super().prepare(context)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._made.setdefault(context, []).extend([kernel] if kernel else [])
        return kernel
