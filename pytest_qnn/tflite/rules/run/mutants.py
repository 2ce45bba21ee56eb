"""Reference delegates with one fault each, for the rules of RUN."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy.typing as npt

from pytest_qnn.isolation.observe.control_words import leave
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView

Values = npt.NDArray[Any]


@faulty_delegate("aborts-at-rank-3", "Aborts where it multiplies at rank 3.", "RUN-01", deadly=True)
class _AbortsAtRank3(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        if node.op == "MUL" and len(kernel.tensors[node.inputs[0]].shape) == 3:
            os.abort()
        return super().compute_node(kernel, node, operands)


@faulty_delegate(
    "aborts-in-a-wide-claim", "Aborts in Prepare where it claims seven nodes.", "RUN-01", deadly=True
)
class _AbortsInAWideClaim(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        if len(chosen) >= 7:
            os.abort()
        return chosen


@faulty_delegate("aborts-in-invoke", "Aborts wherever it computes anything.", "RUN-01", deadly=True)
class _AbortsInInvoke(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        del kernel, node, operands
        os.abort()


@faulty_delegate(
    "waits-at-a-mean", "Never returns from the invoke of a MEAN.", "RUN-01", deadly=True, timeout=1.0
)
class _WaitsAtAMean(ReferenceDelegate):
    def compute_node(self, kernel: Kernel, node: Node, operands: list[Values | None]) -> Values:
        while node.op == "MEAN":
            time.sleep(60)
        return super().compute_node(kernel, node, operands)


_FLUSH = 0x9FC0
"""MXCSR with flush-to-zero and denormals-are-zero."""
_DOWN = 0x3F80
_SINGLE = 0x007F
"""Of the x87 unit: results of 24 bits in place of 64."""


@faulty_delegate("flushes-ever-after", "Kernels set flush-to-zero and leave it so.", "RUN-02")
class _FlushesEverAfter(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        leave(mxcsr=_FLUSH)
        return status


@faulty_delegate("rounds-down-ever-after", "Prepare that claims four nodes leaves rounding down.", "RUN-02")
class _RoundsDownEverAfter(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        if len(chosen) >= 4:
            leave(mxcsr=_DOWN)
        return chosen


@faulty_delegate("single-at-free", "A second kernel's end leaves the x87 unit in single precision.", "RUN-02")
class _SingleAtFree(ReferenceDelegate):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.freed = 0

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self.freed += 1
        if self.freed == 2:
            leave(x87=_SINGLE)
