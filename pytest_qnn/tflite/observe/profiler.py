"""A profiler and a cancellation function for an interpreter: they count what the runtime reports and asks.

tflite::Profiler is a C++ class of virtual functions only; an object of it is a pointer to a table of them.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, Literal

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.trace import InvokeCounts

SET_PROFILER: Final = "_ZN6tflite4impl11Interpreter11SetProfilerEPNS_8ProfilerE"
SET_CANCELLATION: Final = "_ZN6tflite4impl11Interpreter23SetCancellationFunctionEPvPFbS2_E"
_OPERATOR: Final = 2
"""tflite::Profiler::EventType::OPERATOR_INVOKE_EVENT."""
_DELEGATE: Final = (4, 8)
"""DELEGATE_OPERATOR_INVOKE_EVENT, DELEGATE_PROFILED_OPERATOR_INVOKE_EVENT."""

_Set = ctypes.CFUNCTYPE(None, layouts.pointer, layouts.pointer)
_SetFunction = ctypes.CFUNCTYPE(None, layouts.pointer, layouts.pointer, layouts.pointer)
_Check = ctypes.CFUNCTYPE(ctypes.c_bool, layouts.pointer)
_Destroy = ctypes.CFUNCTYPE(None, layouts.pointer)
_Begin = ctypes.CFUNCTYPE(
    ctypes.c_uint32, layouts.pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
)
_EndWith = ctypes.CFUNCTYPE(None, layouts.pointer, ctypes.c_uint32, ctypes.c_int64, ctypes.c_int64)
_End = ctypes.CFUNCTYPE(None, layouts.pointer, ctypes.c_uint32)
_Add = ctypes.CFUNCTYPE(
    None,
    layouts.pointer,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_int64,
)
_AddWithData = ctypes.CFUNCTYPE(None, layouts.pointer, ctypes.c_char_p, ctypes.c_int, layouts.pointer)


class Profiler:
    """Counts events and questions of one interpreter. Keep it until that is gone."""

    def __init__(self) -> None:
        self._counts: dict[Literal["operator", "delegate", "asked"], int] = {}
        self._cancel_at = -1
        self._kept: list[Any] = []

    def begin(self) -> None:
        """An invoke begins."""
        self._counts = dict.fromkeys(self._counts, 0)

    def counts(self) -> InvokeCounts:
        """Since then: events, and how often it was asked."""
        return InvokeCounts(**self._counts)

    def profile(self, function: int, interpreter: int) -> None:
        """Become the profiler of the Interpreter at this address, by its ``function`` `SET_PROFILER`."""
        self._counts |= {"operator": 0, "delegate": 0}
        # In the order of the class's declaration; C++ puts two destructors first (complete, deleting).
        functions = (
            _Destroy(lambda _: None),
            _Destroy(lambda _: None),
            _Begin(lambda _, __, kind, *___: self._event(kind)),
            _EndWith(lambda *_: None),
            _End(lambda *_: None),
            _Add(lambda _, __, kind, *___: self._added(kind)),
            _AddWithData(lambda *_: None),
        )
        table = (ctypes.c_void_p * len(functions))(
            *(ctypes.cast(one, ctypes.c_void_p).value for one in functions)
        )
        profiler = ctypes.c_void_p(ctypes.addressof(table))
        self._kept += (functions, table, profiler)
        _Set(function)(interpreter, ctypes.addressof(profiler))

    def cancel(self, function: int, interpreter: int, at: int) -> None:
        """Become its cancellation function, which says yes from question number ``at`` on; -1: never.

        ``function`` is `SET_CANCELLATION`.
        """
        self._counts |= {"asked": 0}
        self._cancel_at = at
        check = _Check(self._asked)
        self._kept.append(check)
        _SetFunction(function)(interpreter, None, ctypes.cast(check, ctypes.c_void_p).value)

    def _event(self, kind: int) -> int:
        self._added(kind)
        return 1

    def _added(self, kind: int) -> None:
        if kind == _OPERATOR:
            self._counts["operator"] += 1
        elif kind in _DELEGATE:
            self._counts["delegate"] += 1

    def _asked(self, _: int | None) -> bool:
        self._counts["asked"] += 1
        return 0 <= self._cancel_at < self._counts["asked"]
