"""Reference backends with one fault each in deferred initialisation and its properties (EXT, CAP-06)."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi import qnn
from pytest_qnn.abi.qnn_codes import (
    ContextOption,
    Error,
    HtpContextConfigOption,
    HtpContextOption,
    Property,
    TensorType,
)
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_binary import Binary
from pytest_qnn.reference.backend_core import context_config
from pytest_qnn.reference.backend_external import ALIGNMENT, SPILL, WEIGHTS
from pytest_qnn.reference.backend_objects import Context, External, QnnError
from pytest_qnn.reference.personalities import DEFAULT, Personality

_KEYS = frozenset({Property.CONTEXT_SUPPORT_DEFERRED_GRAPH_INIT, Property.CONTEXT_SUPPORT_CUSTOM_PROPERTY})
_ENTRIES = ctypes.POINTER(ctypes.POINTER(qnn.ContextProperty))


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
    def takes_option(self, entry: qnn.ContextConfig) -> bool:
        return entry.option == ContextOption.DEFER_GRAPH_INIT or super().takes_option(entry)


@faulty_backend("alignment-odd", "the alignment is no power of two", "EXT-03")
class _OddAlignment(ReferenceBackend):
    def context_property(self, context: Context, option: int) -> int:
        value = super().context_property(context, option)
        return 3 * value if option == HtpContextOption.BUFFER_START_ALIGNMENT else value


@faulty_backend("properties-one-by-one", "only the first property of a call is answered", "EXT-03")
class _OneByOne(ReferenceBackend):
    """Of several properties in one call, the first alone is answered."""

    def context_get_property(self, context: int | None, properties: int | None) -> None:
        entries = ctypes.cast(properties or 0, _ENTRIES)
        kept = []
        if properties and entries[0]:
            at = 1
            while entries[at]:
                place = qnn.HtpContextProperty.from_address(entries[at][0].customProperty)
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
    def needed_weights(self, binary: Binary) -> int:
        return super().needed_weights(Binary(binary.build, binary.graphs[:1]))


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
    def takes_option(self, entry: qnn.ContextConfig) -> bool:
        switching = (ContextOption.MEMORY_LIMIT_HINT, ContextOption.PERSISTENT_BINARY)
        return entry.option in switching or super().takes_option(entry)


@faulty_backend("config-read-late", "the configuration is read after finalising", "EXT-19")
class _ConfigReadLate(ReferenceBackend):
    """The client's configuration is looked at again, when a graph is retrieved."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.configs: dict[int, list[qnn.ContextConfig]] = {}

    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        super().load(context, binary, config)
        self.configs[context.handle] = context_config(config)

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        for entry in self.configs.get(context or 0, ()):
            if entry.option not in list(ContextOption):
                raise QnnError(Error.COMMON_ERROR_GENERAL)
        super().graph_retrieve(context, name, out)


@faulty_backend("half-deferred", "contextFinalize is not supported", "EXT-29", "CAP-06")
class _HalfWay(ReferenceBackend):
    """Deferred initialisation begins and cannot be finished, as on libQnnHtp for x86-64."""

    def context_finalize(self, context: int | None, profile: int | None) -> None:
        del profile
        self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)


@faulty_backend("defer-no-is-yes", "the option given as no defers all the same", "EXT-31")
class _NoIsYes(ReferenceBackend):
    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        if any(entry.option == ContextOption.DEFER_GRAPH_INIT for entry in context_config(config)):
            needed = {int(WEIGHTS): self.needed_weights(binary), int(SPILL): self.needed_spill(binary)}
            context.external = External(needed, binary)
        else:
            super().load(context, binary, config)


@faulty_backend("deferred-keys-denied", "keys 215 and 217 say no", "CAP-06")
class _KeysDenied(ReferenceBackend):
    def capability(self, key: int) -> int:
        return int(Error.PROPERTY_NOT_SUPPORTED) if key in _KEYS else super().capability(key)
