"""Targets that kill the process when it ends in good order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate


def _die_at_exit(still_there: Callable[[], bool]) -> None:
    """Have exit(3) end the process by SIGSEGV if something is still there then."""

    def destructor(_: int | None) -> None:
        if still_there():
            os.kill(os.getpid(), signal.SIGSEGV)

    libc.at_exit(destructor)


@faulty_backend(
    "exit-with-registrations", "A process that ends with a registration alive dies.", "QLEAK-04", deadly=True
)
class _NeedsNoRegistrations(ReferenceBackend):
    """Its static table is gone at the end, and the entries that are left refer to it."""

    armed = False

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if not self.armed:
            self.armed = True
            _die_at_exit(lambda: bool(self.registrations))
        super().mem_register(context, descriptors, count, handles)


@faulty_backend(
    "exit-with-contexts", "A process that ends with a context alive dies.", "QLEAK-04", deadly=True
)
class _NeedsNoContexts(ReferenceBackend):
    """Contexts that are left at the end tell a thread to stop that has gone."""

    armed = False

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if not self.armed:
            self.armed = True
            _die_at_exit(lambda: bool(self.contexts))
        super().context_create(backend, device, config, out)


@faulty_delegate("breaks-the-end", "A process in which a kernel ran dies of its end.", "LIFE-14", deadly=True)
class _CorruptsItsHeap(ReferenceDelegate):
    """What its kernels broke is noticed when the process ends, with or without them."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if not kernel.invokes:
            _die_at_exit(lambda: True)
        return super().kernel_invoke(context, kernel)


@faulty_delegate("exit-with-kernels", "A process that ends with a kernel alive dies.", "LIFE-14", deadly=True)
class _NeedsNoKernels(ReferenceDelegate):
    """Kernels that are alive at the end refer to a device that is gone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.alive = 0
        _die_at_exit(lambda: bool(self.alive))

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        self.alive += kernel is not None
        return kernel

    def free(self, kernel: Kernel) -> None:
        self.alive -= 1
        super().free(kernel)
