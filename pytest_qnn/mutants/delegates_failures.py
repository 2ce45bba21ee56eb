"""Reference delegates that do wrong where something fails."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

from pytest_qnn.abi import peek, tflite, view
from pytest_qnn.isolation import libc
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.delegate_personalities import Preview

_SHAPE_NOT_KNOWN = 9


@faulty_delegate("resumes-failed", "Takes kernels that ran in a failed invoke for done.", "ERR-05", "CANC-01")
class _ResumesFailed(ReferenceDelegate):
    """Kernels that ran in an invoke which did not come to its end are not run again in the next one."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._last: Kernel | None = None
        self._done: list[Kernel] = []

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self._last = super().init(context, nodes, inputs, outputs)
        return self._last

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if kernel in self._done:
            self._done.remove(kernel)
            return tflite.OK
        status = super().kernel_invoke(context, kernel)
        self._done.append(kernel)
        if kernel is self._last and not status:
            self._done.clear()
        return status


@faulty_delegate("loses-all", "Its failure stops all other delegates of the library.", "ERR-06")
class _LosesAll(ReferenceDelegate):
    """After a failure no kernel of any delegate computes anything, until another delegate is prepared."""

    lost: ClassVar[bool] = False

    def prepare(self, context: int) -> int:
        _LosesAll.lost = False
        return super().prepare(context)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if self.lost:
            return tflite.OK
        status = super().kernel_invoke(context, kernel)
        _LosesAll.lost = status != tflite.OK
        return status


@faulty_delegate("spoils-constants", "Leaves constants unpacked when it fails.", "ERR-06")
class _SpoilsConstants(ReferenceDelegate):
    """Unpacks constants in place, and packs them again unless it fails."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        for index in kernel.inputs if status else ():
            tensor = view.tensor(context, index)
            if tensor.allocation_type == tflite.ALLOCATION_MMAP_RO and tensor.data:
                ctypes.memset(tensor.data, 0x5A, tensor.bytes)
        return status


@faulty_delegate("says-shape-not-known", "Fails with kTfLiteOutputShapeNotKnown.", "ERR-08")
class _SaysShapeNotKnown(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return _SHAPE_NOT_KNOWN if super().kernel_invoke(context, kernel) else tflite.OK


@faulty_delegate("fails-late", "Claims SUB and fails in invoke.", "PART-04")
class _FailsLate(ReferenceDelegate):
    """Claims SUB, and finds at invoke that it cannot compute it."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if any(step.op == "SUB" for step in kernel.steps):
            return tflite.ERROR
        return super().kernel_invoke(context, kernel)


@faulty_delegate("ignores-preview", "Claims although a preview failed.", "ERR-01")
class _IgnoresPreview(Preview):
    """Claims as ever where a preview has failed."""

    def __init__(self, *, claim: Any = None, **arguments: Any) -> None:
        super().__init__(claim=claim, **arguments)

    def preview(self, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        try:
            return super().preview(nodes)
        except RuntimeError:
            return [nodes]


@faulty_delegate("leaks-refusal", "Leaks where create refuses an option.", "LEAK-04")
class _LeaksRefusal(ReferenceDelegate):
    """Leaves early, with its state still allocated, where it refuses an option."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("no-such-option",)

    def __init__(self, *, options: Mapping[str, str] | None = None, **arguments: Any) -> None:
        if options:
            libc.malloc(256)
            raise ValueError("an option that it does not know")
        super().__init__(**arguments)


@faulty_delegate("counts-in-short", "Aborts where 16 bits do not count the elements.", "ERR-04", deadly=True)
class _CountsInShort(ReferenceDelegate):
    """Has scratch memory for as many elements as 16 bits count, and takes more for impossible."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if any(view.tensor(context, index).bytes // 4 > 0xFFFF for index in kernel.inputs if index >= 0):
            os.abort()
        return super().kernel_invoke(context, kernel)


@faulty_delegate(
    "counts-in-twenty-bits", "Aborts where 20 bits do not count the elements.", "ERR-04", deadly=True
)
class _CountsInTwentyBits(ReferenceDelegate):
    """Its descriptors have 20 bits for the number of elements, and it takes more for impossible."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        shapes = (peek.integers(view.tensor(context, index).dims) for index in kernel.inputs if index >= 0)
        if any(prod(shape) >> 20 for shape in shapes):
            os.abort()
        return super().kernel_invoke(context, kernel)
