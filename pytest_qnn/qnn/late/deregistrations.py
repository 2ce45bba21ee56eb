"""Late faults of memDeRegister: long calls, handles of several contexts, stale handles, shared mappings."""

from __future__ import annotations

from collections import Counter

from pytest_qnn.qnn.abi.codes import HtpMemType
from pytest_qnn.qnn.late.conditions import PAGE, place_of
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Graph, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality


@faulty_backend(
    "late-deregister-first-16", "memDeRegister of more than 16 handles ends the first 16, and succeeds."
)
class _First16(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_deRegister; catalogue, DRG-01."""

    def deregister_all(self, handles: list[int | None]) -> bool:
        return super().deregister_all(handles[:16])


@faulty_backend(
    "late-deregister-third-invalid",
    "At its third invalid handle memDeRegister stops: handles behind it stay registered.",
)
class _ThirdInvalid(ReferenceBackend):
    """Source: QnnMem.h, note of QnnMem_deRegister (the valid ones go all the same); catalogue, DRG-05."""

    def deregister_all(self, handles: list[int | None]) -> bool:
        invalid = 0
        for handle in handles:
            invalid += not self.deregister_one(handle)
            if invalid == 3:
                return False
        return not invalid


@faulty_backend(
    "late-deregister-third-context",
    "In one memDeRegister the handles of a third context are invalid (8001), and stay registered.",
)
class _ThirdContext(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_deRegister (it has no context); catalogue, DRG-08."""

    def deregister_all(self, handles: list[int | None]) -> bool:
        contexts: list[int] = []
        taken: list[int | None] = []
        for handle in handles:
            found = self.registrations.get(handle or 0)
            owner = found.context.handle if found else 0
            if owner and owner not in contexts:
                contexts.append(owner)
            if not owner or owner in contexts[:2]:
                taken.append(handle)
        return super().deregister_all(taken) and len(taken) == len(handles)


@faulty_backend(
    "late-deregister-twice-apart",
    "A handle that stands twice in one call, four or more places apart, is no error.",
)
class _TwiceApart(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_INVALID_HANDLE; catalogue, DRG-06."""

    def deregister_all(self, handles: list[int | None]) -> bool:
        kept = [
            handle
            for i, handle in enumerate(handles)
            if handle not in self.registrations or handle not in handles[: max(0, i - 3)]
        ]
        return super().deregister_all(kept)


@faulty_backend(
    "late-deregister-users-mod-4",
    "Registrations of a buffer are counted in two bits: with five alive, the end of one unmaps the buffer.",
)
class _UsersMod4(ReferenceBackend):
    """Source: seed 002, listing 2 lines 97 to 103 (each handle goes on its own); catalogue, SHB-13."""

    def drop_user(self, registration: Registration) -> None:
        left = len(registration.shared.users) - 1
        super().drop_user(registration)
        if left and left % 4 == 0:
            registration.shared.mapping.release()


@faulty_backend(
    "late-deregister-clears",
    "The end of the last registration of a buffer that had eight clears its first page.",
)
class _Clears(ReferenceBackend):
    """Source: seed 002, listing 2 lines 95 to 104; catalogue, DRG-09."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.most: dict[int, int] = {}
        """Registrations alive at once, by mapping."""
        super().__init__(personality)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        shared = registration.shared
        self.most[id(shared)] = max(self.most.get(id(shared), 0), len(shared.users))

    def drop_user(self, registration: Registration) -> None:
        shared = registration.shared
        if len(shared.users) == 1 and self.most.pop(id(shared), 0) >= 8:
            shared.mapping.view(0, min(PAGE, shared.mapping.length))[:] = 0
        super().drop_user(registration)


@faulty_backend(
    "late-stale-third-life",
    "When a memory is registered a third time in its context, its first handle is valid again at execute.",
)
class _StaleThirdLife(ReferenceBackend):
    """Source: QnnGraph.h, QNN_GRAPH_ERROR_INVALID_TENSOR; catalogue, EXE-04 and DRG-04."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.lives: dict[tuple[object, ...], list[Registration]] = {}
        self.first: dict[int, list[Registration]] = {}
        super().__init__(personality)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        lives = self.lives.setdefault((registration.context.handle, place_of(registration)), [])
        lives.append(registration)
        self.first.setdefault(lives[0].handle, lives)

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        lives = self.first.get(handle or 0, [])
        if len(lives) >= 3 and lives[-1].handle in self.registrations and handle not in self.registrations:
            handle = lives[-1].handle
        return super().find_registration(graph, handle)


@faulty_backend(
    "late-deregister-other-size",
    "Ending the widest of three or more tensors of one buffer ends the next one as well.",
)
class _OtherSize(ReferenceBackend):
    """Source: seed 002, listing 2 lines 97 to 103; catalogue, DRG-11 and SHB-13."""

    def deregister_one(self, handle: int | None) -> bool:
        found = self.registrations.get(handle or 0)
        users = sorted(found.shared.users) if found else []
        ended = super().deregister_one(handle)
        if found is None or len(users) < 3 or found.request.role != HtpMemType.SHARED_BUFFER:
            return ended
        others = [self.registrations[each] for each in users if each in self.registrations]
        if all(each.request.size < found.request.size for each in others):
            self.forget(others[0])
        return ended


@faulty_backend(
    "late-deregister-129",
    "From the 129th handle on that a backend deregisters, success has a bit above the 32nd.",
)
class _HighBit(ReferenceBackend):
    """Source: QnnCommon.h, QNN_SUCCESS is 0; catalogue, IF-06 and DRG-01."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.ended: Counter[str] = Counter()
        super().__init__(personality)

    def deregister_one(self, handle: int | None) -> bool:
        self.ended["all"] += 1
        return super().deregister_one(handle)

    def answer(self, name: str, code: int) -> int:
        found = super().answer(name, code)
        late = name == "memDeRegister" and not code and self.ended["all"] >= 129
        return 1 << 32 if late else found
