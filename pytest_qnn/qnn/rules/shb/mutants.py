"""Reference backends with one fault each, for the rules of SHB."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import Error, HtpMemType, MemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping, anonymous
from pytest_qnn.qnn.reference.objects import (
    Binding,
    Context,
    Graph,
    Identity,
    QnnError,
    Registration,
    Request,
    Shared,
)
from pytest_qnn.qnn.reference.registrations import ROLES
from pytest_qnn.qnn.rules.reg.mutants import INVALID

_NOWHERE = -7


@faulty_backend("shb-null-custom", "NULL customInfo is registered.", "SHB-01")
class _NullCustom(ReferenceBackend):
    """A CUSTOM descriptor without customInfo gets memory of the backend's own."""

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        return super().read_shared_buffer(address) if address else (_NOWHERE, 0, 1 << 20)

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        return ((_NOWHERE, len(self.registrations)), 1 << 20) if fd == _NOWHERE else super().examine_fd(fd)

    def map_memory(self, request: Request) -> Mapping:
        if request.fd == _NOWHERE:
            return anonymous("nowhere", request.length, self.mappings)
        return super().map_memory(request)


@faulty_backend("shb-any-type", "Any HTP type is a shared buffer.", "SHB-02")
class _AnyHtpType(ReferenceBackend):
    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        if not address:
            return super().read_shared_buffer(address)
        custom = layouts.HtpMemDescriptor.from_address(address)
        own = layouts.HtpMemDescriptor.from_buffer_copy(custom)
        own.type = HtpMemType.SHARED_BUFFER
        return super().read_shared_buffer(ctypes.addressof(own))


