"""Reference backends with one fault each, for the rules of EXT."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import (
    ContextOption,
    Error,
    HtpContextConfigOption,
    HtpContextOption,
    HtpMemType,
    MemType,
    Property,
    TensorType,
)
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.binaries import Binary
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.lists import Made
from pytest_qnn.qnn.reference.mapping import Mapping, at
from pytest_qnn.qnn.reference.objects import Context, External, Graph, QnnError, Registration, Request, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality
from pytest_qnn.qnn.reference.pieces import Piece, Provider
from pytest_qnn.qnn.reference.registrations import ALIGNMENT, ROLES, SPILL, WEIGHTS

_ENTRIES = ctypes.POINTER(ctypes.POINTER(layouts.ContextProperty))


def _pages(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@faulty_backend("deferred-at-once", "graphs of a deferred context can be retrieved early", "EXT-01")
class _AtOnce(ReferenceBackend):
    """The graphs of a deferred context are made when it is."""

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        owner = self.contexts.get(context or 0)
        if owner is not None and owner.external is not None and owner.external.pending is not None:
            self.context_finalize(context, None)
        super().graph_retrieve(context, name, out)


@faulty_backend("defer-in-create", "a composed context may be deferred", "EXT-02")
class _InCreate(ReferenceBackend):
    def takes_option(self, entry: layouts.ContextConfig) -> bool:
        return entry.option == ContextOption.DEFER_GRAPH_INIT or super().takes_option(entry)


@faulty_backend("alignment-odd", "the alignment is no power of two", "EXT-03")
class _OddAlignment(ReferenceBackend):
    def context_property(self, context: Context, option: int) -> int:
        value = super().context_property(context, option)
        return 3 * value if option == HtpContextOption.BUFFER_START_ALIGNMENT else value


@faulty_backend("property-behind", "the option is read from behind the property", "EXT-03")
class _PropertyBehind(ReferenceBackend):
    """Takes what a pointer of the list leads to for an array, and looks at its second entry."""

    def context_get_property(self, context: int | None, properties: int | None) -> None:
        if properties:
            behind = ctypes.cast(properties, _ENTRIES)[0][1]
            if behind.option != ContextOption.CUSTOM:
                raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        super().context_get_property(context, properties)


@faulty_backend("properties-one-by-one", "only the first property of a call is answered", "EXT-03")
class _OneByOne(ReferenceBackend):
    """Of several properties in one call, the first alone is answered."""

    def context_get_property(self, context: int | None, properties: int | None) -> None:
        entries = ctypes.cast(properties or 0, _ENTRIES)
        kept = []
        if properties and entries[0]:
            at = 1
            while entries[at]:
                place = layouts.HtpContextProperty.from_address(entries[at][0].customProperty)
                kept.append((place, place.value))
                at += 1
        super().context_get_property(context, properties)
        for place, value in kept:
            place.value = value


@faulty_backend("property-unknown-zero", "an unknown property is 0", "EXT-04")
class _Scribbles(ReferenceBackend):
    def context_property(self, context: Context, option: int) -> int:
        return super().context_property(context, option) if option in list(HtpContextOption) else 0


@faulty_backend("property-unknown-code", "an unknown property answers 1100", "EXT-04")
class _UnknownIsGeneral(ReferenceBackend):
    def context_property(self, context: Context, option: int) -> int:
        if option not in list(HtpContextOption):
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        return super().context_property(context, option)


@faulty_backend("property-unstable", "a property changes with what is registered", "EXT-05")
class _Unstable(ReferenceBackend):
    """What is registered is no longer needed."""

    def context_property(self, context: Context, option: int) -> int:
        value = super().context_property(context, option)
        assert context.external is not None
        taken = context.external.given.get(int(WEIGHTS)) if option == 3 else None
        return 0 if taken is not None else value


@faulty_backend("spill-summed", "spill-fill memory is summed over the graphs", "EXT-06")
class _SpillSum(ReferenceBackend):
    def needed_spill(self, binary: Binary) -> int:
        tensors = [tensor for graph in binary.graphs for tensor in graph.tensors]
        return _pages(sum(tensor.size for tensor in tensors if tensor.type == TensorType.NATIVE))


@faulty_backend("weights-of-first", "weights are counted for the first graph only", "EXT-06")
class _FirstWeights(ReferenceBackend):
    """What a context says of its weights; it takes all of them nevertheless."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.said: dict[int, int] = {}

    def needed_weights(self, binary: Binary) -> int:
        needed = super().needed_weights(binary)
        self.said[needed] = super().needed_weights(Binary(binary.build, binary.graphs[:1]))
        return needed

    def context_property(self, context: Context, option: int) -> int:
        found = super().context_property(context, option)
        return self.said[found] if option == HtpContextOption.WEIGHTS_BUFFER_SIZE else found


