"""Failed applications that a runtime is not told of, where it does harm when it undoes them (RT-14)."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts, peek

_PREPARE: Final = layouts.Delegate.Prepare.offset
_REPLACE: Final = layouts.Context.ReplaceNodeSubsetsWithDelegateKernels.offset


class KeptFailures:
    """Failures of a delegate's Prepare, and of its kernels' prepare, that the runtime takes for successes.

    While it is entered the delegate may be applied; it must live as long as the interpreter does. It does
    nothing for a delegate without a Prepare of its own (an opaque one).
    """

    def __init__(self, address: int) -> None:
        self.seen: list[str] = []
        """What failed, in words."""
        self._slot = address + _PREPARE
        self._own = peek.pointer(self._slot)
        self._runtime_replace = 0
        self._prepare = layouts.DelegatePrepare(self._on_prepare)
        self._replace = layouts.ReplaceNodeSubsets(self._on_replace)
        self._kernels: list[Any] = []

    def __enter__(self) -> KeptFailures:
        if self._own:
            peek.replace_pointer(self._slot, _address(self._prepare))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own:
            peek.replace_pointer(self._slot, self._own)

    def _on_prepare(self, context: int, delegate: int) -> int:
        slot = context + _REPLACE
        self._runtime_replace = peek.pointer(slot)
        peek.set_pointer(slot, _address(self._replace))
        try:
            status = layouts.DelegatePrepare(self._own)(context, delegate)
        finally:
            peek.set_pointer(slot, self._runtime_replace)
        return self._kept(status, "Prepare of the delegate")

    def _on_replace(self, context: int, given: layouts.Registration, nodes: int, delegate: int) -> int:
        if given.prepare:
            own = layouts.KernelCall(given.prepare)
            ours = layouts.KernelCall(lambda *seen: self._kept(own(*seen), "prepare of a kernel"))
            self._kernels.append(ours)
            given.prepare = _address(ours)
        status: int = layouts.ReplaceNodeSubsets(self._runtime_replace)(context, given, nodes, delegate)
        return status

    def _kept(self, status: int, what: str) -> int:
        if status != layouts.OK:
            self.seen.append(f"{what} answers {status}")
        return layouts.OK


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
