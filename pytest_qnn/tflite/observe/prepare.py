"""A delegate's Prepare, its own or that of an opaque builder, watched with what it passes to Replace."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.observe.plugin_struct import read_struct

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

_PREPARE: Final = layouts.Delegate.Prepare.offset
_BUILDER: Final = layouts.Delegate.opaque_delegate_builder.offset
_BUILDER_PREPARE: Final = layouts.OpaqueDelegateBuilder.Prepare.offset
_REPLACE: Final = layouts.Context.ReplaceNodeSubsetsWithDelegateKernels.offset


class WatchedPrepare:
    """While it is entered, Prepare and the Replace that it calls go through `ended` and `replacing`.

    Does nothing for a delegate that has neither a Prepare nor a usable builder.

    Args:
        address: of the TfLiteDelegate.
        only_opaque: nor does it for one that has a Prepare of its own.
    """

    def __init__(self, address: int, *, only_opaque: bool = False) -> None:
        own = 0 if only_opaque or not peek.pointer(address + _PREPARE) else address + _PREPARE
        # Only then: what is mapped takes a millisecond to read, and cells of the input domain are thousands.
        self._slot = own or _opaque_slot(address)
        self._own = peek.pointer(self._slot) if self._slot else 0
        self._prepare = (
            layouts.DelegatePrepare(self._on_prepare) if own else layouts.OpaquePrepare(self._on_opaque)
        )
        self._replace = layouts.ReplaceNodeSubsets(self._on_replace)
        self._runtime_replace = 0

    def __enter__(self) -> Self:
        if self._slot:
            peek.replace_pointer(self._slot, address_of(self._prepare))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._slot:
            peek.replace_pointer(self._slot, self._own)

    def replacing(self, given: layouts.Registration) -> None:
        """A registration on its way to the runtime; it may be changed."""

    def ended(self, status: int) -> int:
        """What the runtime is told, where Prepare has answered ``status``."""
        return status

    def _on_prepare(self, context: int, delegate: int) -> int:
        return self._carried_out(context, layouts.DelegatePrepare(self._own), delegate)

    def _on_opaque(self, context: int, delegate: int, data: int) -> int:
        return self._carried_out(context, layouts.OpaquePrepare(self._own), delegate, data)

    def _carried_out(self, context: int, own: Any, *arguments: int) -> int:
        slot = context + _REPLACE
        self._runtime_replace = peek.pointer(slot)
        peek.set_pointer(slot, address_of(self._replace))
        try:
            status: int = own(context, *arguments)
        finally:
            peek.set_pointer(slot, self._runtime_replace)
        return self.ended(status)

    def _on_replace(self, context: int, given: layouts.Registration, nodes: int, delegate: int) -> int:
        self.replacing(given)
        status: int = layouts.ReplaceNodeSubsets(self._runtime_replace)(context, given, nodes, delegate)
        return status


def address_of(function: Any) -> int:
    """Where the code of a callback is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _opaque_slot(address: int) -> int:
    """Where a builder's pointer to Prepare stands; 0: the delegate has its own, or no usable builder."""
    struct = read_struct(address)
    if struct.functions.get("Prepare") == "null" and struct.builder == "valid":
        return peek.pointer(address + _BUILDER) + _BUILDER_PREPARE
    return 0


class Operators(WatchedPrepare):
    """While it is entered: what an opaque delegate's Prepare passes to Replace.

    Does nothing for a delegate that has a Prepare of its own, or no usable builder.
    """

    def __init__(self, address: int) -> None:
        super().__init__(address, only_opaque=True)
        self.seen: list[bool] = []
        """For each registration: whether it had a registration_external."""

    def replacing(self, given: layouts.Registration) -> None:
        """Note it."""
        self.seen.append(bool(given.registration_external))
