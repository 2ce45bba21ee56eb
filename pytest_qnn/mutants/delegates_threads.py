"""Delegates that go wrong on several threads, or profile and count what they must not."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.abi import tflite
from pytest_qnn.mutants.delegates import faulty_delegate
from pytest_qnn.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.reference.profiled import ProfiledDelegate

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
        return status if epoch == _Registry.epoch else tflite.ERROR

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


@faulty_delegate("silent-profile", "Declares events that it does not make.", "PROF-01")
class _SilentProfile(ReferenceDelegate):
    """Says that it profiles each of its operators, and does not."""

    def __init__(self, *, flags: int = tflite.FLAG_PER_OPERATOR_PROFILING, **options: Any) -> None:
        super().__init__(flags=flags, **options)


@faulty_delegate("tells-unasked", "Makes events that it has not declared.", "PROF-01")
class _TellsUnasked(ProfiledDelegate):
    """Tells the profiler of its operators, as the runtime does of its kernels, without having declared it."""

    EVENT = 2

    def __init__(self, *, flags: int = 0, **options: Any) -> None:
        super().__init__(flags=flags, **options)


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
                return tflite.ERROR
            self._open = True
        status = super().kernel_invoke(context, kernel)
        if kernel is self._kernels[-1]:
            self._open = False
        return status

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self._kernels = [one for one in self._kernels if one is not kernel]
        self._open = False
