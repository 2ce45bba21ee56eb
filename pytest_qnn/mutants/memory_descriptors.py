"""Reference backends with one fault each in reading descriptors, telling memory apart, and giving it back."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from pytest_qnn.abi import qnn
from pytest_qnn.abi.qnn_codes import ITEM_SIZE, Error, HtpMemType, MemType
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import PERSONALITIES, ReferenceBackend
from pytest_qnn.reference.backend_objects import Context, Identity, QnnError, Registration, Request
from pytest_qnn.reference.mapping import Mapping, anonymous

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT
_NOWHERE = -7


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


@faulty_backend("reg-no-elements", "A dimension of 0 registers nought bytes.", "REG-11")
class _NoElements(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        shape = descriptor.memShape
        if shape.dimSize and 0 in [shape.dimSize[i] for i in range(shape.numDim)]:
            return 0
        return super().needed_bytes(descriptor)


@faulty_backend("reg-rank-zero", "Rank 0 registers nought bytes.", "REG-11")
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

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        self.last = (descriptor, descriptor.dataType)
        return size

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
        custom = qnn.HtpMemDescriptor.from_address(address or 0)
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
            raise QnnError(_INVALID)


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


@faulty_backend("ion-whole-union", "The union behind an ION fd is looked at.", "ION-01")
class _ReadsWholeUnion(ReferenceBackend):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.ION and (descriptor.customInfo or 0) >> 32:
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return super().read_descriptor(descriptor)


@faulty_backend("ion-size-in-words", "ION tensors need four bytes an element.", "ION-01")
class _SizeInElements(ReferenceBackend):
    """An ION buffer has to hold four bytes for each element, whatever the data type."""

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if request.mem_type == MemType.ION and 4 * request.size > request.length:
            raise QnnError(_INVALID)


@faulty_backend("ion-second-handle", "An ION fd gets a second handle.", "ION-02")
class _ReplacesIon(ReferenceBackend):
    """Another tensor over the same ION memory takes the place of the first."""

    def same_memory(self, request: Request, other: Request) -> bool:
        return super().same_memory(request, other) and not (
            request.mem_type == other.mem_type == MemType.ION and request.size != other.size
        )


@faulty_backend("ion-undeclared", "ION is registered although its key says no.", "ION-06")
class _IonAllTheSame(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-ion"])

    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.ION:
            super().require_mem_type(kind)


class _DmaBuf(ReferenceBackend):
    """No fault: the reference with DMA_BUF memory, for faults to stand on."""

    def __init__(self) -> None:
        super().__init__(PERSONALITIES["dma-buf"])


@faulty_backend("dma-no-pointer", "DMA_BUF works without a pointer.", "DMA-01")
class _DmaWithoutPointer(_DmaBuf):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.DMA_BUF and not descriptor.dmaBufInfo.data:
            own = type(descriptor).from_buffer_copy(descriptor)
            own.dmaBufInfo.data = ctypes.addressof(own)
            return super().read_descriptor(own)
        return super().read_descriptor(descriptor)


@faulty_backend("dma-through-pointer", "Results go to a foreign pointer.", "DMA-02")
class _DmaThroughPointer(_DmaBuf):
    """Results go to the pointer, whatever memory it leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.pointers: dict[int, int] = {}

    def read_descriptor(self, descriptor: Any) -> Request:
        request = super().read_descriptor(descriptor)
        if descriptor.memType == MemType.DMA_BUF:
            self.pointers[id(request)] = descriptor.dmaBufInfo.data
            self.requests = [*getattr(self, "requests", []), request]
        return request

    def write_output(self, graph: Any, binding: Any, stored: Any) -> None:
        pointer = self.pointers.get(id(binding.registration.request)) if binding.registration else None
        if pointer is None:
            super().write_output(graph, binding, stored)
        else:
            ctypes.memmove(pointer, stored.tobytes(), stored.size)


@faulty_backend("dma-takes-ion", "A backend without ION registers it.", "DMA-03", "ION-06")
class _GpuTakesIon(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["dma-buf-only"])

    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.ION:
            super().require_mem_type(kind)


@faulty_backend("dma-twice", "DMA_BUF memory is registered twice.", "DMA-04")
class _DmaTwice(_DmaBuf):
    def same_memory(self, request: Request, other: Request) -> bool:
        return request.mem_type != MemType.DMA_BUF and super().same_memory(request, other)


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
        custom = qnn.HtpMemDescriptor.from_address(address)
        own = qnn.HtpMemDescriptor.from_buffer_copy(custom)
        own.type = HtpMemType.SHARED_BUFFER
        return super().read_shared_buffer(ctypes.addressof(own))


@faulty_backend("shb-trusts-size", "The declared size is believed.", "SHB-05")
class _TrustsSize(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        del context
        if self.range_end(request) > request.total:
            raise QnnError(_INVALID)


@faulty_backend("shb-rounds-offset", "Offsets are rounded down to 64.", "SHB-10")
class _RoundsOffset(ReferenceBackend):
    def effective_offset(self, offset: int) -> int:
        return offset // 64 * 64


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
        self.turn += bool(shared.users)
        if shared.users and self.turn % 2:
            raise QnnError(_INVALID)


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
                for registration in [r for r in context.registrations.values() if r not in batch]:
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
