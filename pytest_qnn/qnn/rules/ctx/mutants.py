"""Reference backends with one fault each, for the rules of CTX."""

from __future__ import annotations

from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import Context, Graph, Identity, QnnError, Registration, Request


@faulty_backend("ctx-orphans-live", "Handles outlive their context.", "CTX-02")
class _OrphansLive(ReferenceBackend):
    """Handles of a freed context are still deregistered with success."""

    def __init__(self) -> None:
        super().__init__()
        self.orphans: set[int] = set()

    def release_registrations(self, context: Context) -> None:
        self.orphans.update(context.registrations)
        super().release_registrations(context)

    def deregister_one(self, handle: int | None) -> bool:
        return handle in self.orphans or super().deregister_one(handle)


@faulty_backend("ctx-backend-leaves", "backendFree leaves contexts usable.", "CTX-07")
class _BackendLeavesContexts(ReferenceBackend):
    """backendFree leaves its contexts, and they are usable."""

    def backend_free(self, backend: int | None) -> None:
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        del self.backends[backend or 0]


@faulty_backend("ctx-device-invalid", "A device in use is called invalid.", "CTX-07")
class _DeviceFreeInvalid(ReferenceBackend):
    """deviceFree under a context answers that there is no such device."""

    def device_free(self, device: int | None) -> None:
        try:
            super().device_free(device)
        except QnnError:
            raise QnnError(Error.DEVICE_ERROR_INVALID_HANDLE) from None


@faulty_backend(
    "ctx-refused-stays", "A context that could not be made of a binary still stands on its device.", "CTX-08"
)
class _RefusedStays(ReferenceBackend):
    """It is counted before the binary is looked at."""

    counted = 0

    def context_create_from_binary(self, *arguments: Any) -> None:
        self.counted += 1
        super().context_create_from_binary(*arguments)
        self.counted -= 1

    def device_free(self, device: int | None) -> None:
        if self.counted:
            self.require("device", device, Error.DEVICE_ERROR_INVALID_HANDLE)
            raise QnnError(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)
        super().device_free(device)


@faulty_backend("ctx-device-stays", "A device once used cannot be freed.", "CTX-08")
class _DeviceStaysInUse(ReferenceBackend):
    """A device on which a context ever stood cannot be freed."""

    used = False

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        super().context_create(backend, device, config, out)
        self.used = True

    def device_free(self, device: int | None) -> None:
        if self.used:
            self.require("device", device, Error.DEVICE_ERROR_INVALID_HANDLE)
            raise QnnError(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)
        super().device_free(device)


@faulty_backend("ctx-leaks", "contextFree leaves the mappings behind.", "CTX-01")
class _FreedContextKeepsMappings(ReferenceBackend):
    freeing = False

    def unmap(self, context: Context, identity: Identity) -> None:
        if not self.freeing:
            super().unmap(context, identity)

    def release_registrations(self, context: Context) -> None:
        self.freeing = True
        super().release_registrations(context)
        self.freeing = False


@faulty_backend(
    "ctx-keeps-behind-graphs",
    "contextFree leaves mappings behind where there was a graph before the registration.",
    "CTX-01",
)
class _KeepsBehindGraphs(_FreedContextKeepsMappings):
    """A context ends what it has in the reverse order, up to its first graph."""

    def __init__(self) -> None:
        super().__init__()
        self.with_graphs: set[Context] = set()

    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        if context.graphs:
            self.with_graphs.add(context)
        return super().register_one(context, descriptor, batch)

    def release_registrations(self, context: Context) -> None:
        self.freeing = context in self.with_graphs
        ReferenceBackend.release_registrations(self, context)
        self.freeing = False


@faulty_backend(
    "ctx-frees-siblings", "contextFree ends the registrations of its memory in every context.", "CTX-03"
)
class _FreeUnmapsEverywhere(ReferenceBackend):
    def release_registrations(self, context: Context) -> None:
        gone = {registration.request.identity for registration in context.registrations.values()}
        for registration in list(self.registrations.values()):
            if registration.request.identity in gone:
                self.forget(registration)


@faulty_backend("ctx-freed-registers", "memRegister accepts a context that was freed.", "CTX-04", "REG-06")
class _FreedContextRegisters(ReferenceBackend):
    """memRegister goes on with a context that was freed."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: dict[int, Context] = {}

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        self.freed[context.handle] = context

    def registration_context(self, context: int | None) -> Context:
        return self.freed.get(context or 0) or super().registration_context(context)


@faulty_backend("ctx-foreign-handle", "graphExecute takes a handle of any context.", "CTX-05")
class _ForeignHandleExecutes(ReferenceBackend):
    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        return self.registrations.get(handle or 0) or super().find_registration(graph, handle)


@faulty_backend("ctx-free-of-nothing", "Freeing what is no context succeeds.", "CTX-06")
class _FreesNothing(ReferenceBackend):
    def context_free(self, context: int | None, profile: int | None) -> None:
        if context in self.contexts:
            super().context_free(context, profile)


@faulty_backend("ctx-refused", "contextCreate refuses every call with 5000.", "CTX-09")
class _RefusesContexts(ReferenceBackend):
    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if not config:
            self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        super().context_create(backend, device, config, out)


@faulty_backend("ctx-one-at-a-time", "contextCreate is refused while another context lives.", "CTX-09")
class _OneContext(ReferenceBackend):
    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if self.contexts and out:
            self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
            raise QnnError(Error.CONTEXT_ERROR_MEM_ALLOC)
        super().context_create(backend, device, config, out)


@faulty_backend("ctx-maps-for-good", "What is mapped when its context is freed stays so for ever.", "CTX-10")
class _MapsForGood(ReferenceBackend):
    """Every context that registers a buffer gets the one mapping of it: nothing grows over rounds of it."""

    def __init__(self) -> None:
        super().__init__()
        self.of_file: dict[object, Mapping] = {}
        self.left: set[Mapping] = set()

    def map_memory(self, request: Request) -> Mapping:
        kept = self.of_file.get(request.identity)
        if kept is None or not kept.address:
            kept = self.of_file[request.identity] = super().map_memory(request)
        return kept

    def release_registrations(self, context: Context) -> None:
        self.left.update(shared.mapping for shared in context.shared.values())
        super().release_registrations(context)

    def give_back(self, memory: Mapping) -> None:
        if memory not in self.left and not self.is_used(memory):
            super().give_back(memory)

    def is_used(self, memory: Mapping) -> bool:
        """By another context."""
        contexts = self.contexts.values()
        return any(shared.mapping is memory for each in contexts for shared in each.shared.values())


@faulty_backend(
    "ctx-free-forgets-mapping", "contextFree leaves what is mapped for the next context.", "CTX-10"
)
class _FreeKeepsForNext(_MapsForGood):
    """memDeRegister unmaps what contextFree has left, too."""

    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        if registration is not None:
            self.left.discard(registration.shared.mapping)
        return super().deregister_one(handle)
