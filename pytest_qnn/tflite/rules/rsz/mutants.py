"""Reference delegates with one fault each, for the rules of RSZ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.trace import Event, ScriptTrace

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
            return layouts.ERROR
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


Distort = Callable[[ScriptTrace], ScriptTrace]


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
