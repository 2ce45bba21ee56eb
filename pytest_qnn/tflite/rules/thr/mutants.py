"""Reference delegates with one fault each, for the rules of THR."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate

Values = npt.NDArray[Any]
_SHORTLY = 2e-4
"""Seconds in which other threads of Python get their turn."""


@faulty_delegate("static-scratch", "One buffer for all delegates.", "THR-01")
class _StaticScratch(ReferenceDelegate):
    """All kernels of all delegates work in one buffer."""

    scratch: Values

    def write_output(self, context: int, index: int, value: Values) -> None:
        _StaticScratch.scratch = value
        time.sleep(_SHORTLY)
        super().write_output(context, index, _taken(_StaticScratch.scratch, value))


@faulty_delegate("shared-scratch", "One buffer for all kernels.", "THR-02")
class _SharedScratch(ReferenceDelegate):
    """All kernels of one delegate work in one buffer."""

    scratch: Values

    def write_output(self, context: int, index: int, value: Values) -> None:
        self.scratch = value
        time.sleep(_SHORTLY)
        super().write_output(context, index, _taken(self.scratch, value))


def _taken(scratch: Values, like: Values) -> Values:
    """What stands in a buffer, as an array of another shape."""
    return np.resize(scratch, like.shape).astype(like.dtype)


@faulty_delegate("global-registry", "Coming and going disturbs the others.", "THR-03")
class _Registry(ReferenceDelegate):
    """Kernels look delegates up in a table of the library's, which whoever comes or goes clears."""

    epoch = 0

    def __init__(self, **options: Any) -> None:
        _Registry.epoch += 1
        super().__init__(**options)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        epoch = _Registry.epoch
        time.sleep(_SHORTLY)
        status = super().kernel_invoke(context, kernel)
        return status if epoch == _Registry.epoch else layouts.ERROR

    def close(self) -> None:
        _Registry.epoch += 1
        super().close()


@faulty_delegate("thread-local", "Works on the thread that made it only.", "THR-04")
class _ThreadLocal(ReferenceDelegate):
    """Keeps what it works with where only the thread that has made it finds it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._mine = threading.local()
        self._mine.there = True

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result if hasattr(self._mine, "there") else np.full_like(result, 77)


@faulty_delegate("many-threads", "Starts eight threads.", "THR-05")
class _ManyThreads(ReferenceDelegate):
    """Starts eight threads, whatever the interpreter was given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._over = threading.Event()
        self._pool: list[threading.Thread] = []

    def prepare(self, context: int) -> int:
        if not self._pool:
            self._pool = [threading.Thread(target=self._over.wait, daemon=True) for _ in range(8)]
            for thread in self._pool:
                thread.start()
        return super().prepare(context)

    def close(self) -> None:
        self._over.set()
        for thread in self._pool:
            thread.join()
        super().close()


@faulty_delegate(
    "waits-for-python", "Waits in Prepare for another thread of Python.", "THR-06", deadly=True, timeout=2.0
)
class _WaitsForPython(ReferenceDelegate):
    """Waits in Prepare for another thread to log something, if there are others; with Python's lock."""

    def prepare(self, context: int) -> int:
        if threading.active_count() > 1:
            self._log()
        return super().prepare(context)

    def _log(self) -> None:
        semaphore = ctypes.create_string_buffer(64)  # sem_t
        library, keeping = ctypes.CDLL(None), ctypes.PyDLL(None)  # PyDLL: calls keep Python's lock
        library.sem_init(semaphore, 0, 0)
        gate = threading.Lock()
        gate.acquire()

        def answer() -> None:
            with gate:
                library.sem_post(semaphore)

        threading.Thread(target=answer, daemon=True).start()
        gate.release()
        keeping.sem_wait(semaphore)
