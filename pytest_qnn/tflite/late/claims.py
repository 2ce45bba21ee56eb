"""Faults in what Prepare claims, and in what it does to the graph."""

from __future__ import annotations

import ctypes

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.personalities import Limited
from pytest_qnn.tflite.reference.plan import PlanView, read_plan


@faulty_delegate(
    "late-ninth-node-unchecked",
    "Of the ninth node of a plan, and each later one, only the operator is checked.",
)
class _NinthNodeUnchecked(ReferenceDelegate):
    """Checks are kept for eight nodes. facts, PART-03 and PART-04: an unsupported node stays with the CPU."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return tuple(index for at, index in enumerate(plan.plan) if index in chosen or self._late(at, index))

    def _late(self, at: int, index: int) -> bool:
        return at >= 8 and index in self.plan.nodes


@faulty_delegate(
    "late-second-foreign-kernel",
    "Behind an earlier delegate with two kernels or more it claims the last of them too.",
)
class _SecondForeignKernel(ReferenceDelegate):
    """Skips the kernel that it knows of. facts, PART-02: a node of builtin_code 51 is never claimed."""

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        foreign = [index for index in plan.plan if index in self._kernels]
        return (*chosen, foreign[-1]) if len(foreign) >= 2 and chosen else chosen

    def read(self, context: int) -> PlanView:
        view = super().read(context)
        self._kernels = kernels_in(context, view.plan)
        return view


def kernels_in(context: int, plan: tuple[int, ...]) -> set[int]:
    """The nodes of a plan that are kernels of delegates."""
    table = layouts.Context.from_address(context)
    get_node = layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)
    answer = (ctypes.c_void_p * 2)()
    first = ctypes.addressof(answer)
    found = set()
    for index in plan:
        if get_node(context, index, first, first + 8):
            continue
        code = peek.integer(peek.pointer(first + 8) + layouts.Registration.builtin_code.offset)
        if code == layouts.BUILTIN_DELEGATE:
            found.add(index)
    return found


@faulty_delegate(
    "late-fourth-partition",
    "With max_delegated_partitions of three or more it makes one kernel more than that.",
)
class _FourthPartition(Limited):
    """Compares after counting. simple_delegate.h, Options; facts, PART-12."""

    def largest(self, partitions: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        most = self.most
        self.most += most >= 3
        try:
            return super().largest(partitions)
        finally:
            self.most = most


@faulty_delegate(
    "late-keeps-subgraph",
    "Of the subgraphs that it looks into in one Prepare the third, and each later one, is not released.",
)
class _KeepsSubgraph(ReferenceDelegate):
    """Two places. facts, CTRL-03: AcquireSubgraphContext and ReleaseSubgraphContext are balanced."""

    def prepare(self, context: int) -> int:
        self._count = 0
        return super().prepare(context)

    def look_into(self, context: int, subgraph: int) -> int:
        self._count += 1
        if self._count <= 2:
            return super().look_into(context, subgraph)
        table = layouts.Context.from_address(context)
        found = ctypes.c_void_p()
        acquire = layouts.AcquireSubgraph(table.AcquireSubgraphContext)
        if acquire(context, subgraph, ctypes.addressof(found)):
            raise RuntimeError(f"AcquireSubgraphContext failed for subgraph {subgraph}")
        return len(read_plan(found.value or 0, ()).plan)
