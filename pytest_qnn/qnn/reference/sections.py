"""Sections of context binaries on the reference backend: updatable weights, written out and put in again.

QnnTensor.h, QnnTensor_updateGraphTensors; QnnContext.h, QnnContext_getBinarySection, applyBinarySection. A
section holds the data of every updatable tensor of a graph, or of all graphs of its context. It is a
container like that of a binary, and ends where its own length says, whatever the memory holds behind it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgspec

from pytest_qnn.qnn.abi.codes import Error, TensorType
from pytest_qnn.qnn.abi.layouts import ContextBuffer, ContextMemType, SectionType
from pytest_qnn.qnn.abi.layouts import Tensor as TensorStruct
from pytest_qnn.qnn.reference.binaries import Binaries
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import at
from pytest_qnn.qnn.reference.objects import Context, Graph, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.operators.described import read_tensor

MAGIC = b"PQNNSEC1"
_HEADER = struct.Struct("<8sQI")
"""Magic, bytes of what follows, and its CRC-32."""
_INVALID = Error.CONTEXT_ERROR_INVALID_ARGUMENT
_OFFERED = (SectionType.UPDATABLE, SectionType.UPDATABLE_WEIGHTS)
Contents = dict[str, dict[int, bytes]]
"""By the name of a graph: the data of its updatable tensors, by id."""
_DECODER = msgspec.msgpack.Decoder(Contents)


def encode(contents: Contents) -> bytes:
    """The bytes of a section."""
    body = msgspec.msgpack.encode(contents)
    return _HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body


def decode(data: bytes) -> Contents:
    """What a section holds.

    Raises:
        ValueError: it is none of ours, damaged, or not all there.
    """
    if len(data) < _HEADER.size:
        raise ValueError("too short")
    magic, length, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size : _HEADER.size + length]
    if magic != MAGIC or len(body) != length or zlib.crc32(body) != checksum:
        raise ValueError("not a section, or a damaged one")
    return _DECODER.decode(body)


class Sections(Binaries):
    """Updates of tensors; contextGetBinarySectionSize, contextGetBinarySection, contextApplyBinarySection."""

    def require_sections(self) -> None:
        """Hook: without property 213 every one of these calls answers 1000."""
        if not self.personality.sections:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)

    def tensor_update_graph_tensors(self, graph: int | None, tensors: int | None, count: int) -> None:
        """QnnTensor_updateGraphTensors: new data, from the next graphFinalize on; 7007 if not updatable."""
        self.require_sections()
        owner: Graph = self.require("graph", graph, Error.TENSOR_ERROR_INVALID_HANDLE)
        if not owner.finalised:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED)
        if not tensors or not count:
            raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
        new: dict[int, bytes] = {}
        for address in pointers(tensors, count):
            if not address:
                raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
            if TensorStruct.from_address(address).version not in (1, 2):
                raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
            given = read_tensor(TensorStruct.from_address(address).v1)
            mine = owner.tensors.get(given.id)
            if mine is None or not _updates(mine, given):
                raise QnnError(Error.TENSOR_ERROR_INCOMPATIBLE_TENSOR_UPDATE)
            new[mine.id] = given.data or b""
        owner.updates |= new

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        """QnnGraph_finalize, once more for a graph whose tensors were updated."""
        owner = self.graphs.get(graph or 0)
        if owner is None or not owner.updates or profile or signal:
            super().graph_finalize(graph, profile, signal)
            return
        self.update(owner, owner.updates)
        owner.updates.clear()

    def update(self, graph: Graph, data: dict[int, bytes]) -> None:
        """Hook: give updatable tensors other data."""
        for number, each in data.items():
            graph.tensors[number].data = each

    def context_get_binary_section_size(
        self, context: int | None, graph: int | None, section: int, out: Any
    ) -> None:
        """QnnContext_getBinarySectionSize: 5003 while an update waits for graphFinalize."""
        self.require_sections()
        if not out:
            raise QnnError(_INVALID)
        out[0] = len(self.section(context, graph, section))

    def context_get_binary_section(
        self,
        context: int | None,
        graph: int | None,
        section: int,
        buffer: int | None,
        written: Any,
        profile: int | None,
        signal: int | None,
    ) -> None:
        """QnnContext_getBinarySection: 5007 for memory that is too small; nothing of it is then written."""
        self.require_sections()
        if not written or profile or signal:
            raise QnnError(_INVALID)
        data = self.section(context, graph, section)
        memory = self.section_memory(self.contexts[context or 0], buffer)
        self.check_space(len(data), memory)
        memory[: len(data)] = bytearray(data)
        written[0] = len(data)

    def context_apply_binary_section(
        self,
        context: int | None,
        graph: int | None,
        section: int,
        buffer: int | None,
        profile: int | None,
        signal: int | None,
    ) -> None:
        """QnnContext_applyBinarySection: all of a section, or nothing."""
        self.require_sections()
        owner: Context = self.require("context", context, _INVALID)
        wanted = {each.name: each for each in self._graphs(owner, graph, section)}
        if profile or signal:
            raise QnnError(_INVALID)
        try:
            contents = decode(bytes(self.section_memory(owner, buffer)))
        except (ValueError, msgspec.MsgspecError):
            raise QnnError(_INVALID) from None
        if not contents.keys() <= wanted.keys() or not all(
            _updatable(wanted[name]) == {number: len(data) for number, data in new.items()}
            for name, new in contents.items()
        ):
            raise QnnError(_INVALID)
        for name, new in contents.items():
            self.update(wanted[name], new)

    def section(self, context: int | None, graph: int | None, section: int) -> bytes:
        """Hook: the bytes of a section; 1005 for a context that itself came out of a binary."""
        owner: Context = self.require("context", context, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if owner.deserialised:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        graphs = self._graphs(owner, graph, section)
        if not all(each.finalised and not each.updates for each in graphs):
            raise QnnError(Error.CONTEXT_ERROR_NOT_FINALIZED)
        return encode(
            {each.name: {at: each.tensors[at].data or b"" for at in _updatable(each)} for each in graphs}
        )

    def _graphs(self, context: Context, graph: int | None, section: int) -> list[Graph]:
        """The graph, or without one all graphs of the context."""
        if section not in _OFFERED:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        if not graph:
            return list(context.graphs.values())
        found: Graph = self.require("graph", graph, _INVALID)
        if found.context is not context:
            raise QnnError(_INVALID)
        return [found]

    def section_memory(self, context: Context, address: int | None) -> Stored:
        """Hook: the memory that a QnnContext_Buffer_t leads to: memType says through which member."""
        buffer = ContextBuffer.from_address(address) if address else None
        if buffer is None or buffer.version != 1:
            raise QnnError(_INVALID)
        if buffer.v1.memType == ContextMemType.MEMHANDLE:
            found = self.section_registration(context, buffer.v1.memHandle)
            return found.shared.mapping.view(found.request.offset, found.request.size)
        raw = buffer.v1.binaryBuf
        if buffer.v1.memType != ContextMemType.RAW or not raw.data or not raw.dataSize:
            raise QnnError(_INVALID)
        return at(raw.data, raw.dataSize)

    def section_registration(self, context: Context, handle: int | None) -> Registration:
        """Hook: the live registration of a handle in the context; else 5000."""
        found = self.registrations.get(handle or 0)
        if found is None or found.context is not context:
            raise QnnError(_INVALID)
        return found

    def check_space(self, needed: int, memory: Stored) -> None:
        """Hook: the memory is large enough for a section."""
        if len(memory) < needed:
            raise QnnError(Error.CONTEXT_ERROR_GET_BINARY_FAILED)


def _updates(mine: Tensor, given: Tensor) -> bool:
    """Whether a tensor can have the data of another one: its shape and its elements are the same."""
    same = (mine.shape, mine.data_type) == (given.shape, given.data_type)
    return mine.type == TensorType.UPDATEABLE_STATIC and same


def _updatable(graph: Graph) -> dict[int, int]:
    """Bytes of each updatable tensor of the graph, by id."""
    updatable = TensorType.UPDATEABLE_STATIC
    return {each.id: each.size for each in graph.tensors.values() if each.type == updatable}


def pointers(address: int, count: int) -> list[int]:
    """The values of an array of pointers in client memory."""
    return [int.from_bytes(bytes(at(address + 8 * i, 8)), "little") for i in range(count)]