@faulty_backend("finalise-again", "a second contextFinalize succeeds", "EXT-25")
class _FinaliseAgain(ReferenceBackend):
    def context_finalize(self, context: int | None, profile: int | None) -> None:
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if owner.external is not None and owner.external.pending is not None:
            super().context_finalize(context, profile)


@faulty_backend("finalise-clears", "a refused contextFinalize takes the graphs away", "EXT-25")
class _FinaliseAny(ReferenceBackend):
    """A context that was not deferred is initialised again: its graphs are gone."""

    def context_finalize(self, context: int | None, profile: int | None) -> None:
        try:
            super().context_finalize(context, profile)
        except QnnError:
            owner = self.contexts.get(context or 0)
            if owner is not None:
                self.release_graphs(owner)
            raise


@faulty_backend("defer-beside-all", "deferring goes with options that exclude it", "EXT-28")
class _Together(ReferenceBackend):
    def check_beside_deferred(self, config: int | None) -> None:
        del config


@faulty_backend("defer-beside-udma", "deferring goes with extended udma", "EXT-28")
class _BesideUdma(ReferenceBackend):
    def check_beside_deferred(self, config: int | None) -> None:
        udma = HtpContextConfigOption.USE_EXTENDED_UDMA
        if not config or ctypes.c_uint32.from_address(config).value != udma:
            super().check_beside_deferred(config)


@faulty_backend("defer-beside-switching", "deferring goes with graph switching", "EXT-28")
class _BesideSwitching(ReferenceBackend):
    def takes_option(self, entry: layouts.ContextConfig) -> bool:
        switching = (ContextOption.MEMORY_LIMIT_HINT, ContextOption.PERSISTENT_BINARY)
        return entry.option in switching or super().takes_option(entry)


@faulty_backend("defer-udma-binary", "external memory goes with a binary prepared with udma64", "EXT-28")
class _UdmaBinary(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["late-limits"])

    def excludes_external(self, binary: Binary) -> bool:
        del binary
        return False


@faulty_backend("defer-by-signal", "createFromBinaryWithSignal defers as createFromBinary does", "EXT-36")
class _DefersBySignal(ReferenceBackend):
    def check_elsewhere(self, config: int | None) -> None:
        del config

    def made_elsewhere(self, context: Context) -> None:
        del context


@faulty_backend("defer-by-list", "createFromBinaryListAsync defers as createFromBinary does", "EXT-36")
class _DefersByList(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["lists-of-binaries"])

    def make_listed(
        self, backend: int | None, device: int | None, entry: layouts.ContextParamsV1, of_list: int | None
    ) -> Made:
        self.listing = True
        try:
            return super().make_listed(backend, device, entry, of_list)
        finally:
            self.listing = False

    listing = False

    def check_elsewhere(self, config: int | None) -> None:
        if not self.listing:
            super().check_elsewhere(config)

    def made_elsewhere(self, context: Context) -> None:
        if not self.listing:
            super().made_elsewhere(context)


@faulty_backend("defer-by-list-config", "the options of a list are looked at too late", "EXT-36")
class _DefersByListConfig(_DefersByList):
    """Knows the options of each context only, when it refuses to defer."""

    def check_elsewhere(self, config: int | None) -> None:
        if config != self.of_list:
            ReferenceBackend.check_elsewhere(self, config)

    of_list: int | None = None

    def listed_config(self, own: int | None, of_list: int | None) -> int | None:
        self.of_list = of_list
        return super().listed_config(own, of_list)


