"""Reference backends with one fault each, for the rules of REG."""

from __future__ import annotations

import os
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import ITEM_SIZE, Error, MemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping, anonymous
from pytest_qnn.qnn.reference.objects import Binding, Context, Identity, QnnError, Registration, Request


@faulty_backend("register-composed-only", "contexts from binaries take no registrations", "REG-17")
class _ComposedOnly(ReferenceBackend):
    def registration_context(self, context: int | None) -> Context:
        found = super().registration_context(context)
        if found.deserialised:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        return found


@faulty_backend("register-after-finalise", "memory registers only once a graph is finalised", "REG-17")
class _AfterFinalise(ReferenceBackend):
    def registration_context(self, context: int | None) -> Context:
        found = super().registration_context(context)
        if not any(graph.finalised for graph in found.graphs.values()):
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        return found


@faulty_backend("register-until-written", "a context's binary ends its registrations", "REG-17")
class _UntilWritten(ReferenceBackend):
    """What registration has put into the context is taken out of it before it is written, for ever."""

    def serialise(self, context: Context) -> bytes:
        self.release_registrations(context)
        return super().serialise(context)


INVALID = Error.MEM_ERROR_INVALID_ARGUMENT


@faulty_backend("reg-any-type", "Memory of an unknown type is taken for ION.", "REG-09")
class _AnyTypeIsIon(ReferenceBackend):
    def require_mem_type(self, kind: int) -> None:
        if kind in list(MemType) and kind != MemType.UNDEFINED:
            super().require_mem_type(kind)


