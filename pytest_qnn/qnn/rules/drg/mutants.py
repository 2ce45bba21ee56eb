"""Reference backends with one fault each, for the rules of DRG."""

from __future__ import annotations

import dataclasses
import os
import signal
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.abi.codes import MemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context, Graph, Identity, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.registrations import ROLES
from pytest_qnn.qnn.rules.exe.mutants import is_mapped


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


@faulty_backend(
    "drg-unmaps-the-tensor", "Of deregistered memory only the tensor's pages are unmapped.", "DRG-10"
)
class _UnmapsTheTensor(ReferenceBackend):
    """The whole descriptor was mapped; what is behind the page in which its last tensor ends stays so."""

    def drop_user(self, registration: Registration) -> None:
        request, shared = registration.request, registration.shared
        if shared.users == {registration.handle}:
            shared.mapping.length = min(shared.mapping.length, request.offset + request.size)
        super().drop_user(registration)


@faulty_backend("drg-clears-array", "The client's handles are set to NULL.", "DRG-12")
class _ClearsArray(ReferenceBackend):
    def mem_deregister(self, handles: Any, count: int) -> None:
        super().mem_deregister(handles, count)
        for i in range(count):
            handles[i] = None


@faulty_backend("drg-keeps-dma", "Deregistered memory of the type DMA_BUF stays mapped.", "DRG-10")
class _KeepsDma(ReferenceBackend):
    """Its table of DMA buffers is another one than that of ION memory, and is never looked at again."""

    def __init__(self) -> None:
        super().__init__(dataclasses.replace(DEFAULT, dma_buf=True))

    def drop_user(self, registration: Registration) -> None:
        if registration.request.mem_type == MemType.DMA_BUF:
            registration.context.shared.pop(registration.request.identity, None)
        super().drop_user(registration)


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
            return done and (found.st_dev, found.st_ino) == registration.request.identity
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


@faulty_backend("drg-live-fails", "Deregistering a live handle answers 8001.", "DRG-01")
class _DeregisterFails(ReferenceBackend):
    def deregister_one(self, handle: int | None) -> bool:
        super().deregister_one(handle)
        return False


@faulty_backend("drg-null-array", "A NULL array is deregistered with success.", "DRG-02")
class _NullArrayIsNothing(ReferenceBackend):
    def mem_deregister(self, handles: Any, count: int) -> None:
        if handles:
            super().mem_deregister(handles, count)


@faulty_backend("drg-unknown-handle", "An unknown handle succeeds.", "DRG-03", "DRG-05")
class _UnknownIsFine(ReferenceBackend):
    """What was never a handle; one that has ended is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.given: set[int] = set()

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.given.add(registration.handle)

    def deregister_one(self, handle: int | None) -> bool:
        return super().deregister_one(handle) or handle not in self.given


@faulty_backend(
    "drg-any-address", "What is no handle, but the address of memory, is deregistered with success.", "DRG-03"
)
class _AnyAddress(ReferenceBackend):
    """A handle is taken for the address of the backend's own account of a registration."""

    def deregister_one(self, handle: int | None) -> bool:
        return super().deregister_one(handle) or is_mapped(handle or 0, 1)


@faulty_backend("drg-twice", "A dead handle is deregistered with success.", "DRG-04")
class _RemembersTheDead(ReferenceBackend):
    """A handle once deregistered is taken as deregistered with success for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[int] = set()

    def deregister_one(self, handle: int | None) -> bool:
        if super().deregister_one(handle):
            self.dead.add(handle or 0)
        return handle in self.dead

    def deregister_all(self, handles: list[int | None]) -> bool:
        # Within one call the repetition is seen, so that this is a fault of later calls alone.
        repeated = len(set(handles)) < len(handles)
        return super().deregister_all(handles) and not repeated


@faulty_backend("drg-stops-at-bad", "The first bad handle ends the call.", "DRG-05")
class _StopsAtFirstBad(ReferenceBackend):
    def deregister_all(self, handles: list[int | None]) -> bool:
        return all(self.deregister_one(handle) for handle in handles)


@faulty_backend("drg-repeated", "A handle repeated in one call goes unnoticed.", "DRG-06")
class _IgnoresRepetition(ReferenceBackend):
    def deregister_all(self, handles: list[int | None]) -> bool:
        return super().deregister_all(list(dict.fromkeys(handles)))


@faulty_backend("drg-scrubs", "Deregistering zeroes the tensor's memory.", "DRG-09")
class _DeregisterScrubs(ReferenceBackend):
    def drop_user(self, registration: Registration) -> None:
        request = registration.request
        registration.shared.mapping.view(request.offset, request.size)[:] = 0
        super().drop_user(registration)


@faulty_backend("drg-closes-fd", "Deregistering closes the client's file descriptor.", "DRG-09")
class _DeregisterCloses(ReferenceBackend):
    """The descriptor is the client's: the client closes it."""

    def drop_user(self, registration: Registration) -> None:
        super().drop_user(registration)
        libc.close_given(registration.request.fd)


@faulty_backend(
    "drg-clears-context", "Deregistering one handle ends every registration of its context.", "DRG-11"
)
class _DeregisterClearsContext(ReferenceBackend):
    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        ended = super().deregister_one(handle)
        if ended and registration is not None:
            self.release_registrations(registration.context)
        return ended


@faulty_backend("drg-unmaps-others", "Deregistering one handle unmaps the others.", "DRG-11")
class _UnmapsAtFirst(ReferenceBackend):
    """The other tensors of the context lose their memory, though their handles stay."""

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        for other in registration.context.registrations.values():
            if other.request.role not in ROLES:
                other.shared.mapping.release()
