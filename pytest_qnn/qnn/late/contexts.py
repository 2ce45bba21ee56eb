"""Late faults of contexts, devices and backends: creating, freeing, and what goes with them."""

from __future__ import annotations

from typing import Any

from pytest_qnn.qnn.abi.codes import Error, HtpMemType, Property
from pytest_qnn.qnn.late.conditions import Numbered
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context, Kind, QnnError, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality


@faulty_backend(
    "late-context-slot-lost",
    "After 32 contexts were freed with memory still registered, no context can be made (1002).",
)
class _SlotLost(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_free; catalogue, LEAK-02."""

    slots_lost = 0

    def free_context(self, context: Context) -> None:
        self.slots_lost += bool(context.registrations)
        super().free_context(context)

    def check_context_config(self, config: int | None) -> None:
        if self.slots_lost >= 32:
            raise QnnError(Error.CONTEXT_ERROR_MEM_ALLOC)
        super().check_context_config(config)


@faulty_backend(
    "late-context-free-eight", "contextFree ends eight registrations; a ninth and later ones stay registered."
)
class _FreeEight(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_free; catalogue, CTX-01 and CTX-02."""

    def release_registrations(self, context: Context) -> None:
        for registration in list(context.registrations.values())[:8]:
            self.forget(registration)


@faulty_backend(
    "late-context-free-siblings",
    "Where three contexts have registered one memory, contextFree of one ends the registrations of all.",
)
class _FreeSiblings(ReferenceBackend):
    """Source: seed 002, step 4 (each context registers for itself); catalogue, CTX-03 and REG-23."""

    def free_context(self, context: Context) -> None:
        doomed: list[Registration] = []
        for mine in context.registrations.values():
            others = [each for each in self.registrations.values() if self._same(mine, each)]
            if len({each.context.handle for each in others}) >= 3:
                doomed += others
        super().free_context(context)
        for each in doomed:
            if each.handle in self.registrations:
                self.forget(each)

    def _same(self, one: Registration, other: Registration) -> bool:
        plain = one.request.role == other.request.role == HtpMemType.SHARED_BUFFER
        return plain and one.request.identity == other.request.identity


@faulty_backend(
    "late-context-slot-used-again",
    "memRegister takes a freed context for the one in its slot, once the slot has been used a third time.",
)
class _SlotUsedAgain(ReferenceBackend):
    """Source: QnnMem.h, QNN_MEM_ERROR_INVALID_HANDLE; catalogue, CTX-04 and REG-06."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.holders: list[list[int]] = []
        """By slot: the contexts that it has had."""
        super().__init__(personality)

    def mint(self, kind: Kind) -> int:
        handle = super().mint(kind)
        if kind == "context":
            free = [each for each in self.holders if each[-1] not in self.contexts]
            if not free:
                self.holders.append([])
            (free or self.holders[-1:])[0].append(handle)
        return handle

    def registration_context(self, context: int | None) -> Context:
        for held in self.holders:
            if context in held[:-1] and len(held) >= 3 and held[-1] in self.contexts:
                return self.contexts[held[-1]]
        return super().registration_context(context)


@faulty_backend(
    "late-context-double-free", "A second contextFree succeeds while three other contexts are alive."
)
class _DoubleFree(ReferenceBackend):
    """Source: QnnContext.h, QNN_CONTEXT_ERROR_INVALID_HANDLE; catalogue, CTX-06."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.freed: set[int] = set()
        super().__init__(personality)

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        self.freed.add(context.handle)

    def context_free(self, context: int | None, profile: int | None) -> None:
        if context not in self.freed or len(self.contexts) < 3:
            super().context_free(context, profile)


@faulty_backend(
    "late-device-flag",
    "deviceFree succeeds under a living context, which stays, after another context of the device was freed.",
)
class _DeviceFlag(ReferenceBackend):
    """Source: QnnDevice.h, QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT; catalogue, CTX-07."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.used: dict[int, bool] = {}
        super().__init__(personality)

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        super().context_create(backend, device, config, out)
        self.used[device or 0] = True

    def context_create_from_binary(self, backend: int | None, device: int | None, *arguments: Any) -> None:
        super().context_create_from_binary(backend, device, *arguments)
        self.used[device or 0] = True

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        self.used[context.device] = False

    def device_free(self, device: int | None) -> None:
        if device in self.devices and not self.used.get(device, False):
            del self.devices[device]
        else:
            super().device_free(device)


@faulty_backend(
    "late-second-backend-takes-all",
    "backendFree of a second backend frees the contexts of the first as well.",
)
class _SecondTakesAll(ReferenceBackend):
    """Source: QnnBackend.h, QnnBackend_free (its own resources); QnnContext.h: a context has one backend."""

    def backend_free(self, backend: int | None) -> None:
        if backend in self.backends and backend != next(iter(self.backends)):
            for context in list(self.contexts.values()):
                self.free_context(context)
        super().backend_free(backend)


@faulty_backend(
    "late-register-after-second-graph",
    "memRegister answers 1005 in a context with two finalised graphs or more.",
)
class _AfterSecondGraph(ReferenceBackend):
    """Source: seed 002, listing 1 lines 42 to 46 (a context is all it takes); catalogue, REG-17."""

    def registration_context(self, context: int | None) -> Context:
        found = super().registration_context(context)
        if sum(graph.finalised for graph in found.graphs.values()) >= 2 and not found.deserialised:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        return found


@faulty_backend(
    "late-capability-lost",
    "Property 1103 (CUSTOM memory) reads as not supported once four contexts were made.",
)
class _CapabilityLost(Numbered):
    """Source: QnnProperty.h, QnnProperty_hasCapability; catalogue, CAP-08 and CAP-03."""

    def capability(self, key: int) -> int:
        if key == Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM and self.made["context"] >= 4:
            return Error.PROPERTY_NOT_SUPPORTED
        return super().capability(key)


@faulty_backend(
    "late-null-context",
    "memRegister with a NULL context registers with the newest one, once it has registered 3 memories.",
)
class _NullContext(Numbered):
    """Source: QnnMem.h, QNN_MEM_ERROR_INVALID_HANDLE; seed 002, listing 1 line 42; catalogue, REG-06."""

    def registration_context(self, context: int | None) -> Context:
        if not context and self.contexts and self.made["mem"] >= 3:
            return next(reversed(self.contexts.values()))
        return super().registration_context(context)
