"""Faults that depend on what is alive, was freed, or was never used; and leaks."""

from __future__ import annotations

import os
from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.late.conditions import KIB, Knowing, is_constant, leak
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values

_PLACES = 16
"""Kernels of one delegate that may live at once."""
_UNUSED = 8
"""Kernels that were freed without an invoke."""


@faulty_delegate("late-kernel-17", "init of a kernel fails while 16 other kernels of the delegate live.")
class _Kernel17(Knowing):
    """A table of 16. facts, PREC-08; known-bugs, 31: the 36th live interpreter kills the application."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        return None if len(self.kernels) >= _PLACES else super().init(context, nodes, inputs, outputs)


@faulty_delegate(
    "late-unused-kernels",
    "A kernel that was freed without an invoke keeps its place, of which there are eight.",
)
class _UnusedKernels(ReferenceDelegate):
    """The place is given back by what the first invoke begins. facts, PREC-07 and LIFE-05."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._unused = 0

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        return None if self._unused >= _UNUSED else super().init(context, nodes, inputs, outputs)

    def free(self, kernel: Kernel) -> None:
        self._unused += not kernel.invokes
        super().free(kernel)


@faulty_delegate(
    "late-free-of-a-middle-one",
    "When a kernel is freed that is neither the oldest nor the youngest, the youngest fails in every invoke.",
)
class _FreeOfAMiddleOne(Knowing):
    """A list is closed up, and its end is lost. facts, OWN-04: interpreters go in any order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lost: set[Kernel] = set()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        return layouts.ERROR if kernel in self._lost else super().kernel_invoke(context, kernel)

    def free(self, kernel: Kernel) -> None:
        live = [one for _, one in self.kernels]
        if kernel in live[1:-1]:
            self._lost.add(live[-1])
        self._lost.discard(kernel)
        super().free(kernel)


@faulty_delegate(
    "late-reused-place",
    "A kernel in the place of a freed one, while another lives, has its constants of equal index and size.",
)
class _ReusedPlace(Knowing):
    """Uploaded constants are kept by place and index. facts, LIFE-05 and LIFE-07: free releases all."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._places: dict[Kernel, int] = {}
        self._constants: dict[tuple[int, int, int], Values] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            taken = set(self._places.values())
            self._places[kernel] = next(place for place in range(len(taken) + 1) if place not in taken)
        return kernel

    def read_input(self, context: int, index: int) -> Values | None:
        value = super().read_input(context, index)
        if value is None or self.current is None or not is_constant(context, index):
            return value
        key = self._places[self.current], index, value.nbytes
        return self._constants.setdefault(key, value.copy()).view(value.dtype).reshape(value.shape)

    def free(self, kernel: Kernel) -> None:
        del self._places[kernel]
        if not self._places:
            self._constants.clear()
        super().free(kernel)


@faulty_delegate("late-leaks-third-kernel", "Every third kernel that is freed leaves 1 KiB behind.")
class _LeaksThirdKernel(ReferenceDelegate):
    """A list of three is emptied when it is full, but for the last. facts, LIFE-05 and LEAK-01."""

    freed = 0

    def free(self, kernel: Kernel) -> None:
        self.freed += 1
        if self.freed % 3 == 0:
            leak(KIB)
        super().free(kernel)


@faulty_delegate("late-leaks-on-failure", "A Prepare that fails leaves 4 KiB behind.")
class _LeaksOnFailure(ReferenceDelegate):
    """An early return. facts, LEAK-04: failure paths leak nothing."""

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        if status:
            leak(4 * KIB)
        return status


@faulty_delegate(
    "late-leaks-per-large-invoke",
    "From a kernel's second invoke on each leaves 64 bytes for each result above 4 KiB.",
)
class _LeaksPerLargeInvoke(Knowing):
    """Large results have an event each, and only the first is reused. facts, LEAK-03."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        if self.current is not None and self.current.invokes >= 2 and value.nbytes > 4 * KIB:
            leak(64)


@faulty_delegate(
    "late-opens-a-file-each",
    "Each kernel beyond the fifth that lives at once opens a file, and never closes it.",
)
class _OpensAFileEach(Knowing):
    """A pool of five, and beyond it none gives back. facts, LEAK-02."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if len(self.kernels) > 5:
            os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return kernel
