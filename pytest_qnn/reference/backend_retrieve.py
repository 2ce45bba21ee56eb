"""Data of STATIC tensors that the client gives when it is asked: memory type RETRIEVE_RAW (property 516).

QnnTypes.h, Qnn_GetTensorRawDataFn_t: each call that gets data is followed by one that frees it. The data is
fetched when the graph is finalised, so it need not be there before. IO tensors of this type are refused
(7005), and so is the type at execute: what a client puts there is never called.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi.qnn import ClientBuffer, TensorV1
from pytest_qnn.abi.qnn_codes import ITEM_SIZE, Error, TensorMemType, TensorType
from pytest_qnn.abi.qnn_retrieve import FreeTensorRawDataFn, GetTensorRawDataFn, TensorRetrieveRaw
from pytest_qnn.reference.backend_graph import Graphs
from pytest_qnn.reference.backend_objects import MAX_RANK, Graph, QnnError, Tensor, bytes_of
from pytest_qnn.reference.personalities import DEFAULT, Personality

_Calls = tuple[int, int]
"""Addresses of the client's two functions."""


class Retrieval(Graphs):
    """RETRIEVE_RAW where a tensor is created, and the calls of the client when its graph is finalised."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.retrievals: dict[tuple[int, int], _Calls] = {}
        """By graph and tensor: data that is still to be fetched."""
        super().__init__(personality)

    def read(self, given: Any) -> Tensor:
        """The data of a tensor that is to be fetched is zeros until then."""
        if given.memType != TensorMemType.RETRIEVE_RAW or not self.personality.retrieve_raw:
            return super().read(given)
        if given.type != TensorType.STATIC:
            raise QnnError(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM)
        _calls(given)
        plain = TensorV1.from_buffer_copy(given)
        zeros = bytes(_size(given))
        plain.memType = TensorMemType.RAW
        plain.clientBuf.data = ctypes.cast(ctypes.c_char_p(zeros), ctypes.c_void_p).value
        plain.clientBuf.dataSize = len(zeros)
        return super().read(plain)

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        """QnnTensor_createGraphTensor; only version 2 of a tensor has the callbacks."""
        fetched = bool(tensor) and tensor[0].v1.memType == TensorMemType.RETRIEVE_RAW
        if fetched and self.personality.retrieve_raw and tensor[0].version != 2:
            raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
        super().tensor_create_graph_tensor(graph, tensor)
        if fetched:
            self.retrievals[graph or 0, tensor[0].v1.id] = _calls(tensor[0].v1)

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        """QnnGraph_finalize: 6022 where the client has no data for a tensor."""
        owner = self.graphs.get(graph or 0)
        for tensor in list(owner.tensors.values()) if owner and not owner.finalised else ():
            calls = self.retrievals.get((graph or 0, tensor.id))
            if owner and calls:
                tensor.data = self.fetch(owner, tensor, calls)
                del self.retrievals[graph or 0, tensor.id]
        super().graph_finalize(graph, profile, signal)

    def fetch(self, graph: Graph, tensor: Tensor, calls: _Calls) -> bytes:
        """Hook: ask the client for the data of a tensor, copy it, and say that it is no longer needed."""
        owners = (graph.context.handle, graph.handle, tensor.id)
        buffer = ClientBuffer()
        if GetTensorRawDataFn(calls[0])(*owners, ctypes.byref(buffer)):
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        enough = bool(buffer.data) and buffer.dataSize >= tensor.size
        data = ctypes.string_at(buffer.data, tensor.size) if enough else b""
        FreeTensorRawDataFn(calls[1])(*owners)
        if not enough:
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        return data

    def release_buffers(self, graph: Graph) -> None:
        """A graph that ends asks for nothing any more."""
        for key in [key for key in self.retrievals if key[0] == graph.handle]:
            del self.retrievals[key]
        super().release_buffers(graph)


def _calls(given: Any) -> _Calls:
    """The client's functions; 7004 if one is missing."""
    address = given.retrieveRaw
    found = TensorRetrieveRaw.from_address(address) if address else None
    if found is None or not found.getTensorData or not found.freeTensorData:
        raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
    addresses = (
        ctypes.cast(each, ctypes.c_void_p).value for each in (found.getTensorData, found.freeTensorData)
    )
    get, free = (each or 0 for each in addresses)
    return get, free


def _size(given: Any) -> int:
    """Bytes of the tensor; 7004 if its struct does not say."""
    if given.dataType not in ITEM_SIZE or given.rank > MAX_RANK or (given.rank and not given.dimensions):
        raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
    return bytes_of(tuple(given.dimensions[i] for i in range(given.rank)), given.dataType)