@faulty_backend("config-read-late", "the configuration is read after finalising", "EXT-19")
class _ConfigReadLate(ReferenceBackend):
    """The client's configuration is looked at again, when a graph is retrieved."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.configs: dict[int, list[layouts.ContextConfig]] = {}

    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        super().load(context, binary, config)
        self.configs[context.handle] = context_config(config)

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        for entry in self.configs.get(context or 0, ()):
            if entry.option not in list(ContextOption):
                raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().graph_retrieve(context, name, out)


@faulty_backend("half-deferred", "contextFinalize is not supported, though key 217 says so", "CAP-06")
class _HalfWay(ReferenceBackend):
    """Deferred initialisation begins and cannot be finished, as on libQnnHtp for x86-64."""

    def context_finalize(self, context: int | None, profile: int | None) -> None:
        del profile
        self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@faulty_backend("half-deferred-undeclared", "what key 217 denies begins, and is not finalised", "EXT-29")
class _HalfWayUndeclared(_HalfWay):
    def capability(self, key: int) -> int:
        denied = key == Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT
        return int(Error.PROPERTY_NOT_SUPPORTED) if denied else super().capability(key)


@faulty_backend("defer-no-is-yes", "the option given as no defers all the same", "EXT-31")
class _NoIsYes(ReferenceBackend):
    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        if any(entry.option == ContextOption.DEFER_GRAPH_INIT for entry in context_config(config)):
            needed = {int(WEIGHTS): self.needed_weights(binary), int(SPILL): self.needed_spill(binary)}
            context.external = External(needed, binary)
        else:
            super().load(context, binary, config)


def _role(descriptor: Any) -> int:
    if descriptor.memType != MemType.CUSTOM or not descriptor.customInfo:
        return int(HtpMemType.SHARED_BUFFER)
    return int(layouts.HtpMemDescriptor.from_address(descriptor.customInfo).type)


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
        custom = layouts.HtpMemDescriptor.from_address(descriptor.customInfo)
        fd = os.memfd_create("qnn-instead", os.MFD_CLOEXEC)
        os.ftruncate(fd, custom.size)
        identity, length = self.examine_fd(fd)
        return Request(MemType.CUSTOM, fd, identity, length, 0, 0, custom.size, custom.type)


@faulty_backend("external-plain-file", "a plain file is taken for a DMA buffer", "EXT-09")
class _PlainFile(ReferenceBackend):
    def require_dma_buffer(self, fd: int) -> None:
        del fd


@faulty_backend("external-shape", "a shape of external memory must be all of it", "EXT-11")
class _ShapeChecked(ReferenceBackend):
    def read_descriptor(self, descriptor: Any) -> Request:
        request = super().read_descriptor(descriptor)
        shaped = request.role in ROLES and descriptor.memShape.numDim
        if shaped and self.needed_bytes(descriptor) != request.length:
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        return request


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


@faulty_backend("weights-in-one-place", "the weights of all graphs lie in one place", "EXT-20")
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


@faulty_backend("spill-state", "an equal result is not written to spill-fill memory again", "EXT-26")
class _SpillKept(ReferenceBackend):
    """A result that equals the graph's last one is taken to be in spill-fill memory still."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.kept: dict[tuple[int, int], bytes] = {}

    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        key = (graph.handle, tensor.id)
        if tensor.type == TensorType.NATIVE and tensor.placed >= 0:
            if self.kept.get(key) == stored.tobytes():
                return self.held(graph, tensor)
            self.kept[key] = stored.tobytes()
        return super().keep(graph, tensor, stored)


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


class _Provided(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["provided-pieces"])


@faulty_backend("defer-by-callback", "createFromBinaryWithCallback defers as createFromBinary does", "EXT-36")
class _DefersByCallback(_Provided):
    def check_elsewhere(self, config: int | None) -> None:
        del config

    def made_elsewhere(self, context: Context) -> None:
        del context


