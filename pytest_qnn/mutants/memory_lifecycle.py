"""Reference backends with one fault each: interface, capabilities, deregistration, contexts."""

from __future__ import annotations

from typing import Any, ClassVar

from pytest_qnn.abi.qnn_codes import Error, MemType
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import PERSONALITIES, ReferenceBackend
from pytest_qnn.reference.backend_objects import Context, Graph, Identity, QnnError, Registration


@faulty_backend("if-no-providers", "getProviders succeeds with a count of 0.", "IF-01")
class _NoProviders(ReferenceBackend):
    def provider_count(self) -> int:
        return 0


@faulty_backend(
    "if-providers-need-backend",
    "Without a backend only the first getProviders call lists a provider.",
    "IF-01",
)
class _ProvidersAfterBackend(ReferenceBackend):
    asked = False

    def interface_get_providers(self, providers: Any, count: Any) -> None:
        super().interface_get_providers(providers, count)
        if not self.backends and self.asked:
            count[0] = 0
        self.asked = True


@faulty_backend("if-null-accepted", "NULL out pointers of getProviders succeed.", "IF-02")
class _NullOutPointers(ReferenceBackend):
    def interface_get_providers(self, providers: Any, count: Any) -> None:
        if providers and count:
            super().interface_get_providers(providers, count)


@faulty_backend(
    "if-deregister-missing", "memDeRegister is NULL although the memory API is declared.", "IF-05"
)
class _NullDeregister(ReferenceBackend):
    null_entries: ClassVar[frozenset[str]] = frozenset({"memDeRegister"})


@faulty_backend("cap-unknown-key-one", "Unknown property keys are answered with 1.", "CAP-01")
class _CapabilityOne(ReferenceBackend):
    def capability(self, key: int) -> int:
        return 1 if super().capability(key) == Error.PROPERTY_ERROR_UNKNOWN_KEY else super().capability(key)


@faulty_backend("cap-not-early", "Property keys are answered with 4000 before backendCreate.", "CAP-01")
class _RefusesEarlyQuestions(ReferenceBackend):
    def capability(self, key: int) -> int:
        return super().capability(key) if self.backends else Error.BACKEND_ERROR_CANNOT_INITIALIZE


@faulty_backend("cap-invalid-for-unsupported", "Without the memory API its calls answer 8000.", "CAP-02")
class _InvalidInsteadOfUnsupported(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-memory"])

    def require_memory_api(self) -> None:
        raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)


@faulty_backend(
    "cap-writes-unsupported", "Without the memory API memRegister writes to the handle array.", "CAP-02"
)
class _WritesHandlesUnsupported(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["no-memory"])

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if handles:
            self.clear_handles(handles, count)
        super().mem_register(context, descriptors, count, handles)


@faulty_backend("cap-key-without-call", "The keys say yes, the calls answer 1000.", "CAP-03")
class _KeyWithoutCall(ReferenceBackend):
    def require_memory_api(self) -> None:
        raise QnnError(Error.MEM_ERROR_NOT_SUPPORTED)


@faulty_backend("cap-dma-buf-as-ion", "DMA_BUF is registered although its key says no.", "CAP-04")
class _DmaBufAsIon(ReferenceBackend):
    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.DMA_BUF:
            super().require_mem_type(kind)


@faulty_backend("drg-live-fails", "Deregistering a live handle answers 8001.", "DRG-01")
class _DeregisterFails(ReferenceBackend):
    def deregister_one(self, handle: int | None) -> bool:
        super().deregister_one(handle)
        return False


@faulty_backend("drg-null-array", "A NULL array is deregistered with success.", "DRG-02")
class _NullArrayIsNothing(ReferenceBackend):
    def mem_deregister(self, handles: Any, count: int) -> None:
        if handles:
            super().mem_deregister(handles, count)


@faulty_backend("drg-unknown-handle", "An unknown handle succeeds.", "DRG-03", "DRG-05")
class _UnknownIsFine(ReferenceBackend):
    def deregister_one(self, handle: int | None) -> bool:
        super().deregister_one(handle)
        return True


@faulty_backend("drg-twice", "A dead handle is deregistered with success.", "DRG-04")
class _RemembersTheDead(ReferenceBackend):
    """A handle once deregistered is taken as deregistered with success for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[int] = set()

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        self.dead.add(registration.handle)

    def deregister_one(self, handle: int | None) -> bool:
        return super().deregister_one(handle) or handle in self.dead

    def deregister_all(self, handles: list[int | None]) -> bool:
        # Within one call the repetition is seen, so that this is a fault of later calls alone.
        repeated = len(set(handles)) < len(handles)
        return super().deregister_all(handles) and not repeated


@faulty_backend("drg-stops-at-bad", "The first bad handle ends the call.", "DRG-05")
class _StopsAtFirstBad(ReferenceBackend):
    def deregister_all(self, handles: list[int | None]) -> bool:
        return all(self.deregister_one(handle) for handle in handles)


@faulty_backend("drg-repeated", "A handle repeated in one call goes unnoticed.", "DRG-06")
class _IgnoresRepetition(ReferenceBackend):
    def deregister_all(self, handles: list[int | None]) -> bool:
        return super().deregister_all(list(dict.fromkeys(handles)))


@faulty_backend("drg-scrubs", "Deregistering zeroes the tensor's memory.", "DRG-09")
class _DeregisterScrubs(ReferenceBackend):
    def drop_user(self, registration: Registration) -> None:
        request = registration.request
        registration.shared.mapping.view(request.offset, request.size)[:] = 0
        super().drop_user(registration)


@faulty_backend(
    "drg-clears-context", "Deregistering one handle ends every registration of its context.", "DRG-11"
)
class _DeregisterClearsContext(ReferenceBackend):
    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        if registration is not None:
            self.release_registrations(registration.context)
        return registration is not None


@faulty_backend("drg-unmaps-others", "Deregistering one handle unmaps the others.", "DRG-11")
class _UnmapsAtFirst(ReferenceBackend):
    """The other tensors of the context lose their memory, though their handles stay."""

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        for shared in registration.context.shared.values():
            shared.mapping.release()


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
