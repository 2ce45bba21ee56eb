"""Reference delegates with one fault each, for the rules of DYN."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate, Values
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate, is_dynamic
from pytest_qnn.tflite.trace import ScriptSeen, ScriptTrace


@faulty_delegate("keeps-old-shapes", "Keeps the first shapes of its outputs.", "DYN-02")
class _KeepsOldShapes(DynamicDelegate):
    """Leaves the shapes of its outputs as they were first, and writes what fits."""

    def resize(self, context: int, index: int, shape: tuple[int, ...]) -> None:
        if is_dynamic(view.tensor(context, index)):
            super().resize(context, index, shape)

    def write_output(self, context: int, index: int, value: Values) -> None:
        tensor = view.tensor(context, index)
        if is_dynamic(tensor):
            super().write_output(context, index, value)
            return
        target = peek.array(tensor.data, value.dtype, peek.integers(tensor.dims))
        target[...] = np.resize(value, target.shape)


@faulty_delegate("resizes-once", "Gives an output that kernel prepare cannot shape its shape once.", "DYN-03")
class _ResizesOnce(DynamicDelegate):
    """Gives a dynamic output its shape at the first invoke, and keeps it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first: dict[int, tuple[int, ...]] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        if is_dynamic(view.tensor(context, index)):
            value = np.resize(value, self._first.setdefault(index, value.shape))
        super().write_output(context, index, value)


@faulty_delegate("sets-flag-late", "Sets a flag in its Prepare.", "DYN-06")
class _SetsItsFlagLate(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        self._struct.flags |= layouts.FLAG_REQUIRE_PROPAGATED_SHAPES
        return status


@faulty_runtime_of_scripts(
    "runtime-prepares-static", "Accepts every delegate, dynamic tensors or not.", "DYN-01", "DYN-04"
)
def _prepares_in_spite(trace: ScriptTrace) -> ScriptTrace:
    """Every application was prepared and accepted."""
    return replace(
        trace,
        interpreters=tuple(
            replace(seen, applied=tuple(replace(applied, prepared=True, ok=True) for applied in seen.applied))
            for seen in trace.interpreters
        ),
    )


@faulty_runtime_of_scripts("runtime-keeps-shapes", "Outputs keep their first shapes.", "DYN-05")
def _keeps_old_shapes(trace: ScriptTrace) -> ScriptTrace:
    """Whatever is read has the shape of what was read first."""
    first = next((step.outputs for step in trace.steps if step.outputs and step.cpu), ())
    return replace(trace, steps=tuple(_shaped(step, first) for step in trace.steps))


def _shaped(step: ScriptSeen, first: tuple[Array, ...]) -> ScriptSeen:
    if not step.cpu or len(step.outputs) != len(first):
        return step
    return replace(
        step,
        outputs=tuple(
            Array.of(np.resize(seen.numpy(), like.shape))
            for seen, like in zip(step.outputs, first, strict=True)
        ),
    )