@faulty_backend("pieces-never-released", "Gives no piece back.", "EXT-32")
class _NeverReleases(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        provider.release = lambda *_: 0
        super().let_go(provider, pieces)


@faulty_backend("pieces-kept-after-failure", "A call that fails gives no piece back.", "EXT-32")
class _KeepsAfterFailure(_Provided):
    """A call that fails forgets what it was given."""

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        try:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        except QnnError:
            pieces.clear()
            raise


@faulty_backend("pieces-released-twice", "Gives a piece back twice.", "EXT-32")
class _ReleasesTwice(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        super().let_go(provider, pieces)
        super().let_go(provider, pieces[:1])


@faulty_backend("pieces-beyond-the-end", "Asks for bytes that the binary does not have.", "EXT-32")
class _BeyondTheEnd(_Provided):
    def ranges(self, size: int) -> list[tuple[int, int]]:
        *others, (offset, length) = super().ranges(size)
        return [*others, (offset, length + 1)]


@faulty_backend("pieces-of-no-byte", "Asks for a piece of no byte.", "EXT-32")
class _AsksForNothing(_Provided):
    def ranges(self, size: int) -> list[tuple[int, int]]:
        return [*super().ranges(size), (size, 0)]

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        if size:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        provider.ask(offset, size, mapped=False)
        return b""


@faulty_backend("pieces-stay-mapped", "Memory that was given back stays mapped.", "EXT-32")
class _KeepsMapping(_Provided):
    def unmap_piece(self, piece: Piece) -> None:
        """Stays mapped until the process ends."""


@faulty_backend("pieces-error-ignored", "Does without a piece that the client has an error for.", "EXT-32")
class _IgnoresErrors(_Provided):
    """What the client does not provide is read from the binary itself."""

    def fetch_piece(
        self, provider: Provider, offset: int, size: int, buffer: int, pieces: list[Piece]
    ) -> bytes:
        try:
            return super().fetch_piece(provider, offset, size, buffer, pieces)
        except QnnError:
            return ctypes.string_at(buffer + offset, size)


@faulty_backend("pieces-own-parameter", "Gives pieces back with NULL for a parameter.", "EXT-32")
class _OwnParameter(_Provided):
    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        provider.parameter = None
        super().let_go(provider, pieces)


@faulty_backend("pieces-own-size", "Gives back other sizes than it was given.", "EXT-32")
class _OwnSize(_Provided):
    """Gives back as many bytes as it has asked for, whatever it was given."""

    def let_go(self, provider: Provider, pieces: list[Piece]) -> None:
        for piece in pieces:
            piece.aligned = piece.size
        super().let_go(provider, pieces)


@faulty_backend("pieces-written", "Writes to pieces.", "EXT-32")
class _Writes(_Provided):
    """Marks a piece as read, in its first byte."""

    def keep_pieces(self, context: int, provider: Provider, pieces: list[Piece]) -> None:
        for piece in pieces:
            at(piece.address + piece.start, 1)[:] ^= 0xFF
        super().keep_pieces(context, provider, pieces)


@faulty_backend("pieces-say-only", "Answers 1000, and property 220 says supported.", "EXT-32")
class _SaysOnly(_Provided):
    def context_create_from_binary_with_callback(self, *arguments: object) -> None:
        del arguments
        raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@faulty_backend("weights-copied-out", "weights memory is filled, and a copy is computed from", "EXT-33")
class _WeightsCopied(ReferenceBackend):
    def constant(self, graph: Graph, tensor: Tensor, data: bytes) -> Stored:
        del graph, tensor
        return np.frombuffer(data, np.uint8)


@faulty_backend("spill-for-show", "spill-fill memory is registered, and results lie elsewhere", "EXT-33")
class _SpillForShow(ReferenceBackend):
    def keep(self, graph: Graph, tensor: Tensor, stored: Stored) -> Stored:
        del graph, tensor
        return stored


_RPCMEM = "/memfd:rpcmem"
"""How the link of a descriptor of the emulated rpcmem begins in /proc."""


@faulty_backend("external-rpcmem-only", "external memory that rpcmem has not made is refused", "EXT-35")
class _RpcmemOnly(ReferenceBackend):
    def require_dma_buffer(self, fd: int) -> None:
        super().require_dma_buffer(fd)
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(_RPCMEM):
            raise QnnError(Error.MEM_ERROR_MAPPING)


@faulty_backend("external-own-fails-late", "contextFinalize fails with the client's own memory", "EXT-35")
class _OwnFailsLate(ReferenceBackend):
    def external_memory(self, context: Context, role: int) -> tuple[mapping.Mapping, int]:
        assert context.external is not None
        given = context.external.given.get(role)
        if given and not os.readlink(f"/proc/self/fd/{given.request.fd}").startswith(_RPCMEM):
            raise OSError
        return super().external_memory(context, role)


@faulty_backend("external-stays-mapped", "external memory stays mapped when its context is freed", "EXT-34")
class _StaysMapped(ReferenceBackend):
    """Takes external memory for its own, which it keeps."""

    def drop_user(self, registration: Registration) -> None:
        if registration.request.role not in ROLES:
            super().drop_user(registration)
            return
        registration.shared.users.discard(registration.handle)
        if not registration.shared.users:
            registration.context.shared.pop(registration.request.identity, None)


@faulty_backend("finalised-stays-mapped", "what contextFinalize has filled stays mapped for ever", "EXT-34")
class _FinalisedStays(_StaysMapped):
    def drop_user(self, registration: Registration) -> None:
        external = registration.context.external
        if external is not None and external.pending is None:
            super().drop_user(registration)
        else:
            ReferenceBackend.drop_user(self, registration)

    def release_graphs(self, context: Context) -> None:
        if context.external is not None:
            context.external.memory.clear()
        super().release_graphs(context)
