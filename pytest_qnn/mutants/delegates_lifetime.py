"""Delegates that leave something behind, or whose end takes away what others use."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation import libc
from pytest_qnn.mutants.delegates import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.plan import PlanView
from pytest_qnn.trace import ScriptSeen, ScriptTrace

Values = npt.NDArray[Any]
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


@faulty_delegate("keeps-mapping", "Leaks a page for each kernel.", "LEAK-02")
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


@faulty_delegate("makes-in-create", "Leaks where it is never applied.", "OWN-03")
class _MakesInCreate(ReferenceDelegate):
    """Takes its memory when it is made, and gives it back with its first kernel."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._memory = libc.malloc(256)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        ctypes.CDLL(None).free(ctypes.c_void_p(self._memory))
        self._memory = None


@faulty_delegate("leaks-failure", "Leaks where its Prepare fails.", "LEAK-04")
class _LeaksFailure(ReferenceDelegate):
    """Leaves early, with its plans still allocated, where something fails."""

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        memory = libc.malloc(256)
        status = super().replace(context, nodes)
        if not status and self.fault != "prepare":
            ctypes.CDLL(None).free(ctypes.c_void_p(memory))
        return status


@faulty_delegate("shares-state", "The first free ends what all kernels use.", "OWN-04")
class _SharesState(ReferenceDelegate):
    """All kernels of one delegate share what the first of them made, and the first free ends it."""

    open = True

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self.open = True
        return super().init(context, nodes, inputs, outputs)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self.open = False

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result if self.open else np.full_like(result, 99)


@faulty_delegate("once-init", "Works once: what is torn down is not set up again.", "OWN-05")
class _EverySecond(ReferenceDelegate):
    """A library that is set up by every second delegate only: what one tears down, the next one misses."""

    _made = itertools.count()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._set_up = next(self._made) % 2

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return chosen if self._set_up else chosen[1:]


@faulty_runtime_of_scripts(
    "lets-delegates-go", "The runtime does not hold the delegates that it was given.", "OWN-01"
)
def _let_go(trace: ScriptTrace) -> ScriptTrace:
    """The interpreter does not hold what it was lent."""
    return msgspec.structs.replace(trace, steps=tuple(map(_freed_early, trace.steps)))


def _freed_early(seen: ScriptSeen) -> ScriptSeen:
    if "kept" not in seen.numbers:
        return seen
    return msgspec.structs.replace(seen, numbers=seen.numbers | {"kept": 0})
