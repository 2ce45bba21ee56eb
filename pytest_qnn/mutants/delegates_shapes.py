"""Reference delegates that stumble when shapes change, and traces of runtimes that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_qnn.abi import peek, tflite, view
from pytest_qnn.cases.arrays import Array
from pytest_qnn.isolation import libc
from pytest_qnn.mutants.delegates import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.reference.dynamic import DynamicDelegate, is_dynamic
from pytest_qnn.trace import Event, ScriptSeen, ScriptTrace

_CAPACITY = 128
"""Elements."""
_SMALLEST = 24
"""Bytes: with its header, the smallest block of glibc."""


@faulty_delegate("counts-once", "Keeps the element counts of the first shape.", "RSZ-01")
class _CountsOnce(ReferenceDelegate):
    """Keeps the number of elements of each output, by its index, for good."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._counts: dict[int, int] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        count = self._counts.setdefault(index, value.size)
        tensor = view.tensor(context, index)
        target = peek.array(tensor.data, value.dtype, (value.size,))
        target[:count] = value.ravel()[:count]


@faulty_delegate("prepares-once", "Fails when it is prepared a second time.", "RSZ-03")
class _PreparesOnce(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._prepared: set[int] = set()

    def prepare(self, context: int) -> int:
        if context in self._prepared:
            return tflite.ERROR
        self._prepared.add(context)
        return super().prepare(context)


@faulty_delegate("has-fixed-capacity", "Fails at invoke when inputs have grown.", "RSZ-04")
class _HasFixedCapacity(ReferenceDelegate):
    """Claims whatever it is shown, and finds out at invoke that it is too large."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        if value.size > _CAPACITY:
            raise MemoryError("out of device memory")
        super().write_output(context, index, value)


@faulty_delegate("keeps-every-scratch", "Takes memory at each prepare for good.", "RSZ-05")
class _KeepsEveryScratch(ReferenceDelegate):
    """Takes new scratch memory at each prepare, and gives none back."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._scratch: list[bytearray] = []

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self._scratch.append(bytearray(4096))
        return super().kernel_prepare(context, kernel)


@faulty_delegate("keeps-a-block", "Forgets 24 bytes whenever shapes change.", "RSZ-05")
class _KeepsABlock(ReferenceDelegate):
    """Forgets the smallest block that malloc gives out whenever a kernel is prepared for other shapes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._shapes: tuple[tuple[int, ...], ...] = ()

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        shapes = tuple(peek.integers(view.tensor(context, index).dims) for index in kernel.inputs)
        if shapes != self._shapes:
            self._shapes = shapes
            libc.malloc(_SMALLEST)
        return super().kernel_prepare(context, kernel)


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


@faulty_delegate("resizes-once", "Gives a dynamic output its shape only once.", "DYN-03")
class _ResizesOnce(DynamicDelegate):
    """Gives an output its shape at the first invoke, and keeps it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first: dict[int, tuple[int, ...]] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        unknown = self.propagate(context, kernel)
        for index in kernel.outputs:
            if index in unknown:
                self.make_dynamic(context, index)
            else:
                self.resize(context, index, self._first.setdefault(index, kernel.tensors[index].shape))
        return tflite.OK

    def write_output(self, context: int, index: int, value: Values) -> None:
        shape = self._first.setdefault(index, value.shape)
        super().write_output(context, index, np.resize(value, shape))


@faulty_delegate("sets-flag-late", "Sets a flag in its Prepare.", "DYN-06")
class _SetsItsFlagLate(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        self._struct.flags |= tflite.FLAG_REQUIRE_PROPAGATED_SHAPES
        return status


Distort = Callable[[ScriptTrace], ScriptTrace]


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


@faulty_runtime_of_scripts("runtime-calls-back", "Prepares kernels at every step.", "RSZ-02")
def _calls_back_at_each_step(trace: ScriptTrace) -> ScriptTrace:
    """A prepare of the first kernel during every step."""
    steps = tuple(range(len(trace.steps)))
    events = tuple(Event("prepare", 0, 0) for _ in steps)
    return replace(
        trace,
        interpreters=tuple(
            replace(
                seen,
                events=seen.events + events,
                event_steps=seen.event_steps + steps,
                event_rounds=seen.event_rounds + (0,) * len(steps),
            )
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
