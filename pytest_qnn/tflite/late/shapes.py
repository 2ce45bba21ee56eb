"""Faults of a delegate that keeps its kernels while shapes change."""

from __future__ import annotations

from math import prod
from typing import Any

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.late.conditions import store_part
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate, Shape


@faulty_delegate("late-fourth-shape", "From the fourth prepare of a kernel on its outputs keep their shapes.")
class _FourthShape(DynamicDelegate):
    """Three shapes are kept. common.h, TfLiteDelegateFlags; facts, DYN-02: outputs are resized in prepare."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._prepared: dict[Kernel, int] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self._prepared[kernel] = self._prepared.get(kernel, 0) + 1
        if self._prepared[kernel] > 3:
            return ReferenceDelegate.kernel_prepare(self, context, kernel)
        return super().kernel_prepare(context, kernel)


@faulty_delegate(
    "late-never-shrinks",
    "An output that becomes smaller keeps its shape, and what it holds behind the result.",
)
class _NeverShrinks(DynamicDelegate):
    """The memory would be enough. facts, DYN-02: the right shape."""

    def resize(self, context: int, index: int, shape: Shape) -> None:
        tensor = view.tensor(context, index)
        if not tensor.data or prod(shape) >= prod(peek.integers(tensor.dims)):
            super().resize(context, index, shape)

    def write_output(self, context: int, index: int, value: Values) -> None:
        if value.nbytes < view.tensor(context, index).bytes:
            store_part(context, index, value, value.size)
        else:
            super().write_output(context, index, value)


@faulty_delegate(
    "late-as-many-elements", "An output keeps its shape when a resize leaves it as many elements."
)
class _AsManyElements(DynamicDelegate):
    """The memory is right. facts, DYN-02: the right shape."""

    def resize(self, context: int, index: int, shape: Shape) -> None:
        tensor = view.tensor(context, index)
        if not tensor.data or prod(shape) != prod(peek.integers(tensor.dims)):
            super().resize(context, index, shape)


@faulty_delegate(
    "late-other-input-resized",
    "Shapes are worked out again only when a kernel's first input has another one.",
)
class _OtherInputResized(DynamicDelegate):
    """Looks at one input. facts, DYN-02 and RSZ-01: any input may be resized."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._shapes: dict[Kernel, Shape] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        shape = peek.integers(view.tensor(context, kernel.inputs[0]).dims)
        if self._shapes.get(kernel) == shape:
            return layouts.OK
        self._shapes[kernel] = shape
        return super().kernel_prepare(context, kernel)
