"""QnnMem of the reference backend: registering client memory and letting it go.

A memory is identified by the file behind its fd, per context. The number of the fd, which the system gives
out again as soon as it is closed, identifies it in one personality only, as it does on devices. A file is
mapped once per context, for as long as any registration of it lives there.
"""

from __future__ import annotations

import ctypes
import os
import stat
import threading
import time
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import ITEM_SIZE, Error, HtpMemType, LogLevel, MemType
from pytest_qnn.qnn.reference.core import Core
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import (
    MAX_RANK,
    Context,
    External,
    Identity,
    QnnError,
    Registration,
    Request,
    Shared,
    bytes_of,
)

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT
ALIGNMENT = 0x1000
"""Bytes to which external buffers are aligned; what libQnnHtp asks for."""
WEIGHTS = HtpMemType.WEIGHTS_BUFFER
SPILL = HtpMemType.SHARED_SPILLFILL_BUFFER
ROLES = frozenset({int(WEIGHTS), int(SPILL)})
"""Types of memory that a context with deferred initialisation takes from its client."""
_LATER = 0.005
"""Seconds after which a thread gives the next mapping back."""
RECORD = 72
"""Bytes of what is known of a registration."""
_NO_FD = -1
_BY_NUMBER = -1
"""In place of a device, where the number of the fd is the identity: no file has it."""


