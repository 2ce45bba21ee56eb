"""Reference backends and rpcmem with one fault each: deregistering, ends of sessions, and deadly ones."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.isolation import libc
from pytest_qnn.mutants.backends import faulty_backend, faulty_rpcmem
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_objects import (
    Context,
    Graph,
    Identity,
    QnnError,
    Registration,
    Request,
)
from pytest_qnn.reference.mapping import Mapping
from pytest_qnn.reference.rpcmem import Block, EmulatedRpcmem


@faulty_backend("drg-nothing-is-all", "A count of 0 deregisters everything.", "DRG-07")
class _NothingIsAll(ReferenceBackend):
    def check_deregister_arguments(self, handles: Any, count: int) -> None:
        if not count:
            for registration in list(self.registrations.values()):
                self.forget(registration)
        super().check_deregister_arguments(handles, count)


@faulty_backend("drg-one-context", "A call with two contexts answers 8001.", "DRG-08")
class _OneContextOnly(ReferenceBackend):
    def deregister_all(self, handles: list[int | None]) -> bool:
        owners = {
            self.registrations[handle].context.handle for handle in handles if handle in self.registrations
        }
        return super().deregister_all(handles) and len(owners) <= 1


@faulty_backend("drg-keeps-memory", "Deregistered memory stays mapped.", "DRG-10")
class _KeepsMemory(ReferenceBackend):
    def unmap(self, context: Context, identity: Identity) -> None:
        context.shared.pop(identity, None)


@faulty_backend("drg-clears-array", "The client's handles are set to NULL.", "DRG-12")
class _ClearsArray(ReferenceBackend):
    def mem_deregister(self, handles: Any, count: int) -> None:
        super().mem_deregister(handles, count)
        for i in range(count):
            handles[i] = None


@faulty_backend("drg-needs-client", "A freed buffer answers 8001.", "DRG-13")
class _NeedsClientMemory(ReferenceBackend):
    """Deregistering looks at the client's descriptor again."""

    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        done = super().deregister_one(handle)
        if registration is not None:
            try:
                found = os.fstat(registration.request.fd)
            except OSError:
                return False
            return (found.st_dev, found.st_ino) == registration.request.identity
        return done


@faulty_backend(
    "drg-crashes-on-stale",
    "Executing with a handle that was just deregistered crashes.",
    "DRG-14",
    deadly=True,
)
class _CrashesOnStale(ReferenceBackend):
    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        if handle and handle not in self.registrations:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().find_registration(graph, handle)


class _ReadOnly(Mapping):
    """A mapping that nobody can write to."""

    __slots__ = ()

    def __init__(self, fd: int, length: int, live: set[Mapping]) -> None:
        address = libc.mmap(None, length, libc.PROT_READ, libc.MAP_SHARED, fd, 0)
        if address in (None, libc.MAP_FAILED):
            raise QnnError(Error.MEM_ERROR_MAPPING)
        self.address, self.length, self._live = address, length, live
        live.add(self)


@faulty_backend(
    "reg-maps-read-only", "Outputs are written through a read-only mapping.", "REG-14", deadly=True
)
class _MapsReadOnly(ReferenceBackend):
    """What cannot be mapped for writing is mapped for reading, and written to all the same."""

    def map_memory(self, request: Request) -> Mapping:
        try:
            return super().map_memory(request)
        except QnnError:
            return _ReadOnly(request.fd, request.length, self.mappings)


@faulty_backend("ctx-orphans-live", "Handles outlive their context.", "CTX-02")
class _OrphansLive(ReferenceBackend):
    """Handles of a freed context are still deregistered with success."""

    def __init__(self) -> None:
        super().__init__()
        self.orphans: set[int] = set()

    def release_registrations(self, context: Context) -> None:
        self.orphans.update(context.registrations)
        super().release_registrations(context)

    def deregister_one(self, handle: int | None) -> bool:
        return handle in self.orphans or super().deregister_one(handle)


@faulty_backend("ctx-backend-leaves", "backendFree leaves contexts usable.", "CTX-07")
class _BackendLeavesContexts(ReferenceBackend):
    """backendFree leaves its contexts, and they are usable."""

    def backend_free(self, backend: int | None) -> None:
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        del self.backends[backend or 0]


@faulty_backend("ctx-device-invalid", "A device in use is called invalid.", "CTX-07")
class _DeviceFreeInvalid(ReferenceBackend):
    """deviceFree under a context answers that there is no such device."""

    def device_free(self, device: int | None) -> None:
        try:
            super().device_free(device)
        except QnnError:
            raise QnnError(Error.DEVICE_ERROR_INVALID_HANDLE) from None


@faulty_backend("ctx-device-stays", "A device once used cannot be freed.", "CTX-08")
class _DeviceStaysInUse(ReferenceBackend):
    """A device on which a context ever stood cannot be freed."""

    used = False

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        super().context_create(backend, device, config, out)
        self.used = True

    def device_free(self, device: int | None) -> None:
        if self.used:
            raise QnnError(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)
        super().device_free(device)


@faulty_rpcmem("rpc-unaligned", "Pointers are 16 bytes behind a page.", "RPC-03")
class _Unaligned(EmulatedRpcmem):
    """The pointer is 16 bytes behind the start of a page, as malloc's are."""

    def _map(self, fd: int, size: int) -> int:
        pointer = super()._map(fd, size + 16)
        return pointer + 16 if pointer else 0

    def _unmap(self, block: Block) -> None:
        moved = Block(block.pointer - 16, block.size + 16, block.fd)
        super()._unmap(moved)

    def _create(self, size: int) -> int:
        fd = super()._create(size)
        os.ftruncate(fd, size + 16)
        return fd


@faulty_rpcmem("rpc-cuts-size", "rpcmem_alloc2 uses 31 bits of the size.", "RPC-05")
class _CutsSize(EmulatedRpcmem):
    def _wide_size(self, size: int) -> int:
        return size & 0x7FFFFFFF or 1


@faulty_rpcmem("rpc-shared-state", "Threads share the block under way.", "RPC-13")
class _SharedState(EmulatedRpcmem):
    """The descriptor of the block under way is kept where every thread sees it."""

    current = -1

    def _create(self, size: int) -> int:
        self.current = fd = super()._create(size)
        return fd

    def _map(self, fd: int, size: int) -> int:
        pointer = super()._map(fd, size)
        time.sleep(0.002)
        self.late = {**getattr(self, "late", {}), pointer: self.current}
        return pointer

    def _fd_of(self, block: Block) -> int:
        return int(self.late[block.pointer])
