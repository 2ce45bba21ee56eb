"""Reference backends with one fault each in reading descriptors, telling memory apart, and giving it back."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from pytest_qnn.abi import qnn
from pytest_qnn.abi.qnn_codes import ITEM_SIZE, Error, HtpMemType, MemType
from pytest_qnn.mutants.mutant import Mutant
from pytest_qnn.reference.backend import PERSONALITIES, ReferenceBackend
from pytest_qnn.reference.backend_objects import Context, Identity, QnnError, Registration, Request
from pytest_qnn.reference.mapping import Mapping, anonymous

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT
_NOWHERE = -7


class _AnyTypeIsIon(ReferenceBackend):
    def require_mem_type(self, kind: int) -> None:
        if kind in list(MemType) and kind != MemType.UNDEFINED:
            super().require_mem_type(kind)


class _NullDimensions(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        if descriptor.memShape.numDim and not descriptor.memShape.dimSize:
            return 1
        return super().needed_bytes(descriptor)


class _NoElements(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        shape = descriptor.memShape
        if shape.dimSize and 0 in [shape.dimSize[i] for i in range(shape.numDim)]:
            return 0
        return super().needed_bytes(descriptor)


class _RankZero(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        return super().needed_bytes(descriptor) if descriptor.memShape.numDim else 0


class _AnyDataType(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        return super().needed_bytes(descriptor) if descriptor.dataType in ITEM_SIZE else 1


class _AnyShapeConfig(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        text, descriptor.memShape.shapeConfig = descriptor.memShape.shapeConfig, None
        try:
            return super().needed_bytes(descriptor)
        finally:
            descriptor.memShape.shapeConfig = text


class _WantsShapeConfig(ReferenceBackend):
    def needed_bytes(self, descriptor: Any) -> int:
        if descriptor.memShape.shapeConfig is None:
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        return super().needed_bytes(descriptor)


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


class _Flattens(ReferenceBackend):
    """A shape is made flat in the client's own struct."""

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        descriptor.memShape.dimSize[0] = size // ITEM_SIZE[descriptor.dataType]
        descriptor.memShape.numDim = 1
        return size


