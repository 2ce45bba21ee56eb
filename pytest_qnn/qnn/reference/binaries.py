"""Context binaries of the reference backend: written, read, and the offline generator's option."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import zlib
from typing import Any

import msgspec

from pytest_qnn.qnn.abi.codes import API_VERSION, Error, TensorMemType, TensorType
from pytest_qnn.qnn.reference.graphs import Graphs
from pytest_qnn.qnn.reference.objects import Context, Graph, Node, QnnError, Tensor
from pytest_qnn.qnn.reference.table import InterfaceTable

MAGIC = b"PQNNCTX1"
_HEADER = struct.Struct("<8sQI")
"""Magic, bytes of what follows, and its CRC-32."""
HEADER_SIZE = _HEADER.size


class StoredGraph(msgspec.Struct, frozen=True):
    """One graph of a binary."""

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]


class Binary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a binary holds."""

    build: bytes
    graphs: tuple[StoredGraph, ...]
    udma64: bool = False
    """Its graphs were prepared with extended udma."""
    core_version: tuple[int, int, int] = API_VERSION
    """Of the backend that wrote it."""
    backend_version: tuple[int, int, int] = InterfaceTable.backend_version


_DECODER = msgspec.msgpack.Decoder(Binary)


def encode(binary: Binary) -> bytes:
    """The bytes of a binary; equal contents give equal bytes."""
    body = msgspec.msgpack.encode(binary)
    return _HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body


def decode(data: bytes) -> Binary:
    """The contents of a binary.

    Raises:
        ValueError: it is truncated, has bytes behind its end, is damaged, or none of ours.
    """
    if len(data) < _HEADER.size:
        raise ValueError("too short")
    magic, length, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != MAGIC or len(body) != length or zlib.crc32(body) != checksum:
        raise ValueError("not a context binary, or a damaged one")
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


class Binaries(Graphs):
    """contextGetBinarySize, contextGetBinary, contextCreateFromBinary."""

    def require_binaries(self) -> None:
        """Hook: without context caching (property 202) all three calls answer 1000."""
        if not self.personality.binaries:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def context_get_binary_size(self, context: int | None, out: Any) -> None:
        """QnnContext_getBinarySize: 5003 while a graph is not finalised, 1005 for a deserialised context."""
        self.require_binaries()
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if not out:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        out[0] = len(self.serialise(owner))

    def context_get_binary(self, context: int | None, buffer: int | None, size: int, written: Any) -> None:
        """QnnContext_getBinary: 5007 for a buffer that is too small, of which nothing is then written."""
        self.require_binaries()
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if not buffer or not size or not written:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        data = self.serialise(owner)
        if size < len(data):
            raise QnnError(Error.CONTEXT_ERROR_GET_BINARY_FAILED)
        ctypes.memmove(buffer, data, len(data))
        written[0] = len(data)

    def serialise(self, context: Context) -> bytes:
        """Hook: the binary of a composed context."""
        if context.deserialised:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        if not all(graph.finalised for graph in context.graphs.values()):
            raise QnnError(Error.CONTEXT_ERROR_NOT_FINALIZED)
        graphs = (
            StoredGraph(
                graph.name, tuple(map(self.stored_tensor, graph.tensors.values())), tuple(graph.nodes)
            )
            for graph in context.graphs.values()
        )
        self.ask("memory")
        versions = self.core_version, self.backend_version
        return encode(Binary(self.build_id, tuple(graphs), context.udma64, *versions))

    def stored_tensor(self, tensor: Tensor) -> Tensor:
        """Hook: a tensor as the binary records it, its memory type included."""
        return tensor

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
        """QnnContext_createFromBinary: 5005 for anything that is not a whole binary of this backend."""
        self.require_binaries()
        if not out or not buffer or not size or profile:
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if device:
            self.require("device", device, Error.CONTEXT_ERROR_INVALID_HANDLE)
        self.check_binary_config(config)
        self.ask("memory")
        context = Context(self.mint("context"), backend or 0, device or 0, deserialised=True)
        try:
            binary = self.read_binary(ctypes.string_at(buffer, size))
        except ValueError:
            raise QnnError(Error.CONTEXT_ERROR_CREATE_FROM_BINARY) from None
        self.contexts[context.handle] = context
        try:
            self.load(context, binary, config)
        except QnnError:
            self.undo_load(context)
            raise
        out[0] = context.handle

    def undo_load(self, context: Context) -> None:
        """Hook: what is in the binary could not be made: there is no context either."""
        self.free_context(context)

    def check_binary_config(self, config: int | None) -> None:
        """Hook: what contextCreate takes."""
        self.check_context_config(config)

    def check_elsewhere(self, config: int | None) -> None:
        """Hook: what another call that makes contexts from binaries does not take."""

    def made_elsewhere(self, context: Context) -> None:
        """Hook: another call than contextCreateFromBinary has made the context."""

    def load(self, context: Context, binary: Binary, config: int | None) -> None:
        """Hook: what becomes of a binary that has been read: its graphs are there at once."""
        del config
        self.initialise(context, binary)

    def read_binary(self, data: bytes) -> Binary:
        """Hook: the contents of a binary; ValueError for anything else."""
        return decode(data)

    def initialise(self, context: Context, binary: Binary) -> None:
        """Hook: make the graphs of a binary, with the IO buffers of those tensors that are RAW."""
        for stored in binary.graphs:
            graph = Graph(self.mint("graph"), stored.name, context, finalised=True)
            for tensor in stored.tensors:
                mine = self.loaded_tensor(tensor)
                graph.tensors[mine.id] = mine
                if mine.type == TensorType.APP_WRITE:
                    graph.inputs[mine.id] = mine
                elif mine.type == TensorType.APP_READ:
                    graph.outputs[mine.id] = mine
            graph.nodes.extend(stored.nodes)
            self.graphs[graph.handle] = context.graphs[graph.name] = graph
            self.prepare_buffers(graph)

    def loaded_tensor(self, tensor: Tensor) -> Tensor:
        """Hook: a tensor as a loaded graph has it."""
        return tensor


_IO = frozenset({int(TensorType.APP_WRITE), int(TensorType.APP_READ)})


def input_output_tensor_mem_type(binary: bytes, mem_type: TensorMemType) -> bytes:
    """The binary with ``mem_type`` for every IO tensor, and for no other.

    Raises:
        ValueError: it is none of the reference's.
    """
    content = decode(binary)
    graphs = tuple(
        msgspec.structs.replace(
            graph,
            tensors=tuple(
                dataclasses.replace(tensor, mem_type=int(mem_type)) if tensor.type in _IO else tensor
                for tensor in graph.tensors
            ),
        )
        for graph in content.graphs
    )
    return encode(msgspec.structs.replace(content, graphs=graphs))