@faulty_backend("shb-trusts-size", "The declared size is believed.", "SHB-05")
class _TrustsSize(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        del context
        if self.range_end(request) > request.total:
            raise QnnError(INVALID)


@faulty_backend("shb-rounds-offset", "Data is looked for at offsets that are rounded down to 64.", "SHB-08")
class _RoundsOffset(ReferenceBackend):
    """Registering looks at the offset that is given."""

    def locate(self, registration: Registration) -> int:
        return super().locate(registration) // 64 * 64


@faulty_backend("shb-only-aligned", "Offsets that are no multiples of 64 are refused.", "SHB-10")
class _OnlyAligned(ReferenceBackend):
    """Whatever the elements of the tensor are."""

    def check_fits(self, context: Context, request: Request) -> None:
        if request.role not in ROLES and request.offset % 64:
            raise QnnError(INVALID)
        super().check_fits(context, request)


@faulty_backend("shb-by-shape", "One offset gets a handle for each size.", "SHB-11")
class _SharedByShape(ReferenceBackend):
    """Two tensors at one offset are told apart by their size."""

    def same_memory(self, request: Request, other: Request) -> bool:
        shared = request.mem_type == other.mem_type == MemType.CUSTOM
        return super().same_memory(request, other) and not (shared and request.size != other.size)


@faulty_backend("shb-overlap-by-turns", "Every other overlap is refused.", "SHB-12")
class _OverlapByTurns(ReferenceBackend):
    """Every other overlapping registration is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0

    def check_declared(self, shared: Any, request: Request) -> None:
        super().check_declared(shared, request)
        others = (self.registrations[user].request for user in shared.users)
        overlaps = any(
            request.offset < other.offset + other.size and other.offset < request.offset + request.size
            for other in others
        )
        self.turn += overlaps
        if overlaps and self.turn % 2:
            raise QnnError(INVALID)


@faulty_backend("shb-types-apart", "An ION fd is registered as shared buffer.", "SHB-14")
class _TypesApart(ReferenceBackend):
    """ION and shared buffers know nothing of each other: each has mappings of its own."""

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        (device, inode), length = super().examine_fd(fd)
        return (device, inode | self.kind << 60), length

    def require_mem_type(self, kind: int) -> None:
        super().require_mem_type(kind)
        self.kind = int(kind == MemType.CUSTOM)


@faulty_backend("shb-failure-ends-group", "A failure ends earlier handles.", "SHB-15")
class _FailureEndsGroup(ReferenceBackend):
    """A failed registration ends those that the context has made before."""

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        try:
            return super().register_one(context, descriptor, batch)
        except QnnError as error:
            if error.code != Error.MEM_ERROR_ALREADY_REGISTERED:
                for registration in list(context.registrations.values()):
                    if registration not in batch and registration.request.role not in ROLES:
                        self.forget(registration)
            raise


@faulty_backend("shb-rpcmem-only", "Memory that is not rpcmem's is refused.", "SHB-16")
class _RpcmemOnly(ReferenceBackend):
    """Only files of rpcmem's name are memory."""

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        found = super().examine_fd(fd)
        if "own" in os.readlink(f"/proc/self/fd/{fd}"):
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return found


@faulty_backend("shared-any-size", "a mapped fd may be registered with another size", "SHB-03")
class _AnySize(ReferenceBackend):
    def check_declared(self, shared: Shared, request: Request) -> None:
        pass


@faulty_backend("shared-end-late", "a tensor may end one byte behind its buffer", "SHB-04")
class _EndOneLate(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        return super().range_end(request) - 1


@faulty_backend("shared-end-early", "a tensor must end one byte before its buffer's end", "SHB-04")
class _EndOneEarly(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        is_shared = request.declared is not None and request.role == HtpMemType.SHARED_BUFFER
        return super().range_end(request) + is_shared


@faulty_backend("shared-offset-32", "offsets are cut to 32 bits", "SHB-06")
class _Offset32(ReferenceBackend):
    def effective_offset(self, offset: int) -> int:
        return offset & 0xFFFF_FFFF


@faulty_backend("shared-end-wraps", "offset + bytes wraps around at 2**64", "SHB-06")
class _EndWraps(ReferenceBackend):
    def range_end(self, request: Request) -> int:
        return super().range_end(request) & 0xFFFF_FFFF_FFFF_FFFF


@faulty_backend("shared-one-handle", "all tensors of a buffer get the first one's handle", "SHB-07")
class _HandlePerBuffer(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        for i, registration in enumerate(batch):
            handles[i] = min(registration.shared.users)


@faulty_backend("shared-no-offset", "a tensor must begin where its buffer begins", "SHB-07")
class _NoOffset(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        if request.role not in ROLES and request.offset:
            raise QnnError(INVALID)
        super().check_fits(context, request)


@faulty_backend("shared-offset-ignored", "every tensor begins where its buffer begins", "SHB-08")
class _OffsetIgnored(ReferenceBackend):
    def locate(self, registration: Registration) -> int:
        del registration
        return 0


@faulty_backend("shared-padded-output", "outputs in shared buffers end on 64 bytes", "SHB-08")
class _Padded(ReferenceBackend):
    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        registration = binding.registration
        if registration is not None and registration.request.mem_type == MemType.CUSTOM:
            start, mapping = self.locate(registration), registration.shared.mapping
            padded = min(-(-binding.tensor.size // 64) * 64, mapping.length - start)
            mapping.view(start, padded)[:] = 0
        super().write_output(graph, binding, stored)


@faulty_backend("shared-ascending", "the handles of a batch are handed out in the order of offsets", "SHB-09")
class _Ascending(ReferenceBackend):
    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, sorted(batch, key=lambda each: each.request.offset))


@faulty_backend("shared-unmapped-first", "the first deregistration takes the buffer's mapping away", "SHB-13")
class _UnmapsFirst(ReferenceBackend):
    def drop_user(self, registration: Registration) -> None:
        self.unmap(registration.context, registration.request.identity)


@faulty_backend("shared-never-unmapped", "a buffer's mapping stays for ever", "SHB-13")
class _NeverUnmaps(ReferenceBackend):
    def unmap(self, context: Context, identity: tuple[int, int]) -> None:
        if context.shared[identity].declared is None:
            super().unmap(context, identity)
        else:
            context.shared.pop(identity)