class _RoundsSize(ReferenceBackend):
    """The size of a shared buffer is made whole pages in the client's own struct."""

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        found = super().read_shared_buffer(address)
        custom = qnn.HtpMemDescriptor.from_address(address or 0)
        custom.size = -(-custom.size // 4096) * 4096
        return found


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


class _RemembersNumbers(ReferenceBackend):
    """The length of a buffer is remembered by the number of its descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[int, int] = {}

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if self.lengths.setdefault(request.fd, request.length) != request.length:
            raise QnnError(_INVALID)


class _LeaksOnFailure(ReferenceBackend):
    """What a failed batch had mapped stays mapped."""

    def roll_back(self, batch: list[Registration]) -> None:
        for registration in batch:
            del self.registrations[registration.handle]
            del registration.context.registrations[registration.handle]
            registration.context.shared.pop(registration.request.identity, None)


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


class _ReadsWholeUnion(ReferenceBackend):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.ION and (descriptor.customInfo or 0) >> 32:
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return super().read_descriptor(descriptor)


class _SizeInElements(ReferenceBackend):
    """An ION buffer has to hold four bytes for each element, whatever the data type."""

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if request.mem_type == MemType.ION and 4 * request.size > request.length:
            raise QnnError(_INVALID)


class _ReplacesIon(ReferenceBackend):
    """Another tensor over the same ION memory takes the place of the first."""

    def same_memory(self, request: Request, other: Request) -> bool:
        return super().same_memory(request, other) and not (
            request.mem_type == other.mem_type == MemType.ION and request.size != other.size
        )


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


class _DmaWithoutPointer(_DmaBuf):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.DMA_BUF and not descriptor.dmaBufInfo.data:
            own = type(descriptor).from_buffer_copy(descriptor)
            own.dmaBufInfo.data = ctypes.addressof(own)
            return super().read_descriptor(own)
        return super().read_descriptor(descriptor)


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


class _GpuTakesIon(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["dma-buf-only"])

    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.ION:
            super().require_mem_type(kind)


class _DmaTwice(_DmaBuf):
    def same_memory(self, request: Request, other: Request) -> bool:
        return request.mem_type != MemType.DMA_BUF and super().same_memory(request, other)


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


class _AnyHtpType(ReferenceBackend):
    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        if not address:
            return super().read_shared_buffer(address)
        custom = qnn.HtpMemDescriptor.from_address(address)
        own = qnn.HtpMemDescriptor.from_buffer_copy(custom)
        own.type = HtpMemType.SHARED_BUFFER
        return super().read_shared_buffer(ctypes.addressof(own))


class _TrustsSize(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        del context
        if self.range_end(request) > request.total:
            raise QnnError(_INVALID)


class _RoundsOffset(ReferenceBackend):
    def effective_offset(self, offset: int) -> int:
        return offset // 64 * 64


class _SharedByShape(ReferenceBackend):
    """Two tensors at one offset are told apart by their size."""

    def same_memory(self, request: Request, other: Request) -> bool:
        shared = request.mem_type == other.mem_type == MemType.CUSTOM
        return super().same_memory(request, other) and not (shared and request.size != other.size)


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


class _TypesApart(ReferenceBackend):
    """ION and shared buffers know nothing of each other: each has mappings of its own."""

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        (device, inode), length = super().examine_fd(fd)
        return (device, inode | self.kind << 60), length

    def require_mem_type(self, kind: int) -> None:
        super().require_mem_type(kind)
        self.kind = int(kind == MemType.CUSTOM)


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


class _RpcmemOnly(ReferenceBackend):
    """Only files of rpcmem's name are memory."""

    def examine_fd(self, fd: int) -> tuple[Identity, int]:
        found = super().examine_fd(fd)
        if "own" in os.readlink(f"/proc/self/fd/{fd}"):
            raise QnnError(Error.MEM_ERROR_MAPPING)
        return found


def _mutant(name: str, backend: type[ReferenceBackend], fault: str, *kills: str) -> Mutant:
    return Mutant(name, fault, kills, "memory", backend=backend)


MUTANTS = [
    _mutant("reg-any-type", _AnyTypeIsIon, "Memory of an unknown type is taken for ION.", "REG-09"),
    _mutant("reg-null-dimensions", _NullDimensions, "NULL dimensions count as one byte.", "REG-10"),
    _mutant("reg-no-elements", _NoElements, "A dimension of 0 registers nought bytes.", "REG-11"),
    _mutant("reg-rank-zero", _RankZero, "Rank 0 registers nought bytes.", "REG-11"),
    _mutant("reg-any-data-type", _AnyDataType, "An unknown data type has one byte.", "REG-12"),
    _mutant("reg-any-shape-config", _AnyShapeConfig, "An unknown shapeConfig is ignored.", "REG-27"),
    _mutant("reg-wants-shape-config", _WantsShapeConfig, "A NULL shapeConfig is refused.", "REG-27"),
    _mutant("reg-keeps-pointers", _KeepsPointers, "Client structs are read after the call.", "REG-18"),
    _mutant("reg-flattens", _Flattens, "Shapes are made flat in the client's struct.", "REG-19"),
    _mutant("reg-rounds-size", _RoundsSize, "Sizes are rounded in the client's struct.", "REG-19"),
    _mutant("reg-dup-ends-first", _DupEndsFirst, "A dup of the fd replaces the registration.", "REG-25"),
    _mutant("reg-by-number", _RemembersNumbers, "Lengths are remembered by fd number.", "REG-26"),
    _mutant("reg-leaks-mapping", _LeaksOnFailure, "A failed batch leaves mappings.", "REG-28"),
    _mutant("reg-leaks-fd", _LeaksFdOnFailure, "A failed registration leaves a descriptor.", "REG-28"),
    _mutant("ion-whole-union", _ReadsWholeUnion, "The union behind an ION fd is looked at.", "ION-01"),
    _mutant("ion-size-in-words", _SizeInElements, "ION tensors need four bytes an element.", "ION-01"),
    _mutant("ion-second-handle", _ReplacesIon, "An ION fd gets a second handle.", "ION-02"),
    _mutant("ion-undeclared", _IonAllTheSame, "ION is registered although its key says no.", "ION-06"),
    _mutant("dma-no-pointer", _DmaWithoutPointer, "DMA_BUF works without a pointer.", "DMA-01"),
    _mutant("dma-through-pointer", _DmaThroughPointer, "Results go to a foreign pointer.", "DMA-02"),
    _mutant("dma-takes-ion", _GpuTakesIon, "A backend without ION registers it.", "DMA-03", "ION-06"),
    _mutant("dma-twice", _DmaTwice, "DMA_BUF memory is registered twice.", "DMA-04"),
    _mutant("shb-null-custom", _NullCustom, "NULL customInfo is registered.", "SHB-01"),
    _mutant("shb-any-type", _AnyHtpType, "Any HTP type is a shared buffer.", "SHB-02"),
    _mutant("shb-trusts-size", _TrustsSize, "The declared size is believed.", "SHB-05"),
    _mutant("shb-rounds-offset", _RoundsOffset, "Offsets are rounded down to 64.", "SHB-10"),
    _mutant("shb-by-shape", _SharedByShape, "One offset gets a handle for each size.", "SHB-11"),
    _mutant("shb-overlap-by-turns", _OverlapByTurns, "Every other overlap is refused.", "SHB-12"),
    _mutant("shb-types-apart", _TypesApart, "An ION fd is registered as shared buffer.", "SHB-14"),
    _mutant("shb-failure-ends-group", _FailureEndsGroup, "A failure ends earlier handles.", "SHB-15"),
    _mutant("shb-rpcmem-only", _RpcmemOnly, "Memory that is not rpcmem's is refused.", "SHB-16"),
]
