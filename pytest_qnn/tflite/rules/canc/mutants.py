"""Reference delegates with one fault each, for the rules of CANC."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate


@faulty_delegate("counts-frames", "Is out of step after a cancellation.", "CANC-01")
class _CountsFrames(ReferenceDelegate):
    """Its first kernel opens a frame and its last one closes it; one that is still open is an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._kernels: list[Kernel] = []
        self._open = False

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self._kernels += [kernel] if kernel else []
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if kernel is self._kernels[0]:
            if self._open:
                return layouts.ERROR
            self._open = True
        status = super().kernel_invoke(context, kernel)
        if kernel is self._kernels[-1]:
            self._open = False
        return status

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self._kernels = [one for one in self._kernels if one is not kernel]
        self._open = False
