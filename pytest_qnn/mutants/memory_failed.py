"""Reference backends with one fault each in what a contextFinalize that fails leaves behind (EXT-30)."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_binary import Binary
from pytest_qnn.reference.backend_external import ROLES
from pytest_qnn.reference.backend_objects import Context, QnnError
from pytest_qnn.reference.mapping import Mapping
from pytest_qnn.reference.personalities import DEFAULT, Personality


class _Remembers(ReferenceBackend):
    """Knows the contexts that could not be finalised, by handle."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.failed: set[int] = set()

    def undo_finalize(self, context: Context, binary: Binary) -> None:
        super().undo_finalize(context, binary)
        self.failed.add(context.handle)


@faulty_backend(
    "finalise-failed-not-freed", "A context that could not be finalised cannot be freed.", "EXT-30"
)
class _CannotBeFreed(_Remembers):
    def context_free(self, context: int | None, profile: int | None) -> None:
        if context in self.failed:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        super().context_free(context, profile)


@faulty_backend(
    "finalise-failed-keeps-buffers", "It keeps its weights and spill-fill memory for ever.", "EXT-30"
)
class _KeepsBuffers(_Remembers):
    """The external memory of such a context stays registered when it is freed."""

    def release_registrations(self, context: Context) -> None:
        for registration in list(context.registrations.values()):
            if context.handle not in self.failed or registration.request.role not in ROLES:
                self.forget(registration)

    def deregister_one(self, handle: int | None) -> bool:
        registration = self.registrations.get(handle or 0)
        kept = registration is not None and registration.context.handle in self.failed
        return not kept and super().deregister_one(handle)


@faulty_backend("finalise-failed-leaks", "What was mapped by then stays mapped.", "EXT-30")
class _Leaks(ReferenceBackend):
    """Finalising maps the client's memory anew, and a failure forgets these mappings."""

    def external_memory(self, context: Context, role: int) -> tuple[Mapping, int]:
        assert context.external is not None
        given = context.external.given.get(role)
        if given is None:
            return super().external_memory(context, role)
        return Mapping(given.request.fd, given.request.length, self.mappings), given.request.offset

    def undo_finalize(self, context: Context, binary: Binary) -> None:
        assert context.external is not None
        context.external.memory.clear()
        super().undo_finalize(context, binary)


@faulty_backend("finalise-failed-counts-as-done", "It has its graphs all the same.", "EXT-30")
class _CountsAsDone(ReferenceBackend):
    """The graphs that were made before the failure stay."""

    def undo_finalize(self, context: Context, binary: Binary) -> None:
        """Nothing is undone."""
