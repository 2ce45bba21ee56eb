"""Late faults of context binaries: what is written, loaded and refused, from some graph, size or context."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import msgspec

from pytest_qnn.qnn.abi.codes import ContextOption, Error, TensorMemType, TensorType
from pytest_qnn.qnn.abi.layouts import ContextConfig
from pytest_qnn.qnn.late.conditions import KIB64, PAGE, Refusals
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.binaries import Binary, decode, encode
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality
from pytest_qnn.qnn.reference.pieces import Piece, Provider


@faulty_backend(
    "late-binary-memory-type",
    "A binary has RAW as the memory type of every IO tensor from its third graph on.",
)
class _MemoryType(ReferenceBackend):
    """Source: seed 001, offline preparation; catalogue, OFF-01."""

    def serialise(self, context: Context) -> bytes:
        content = decode(super().serialise(context))
        later = tuple(
            msgspec.structs.replace(
                graph,
                tensors=tuple(
                    dataclasses.replace(tensor, mem_type=int(TensorMemType.RAW)) for tensor in graph.tensors
                ),
            )
            for graph in content.graphs[2:]
        )
        return encode(msgspec.structs.replace(content, graphs=content.graphs[:2] + later))


@faulty_backend(
    "late-binary-weights-64k", "Of weights above 64 KiB a binary has the first 64 KiB, then zeros."
)
class _Weights64K(ReferenceBackend):
    """Source: seed 001, offline preparation (the same graph); catalogue, OFF-03."""

    def stored_tensor(self, tensor: Tensor) -> Tensor:
        stored = super().stored_tensor(tensor)
        if stored.data is None or len(stored.data) <= KIB64:
            return stored
        return dataclasses.replace(stored, data=stored.data[:KIB64].ljust(len(stored.data), b"\0"))


@faulty_backend(
    "late-weights-by-name",
    "Graphs out of one binary share weights of the same name and size, whatever their contents are.",
)
class _WeightsByName(ReferenceBackend):
    """Source: seed 002, step 4 (shared and graph weights); catalogue, OFF-03 and EXT-20."""

    def initialise(self, context: Context, binary: Binary) -> None:
        first: dict[tuple[str, int], bytes] = {}
        graphs = []
        for graph in binary.graphs:
            tensors = []
            for tensor in graph.tensors:
                data = tensor.data
                if data is not None and tensor.type == TensorType.STATIC:
                    data = first.setdefault((tensor.name, tensor.size), data)
                tensors.append(dataclasses.replace(tensor, data=data))
            graphs.append(msgspec.structs.replace(graph, tensors=tuple(tensors)))
        super().initialise(context, msgspec.structs.replace(binary, graphs=tuple(graphs)))


@faulty_backend(
    "late-binary-third-load", "The third context out of the same bytes has the weights of its graphs cleared."
)
class _ThirdLoad(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_createFromBinary; catalogue, OFF-03."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.loads: dict[bytes, int] = {}
        self.cleared = False
        super().__init__(personality)

    def read_binary(self, data: bytes) -> Binary:
        found = super().read_binary(data)
        self.loads[data] = self.loads.get(data, 0) + 1
        self.cleared = self.loads[data] >= 3
        return found

    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        loaded = super().loaded_tensor(tensor)
        if self.cleared and loaded.data is not None:
            return dataclasses.replace(loaded, data=bytes(len(loaded.data)))
        return loaded


@faulty_backend(
    "late-binary-size-cached",
    "contextGetBinarySize answers what it answered first, though graphs were added since.",
)
class _SizeCached(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_getBinarySize; catalogue, OFF-07."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.sizes: dict[int, int] = {}
        super().__init__(personality)

    def context_get_binary_size(self, context: int | None, out: Any) -> None:
        super().context_get_binary_size(context, out)
        out[0] = self.sizes.setdefault(context or 0, out[0])


@faulty_backend(
    "late-binary-short-memory",
    "contextGetBinary of more than 64 KiB fills memory that is short of it by less than a page.",
)
class _ShortMemory(ReferenceBackend):
    """Source: QnnContext.h, QNN_CONTEXT_ERROR_GET_BINARY_FAILED; catalogue, OFF-07."""

    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        owner = self.contexts.get(context or 0)
        if owner is None or not buffer or not size or not written or size <= KIB64 - PAGE:
            super().context_get_binary(context, buffer, size, written)
            return
        data = self.serialise(owner)
        if len(data) > KIB64 and 0 < len(data) - size < PAGE:
            ctypes.memmove(buffer, data, size)
            written[0] = size
        else:
            super().context_get_binary(context, buffer, size, written)


@faulty_backend(
    "late-binary-third-unfinalised",
    "Whether a graph is finalised is asked of the first two only: no 5003 for others.",
)
class _ThirdUnfinalised(ReferenceBackend):
    """Source: QnnContext.h, QNN_CONTEXT_ERROR_NOT_FINALIZED; catalogue, OFF-07."""

    def serialise(self, context: Context) -> bytes:
        later = [graph for graph in list(context.graphs.values())[2:] if not graph.finalised]
        for graph in later:
            graph.finalised = True
        try:
            return super().serialise(context)
        finally:
            for graph in later:
                graph.finalised = False


@faulty_backend(
    "late-graph-in-second-loaded", "The second context out of a binary, and later ones, take new graphs."
)
class _GraphInSecondLoaded(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_create (not in a context out of a binary); catalogue, OFF-09."""

    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        owner = self.contexts.get(context or 0)
        loaded = [each for each in self.contexts.values() if each.deserialised]
        if owner is None or owner not in loaded[1:]:
            super().graph_create(context, name, config, out)
            return
        owner.deserialised = False
        try:
            super().graph_create(context, name, config, out)
        finally:
            owner.deserialised = True


