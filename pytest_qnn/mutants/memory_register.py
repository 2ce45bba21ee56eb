"""Reference backends with one fault each in QnnMem_register."""

from __future__ import annotations

from typing import Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_execute import Stored
from pytest_qnn.reference.backend_objects import (
    Binding,
    Context,
    Identity,
    QnnError,
    Registration,
    Request,
)
from pytest_qnn.reference.mapping import Mapping, anonymous

_LENGTH = 1 << 24


@faulty_backend("reg-null-handle", "memRegister succeeds with a NULL handle.", "REG-01")
class _NullHandle(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        del handles, batch


@faulty_backend("reg-reversed", "The handles of a batch come in reverse order.", "REG-02")
class _Reversed(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch[::-1])


@faulty_backend("reg-same-handle", "A batch gets the same handle for each descriptor.", "REG-02")
class _SameHandle(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch[:1] * len(batch))


@faulty_backend("reg-memory-of-first", "A batch uses its first memory only.", "REG-02")
class _MemoryOfFirst(ReferenceBackend):
    """Every handle of a batch leads to the memory of its first descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, Registration] = {}

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch)
        self.first.update((each.handle, batch[0]) for each in batch)

    def registered(self, binding: Binding, registration: Registration) -> Stored:
        return super().registered(binding, self.first.get(registration.handle, registration))


@faulty_backend("reg-null-descriptors", "A NULL descriptor array succeeds.", "REG-03")
class _NullDescriptors(ReferenceBackend):
    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if descriptors:
            super().mem_register(context, descriptors, count, handles)


@faulty_backend(
    "reg-null-handles-leak", "A NULL handle array is refused after the memory was registered.", "REG-04"
)
class _NullHandlesLeak(ReferenceBackend):
    """The handle array is looked at when everything is registered already."""

    def check_register_arguments(self, descriptors: Any, count: int, handles: Any) -> None:
        super().check_register_arguments(descriptors, count, handles or descriptors)

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        if not handles:
            raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)
        super().deliver_handles(handles, batch)


@faulty_backend("reg-null-handles", "A NULL handle array succeeds.", "REG-04")
class _NullHandlesSucceed(ReferenceBackend):
    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if handles:
            super().mem_register(context, descriptors, count, handles)


@faulty_backend("reg-writes-for-nothing", "A count of 0 writes handles[0].", "REG-05")
class _WritesForNothing(ReferenceBackend):
    def clear_handles(self, handles: Any, count: int) -> None:
        super().clear_handles(handles, max(1, count))


@faulty_backend("reg-any-context", "A context that is none means the newest one.", "REG-06", "CTX-04")
class _AnyContext(ReferenceBackend):
    def registration_context(self, context: int | None) -> Context:
        if context not in self.contexts and self.contexts:
            return next(reversed(self.contexts.values()))
        return super().registration_context(context)


@faulty_backend("reg-leaves-handles", "A failure leaves the handles unwritten.", "REG-07")
class _LeavesHandles(ReferenceBackend):
    def clear_handles(self, handles: Any, count: int) -> None:
        del handles, count


@faulty_backend("reg-keeps-first", "A failed batch keeps its first good ones.", "REG-08", "REG-22")
class _KeepsFirst(ReferenceBackend):
    def roll_back(self, batch: list[Registration]) -> None:
        del batch


@faulty_backend("reg-lazy-map", "An fd that cannot be mapped is registered.", "REG-14")
class _MapsLazily(ReferenceBackend):
    """What cannot be mapped now is registered all the same, with memory of the backend's own."""

    def accepts(self, fd: int) -> bool:
        return fd >= 0

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        try:
            return super().examine_fd(fd)
        except QnnError:
            if not self.accepts(fd):
                raise
            return (-1, fd), _LENGTH

    def map_memory(self, request: Request) -> Mapping:
        if request.identity[0] == -1:
            return anonymous("lazy", request.size, self.mappings)
        return super().map_memory(request)


@faulty_backend("reg-minus-one", "fd -1 is registered.", "REG-13")
class _MinusOneIsLazy(_MapsLazily):
    def accepts(self, fd: int) -> bool:
        return fd == -1


@faulty_backend("reg-never-too-small", "The size of the buffer is not looked at.", "REG-15")
class _NeverTooSmall(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        del context, request


@faulty_backend("reg-exact-only", "The buffer must be exactly as large as the tensor.", "REG-16")
class _ExactOnly(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if request.total != request.offset + request.size:
            raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)


@faulty_backend("reg-zeroes", "Registering fills the buffer with zeroes.", "REG-20")
class _ZeroesMemory(ReferenceBackend):
    def map_memory(self, request: Request) -> Mapping:
        mapping = super().map_memory(request)
        mapping.view(0, request.length)[:] = 0
        return mapping


@faulty_backend("reg-same-again", "A repetition gives the same handle again.", "REG-21")
class _SameHandleAgain(ReferenceBackend):
    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        return existing


@faulty_backend("reg-ends-first", "A refused repetition ends the first handle.", "REG-21")
class _DuplicateEndsFirst(ReferenceBackend):
    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        self.forget(existing)
        return super().resolve_duplicate(existing)


@faulty_backend("reg-blind-in-batch", "Repetitions in one batch go unnoticed.", "REG-22")
class _BlindInBatch(ReferenceBackend):
    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        return None if found in batch else found


@faulty_backend("reg-unique-everywhere", "Memory is unique over all contexts.", "REG-23")
class _UniqueEverywhere(ReferenceBackend):
    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        del context, batch
        live = self.registrations.values()
        return next((found for found in live if self.same_memory(request, found.request)), None)


@faulty_backend("reg-tombstones", "Deregistered memory stays registered.", "REG-24")
class _Tombstones(ReferenceBackend):
    """Memory once deregistered stays "already registered" in its context."""

    def __init__(self) -> None:
        super().__init__()
        self.tombs: set[tuple[int, Identity, int]] = set()

    def deregister_one(self, handle: int | None) -> bool:
        found = self.registrations.get(handle or 0)
        if found is not None:
            self.tombs.add((found.context.handle, found.request.identity, found.request.offset))
        return super().deregister_one(handle)

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if (context.handle, request.identity, request.offset) in self.tombs:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)
