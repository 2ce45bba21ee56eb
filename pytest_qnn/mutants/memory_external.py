"""Reference backends with one fault each in weights and spill-fill memory that a client registers (EXT)."""

from __future__ import annotations

import os
from typing import Any

from pytest_qnn.abi import qnn
from pytest_qnn.abi.qnn_codes import Error, HtpMemType, MemType, TensorType
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference import mapping
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_execute import Stored
from pytest_qnn.reference.backend_external import ROLES, SPILL, WEIGHTS
from pytest_qnn.reference.backend_objects import (
    Context,
    External,
    Graph,
    QnnError,
    Registration,
    Request,
    Tensor,
)
from pytest_qnn.reference.personalities import DEFAULT, Personality


def _role(descriptor: Any) -> int:
    if descriptor.memType != MemType.CUSTOM or not descriptor.customInfo:
        return int(HtpMemType.SHARED_BUFFER)
    return int(qnn.HtpMemDescriptor.from_address(descriptor.customInfo).type)


@faulty_backend("external-small", "external memory may be too small", "EXT-07")
class _TooSmall(ReferenceBackend):
    def check_fits(self, context: Context, request: Request) -> None:
        if request.role not in ROLES:
            super().check_fits(context, request)
            return
        self.open_external(context)
        self.check_alignment(request)


@faulty_backend("external-offset-free", "external memory may end behind its buffer", "EXT-07")
class _OffsetForgotten(ReferenceBackend):
    """The size is compared with what is needed, wherever the memory starts."""

    def check_fits(self, context: Context, request: Request) -> None:
        at, request.offset = request.offset, 0 if request.role in ROLES else request.offset
        try:
            super().check_fits(context, request)
        finally:
            request.offset = at
        if request.role in ROLES:
            self.check_alignment(request)


@faulty_backend("external-misaligned", "external memory may start anywhere", "EXT-08")
class _Misaligned(ReferenceBackend):
    def check_alignment(self, request: Request) -> None:
        del request


@faulty_backend("external-any-file", "a descriptor that cannot be mapped is taken", "EXT-09")
class _AnyFile(ReferenceBackend):
    """What cannot be mapped is replaced by memory of the backend's own."""

    def read_descriptor(self, descriptor: Any) -> Request:
        try:
            return super().read_descriptor(descriptor)
        except QnnError:
            if _role(descriptor) not in ROLES:
                raise
        custom = qnn.HtpMemDescriptor.from_address(descriptor.customInfo)
        fd = os.memfd_create("qnn-instead", os.MFD_CLOEXEC)
        os.ftruncate(fd, custom.size)
        identity, length = self.examine_fd(fd)
        return Request(MemType.CUSTOM, fd, identity, length, 0, 0, custom.size, custom.type)


@faulty_backend("external-plain-file", "a plain file is taken for a DMA buffer", "EXT-09")
class _PlainFile(ReferenceBackend):
    def require_dma_buffer(self, fd: int) -> None:
        del fd


@faulty_backend("external-shape", "external memory needs a shape", "EXT-11")
class _ShapeChecked(ReferenceBackend):
    def read_descriptor(self, descriptor: Any) -> Request:
        if _role(descriptor) in ROLES:
            self.needed_bytes(descriptor)
        return super().read_descriptor(descriptor)


@faulty_backend("external-both", "one kind of external memory needs the other", "EXT-12")
class _BothNeeded(ReferenceBackend):
    def context_finalize(self, context: int | None, profile: int | None) -> None:
        found: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        external = found.external
        if external is not None and external.pending is not None:
            needed = {role for role in ROLES if external.needed[role]}
            if external.given and set(external.given) != needed:
                raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        super().context_finalize(context, profile)


@faulty_backend("weights-shared", "two contexts have their weights in one buffer", "EXT-13")
class _WeightsShared(ReferenceBackend):
    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        both = request.role == WEIGHTS and other.request.role == WEIGHTS and other.context is not context
        return not both and super().excludes(context, request, other)


