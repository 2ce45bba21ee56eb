"""Composing and finalising graphs on the reference backend; data of STATIC tensors fetched by callback."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import (
    ITEM_SIZE,
    Error,
    LogLevel,
    TensorMemType,
    TensorType,
)
from pytest_qnn.qnn.abi.layouts import (
    ClientBuffer,
    FreeTensorRawDataFn,
    GetTensorRawDataFn,
    TensorRetrieveRaw,
    TensorV1,
)
from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.core import Core, refuse_unlisted
from pytest_qnn.qnn.reference.objects import (
    MAX_RANK,
    Context,
    Graph,
    Node,
    Parameters,
    QnnError,
    Tensor,
    bytes_of,
)
from pytest_qnn.qnn.reference.operators import suite, table
from pytest_qnn.qnn.reference.operators.described import find_operator, read_parameters, read_tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_IO = frozenset({int(TensorType.APP_WRITE), int(TensorType.APP_READ)})
_ARENA, _ARENAS = 32 << 20, 11
"""Bytes of an arena, and how many there are: what libQnnHtp maps."""
_MEM_TYPES = frozenset({int(TensorMemType.RAW), int(TensorMemType.MEMHANDLE)})
_BAD_TENSOR = Error.TENSOR_ERROR_INVALID_TENSOR_PARAM


class Graphs(Core):
    """Graphs up to and including preparation: the IO buffers of RAW tensors are allocated there."""

    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        """QnnGraph_create; options have no effect (unknown ones: 6000); 1005 in a deserialised context."""
        if not out:
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        owner: Context = self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE)
        if owner.deserialised:
            raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED)
        if name is None or name.decode(errors="replace") in owner.graphs:
            raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)
        refuse_unlisted(config, Error.GRAPH_ERROR_INVALID_ARGUMENT)
        self.ask("memory")
        handle = self.mint("graph")
        graph = Graph(handle, name.decode(errors="replace"), owner)
        self.graphs[handle] = owner.graphs[graph.name] = graph
        out[0] = handle

    def graph_retrieve(self, context: int | None, name: bytes | None, out: Any) -> None:
        """QnnGraph_retrieve: 6002 for a name that the context has not, 6023 while its graphs are deferred."""
        owner: Context = self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE)
        if not out or name is None:
            raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)
        if owner.external is not None and owner.external.pending is not None:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED)
        graph = owner.graphs.get(name.decode(errors="replace"))
        if graph is None:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_DOES_NOT_EXIST)
        out[0] = graph.handle

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        """QnnTensor_createGraphTensor: writes nothing but the id."""
        owner: Graph = self.require("graph", graph, Error.TENSOR_ERROR_INVALID_HANDLE)
        if not tensor:
            raise QnnError(_BAD_TENSOR)
        if owner.finalised:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_FINALIZED)
        if tensor[0].version not in (1, 2):
            raise QnnError(_BAD_TENSOR)
        given = tensor[0].v1
        made = self.read(given)
        self.check_preset(given)
        if any(made.name == other.name for other in owner.tensors.values()):
            raise QnnError(Error.TENSOR_ERROR_ALREADY_EXISTS)
        made.mem_type = self.hint(owner, made)
        self.ask("memory")
        owner.context.tensors += 1
        made.id = owner.context.tensors
        owner.tensors[made.id] = made
        given.id = made.id

    def read(self, given: Any) -> Tensor:
        """A tensor as a client describes it; 7004 for a type that the personality has not."""
        if given.type == TensorType.UPDATEABLE_STATIC and not self.personality.sections:
            raise QnnError(_BAD_TENSOR)
        if given.memType not in _MEM_TYPES and not self.personality.types_at_finalize:
            raise QnnError(self.personality.code("mem-type", _BAD_TENSOR))
        return read_tensor(given)

    def check_preset(self, given: Any) -> None:
        """Hook: an IO tensor comes without data (RAW) and without a handle (MEMHANDLE): else 7004."""
        preset = given.clientBuf.data if given.memType == TensorMemType.RAW else given.memHandle
        if given.type in _IO and preset:
            raise QnnError(_BAD_TENSOR)

    def hint(self, graph: Graph, tensor: Tensor) -> int:
        """Hook: the memory type that is remembered for a tensor: the one given at creation."""
        del graph
        return tensor.mem_type

    def backend_validate_op_config(self, backend: int | None, config: Any) -> None:
        """QnnBackend_validateOpConfig: 4005 for an unknown operator, 3110 for one that does not fit."""
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        operator = find_operator(config)
        if operator is None:
            raise QnnError(Error.BACKEND_ERROR_OP_PACKAGE_NOT_FOUND)
        node = config.v1
        try:
            inputs = [self.read(node.inputTensors[i].v1) for i in range(node.numOfInputs)]
            outputs = [self.read(node.outputTensors[i].v1) for i in range(node.numOfOutputs)]
            parameters = read_parameters(node, {})
        except (QnnError, ValueError):
            raise QnnError(Error.OP_PACKAGE_ERROR_VALIDATION_FAILURE) from None
        if not self.operator_accepts(operator, inputs, outputs, parameters):
            raise QnnError(Error.OP_PACKAGE_ERROR_VALIDATION_FAILURE)

    def operator_accepts(
        self, operator: str, inputs: list[Tensor], outputs: list[Tensor], parameters: Parameters
    ) -> bool:
        """Hook: the personality's operators can compute these tensors."""
        types = self.personality.data_types
        if suite.concerns(operator, (*inputs, *outputs)):
            return suite.accepts(suite.OPERATORS[operator], inputs, outputs, types)
        return table.takes(operator, inputs, outputs, parameters, types)

    def graph_add_node(self, graph: int | None, config: Any) -> None:
        """QnnGraph_addNode: tensors by id; 6005 for anything that does not fit, 6007 if not yet produced."""
        owner: Graph = self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if owner.finalised:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_FINALIZED)
        operator = find_operator(config)
        if operator is None or not config.v1.name:
            raise QnnError(Error.GRAPH_ERROR_INVALID_OP_CONFIG)
        node = config.v1
        try:
            inputs = [owner.tensors[node.inputTensors[i].v1.id] for i in range(node.numOfInputs)]
            outputs = [owner.tensors[node.outputTensors[i].v1.id] for i in range(node.numOfOutputs)]
            parameters = read_parameters(node, owner.tensors)
        except (KeyError, ValueError, QnnError):
            raise QnnError(Error.GRAPH_ERROR_INVALID_OP_CONFIG) from None
        produced = {tensor for each in owner.nodes for tensor in each.outputs}
        written = {int(TensorType.APP_READ), int(TensorType.NATIVE)}
        if not all(tensor.type in written and tensor.id not in produced for tensor in outputs):
            raise QnnError(Error.GRAPH_ERROR_INVALID_OP_CONFIG)
        if not self.operator_accepts(operator, inputs, outputs, parameters):
            raise QnnError(Error.GRAPH_ERROR_INVALID_OP_CONFIG)
        if any(tensor.type in written and tensor.id not in produced for tensor in inputs):
            raise QnnError(Error.GRAPH_ERROR_UNCONNECTED_NODE)
        ids = (tuple(tensor.id for tensor in inputs), tuple(tensor.id for tensor in outputs))
        made = Node(operator, *ids)
        if not suite.concerns(operator, (*inputs, *outputs)):
            made.parameters = parameters
        self.ask("memory")
        owner.nodes.append(made)

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        """QnnGraph_finalize: 6022 without a node, 6020 with an output that no node writes, 1000 twice."""
        owner: Graph = self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        if owner.finalised or profile or signal:
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
        if not owner.nodes:
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        produced = {tensor for node in owner.nodes for tensor in node.outputs}
        for tensor in owner.tensors.values():
            if tensor.type == TensorType.APP_WRITE:
                owner.inputs[tensor.id] = tensor
            elif tensor.type == TensorType.APP_READ:
                owner.outputs[tensor.id] = tensor
        if not produced.issuperset(owner.outputs):
            raise QnnError(Error.GRAPH_ERROR_CREATE_FAILED)
        if any(tensor.mem_type not in _MEM_TYPES for tensor in owner.tensors.values()):
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        self.ask("memory")
        owner.finalised = True
        try:
            while self.personality.arenas and len(self.arenas) < _ARENAS:
                self.arenas.append(self.own_memory("qnn-arena", _ARENA))
            self.prepare_buffers(owner)
        except QnnError:
            self.undo_prepare(owner)
            raise
        if self.listeners:
            self.log_message(owner.context.backend, LogLevel.INFO, b"graph finalised")

    def undo_prepare(self, graph: Graph) -> None:
        """Hook: a buffer could not be had: the graph is as it was, and may be finalised again."""
        graph.finalised = False
        self.release_buffers(graph)

    def prepare_buffers(self, graph: Graph) -> None:
        """Hook: allocate IO buffers at preparation, for each tensor that wants one."""
        for tensor in (*graph.inputs.values(), *graph.outputs.values()):
            if self.wants_buffer(graph, tensor):
                graph.buffers[tensor.id] = self.allocate_buffer(graph, tensor)

    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        """Hook: the IO tensor was left RAW, so it gets its buffer at preparation."""
        del graph
        return tensor.mem_type == TensorMemType.RAW

    def allocate_buffer(self, graph: Graph, tensor: Tensor) -> mapping.Mapping:
        """Hook: one internal IO buffer, a mapping of its own called ``qnn-io:<graph>:<tensor>``."""
        self.ask("mapping")
        return self.own_memory(f"qnn-io:{graph.name}:{tensor.name}", tensor.size)

    def own_memory(self, name: str, size: int) -> mapping.Mapping:
        """Memory of the backend's own; 1002 where the system has none, or no descriptor for it."""
        try:
            return mapping.anonymous(name, size, self.mappings)
        except OSError:
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC) from None

    def release_graphs(self, context: Context) -> None:
        """Hook: end every graph of a context that is freed, with its IO buffers."""
        for graph in context.graphs.values():
            self.release_buffers(graph)
            del self.graphs[graph.handle]
        context.graphs.clear()

    def release_buffers(self, graph: Graph) -> None:
        """Hook: give the internal IO buffers of a graph back."""
        for buffer in graph.buffers.values():
            buffer.release()
        graph.buffers.clear()


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
