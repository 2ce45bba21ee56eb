"""A QNN interface and an rpcmem that hand each call on to the reference, and tell a listener of it."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from pytest_qnn.qnn.abi.table import FUNCTIONS, PROTOTYPES, GetProviders, InterfaceP, PaddedInterface
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem


class Listener(Protocol):
    """Who is told of calls."""

    def before(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """A call of the table is about to be made; what `after` is to be given."""

    def after(self, name: str, arguments: tuple[Any, ...], token: Any, code: int) -> None:
        """It has returned."""

    def allocated(self, function: str, arguments: tuple[int, ...], pointer: int) -> None:
        """Memory was allocated; 0: it was not."""

    def freed(self, pointer: int) -> None:
        """A pointer is about to be freed."""

    def asked_fd(self, pointer: int, fd: int) -> None:
        """rpcmem_to_fd has answered."""


class SpyInterface:
    """The reference's interface with each entry of the table in between.

    What a listener raises cannot leave a callback of ctypes: it is kept in ``failure``, and calls go on.
    """

    def __init__(self, backend: ReferenceBackend, listener: Listener) -> None:
        self.failure: Exception | None = None
        self._listener = listener
        self._padded = PaddedInterface()
        listed, count = ctypes.POINTER(InterfaceP)(), ctypes.c_uint32()
        backend.get_providers(ctypes.byref(listed), ctypes.byref(count))
        own, theirs = self._padded.interface, listed[0].contents
        own.backendId, own.providerName, own.apiVersion = (
            theirs.backendId,
            theirs.providerName,
            theirs.apiVersion,
        )
        self._thunks = []
        for name, _ in FUNCTIONS:
            function = getattr(theirs.implementation, name)
            if function:
                thunk = PROTOTYPES[name](self._between(name, function))
                self._thunks.append(thunk)
                setattr(own.implementation, name, thunk)
        self._list = (InterfaceP * 1)(ctypes.pointer(own))
        self._backend = backend
        self.get_providers: Any = GetProviders(self._providers)

    def _providers(self, providers: Any, count: Any) -> int:
        code = int(self._backend.get_providers(providers, count))
        if code == 0 and providers and count:
            providers[0] = self._list
        return code

    def _between(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> int:
            token = None
            try:
                token = self._listener.before(name, arguments)
            except Exception as error:
                self.failure = self.failure or error
            code = int(function(*arguments))
            try:
                self._listener.after(name, arguments, token, code)
            except Exception as error:
                self.failure = self.failure or error
            return code

        return call


class SpyRpcmem(EmulatedRpcmem):
    """The emulated rpcmem, which tells a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def alloc(self, heap: int, flags: int, size: int) -> int:
        """See `EmulatedRpcmem`."""
        pointer = super().alloc(heap, flags, size)
        self._listener.allocated("rpcmem_alloc", (heap, flags, size), pointer)
        return pointer

    def alloc2(self, heap: int, flags: int, size: int) -> int | None:
        """See `EmulatedRpcmem`."""
        pointer = super().alloc2(heap, flags, size)
        self._listener.allocated("rpcmem_alloc2", (heap, flags, size), pointer or 0)
        return pointer

    def free(self, pointer: int) -> None:
        """See `EmulatedRpcmem`."""
        self._listener.freed(pointer)
        super().free(pointer)

    def to_fd(self, pointer: int) -> int:
        """See `EmulatedRpcmem`."""
        fd = super().to_fd(pointer)
        self._listener.asked_fd(pointer, fd)
        return fd
