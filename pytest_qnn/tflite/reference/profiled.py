"""A conforming reference delegate that reports to the profiler each operator it carries out.

With kTfLiteDelegateFlagsPerOperatorProfiling the runtime makes no event of its own for the delegate's kernels
(common.h, TfLiteDelegateFlags; subgraph.cc, InvokeImpl).
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, ClassVar, Final

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate

_ADD_EVENT: Final = 5
"""Place of AddEvent among the virtual functions of tflite::Profiler (tflite/core/api/profiler.h)."""
_AddEvent = ctypes.CFUNCTYPE(
    None, layouts.pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64
)
"""(profiler, tag, kind of event, microseconds, node, 0)."""


class ProfiledDelegate(ReferenceDelegate):
    """As the reference; of each operator there is an event.

    Args:
        flags: TfLiteDelegateFlags.
        options: those of the reference.
    """

    EVENT: ClassVar[int] = 4
    """tflite::Profiler::EventType::DELEGATE_OPERATOR_INVOKE_EVENT."""

    def __init__(self, *, flags: int = layouts.FLAG_PER_OPERATOR_PROFILING, **options: Any) -> None:
        super().__init__(flags=flags, **options)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """As the reference; the time is shared out evenly."""
        begun = time.perf_counter_ns()
        status = super().kernel_invoke(context, kernel)
        profiler = layouts.Context.from_address(context).profiler
        if profiler and not status:
            spent = (time.perf_counter_ns() - begun) // 1000 // len(kernel.nodes)
            add = _AddEvent(peek.pointer(peek.pointer(profiler) + 8 * _ADD_EVENT))
            for index, step in zip(kernel.nodes, kernel.steps, strict=True):
                add(profiler, step.op.encode(), self.EVENT, spent, index, 0)
        return status