class Memory(Core):
    """memRegister and memDeRegister, taken apart into hooks."""

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        """QnnMem_register: all descriptors become handles, or none does and every handle is NULL."""
        self.require_memory_api()
        if handles:
            self.clear_handles(handles, count)
        if self.personality.context_first:
            self.registration_context(context)
        self.check_register_arguments(descriptors, count, handles)
        owner = self.registration_context(context)
        batch: list[Registration] = []
        try:
            for i in range(count):
                registration = self.register_one(owner, descriptors[i], batch)
                batch.append(registration)
        except BaseException:
            self.roll_back(batch)
            raise
        self.deliver_handles(handles, batch)

    def require_memory_api(self) -> None:
        """Hook: without the QnnMem functions both calls answer 1000 and touch nothing."""
        if not self.personality.memory:
            raise QnnError(Error.MEM_ERROR_NOT_SUPPORTED)

    def clear_handles(self, handles: Any, count: int) -> None:
        """Hook: every handle is NULL from the start, so a failure leaves them NULL."""
        for i in range(count):
            handles[i] = None

    def check_register_arguments(self, descriptors: Any, count: int, handles: Any) -> None:
        """Hook: NULL arrays and, by default, a count of 0 are refused with 8000."""
        if not descriptors or not handles or not (count or self.personality.empty_calls):
            raise QnnError(_INVALID)

    def registration_context(self, context: int | None) -> Context:
        """Hook: the live context to register with; 8001 for NULL, unknown or freed ones."""
        found: Context = self.require("context", context, Error.MEM_ERROR_INVALID_HANDLE)
        return found

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        """Hook: one descriptor of a batch; ``batch`` holds the earlier ones, which are live already."""
        request = self.read_descriptor(descriptor)
        self.check_fits(context, request)
        existing = self.find_duplicate(context, request, batch)
        if existing is not None:
            kept = self.resolve_duplicate(existing)
            if kept is not None:
                return kept
        shared = self.shared_for(context, request)
        try:
            self.ask("memory")
        except QnnError:
            self.undo_mapping(context, request, shared)
            raise
        registration = Registration(self.mint("mem"), context, request, shared)
        self.adopt(registration)
        return registration

    def undo_mapping(self, context: Context, request: Request, shared: Shared) -> None:
        """Hook: a registration failed behind its mapping, which goes if nobody else uses it."""
        if not shared.users:
            self.unmap(context, request.identity)

    def roll_back(self, batch: list[Registration]) -> None:
        """Hook: end the registrations of a batch that failed."""
        for registration in batch:
            self.forget(registration)

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        """Hook: handle i belongs to descriptor i."""
        for i, registration in enumerate(batch):
            handles[i] = registration.handle

    def read_descriptor(self, descriptor: Any) -> Request:
        """Hook: copy one Qnn_MemDescriptor_t out of client memory and look at its fd."""
        kind = descriptor.memType
        self.require_mem_type(kind)
        size = self.needed_bytes(descriptor)
        offset, declared = 0, None
        if kind == MemType.CUSTOM:
            fd, offset, declared = self.read_shared_buffer(descriptor.customInfo)
        elif kind == MemType.DMA_BUF:
            fd = descriptor.dmaBufInfo.fd
            if not descriptor.dmaBufInfo.data:
                raise QnnError(_INVALID)
        else:
            fd = descriptor.ionInfo.fd
        identity, length = self.examine_fd(fd)
        return Request(kind, fd, identity, length, size, self.effective_offset(offset), declared)

    def require_mem_type(self, kind: int) -> None:
        """Hook: refuse with 8005 what the property keys 1102, 1103 and 1104 do not offer."""
        if kind not in list(MemType) or kind == MemType.UNDEFINED:
            raise QnnError(self.personality.code("type-unknown", Error.MEM_ERROR_UNSUPPORTED_MEMTYPE))
        offered = {
            MemType.ION: self.personality.ion,
            MemType.CUSTOM: self.personality.custom,
            MemType.DMA_BUF: self.personality.dma_buf,
        }
        if not offered[MemType(kind)]:
            raise QnnError(Error.MEM_ERROR_UNSUPPORTED_MEMTYPE)

    def needed_bytes(self, descriptor: Any) -> int:
        """Hook: product of the dimensions times the element size, exact; 8000 or 8004 if not defined."""
        shape = descriptor.memShape
        if descriptor.dataType not in ITEM_SIZE or (shape.numDim and not shape.dimSize):
            raise QnnError(_INVALID)
        dimensions = tuple(shape.dimSize[i] for i in range(min(shape.numDim, MAX_RANK)))
        if not 0 < shape.numDim <= MAX_RANK or 0 in dimensions or self.configured(shape):
            raise QnnError(self.personality.code("bad-shape", Error.MEM_ERROR_INVALID_SHAPE))
        return bytes_of(dimensions, descriptor.dataType)

    def configured(self, shape: Any) -> bool:
        """A shape has a configuration; whether an empty text is one is left to a backend."""
        return shape.shapeConfig is not None and not (self.personality.empty_config and not shape.shapeConfig)

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        """Hook: (fd, offset, declared size) of a QnnMemHtp_Descriptor_t of type SHARED_BUFFER."""
        if not address:
            raise QnnError(_INVALID)
        custom = layouts.HtpMemDescriptor.from_address(address)
        if custom.type != HtpMemType.SHARED_BUFFER:
            raise QnnError(self.personality.code("htp-type", Error.MEM_ERROR_UNSUPPORTED_MEMTYPE))
        return custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset, custom.size

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        """Hook: identity and bytes of the file; 8003 for what is not open or not a file of memory."""
        if fd == _NO_FD:
            raise QnnError(self.personality.code("fd-minus-one", Error.MEM_ERROR_MAPPING))
        try:
            found = os.fstat(fd)
        except OSError:
            raise QnnError(Error.MEM_ERROR_MAPPING) from None
        if not stat.S_ISREG(found.st_mode):
            raise QnnError(Error.MEM_ERROR_MAPPING)
        # The file and not the number: a closed number is given to another file, and dup gives one file two.
        identity = (_BY_NUMBER, fd) if self.personality.by_number else (found.st_dev, found.st_ino)
        return identity, found.st_size

    def effective_offset(self, offset: int) -> int:
        """Hook: the offset as used from here on, all 64 bits of it."""
        return offset

    def range_end(self, request: Request) -> int:
        """Hook: first byte behind the tensor, without wrap-around."""
        return request.offset + request.size

    def check_fits(self, context: Context, request: Request) -> None:
        """Hook: the tensor lies inside the buffer, and the declared size inside the file: else 8000.

        External memory is as large and as aligned as its context asks for.
        """
        is_external = request.role in ROLES
        if is_external:
            request.size = self.open_external(context).needed[request.role]
            if request.offset and self.personality.size_from_offset:
                self.check_rest(request)
                return
        total = request.total
        if total > request.length:
            raise QnnError(self.personality.code("size-too-large", _INVALID))
        if self.range_end(request) > total:
            fault = "small-buffer" if request.declared is None else "past-end"
            fault = "external-small" if is_external else fault
            raise QnnError(self.personality.code(fault, _INVALID))
        if is_external:
            self.check_alignment(request)

    def check_rest(self, request: Request) -> None:
        """The declared size is that of what follows the offset: it is enough, and there."""
        if request.total < request.size or request.offset + request.total > request.length:
            raise QnnError(self.personality.code("external-small", _INVALID))
        self.check_alignment(request)

    def open_external(self, context: Context) -> External:
        """Hook: external memory is taken between creation and contextFinalize only: else 1005."""
        if context.external is None or context.external.pending is None:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        return context.external

    def check_alignment(self, request: Request) -> None:
        """Hook: the mapping begins at a page, so its offset decides."""
        if request.offset % ALIGNMENT:
            raise QnnError(self.personality.code("external-misaligned", _INVALID))

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        """Hook: a live registration of the same memory in this context; those of the batch count.

        Memory has one use in the whole process, and a context one external buffer of each kind.
        """
        del batch
        for other in self.registrations.values():
            if self.excludes(context, request, other):
                self.refuse_taken()
                return other
        if request.role in ROLES:
            return None
        for registration in context.registrations.values():
            if self.same_memory(request, registration.request):
                return registration
            if not self.personality.overlap and _overlapping(request, registration.request):
                return registration
        return None

    def refuse_taken(self) -> None:
        """A personality may have another code than 8002 for external memory that has another use."""
        code = self.personality.code("external-taken", 0)
        if code:
            raise QnnError(Error(code))

    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        """Hook: one of the two is external memory, and the other stands in its way.

        Seed 002, step 4: one type of memory is not another's; weights are unique to a context; spill-fill
        memory may be shared by contexts.
        """
        if request.role not in ROLES and other.request.role not in ROLES:
            return False
        same_context = other.context is context
        if request.identity == other.request.identity:
            return request.role != other.request.role or request.role == WEIGHTS or same_context
        return request.role == other.request.role and same_context

    def same_memory(self, request: Request, other: Request) -> bool:
        """Hook: one file gives one ION handle, or one shared-buffer handle for each offset."""
        if request.identity != other.identity:
            return False
        both_shared = request.mem_type == other.mem_type == MemType.CUSTOM
        return not both_shared or request.offset == other.offset

    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        """Hook: refuse a duplicate (8002). An override may hand it out again, or None to go on."""
        del existing
        raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)

    def shared_for(self, context: Context, request: Request) -> Shared:
        """Hook: the context's mapping of the file, made at its first registration."""
        # One mapping for all tensors of a shared buffer (QNN_HTP_MEM_SHARED_BUFFER), from byte 0 on: an
        # offset need not be a multiple of a page, which mmap would demand.
        shared = context.shared.get(request.identity)
        if shared is None:
            shared = Shared(self.map_memory(request), request.declared)
            context.shared[request.identity] = shared
        self.check_declared(shared, request)
        return shared

    def check_declared(self, shared: Shared, request: Request) -> None:
        """Hook: every registration of a file declares the same total size: else 8000."""
        if shared.declared != request.declared:
            raise QnnError(_INVALID)

    def map_memory(self, request: Request) -> Mapping:
        """Hook: map the whole file for reading and writing; 8003 when the system refuses."""
        try:
            self.ask("mapping")
            return Mapping(request.fd, request.length, self.mappings)
        except (OSError, QnnError):
            raise QnnError(Error.MEM_ERROR_MAPPING) from None

    def adopt(self, registration: Registration) -> None:
        """Hook: make a registration live; its context remembers external memory."""
        external = registration.context.external
        if external is not None and registration.request.role in ROLES:
            external.given[registration.request.role] = registration
        registration.shared.users.add(registration.handle)
        registration.context.registrations[registration.handle] = registration
        self.registrations[registration.handle] = registration
        if self.heap.is_checked:
            self.records[registration.handle] = self.begin_record()
        if self.listeners:
            self.log_message(registration.context.backend, LogLevel.VERBOSE, b"memory registered")

    def mem_deregister(self, handles: Any, count: int) -> None:
        """QnnMem_deRegister: the valid handles go even when others are not valid (8001)."""
        self.require_memory_api()
        self.check_deregister_arguments(handles, count)
        if not self.deregister_all([handles[i] for i in range(count)]):
            raise QnnError(Error.MEM_ERROR_INVALID_HANDLE)

    def check_deregister_arguments(self, handles: Any, count: int) -> None:
        """Hook: a NULL array and, by default, a count of 0 are refused with 8000."""
        if not handles or not (count or self.personality.empty_calls):
            raise QnnError(_INVALID)

    def deregister_all(self, handles: list[int | None]) -> bool:
        """Hook: deregister each handle; whether all of them were valid."""
        # A list, not a generator: the handles behind an invalid one are deregistered as well.
        return False not in [self.deregister_one(handle) for handle in handles]

    def deregister_one(self, handle: int | None) -> bool:
        """Hook: end the registration of a handle; False when there is none, or it stays."""
        if self.given_back("mem", handle):
            return True
        registration = self.registrations.get(handle or 0)
        if registration is None or self.is_fixed(registration):
            return False
        self.forget(registration)
        return True

    def is_fixed(self, registration: Registration) -> bool:
        """Hook: after contextFinalize external memory stays until contextFree."""
        external = registration.context.external
        return registration.request.role in ROLES and external is not None and external.pending is None

    def forget(self, registration: Registration) -> None:
        """Hook: end one registration and nothing else. A context allocates itself what was taken back."""
        external = registration.context.external
        if external is not None:
            external.given = {role: each for role, each in external.given.items() if each is not registration}
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]
        self.drop_user(registration)
        if registration.handle in self.records:
            self.end_record(registration.handle)
        if self.listeners:
            self.log_message(registration.context.backend, LogLevel.VERBOSE, b"memory deregistered")

    def begin_record(self) -> int:
        """Hook: request a block for what is to be known of a registration, and write it."""
        block = self.heap.request(RECORD)
        ctypes.memset(block, 0, RECORD)
        return block

    def end_record(self, handle: int) -> None:
        """Hook: free it."""
        self.heap.give_back(self.records.pop(handle))

    def drop_user(self, registration: Registration) -> None:
        """Hook: the mapping of the file goes with its last registration."""
        shared = registration.shared
        shared.users.discard(registration.handle)
        if not shared.users:
            self.unmap(registration.context, registration.request.identity)

    def unmap(self, context: Context, identity: Identity) -> None:
        """Hook: drop a context's mapping of a file."""
        shared = context.shared.pop(identity, None)
        if shared is not None:
            self.give_back(shared.mapping)

    def give_back(self, memory: Mapping) -> None:
        """Hook: unmap, now or, as some personalities do, in a thread of the backend's."""
        if self.personality.worker:
            self.leaving.append(memory)
            if len(self.leaving) > 1:
                return
            try:
                threading.Thread(target=self._release_later, daemon=True).start()
            except RuntimeError:  # there is no thread to be had
                self.leaving.pop()
                memory.release()
        else:
            memory.release()

    def _release_later(self) -> None:
        """One thread gives back all that waits: a thread of its own for each would be a growth too."""
        time.sleep(_LATER)
        # Under the lock: what is handed over after this begins another thread.
        with self.lock:
            while self.leaving:
                self.leaving.popleft().release()

    def release_registrations(self, context: Context) -> None:
        """Hook: end every registration of a context that is freed."""
        for registration in list(context.registrations.values()):
            self.forget(registration)


def _overlapping(request: Request, other: Request) -> bool:
    """Both are tensors in one shared buffer, and have bytes in common."""
    return request.identity == other.identity and (
        request.offset < other.offset + other.size and other.offset < request.offset + request.size
    )
