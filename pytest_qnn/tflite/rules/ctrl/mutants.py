"""Reference delegates with one fault each, for the rules of CTRL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.trace import Event, InterpreterSeen, ScriptTrace

_ALIKE = (("RELU", "ABS", "NEG"), ("ADD", "SUB", "MUL", "MAXIMUM"))
"""Operators that take the same operands."""


@faulty_delegate("knows-one-graph", "Takes each subgraph for the first one.", "CTRL-01")
class _KnowsOneGraph(ReferenceDelegate):
    """Takes the nodes of the first subgraph that it was shown for those of every one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._known: dict[int, Any] = {}

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        for index in chosen:
            self._known.setdefault(index, plan.nodes[index].op)
        return chosen

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            kernel.steps = tuple(
                replace(step, op=self._confused(index, step.op))
                for index, step in zip(nodes, kernel.steps, strict=True)
            )
        return kernel

    def _confused(self, index: int, op: Any) -> Any:
        known = self._known[index]
        return known if any(known in group and op in group for group in _ALIKE) else op


@faulty_delegate("carries-state", "Adds the last turn's results to the next.", "CTRL-02")
class _CarriesState(ReferenceDelegate):
    """Begins each invoke with what the last one left, but for the main graph."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._main = 0
        self._left: dict[tuple[int, int], Values] = {}

    def prepare(self, context: int) -> int:
        self._main = self._main or context
        return super().prepare(context)

    def write_output(self, context: int, index: int, value: Values) -> None:
        left = self._left.get((context, index))
        if context != self._main:
            self._left[context, index] = value.copy()
            if left is not None and left.shape == value.shape:
                value = np.asarray(value + left, value.dtype)
        super().write_output(context, index, value)


@faulty_delegate("never-releases", "Keeps the subgraph contexts it acquires.", "CTRL-03")
class _NeverReleases(ReferenceDelegate):
    def look_into(self, context: int, subgraph: int) -> int:
        acquire = layouts.AcquireSubgraph(layouts.Context.from_address(context).AcquireSubgraphContext)
        return int(acquire(context, subgraph, ctypes.addressof(ctypes.c_void_p())))


Change = Callable[[InterpreterSeen], InterpreterSeen]


def _distorted(change: Change) -> Callable[[ScriptTrace], ScriptTrace]:
    def distort(trace: ScriptTrace) -> ScriptTrace:
        return replace(trace, interpreters=tuple(map(change, trace.interpreters)))

    return distort


def _prepares_one_more(seen: InterpreterSeen) -> InterpreterSeen:
    more = 1 + max((event.subgraph for event in seen.events), default=0)
    return replace(
        seen,
        events=(*seen.events, Event("Prepare", 0, -1, 0, more)),
        event_steps=(*seen.event_steps, seen.applied[0].step),
        event_rounds=(*seen.event_rounds, 0),
    )


def _forgets_order(seen: InterpreterSeen) -> InterpreterSeen:
    """Each kernel has its nodes the other way round."""
    return replace(seen, kernels=tuple(replace(k, nodes=k.nodes[::-1]) for k in seen.kernels))


faulty_runtime_of_scripts("runtime-prepares-validation", "Delegates a subgraph for validation.", "CTRL-04")(
    _distorted(_prepares_one_more)
)
faulty_runtime_of_scripts("runtime-forgets-order", "Runs the nodes of a kernel in reverse.", "PART-18")(
    _distorted(_forgets_order)
)
