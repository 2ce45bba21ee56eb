"""Late faults of what memRegister computes: ranks, sizes, and offsets up to and beyond 4 GiB."""

from __future__ import annotations

from typing import Any

from pytest_qnn.qnn.abi.codes import ITEM_SIZE, Error, MemType
from pytest_qnn.qnn.late.conditions import GIB4, KIB64, PAGE
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Binding, Context, QnnError, Registration, Request

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT


@faulty_backend("late-rank-5", "At rank 5 and above only the first four dimensions count in memRegister.")
class _Rank5(ReferenceBackend):
    """Source: QnnMem.h, Qnn_MemShape_t (numDim dimensions); catalogue, ION-01 and REG-15."""

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        for i in range(4, descriptor.memShape.numDim):
            size //= descriptor.memShape.dimSize[i]
        return size


@faulty_backend("late-rank-2-exact", "At rank 2 a buffer that is larger than its tensor is refused (8000).")
class _Rank2Exact(ReferenceBackend):
    """Source: seed 002, listing 2 line 57 (the size is that of the whole buffer); catalogue, REG-16."""

    exact = False

    def needed_bytes(self, descriptor: Any) -> int:
        self.exact = descriptor.memShape.numDim == 2
        return super().needed_bytes(descriptor)

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if self.exact and request.size and request.offset + request.size != request.total:
            raise QnnError(_INVALID)


@faulty_backend("late-rank-1-float", "At rank 1 an element of FLOAT_32 counts as two bytes in memRegister.")
class _Rank1Float(ReferenceBackend):
    """Source: QnnTypes.h, QNN_DATATYPE_FLOAT_32; catalogue, REG-15 and EXE-07."""

    def needed_bytes(self, descriptor: Any) -> int:
        size = super().needed_bytes(descriptor)
        short = descriptor.memShape.numDim == 1 and ITEM_SIZE[descriptor.dataType] == 4
        return size // 2 if short else size


@faulty_backend(
    "late-zero-last-dimension", "A dimension of 0 in the fourth place or behind is taken for a 1."
)
class _ZeroLastDimension(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_INVALID_SHAPE; catalogue, REG-11."""

    def needed_bytes(self, descriptor: Any) -> int:
        shape = descriptor.memShape
        if shape.dimSize and 4 <= shape.numDim <= 8:
            zeros = [i for i in range(3, shape.numDim) if not shape.dimSize[i]]
            if zeros and all(shape.dimSize[i] for i in range(3)):
                number = ITEM_SIZE.get(descriptor.dataType, 0)
                for i in range(shape.numDim):
                    number *= shape.dimSize[i] or 1
                return number
        return super().needed_bytes(descriptor)


@faulty_backend(
    "late-fit-off-by-one",
    "Behind an offset of 64 KiB a tensor may reach one byte beyond the size of its buffer.",
)
class _FitOffByOne(ReferenceBackend):
    """Source: seed 002, listing 2 (the buffer holds its tensors); known facts, section 1 point 8; SHB-04."""

    def range_end(self, request: Request) -> int:
        end = super().range_end(request)
        return end - 1 if request.offset >= KIB64 else end


@faulty_backend(
    "late-offset-rounded", "Offsets above one page that are no multiple of four are rounded down to one."
)
class _OffsetRounded(ReferenceBackend):
    """Source: seed 002, listing 2 lines 76 to 77 (tensors packed without padding); SHB-08 and SHB-10."""

    def locate(self, registration: Registration) -> int:
        offset = super().locate(registration)
        return offset & ~3 if offset > PAGE else offset


@faulty_backend("late-offset-from-2g", "Offsets from 2 GiB to 4 GiB are refused as negative (8000).")
class _OffsetFrom2G(ReferenceBackend):
    """Source: QnnHtpMem.h, QnnHtpMem_SharedBufferConfig_t (offset is a uint64_t); catalogue, SHB-06."""

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if GIB4 // 2 <= request.offset < GIB4:
            raise QnnError(_INVALID)


@faulty_backend("late-offset-32-bits", "At execute, 32 bits of an offset count: 4 GiB + n is read as n.")
class _Offset32Bits(ReferenceBackend):
    """Source: QnnHtpMem.h, QnnHtpMem_SharedBufferConfig_t (offset is a uint64_t); catalogue, SHB-06."""

    def locate(self, registration: Registration) -> int:
        return super().locate(registration) % GIB4


@faulty_backend(
    "late-across-4g", "Of a tensor that lies across 4 GiB, the part behind is read from the buffer's start."
)
class _Across4G(ReferenceBackend):
    """Source: QnnHtpMem.h, QnnHtpMem_SharedBufferConfig_t; catalogue, SHB-06 and SHB-08."""

    def read_input(self, graph: Any, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding)
        held = binding.registration
        if held is None or held.request.offset >= GIB4:
            return stored
        inside = GIB4 - held.request.offset
        if inside >= binding.tensor.size:
            return stored
        wrapped = stored.copy()
        wrapped[inside:] = held.shared.mapping.view(0, binding.tensor.size - inside)
        return wrapped


@faulty_backend("late-size-32-bits", "Of the declared size of a shared buffer 32 bits count.")
class _Size32Bits(ReferenceBackend):
    """Source: QnnHtpMem.h, QnnMemHtp_Descriptor_t (size is a uint64_t); catalogue, SHB-03."""

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        fd, offset, size = super().read_shared_buffer(address)
        return fd, offset, size % GIB4


@faulty_backend(
    "late-length-above-64k",
    "Whether an ION buffer is large enough is not looked at for tensors above 64 KiB.",
)
class _LengthAbove64K(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_INVALID_SHAPE and MAPPING; catalogue, REG-15."""

    def check_fits(self, context: Context, request: Request) -> None:
        if request.mem_type != MemType.ION or request.size <= KIB64:
            super().check_fits(context, request)
