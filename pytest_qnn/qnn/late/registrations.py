"""Late faults of memRegister: batches, repetitions, what is remembered of memory and of slots."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import Error, HtpMemType, MemType
from pytest_qnn.qnn.late.conditions import MIB, PAGE, Refusals, Slots, place_of
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import Context, Identity, QnnError, Registration, Request, Shared
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT


@faulty_backend(
    "late-batch-position-7", "In a batch of eight or more, the handles at positions 6 and 7 are exchanged."
)
class _BatchPosition7(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_register (handles correspond to descriptors); catalogue, REG-02."""

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch)
        if len(batch) > 7:
            handles[6], handles[7] = batch[7].handle, batch[6].handle


@faulty_backend(
    "late-batch-first-32", "A batch of more than 32 succeeds, and its handles from the 33rd on are NULL."
)
class _BatchFirst32(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_register; catalogue, REG-01 and REG-02."""

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch[:32])


@faulty_backend(
    "late-batch-clears-four", "A failed batch leaves the handles from the fifth on as the client had them."
)
class _BatchClearsFour(ReferenceBackend):
    """Source: QnnMem.h, note of QnnMem_register (handles are NULL on failure); catalogue, REG-07."""

    def clear_handles(self, handles: Any, count: int) -> None:
        super().clear_handles(handles, min(count, 4))


@faulty_backend(
    "late-roll-back-third", "From the third failed memRegister on, what a failed batch registered stays."
)
class _RollBackThird(Refusals):
    """Source: QnnMem.h, note of QnnMem_register (all or none); catalogue, REG-08."""

    def roll_back(self, batch: list[Registration]) -> None:
        if self.refused["memRegister"] < 2:
            super().roll_back(batch)


@faulty_backend(
    "late-batch-repetition-apart",
    "A repetition in one batch goes unnoticed where four or more descriptors lie between.",
)
class _BatchRepetitionApart(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_ALREADY_REGISTERED; catalogue, REG-22."""

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        return None if found in batch[:-4] else found


@faulty_backend(
    "late-repetition-third",
    "The third refusal of memory that is already registered (8002) ends its first registration.",
)
class _RepetitionThird(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_ALREADY_REGISTERED; catalogue, REG-21."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.again: Counter[int] = Counter()
        super().__init__(personality)

    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        self.again[existing.handle] += 1
        if self.again[existing.handle] == 3 and existing.request.role == HtpMemType.SHARED_BUFFER:
            self.forget(existing)
        return super().resolve_duplicate(existing)


@faulty_backend(
    "late-repetition-keeps-mapping",
    "Memory whose registration was refused as a repetition (8002) stays mapped after memDeRegister.",
)
class _RepetitionKeepsMapping(ReferenceBackend):
    """Source: seed 002, listing 1 lines 69 to 74; catalogue, DRG-10 and LEAK-03."""

    def resolve_duplicate(self, existing: Registration) -> Registration | None:
        existing.shared.users.add(0)
        return super().resolve_duplicate(existing)

    def release_registrations(self, context: Context) -> None:
        for shared in context.shared.values():
            shared.users.discard(0)
        super().release_registrations(context)
        for identity in list(context.shared):
            self.unmap(context, identity)


@faulty_backend(
    "late-repetition-forgotten",
    "Registering memory again is noticed only for the four newest registrations of the context.",
)
class _RepetitionForgotten(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_ALREADY_REGISTERED; catalogue, REG-21."""

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        return found if found in [*context.registrations.values()][-4:] else None


@faulty_backend(
    "late-fourth-context", "Memory that is registered in three contexts is refused in a fourth one (8002)."
)
class _FourthContext(ReferenceBackend):
    """Source: seed 002, step 4; catalogue, REG-23 (ONNX Runtime and LiteRT register for each context)."""

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        mine = [each for each in self.registrations.values() if each.request.identity == request.identity]
        if len({each.context.handle for each in mine} - {context.handle}) >= 3:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)


@faulty_backend(
    "late-tombstone-17",
    "Memory that was deregistered 16 times in a context cannot be registered again (8002).",
)
class _Tombstone17(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_deRegister; catalogue, REG-24."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.ended: Counter[tuple[int, Identity]] = Counter()
        super().__init__(personality)

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        self.ended[registration.context.handle, registration.request.identity] += 1

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        if self.ended[context.handle, request.identity] >= 16:
            raise QnnError(Error.MEM_ERROR_ALREADY_REGISTERED)


@faulty_backend(
    "late-number-third-file",
    "From the third file under one descriptor number on, one longer than the second is refused (8000).",
)
class _NumberThirdFile(ReferenceBackend):
    """Source: known facts, section 7.5 (a mismatched size of a reused number); catalogue, REG-26."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.files: dict[int, list[tuple[Identity, int]]] = {}
        super().__init__(personality)

    def check_fits(self, context: Context, request: Request) -> None:
        super().check_fits(context, request)
        seen = self.files.setdefault(request.fd, [])
        if len(seen) >= 2 and request.identity != seen[-1][0] and request.length > seen[1][1]:
            raise QnnError(_INVALID)
        if not seen or seen[-1][0] != request.identity:
            seen.append((request.identity, request.length))


@faulty_backend(
    "late-slot-leaks-refused",
    "After 40 refused memRegister calls, a good one answers 1002 (no slot is left).",
)
class _SlotLeaksRefused(Refusals):
    """Source: QnnMem.h, note of QnnMem_register; catalogue, REG-28 and LEAK-03."""

    def shared_for(self, context: Context, request: Request) -> Shared:
        if self.refused["memRegister"] >= 40:
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)
        return super().shared_for(context, request)


@faulty_backend("late-slot-leaks-257", "The 257th registration that a backend makes is refused (1002).")
class _SlotLeaks257(ReferenceBackend):
    """Source: seed 002, listing 1 lines 69 to 74 (what is deregistered is gone); catalogue, LEAK-01."""

    adopted = 0

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.adopted += 1

    def shared_for(self, context: Context, request: Request) -> Shared:
        if self.adopted >= 256:
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC)
        return super().shared_for(context, request)


@faulty_backend(
    "late-live-65", "With 64 registrations alive in a context, one more takes the place of the oldest."
)
class _Live65(ReferenceBackend):
    """Source: seed 002, listing 2 lines 43 to 78; catalogue, SHB-07 and DRG-11."""

    def adopt(self, registration: Registration) -> None:
        live = registration.context.registrations
        if len(live) >= 64 and registration.request.role == HtpMemType.SHARED_BUFFER:
            self.forget(next(iter(live.values())))
        super().adopt(registration)


@faulty_backend(
    "late-slot-offset",
    "A shared buffer's tensor in a slot that another one of the buffer had lies at that one's offset.",
)
class _SlotOffset(Slots):
    """Source: seed 002, listing 2 lines 40 to 60 (the offset of the tensor); catalogue, SHB-08."""

    def locate(self, registration: Registration) -> int:
        before = self.before.get(registration.handle)
        if before is not None and before.request.identity == registration.request.identity:
            return before.request.offset
        return super().locate(registration)


@faulty_backend(
    "late-offset-ascending", "From the fifth tensor of a shared buffer on, offsets must ascend (8000)."
)
class _OffsetAscending(ReferenceBackend):
    """Source: QnnHtpMem.h (different offsets of one buffer); catalogue, SHB-09."""

    def check_declared(self, shared: Shared, request: Request) -> None:
        super().check_declared(shared, request)
        live = [each for each in self.registrations.values() if each.shared is shared]
        if len(live) >= 4 and request.offset < max(each.request.offset for each in live):
            raise QnnError(_INVALID)


@faulty_backend(
    "late-size-after-first-gone",
    "A buffer is registered with another total size once the first of its registrations has ended.",
)
class _SizeAfterFirstGone(ReferenceBackend):
    """Source: seed 002, listing 2 line 57 (total size); known facts, section 1 point 8; catalogue, SHB-03."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.open: set[int] = set()
        """Mappings whose first registration has ended, by address."""
        super().__init__(personality)

    def drop_user(self, registration: Registration) -> None:
        first = min(registration.shared.users, default=0)
        if registration.handle == first:
            self.open.add(id(registration.shared))
        super().drop_user(registration)
        if not registration.shared.users:
            self.open.discard(id(registration.shared))

    def check_declared(self, shared: Shared, request: Request) -> None:
        if id(shared) not in self.open:
            super().check_declared(shared, request)


@faulty_backend(
    "late-htp-type-remembered",
    "An HTP descriptor of an unknown type is taken for a shared buffer after a good one.",
)
class _HtpTypeRemembered(ReferenceBackend):
    """Source: QnnHtpMem.h, QnnHtpMem_Type_t; catalogue, SHB-02."""

    good = False

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        custom = layouts.HtpMemDescriptor.from_address(address) if address else None
        if custom is not None and self.good and custom.type not in list(HtpMemType):
            return custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset, custom.size
        return super().read_shared_buffer(address)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.good = self.good or registration.request.mem_type == MemType.CUSTOM


@faulty_backend(
    "late-keeps-custom-info",
    "The offset of a batch's third and later descriptors is read from the client's struct at execute.",
    deadly=True,
)
class _KeepsCustomInfo(ReferenceBackend):
    """Source: seed 002, listing 2 lines 46 to 62 (structs of one turn of a loop); catalogue, REG-18."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.custom: dict[int, int] = {}
        """Addresses of HTP descriptors, by handle."""
        super().__init__(personality)

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        made = super().register_one(context, descriptor, batch)
        if len(batch) >= 2 and descriptor.memType == MemType.CUSTOM:
            self.custom[made.handle] = descriptor.customInfo
        return made

    def locate(self, registration: Registration) -> int:
        address = self.custom.get(registration.handle)
        if address is None:
            return super().locate(registration)
        return int(layouts.HtpMemDescriptor.from_address(address).sharedBufferConfig.offset)


@faulty_backend(
    "late-rounds-size",
    "A declared size above a mebibyte that is not whole pages is rounded up in the client's own struct.",
)
class _RoundsSize(ReferenceBackend):
    """Source: QnnMem.h, const Qnn_MemDescriptor_t*; catalogue, REG-19."""

    def read_shared_buffer(self, address: int | None) -> tuple[int, int, int]:
        found = super().read_shared_buffer(address)
        if found[2] > MIB and found[2] % PAGE:
            layouts.HtpMemDescriptor.from_address(address or 0).size += PAGE - found[2] % PAGE
        return found


@faulty_backend(
    "late-zeroes-last-page", "Registering a buffer of 16 MiB or more clears the last page of the buffer."
)
class _ZeroesLastPage(ReferenceBackend):
    """Source: seed 002, listing 1 (register, then load and execute); catalogue, REG-20."""

    def map_memory(self, request: Request) -> Mapping:
        made = super().map_memory(request)
        if request.length >= 16 * MIB:
            made.view(request.length - PAGE, PAGE)[:] = 0
        return made


@faulty_backend(
    "late-dma-without-data", "From the third DMA_BUF registration on, a NULL data pointer is accepted."
)
class _DmaWithoutData(ReferenceBackend):
    """Source: QnnMem.h, Qnn_MemDmaBufInfo_t; catalogue, DMA-01."""

    registered_dma = 0

    def __init__(self, personality: Personality = PERSONALITIES["dma-buf"]) -> None:
        super().__init__(personality)

    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.DMA_BUF and self.registered_dma >= 2:
            fd = descriptor.dmaBufInfo.fd
            size = self.needed_bytes(descriptor)
            identity, length = self.examine_fd(fd)
            return Request(MemType.DMA_BUF, fd, identity, length, size)
        return super().read_descriptor(descriptor)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.registered_dma += registration.request.mem_type == MemType.DMA_BUF


@faulty_backend(
    "late-second-use-of-ion",
    "ION memory that was registered before in its context is taken as a shared buffer as well.",
)
class _SecondUseOfIon(ReferenceBackend):
    """Source: seed 002, table of memory types (one fd, one handle); catalogue, SHB-14 and ION-02."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.seen: Counter[tuple[int, Identity]] = Counter()
        super().__init__(personality)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.seen[registration.context.handle, registration.request.identity] += 1

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        if found is None or found.request.mem_type == request.mem_type:
            return found
        return None if self.seen[context.handle, request.identity] >= 2 else found

    def check_declared(self, shared: Shared, request: Request) -> None:
        if shared.declared is not None and request.declared is not None:
            super().check_declared(shared, request)


@faulty_backend(
    "late-same-offset-after-first",
    "A second registration at one offset succeeds where it is not the lowest offset of its buffer.",
)
class _SameOffsetAfterFirst(ReferenceBackend):
    """Source: QnnHtpMem.h (each different offset); QNN_MEM_ERROR_ALREADY_REGISTERED; catalogue, SHB-11."""

    def find_duplicate(
        self, context: Context, request: Request, batch: list[Registration]
    ) -> Registration | None:
        found = super().find_duplicate(context, request, batch)
        if found is None or MemType.ION in (request.mem_type, found.request.mem_type):
            return found
        lower = [
            each
            for each in context.registrations.values()
            if place_of(each)[0] == request.identity and each.request.offset < request.offset
        ]
        return None if lower and request.role == HtpMemType.SHARED_BUFFER else found
