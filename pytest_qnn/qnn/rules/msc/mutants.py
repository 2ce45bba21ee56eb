"""Reference backends with one fault each, for the rules of MSC."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import Error, TensorType
from pytest_qnn.qnn.abi.layouts import ContextBuffer, ContextMemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Context, Graph, QnnError, Registration
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.sections import decode, encode

_ROOM = 1 << 16


class _Sections(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["binary-sections"])


def _through_handle(address: int | None) -> bool:
    return bool(address) and ContextBuffer.from_address(address or 0).v1.memType == ContextMemType.MEMHANDLE


@faulty_backend("section-any-handle", "A section is taken into an unknown handle.", "MSC-01")
class _AnyHandle(_Sections):
    """An unknown handle stands for memory of the backend's own, in which the last section lies."""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.zeros(_ROOM, np.uint8)

    def section_memory(self, context: Context, address: int | None) -> Stored:
        try:
            return super().section_memory(context, address)
        except QnnError:
            return self.own


@faulty_backend("section-dead-handle", "A deregistered handle still takes sections.", "MSC-01")
class _DeadHandle(_Sections):
    """The memory of the handle that went last is kept, if it was no part of a shared buffer."""

    last: Registration | None = None

    def forget(self, registration: Registration) -> None:
        if registration.request.declared is not None:
            super().forget(registration)
            return
        before, self.last = self.last, registration
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]
        if before is not None:
            self.drop_user(before)

    def section_registration(self, context: Context, handle: int | None) -> Registration:
        if self.last is not None and handle == self.last.handle:
            return self.last
        return super().section_registration(context, handle)


@faulty_backend("section-null-handle", "NULL is taken for the newest memory handle.", "MSC-01")
class _NullHandle(_Sections):
    """NULL stands for the memory that was registered last."""

    def section_registration(self, context: Context, handle: int | None) -> Registration:
        last = next(reversed(self.registrations), None)
        return super().section_registration(context, handle or last)


@faulty_backend(
    "section-always-raw", "The memory type of a section's buffer is ignored.", "MSC-01", deadly=True
)
class _AlwaysRaw(_Sections):
    def section_memory(self, context: Context, address: int | None) -> Stored:
        if address:
            ContextBuffer.from_address(address).v1.memType = ContextMemType.RAW
        return super().section_memory(context, address)


@faulty_backend("section-whole-buffer", "A handle's memory goes on to the end of its buffer.", "MSC-01")
class _WholeBuffer(_Sections):
    """The memory of a handle goes on to the end of its buffer."""

    def section_memory(self, context: Context, address: int | None) -> Stored:
        if not _through_handle(address):
            return super().section_memory(context, address)
        handle = ContextBuffer.from_address(address or 0).v1.memHandle
        mapping = self.section_registration(context, handle).shared.mapping
        return mapping.view(0, mapping.length)


@faulty_backend("section-clears-all", "The whole buffer of a handle is cleared first.", "MSC-01")
class _ClearsAll(_Sections):
    """Before a section is written to memory behind a handle, the whole buffer is cleared."""

    def section_registration(self, context: Context, handle: int | None) -> Registration:
        found = super().section_registration(context, handle)
        if context.deserialised:
            return found
        found.shared.mapping.view(0, found.shared.mapping.length)[:] = 0
        return found


@faulty_backend("section-cut-short", "A section's last byte does not reach a handle's memory.", "MSC-01")
class _CutShort(_Sections):
    """Of memory behind a handle the last byte is never written."""

    def context_get_binary_section(
        self, context: int | None, graph: int | None, section: int, buffer: int | None, *more: Any
    ) -> None:
        owner = self.contexts.get(context or 0)
        memory = self.section_memory(owner, buffer) if owner and _through_handle(buffer) else None
        last = None if memory is None else int(memory[-1])
        super().context_get_binary_section(context, graph, section, buffer, *more)
        if memory is not None:
            memory[-1] = last


@faulty_backend("section-not-applied", "A section that comes through a handle is not applied.", "MSC-01")
class _NotApplied(_Sections):
    """A section that comes through a handle changes nothing, and the call succeeds."""

    def context_apply_binary_section(
        self, context: int | None, graph: int | None, section: int, buffer: int | None, *more: Any
    ) -> None:
        self.ignored = _through_handle(buffer)
        super().context_apply_binary_section(context, graph, section, buffer, *more)

    ignored = False

    def update(self, graph: Graph, data: dict[int, bytes]) -> None:
        if not self.ignored:
            super().update(graph, data)


@faulty_backend("section-applied-anyway", "A section is applied although its handle is none.", "MSC-01")
class _AppliedAllTheSame(_Sections):
    """With a handle that is none, the section taken last is applied, and the call fails."""

    last = b""

    def section(self, context: int | None, graph: int | None, section: int) -> bytes:
        self.last = super().section(context, graph, section)
        return self.last

    def context_apply_binary_section(
        self, context: int | None, graph: int | None, section: int, buffer: int | None, *more: Any
    ) -> None:
        try:
            super().context_apply_binary_section(context, graph, section, buffer, *more)
        except QnnError:
            if self.last and graph in self.graphs:
                for new in decode(self.last).values():
                    self.update(self.graphs[graph or 0], new)
            raise