@faulty_backend("reg-null-dimensions", "NULL dimensions count as one byte.", "REG-10")
class _NullDimensions(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        if descriptor.memShape.numDim and not descriptor.memShape.dimSize:
            return 1
        return super().needed_bytes(descriptor)


@faulty_backend("reg-no-elements", "A dimension of 0 registers zero bytes.", "REG-11")
class _NoElements(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        shape = descriptor.memShape
        if shape.dimSize and 0 in [shape.dimSize[i] for i in range(shape.numDim)]:
            return 0
        return super().needed_bytes(descriptor)


@faulty_backend("reg-rank-zero", "Rank 0 registers zero bytes.", "REG-11")
class _RankZero(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        return super().needed_bytes(descriptor) if descriptor.memShape.numDim else 0


@faulty_backend("reg-any-data-type", "An unknown data type has one byte.", "REG-12")
class _AnyDataType(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        return super().needed_bytes(descriptor) if descriptor.dataType in ITEM_SIZE else 1


@faulty_backend("reg-any-shape-config", "An unknown shapeConfig is ignored.", "REG-27")
class _AnyShapeConfig(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        text, descriptor.memShape.shapeConfig = descriptor.memShape.shapeConfig, None
        try:
            return super().needed_bytes(descriptor)
        finally:
            descriptor.memShape.shapeConfig = text


@faulty_backend("reg-wants-shape-config", "A NULL shapeConfig is refused.", "REG-27")
class _WantsShapeConfig(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        if descriptor.memShape.shapeConfig is None:
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        return super().needed_bytes(descriptor)


@faulty_backend("reg-keeps-pointers", "Client structs are read after the call.", "REG-18")
class _KeepsPointers(ReferenceBackend):
    """The client's struct is looked at again when its registration ends."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, tuple[Any, int]] = {}

    def read_descriptor(self, descriptor: Any) -> Request:
        self.last = (descriptor, descriptor.dataType)
        return super().read_descriptor(descriptor)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.kept[registration.handle] = self.last

    def deregister_one(self, handle: int | None) -> bool:
        descriptor, data_type = self.kept.get(handle or 0, (None, 0))
        return super().deregister_one(handle) and (descriptor is None or descriptor.dataType == data_type)


@faulty_backend("reg-flattens", "Shapes are made flat in the client's struct.", "REG-19")
class _Flattens(ReferenceBackend):
    """A shape is made flat in the client's own struct."""

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        descriptor.memShape.dimSize[0] = size // ITEM_SIZE[descriptor.dataType]
        descriptor.memShape.numDim = 1
        return size


@faulty_backend("reg-rounds-size", "Sizes are rounded in the client's struct.", "REG-19")
class _RoundsSize(ReferenceBackend):
    """The size of a shared buffer is made whole pages in the client's own struct."""

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        found = super().read_shared_buffer(address)
        custom = layouts.HtpMemDescriptor.from_address(address or 0)
        custom.size = -(-custom.size // 4096) * 4096
        return found


@faulty_backend("reg-dup-ends-first", "A dup of the fd replaces the registration.", "REG-25")
class _DupEndsFirst(ReferenceBackend):
    """Memory that comes under another number replaces the first registration."""

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        if found is not None and found.request.fd != request.fd:
            self.forget(found)
            return None
        return found


@faulty_backend("reg-by-number", "Lengths are remembered by fd number.", "REG-26")
class _RemembersNumbers(ReferenceBackend):
    """The length of a buffer is remembered by the number of its descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[int, int] = {}

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if self.lengths.setdefault(request.fd, request.length) != request.length:
            raise QnnError(INVALID)


@faulty_backend("reg-leaks-mapping", "A failed batch leaves mappings.", "REG-28")
class _LeaksOnFailure(ReferenceBackend):
    """What a failed batch had mapped stays mapped."""

    def roll_back(self, batch: list[Registration]) -> None:
        for registration in batch:
            del self.registrations[registration.handle]
            del registration.context.registrations[registration.handle]
            registration.context.shared.pop(registration.request.identity, None)


@faulty_backend("reg-leaks-fd", "A failed registration leaves a descriptor.", "REG-28")
class _LeaksFdOnFailure(ReferenceBackend):
    """A descriptor that is refused has been duplicated."""

    def __init__(self) -> None:
        super().__init__()
        self.spare: list[int] = []

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        try:
            return super().register_one(context, descriptor, batch)
        except QnnError:
            self.spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            raise

    def close(self) -> None:
        super().close()
        while self.spare:
            os.close(self.spare.pop())


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


_LENGTH = 1 << 24


@faulty_backend("reg-null-handle", "memRegister succeeds with a NULL handle.", "REG-01")
class _NullHandle(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        del handles, batch


@faulty_backend("reg-reversed", "The handles of a batch come in reverse order.", "REG-02")
class _Reversed(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch[::-1])


@faulty_backend(
    "reg-reversed-elsewhere",
    "Handles of batches come in reverse order, but in the first context.",
    "REG-02",
)
class _ReversedElsewhere(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        first = next(iter(self.contexts.values()))
        super().deliver_handles(handles, batch if batch[0].context is first else batch[::-1])


@faulty_backend("reg-bytes-in-batches", "An element has one byte where several are registered.", "REG-02")
class _BytesInBatches(ReferenceBackend):
    """Such a tensor registers, and is too small at each execute."""

    is_batch = False

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        self.is_batch = count > 1
        super().mem_register(context, descriptors, count, handles)

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        return size // ITEM_SIZE[descriptor.dataType] if self.is_batch else size


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


@faulty_backend(
    "reg-batch-code", "A bad one behind good ones is refused with 8000, whatever it is.", "REG-08"
)
class _CodeOfBatches(ReferenceBackend):
    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        try:
            return super().register_one(context, descriptor, batch)
        except QnnError as error:
            raise (QnnError(Error.MEM_ERROR_INVALID_ARGUMENT) if batch else error) from None


@faulty_backend("reg-keeps-first", "A failed batch keeps its first good ones.", "REG-08")
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

    def require_dma_buffer(self, fd: int) -> None:
        if self.examine_fd(fd)[0][0] != -1:
            super().require_dma_buffer(fd)

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


@faulty_backend("reg-counts-in-32-bits", "The bytes of a tensor are counted in 32 bits.", "REG-15")
class _CountsIn32Bits(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        return super().needed_bytes(descriptor) % (1 << 32)


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

    def forget(self, registration: Registration) -> None:
        if registration.handle in self.registrations:  # or ended by a repetition in the same batch
            super().forget(registration)


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
