"""Reference delegates with one fault each, for the rules of LEAK."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate


@faulty_delegate("leaks-refusal", "Leaks where create refuses an option.", "LEAK-04")
class _LeaksRefusal(ReferenceDelegate):
    """Leaves early, with its state still allocated, where it refuses an option."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("no-such-option",)

    def __init__(self, *, options: Mapping[str, str] | None = None, **arguments: Any) -> None:
        if options:
            libc.malloc(256)
            raise ValueError("an option that it does not know")
        super().__init__(**arguments)


_SMALL = 24
"""Bytes: the smallest block that malloc gives out."""
_PAGE = 4096
_DEVICE = "/dev/null"


@faulty_delegate("leaks-block", "Leaks 24 bytes for each kernel.", "LEAK-01", "OWN-02")
class _LeaksBlock(ReferenceDelegate):
    """Forgets the smallest block of memory at each kernel's first invoke."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if not kernel.invokes:
            libc.malloc(_SMALL)
        return super().kernel_invoke(context, kernel)


@faulty_delegate("leaks-events", "Leaks 24 bytes at each invoke.", "LEAK-03")
class _LeaksEvents(ReferenceDelegate):
    """Makes an object at each invoke, for someone who never comes."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        libc.malloc(_SMALL)
        return super().kernel_invoke(context, kernel)


@faulty_delegate("keeps-device", "Leaks a descriptor for each application.", "LEAK-02", "OWN-02", deadly=True)
class _KeepsDevice(ReferenceDelegate):
    """Opens its device for each delegate that is applied, and never closes it."""

    def prepare(self, context: int) -> int:
        os.open(_DEVICE, os.O_RDONLY)
        return super().prepare(context)


@faulty_delegate("keeps-mapping", "Leaks a page for each kernel.", "LEAK-02", "LIFE-05")
class _KeepsMapping(ReferenceDelegate):
    """Maps a page for each kernel, and never unmaps it."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        flags = 0x02 | libc.MAP_ANONYMOUS  # MAP_PRIVATE
        libc.mmap(None, _PAGE, libc.PROT_READ | libc.PROT_WRITE, flags, -1, 0)
        return super().init(context, nodes, inputs, outputs)


@faulty_delegate("keeps-pool", "Leaves a thread behind.", "LEAK-02", "OWN-02", "THR-05", deadly=True)
class _KeepsPool(ReferenceDelegate):
    """Leaves the worker of its pool running when it is destroyed."""

    started = False

    def prepare(self, context: int) -> int:
        if not self.started:
            self.started = True
            threading.Thread(target=_until_asked, daemon=True).start()
        return super().prepare(context)


def _until_asked() -> None:
    """A worker that nobody ends; the process does not wait for it."""
    threading.Event().wait()


@faulty_delegate("leaks-failure", "Leaks where its Prepare fails.", "LEAK-04")
class _LeaksFailure(ReferenceDelegate):
    """Leaves early, with its plans still allocated, where something fails."""

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        memory = libc.malloc(256)
        status = super().replace(context, nodes)
        if not status and self.fault != "prepare":
            ctypes.CDLL(None).free(ctypes.c_void_p(memory))
        return status


_TENSOR = 112
"""Bytes of a TfLiteTensor."""
_STAGED = 1024
"""Bytes."""


@faulty_delegate("kernels-know-all", "Each kernel keeps a copy of the table of all tensors.", "LEAK-05")
class _KernelsKnowAll(ReferenceDelegate):
    """Copies the table of the graph's tensors for each partition, and frees the copy with its kernel."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.copies: dict[int, int] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            self.copies[id(kernel)] = libc.malloc(_TENSOR * len(self.plan.tensors))
        return kernel

    def free(self, kernel: Kernel) -> None:
        ctypes.CDLL(None).free(ctypes.c_void_p(self.copies.pop(id(kernel))))
        super().free(kernel)


@faulty_delegate("pairs-of-partitions", "Keeps a buffer for each pair of partitions of a graph.", "LEAK-05")
class _PairsOfPartitions(ReferenceDelegate):
    """A kernel has a staging buffer for what it may be given by each kernel that is there before it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.staged: dict[int, list[int]] = {}

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            self.staged[id(kernel)] = [libc.malloc(_STAGED) for _ in self.staged]
        return kernel

    def free(self, kernel: Kernel) -> None:
        for buffer in self.staged.pop(id(kernel)):
            ctypes.CDLL(None).free(ctypes.c_void_p(buffer))
        super().free(kernel)