@faulty_backend("section-other-code", "A handle that is none is refused with 5002.", "MSC-01")
class _OtherCode(_Sections):
    def section_registration(self, context: Context, handle: int | None) -> Registration:
        try:
            return super().section_registration(context, handle)
        except QnnError:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_HANDLE) from None


@faulty_backend("section-no-handle", "Registered handles are refused with 5000.", "MSC-01")
class _NoHandle(_Sections):
    def section_registration(self, context: Context, handle: int | None) -> Registration:
        del context, handle
        raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)


@faulty_backend("sections-say-only", "Key 213 says yes, and sections are not supported.", "MSC-01")
class _SaysOnly(_Sections):
    def context_get_binary_section_size(self, *arguments: Any) -> None:
        del arguments
        raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@faulty_backend("sections-broken", "No section can be had in raw memory, though key 213 says yes.", "MSC-01")
class _Broken(_Sections):
    def context_get_binary_section(self, *arguments: Any) -> None:
        super().context_get_binary_section(*arguments)
        raise QnnError(Error.COMMON_ERROR_GENERAL)


@faulty_backend("section-size-untold", "getBinarySectionSize succeeds and gives no size.", "MSC-02")
class _SizeUntold(_Sections):
    def context_get_binary_section_size(
        self, context: int | None, graph: int | None, section: int, out: Any
    ) -> None:
        super().context_get_binary_section_size(context, graph, section, out and (ctypes.c_uint64 * 1)())


@faulty_backend("section-written-untold", "getBinarySection does not say how much it has written.", "MSC-02")
class _WrittenUntold(_Sections):
    def context_get_binary_section(
        self,
        context: int | None,
        graph: int | None,
        section: int,
        buffer: int | None,
        written: Any,
        *more: Any,
    ) -> None:
        told = written and (ctypes.c_uint64 * 1)()
        super().context_get_binary_section(context, graph, section, buffer, told, *more)


@faulty_backend("update-refused", "Updatable tensors cannot be updated.", "MSC-03")
class _UpdateRefused(_Sections):
    def tensor_update_graph_tensors(self, graph: int | None, *_data: Any) -> None:
        self.require("graph", graph, Error.TENSOR_ERROR_INVALID_HANDLE)
        raise QnnError(Error.TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE)


@faulty_backend("update-forgotten", "An update is taken, and changes nothing.", "MSC-03")
class _UpdateForgotten(_Sections):
    def update(self, graph: Graph, data: dict[int, bytes]) -> None:
        pass


def _owner(backend: ReferenceBackend, context: int | None, graph: int | None) -> int | None:
    """In place of a live context: the one that the graph is in."""
    asked = backend.graphs.get(graph or 0)
    return asked.context.handle if asked and context in backend.contexts else context


@faulty_backend("section-of-anyone", "A context gives the sections of graphs of other contexts.", "MSC-04")
class _OfAnyone(_Sections):
    """Whatever context asks for the section of a graph, it gets it from the one that the graph is in."""

    def section(self, context: int | None, graph: int | None, section: int) -> bytes:
        return super().section(_owner(self, context, graph), graph, section)


@faulty_backend(
    "section-checks-size-only", "Only the size of another context's section is refused.", "MSC-04"
)
class _ChecksSizeOnly(_Sections):
    """QnnContext_getBinarySection trusts that a client has asked for the size before."""

    def context_get_binary_section(self, context: int | None, graph: int | None, *arguments: Any) -> None:
        super().context_get_binary_section(_owner(self, context, graph), graph, *arguments)


@faulty_backend(
    "section-unfinished", "The section of a graph that is still composed is an empty one.", "MSC-04"
)
class _Unfinished(_Sections):
    def section(self, context: int | None, graph: int | None, section: int) -> bytes:
        asked = self.graphs.get(graph or 0)
        if asked is not None and not asked.finalised and asked.context is self.contexts.get(context or 0):
            return encode({asked.name: {}})
        return super().section(context, graph, section)


@faulty_backend("update-constant", "Constant weights are updated too, at the next graphFinalize.", "MSC-04")
class _UpdatesConstants(_Sections):
    def tensor_update_graph_tensors(self, graph: int | None, tensors: int | None, count: int) -> None:
        owner = self.graphs.get(graph or 0)
        constant = (
            [each for each in owner.tensors.values() if each.type == TensorType.STATIC] if owner else []
        )
        for each in constant:
            each.type = int(TensorType.UPDATEABLE_STATIC)
        try:
            super().tensor_update_graph_tensors(graph, tensors, count)
        finally:
            for each in constant:
                each.type = int(TensorType.STATIC)