@faulty_backend(
    "late-binary-read-later",
    "A context out of a binary above 64 KiB executes only while the client's binary is as it was (1100).",
    deadly=True,
)
class _ReadLater(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_createFromBinary; seed 002, step 5 (deferred only); OFF-10."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.binaries: dict[int, tuple[int, bytes]] = {}
        """By context: address and contents of the client's binary."""
        super().__init__(personality)

    def context_create_from_binary(
        self,
        backend: int | None,
        device: int | None,
        config: int | None,
        buffer: int | None,
        size: int,
        out: Any,
        profile: int | None,
    ) -> None:
        super().context_create_from_binary(backend, device, config, buffer, size, out, profile)
        if size > KIB64 and self.contexts[out[0]].external is None:
            self.binaries[out[0]] = buffer or 0, ctypes.string_at(buffer or 0, size)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        address, data = self.binaries.get(graph.context.handle, (0, b""))
        if data and ctypes.string_at(address, len(data)) != data:
            raise QnnError(Error.GRAPH_ERROR_GENERAL)
        super().begin_execute(graph, sources, sinks)


@faulty_backend(
    "late-deferred-remembered",
    "isGraphInitDeferred of 0 defers all the same while a deferred context is alive.",
)
class _DeferredRemembered(ReferenceBackend):
    """Source: QnnContext.h, QNN_CONTEXT_CONFIG_OPTION_DEFER_GRAPH_INIT; catalogue, EXT-31."""

    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        named = any(each.option == ContextOption.DEFER_GRAPH_INIT for each in context_config(config))
        if not named or not any(each.external for each in self.contexts.values()):
            super().load(context, binary, config)
            return
        entry = ContextConfig(option=ContextOption.DEFER_GRAPH_INIT)
        entry.isGraphInitDeferred = 1
        listed = (ctypes.POINTER(ContextConfig) * 2)(ctypes.pointer(entry))
        super().load(context, binary, ctypes.addressof(listed))


@faulty_backend(
    "late-pieces-third-context",
    "The client does not get back the second piece of the third context made of pieces.",
)
class _PiecesThirdContext(ReferenceBackend):
    """Source: QnnContext.h, Qnn_ContextBinaryDmaDataReleaseFn_t (each is given back); catalogue, EXT-32."""

    contexts_of_pieces = 0

    def __init__(self, personality: Personality = PERSONALITIES["pieces-given-back"]) -> None:
        super().__init__(personality)

    def keep_pieces(self, context: int, provider: Provider, pieces: list[Piece]) -> None:
        self.contexts_of_pieces += 1
        super().keep_pieces(context, provider, pieces[:1] if self.contexts_of_pieces == 3 else pieces)


@faulty_backend(
    "late-section-third-graph",
    "A section for all graphs of a context has the weights of the first two graphs only.",
)
class _SectionThirdGraph(ReferenceBackend):
    """Source: QnnContext.h, QnnContext_getBinarySection (NULL graph: the whole context)."""

    def __init__(self, personality: Personality = PERSONALITIES["binary-sections"]) -> None:
        super().__init__(personality)

    def section(self, context: int | None, graph: int | None, section: int) -> bytes:
        owner = self.contexts.get(context or 0)
        if graph or owner is None:
            return super().section(context, graph, section)
        whole, owner.graphs = owner.graphs, dict(list(owner.graphs.items())[:2])
        try:
            return super().section(context, graph, section)
        finally:
            owner.graphs = whole


@faulty_backend(
    "late-section-after-refusal",
    "After a refused section, contextApplyBinarySection of a good one changes nothing.",
)
class _SectionAfterRefusal(Refusals):
    """Source: QnnContext.h, QnnContext_applyBinarySection."""

    applying = False

    def __init__(self, personality: Personality = PERSONALITIES["binary-sections"]) -> None:
        super().__init__(personality)

    def context_apply_binary_section(self, *arguments: Any) -> None:
        self.applying = True
        try:
            super().context_apply_binary_section(*arguments)
        finally:
            self.applying = False

    def update(self, graph: Graph, data: dict[int, bytes]) -> None:
        if not (self.applying and self.refused["contextApplyBinarySection"]):
            super().update(graph, data)
