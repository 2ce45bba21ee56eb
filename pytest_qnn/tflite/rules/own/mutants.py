"""Reference delegates with one fault each, for the rules of OWN."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.trace import LentCounts, ScriptSeen, ScriptTrace

Values = npt.NDArray[Any]


@faulty_delegate("makes-in-create", "Leaks where it is never applied.", "OWN-03")
class _MakesInCreate(ReferenceDelegate):
    """Takes its memory when it is made, and gives it back with its first kernel."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._memory = libc.malloc(256)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        ctypes.CDLL(None).free(ctypes.c_void_p(self._memory))
        self._memory = None


@faulty_delegate("shares-state", "The first free ends what all kernels use.", "OWN-04")
class _SharesState(ReferenceDelegate):
    """All kernels of one delegate share what the first of them made, and the first free ends it."""

    open = True

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self.open = True
        return super().init(context, nodes, inputs, outputs)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self.open = False

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result if self.open else np.full_like(result, 99)


@faulty_delegate("once-init", "Works once: what is torn down is not set up again.", "OWN-05")
class _EverySecond(ReferenceDelegate):
    """A library that is set up by every second delegate only: what one tears down, the next one misses."""

    _made = itertools.count()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._set_up = next(self._made) % 2

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return chosen if self._set_up else chosen[1:]


@faulty_runtime_of_scripts(
    "lets-delegates-go", "The runtime does not hold the delegates that it was given.", "OWN-01"
)
def _let_go(trace: ScriptTrace) -> ScriptTrace:
    """The interpreter does not hold what it was lent."""
    return msgspec.structs.replace(trace, steps=tuple(map(_freed_early, trace.steps)))


def _freed_early(seen: ScriptSeen) -> ScriptSeen:
    if not isinstance(seen.counts, LentCounts):
        return seen
    return msgspec.structs.replace(seen, counts=msgspec.structs.replace(seen.counts, kept=False))