@faulty_backend("external-replaced", "a second buffer takes the place of the first", "EXT-14")
class _Replaced(ReferenceBackend):
    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        again = request.role in ROLES and request.role == other.request.role and other.context is context
        return not again and super().excludes(context, request, other)


@faulty_backend("spill-alone", "spill-fill memory belongs to one context", "EXT-15", "EXT-26")
class _SpillAlone(ReferenceBackend):
    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        same = request.identity == other.request.identity
        both = request.role == SPILL and other.request.role == SPILL
        return (same and both) or super().excludes(context, request, other)


@faulty_backend("external-other-use", "external memory may have another use", "EXT-16")
class _OtherUse(ReferenceBackend):
    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        return request.role == other.request.role and super().excludes(context, request, other)


@faulty_backend("external-other-context", "another context may use it otherwise", "EXT-16")
class _OtherUseElsewhere(ReferenceBackend):
    def excludes(self, context: Context, request: Request, other: Registration) -> bool:
        elsewhere = other.context is not context and request.role != other.request.role
        return not elsewhere and super().excludes(context, request, other)


@faulty_backend("weights-kept-inside", "weights go to memory of the backend's own", "EXT-17")
class _OwnWeights(ReferenceBackend):
    def external_memory(self, context: Context, role: int) -> tuple[mapping.Mapping, int]:
        assert context.external is not None
        if role != WEIGHTS:
            return super().external_memory(context, role)
        return mapping.anonymous("qnn-weights", context.external.needed[role], self.mappings), 0


@faulty_backend("weights-in-one-place", "the weights of all graphs lie in one place", "EXT-12", "EXT-20")
class _OneWeight(ReferenceBackend):
    """All weights of a context lie in one place."""

    def held(self, graph: Graph, tensor: Tensor) -> Stored:
        at, tensor.placed = tensor.placed, 0
        try:
            return super().held(graph, tensor)
        finally:
            tensor.placed = at


@faulty_backend("external-released", "external memory in use can be deregistered", "EXT-21")
class _Released(ReferenceBackend):
    def is_fixed(self, registration: Registration) -> bool:
        del registration
        return False


@faulty_backend("external-survives", "contextFree leaves external memory registered", "EXT-22")
class _Survives(ReferenceBackend):
    """Weights and spill-fill memory outlives its context."""

    def release_registrations(self, context: Context) -> None:
        for registration in list(context.registrations.values()):
            if registration.request.role not in ROLES:
                self.forget(registration)


@faulty_backend("external-fixed-early", "external memory is fixed at once", "EXT-23")
class _FixedEarly(ReferenceBackend):
    def is_fixed(self, registration: Registration) -> bool:
        return registration.request.role in ROLES


@faulty_backend("external-stale", "finalising uses memory that was taken back", "EXT-23")
class _Stale(ReferenceBackend):
    """A context keeps the memory that was taken back, mapped for itself."""

    def forget(self, registration: Registration) -> None:
        external = registration.context.external
        pending = external is not None and external.pending is not None
        if not pending or registration.request.role not in ROLES:
            super().forget(registration)
            return
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]


@faulty_backend("external-any-time", "external memory is taken at any time", "EXT-24")
class _AnyTime(ReferenceBackend):
    def open_external(self, context: Context) -> External:
        return context.external or External({int(WEIGHTS): 0, int(SPILL): 0}, None)


@faulty_backend("spill-state", "results in spill-fill memory are not written again", "EXT-26")
class _SpillKept(ReferenceBackend):
    """A result in spill-fill memory is taken to be there still."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.kept: set[tuple[int, int]] = set()

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        key = (graph.handle, tensor.id)
        if tensor.type == TensorType.NATIVE and tensor.placed >= 0 and key in self.kept:
            return self.held(graph, tensor)
        self.kept.add(key)
        return super().keep(graph, tensor, stored)
