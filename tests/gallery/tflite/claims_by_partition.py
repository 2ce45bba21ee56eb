"""Delegates that choose by partition, by how many were claimed before, or by turns."""

from __future__ import annotations

from typing import ClassVar

from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.reference.previewing import Preview
from tests.gallery.tflite.odd import note, oddity

SEED = "seed 003: many partitions are to be avoided; common.h, PreviewDelegatePartitioning"

Partitions = list[tuple[int, ...]]


class _SomePartitions(Preview):
    """Claims the partitions that `pick` picks; it does not implement RELU and ADD, so that there are some."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        able = ReferenceDelegate.choose(self, plan)
        found = self.preview(tuple(i for i in able if plan.nodes[i].op not in ("RELU", "ADD")))
        picked = self.pick(found)
        note(self, len(picked) < len(found))
        return tuple(index for nodes in picked for index in nodes)

    def pick(self, found: Partitions) -> Partitions:
        raise NotImplementedError


@oddity("first-partition", "claims the first partition only", SEED, "one kernel, early in the plan")
class FirstPartition(_SomePartitions):
    def pick(self, found: Partitions) -> Partitions:
        return found[:1]


@oddity("last-partition", "claims the last partition only", SEED, "one kernel, late in the plan")
class LastPartition(_SomePartitions):
    def pick(self, found: Partitions) -> Partitions:
        return found[-1:]


@oddity("smallest-partition", "claims the smallest partition only", SEED, "one kernel, often of one node")
class SmallestPartition(_SomePartitions):
    def pick(self, found: Partitions) -> Partitions:
        return sorted(found, key=len)[:1]


@oddity("even-partitions", "claims each second partition", SEED, "kernels with gaps between them", "PREC-04")
class EvenPartitions(_SomePartitions):
    def pick(self, found: Partitions) -> Partitions:
        return found[::2]


@oddity(
    "two-kernels",
    "has a device for two kernels in the process, and leaves to the CPU what does not fit",
    "facts/known-bugs.md rows 14 and 31: a device that is full is to refuse cleanly",
    "later graphs are claimed in part or not at all, as long as earlier ones live",
    "PART-17",
)
class TwoKernels(_SomePartitions):
    """A kernel that the runtime never frees, of a Replace that it undoes (RT-01), goes with its delegate."""

    live: ClassVar[dict[int, TwoKernels]] = {}

    def pick(self, found: Partitions) -> Partitions:
        return found[: max(0, 2 - len(TwoKernels.live))]

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            TwoKernels.live[id(kernel)] = self
        return kernel

    def free(self, kernel: Kernel) -> None:
        TwoKernels.live.pop(id(kernel), None)
        super().free(kernel)

    def close(self) -> None:
        for kernel in [kernel for kernel, owner in TwoKernels.live.items() if owner is self]:
            del TwoKernels.live[kernel]
        super().close()


@oddity(
    "by-turns",
    "claims all in its first Prepare, and nodes of even index in its second, and so on",
    "facts/tflite-delegates.md 7 (j): a delegate may claim differently on redo",
    "after a resize there are other partitions; results stay right",
    "PART-17",
)
class ByTurns(ReferenceDelegate):
    turn: int = 0

    def prepare(self, context: int) -> int:
        self.turn += 1
        return super().prepare(context)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        found = super().choose(plan)
        if self.turn % 2:
            return found
        note(self)
        return tuple(index for index in found if index % 2 == 0)
