"""Reference backends with one fault each, for the rules of PRE."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import DataType, Error, TensorMemType, TensorType
from pytest_qnn.qnn.abi.layouts import Tensor as TensorStruct
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Graph, Parameters, QnnError, Tensor
from pytest_qnn.qnn.reference.operators import suite
from pytest_qnn.qnn.reference.operators.described import find_operator
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.rules.exe.mutants import INVALID_HANDLE, KeepsExecuting


@faulty_backend(
    "hint-ignored",
    "IO buffers are allocated at preparation whatever the hint",
    "PRE-04",
    "QMG-03",
    "QMG-04",
    "QMG-08",
)
class _HintIgnored(ReferenceBackend):
    def wants_buffer(self, graph: Graph, tensor: Tensor) -> bool:
        del graph, tensor
        return True


@faulty_backend("hint-refused", "tensors of memory type MEMHANDLE are refused", "PRE-04")
class _HintRefused(ReferenceBackend):
    def hint(self, graph: Graph, tensor: Tensor) -> int:
        if tensor.mem_type == TensorMemType.MEMHANDLE:
            raise QnnError(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM)
        return super().hint(graph, tensor)


@faulty_backend("preset-handle", "a tensor may be created with a memory handle", "PRE-01")
class _PresetHandle(ReferenceBackend):
    def check_preset(self, given: Any) -> None:
        if given.memType != TensorMemType.MEMHANDLE:
            super().check_preset(given)


@faulty_backend("preset-data", "a raw tensor may be created with data", "PRE-02")
class _PresetData(ReferenceBackend):
    def check_preset(self, given: Any) -> None:
        if given.memType != TensorMemType.RAW:
            super().check_preset(given)


_BAD_PARAMETER = Error.TENSOR_ERROR_INVALID_TENSOR_PARAM


@faulty_backend("static-read-later", "a STATIC tensor's data is read at addNode", "PRE-03")
class _WeightsLater(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        super().graph_add_node(graph, config)
        for position in range(config.v1.numOfInputs):
            given = config.v1.inputTensors[position].v1
            if given.type == TensorType.STATIC:
                data = ctypes.string_at(given.clientBuf.data, given.clientBuf.dataSize)
                self.graphs[graph or 0].tensors[given.id].data = data


class _Creates(KeepsExecuting):
    """Changes a copy of the client's struct before it is looked at; gives the id back."""

    def change(self, given: Any) -> None:
        raise TypeError(f"each mutant says what it changes of {given}")

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        copy = TensorStruct.from_buffer_copy(tensor[0])
        self.change(copy)
        super().tensor_create_graph_tensor(graph, ctypes.pointer(copy))
        tensor[0].v1.id = copy.v1.id


@faulty_backend("static-null-zeros", "a STATIC tensor without data is zeros", "PRE-03")
class _NoWeightsAreZeros(_Creates):
    def change(self, given: Any) -> None:
        if given.v1.type == TensorType.STATIC and not given.v1.clientBuf.data:
            given.v1.clientBuf.data = self.own(1 << 16)
            given.v1.clientBuf.dataSize = 1 << 16


@faulty_backend("native-hint-refused", "a NATIVE tensor must be RAW", "PRE-05")
class _NoNativeHints(_Creates):
    def change(self, given: Any) -> None:
        if given.v1.type == TensorType.NATIVE and given.v1.memType == INVALID_HANDLE:
            raise QnnError(_BAD_PARAMETER)


@faulty_backend("create-any-type-raw", "an unknown memory type is created as RAW", "PRE-06")
class _UnknownIsRaw(_Creates):
    def change(self, given: Any) -> None:
        if given.v1.memType not in (TensorMemType.RAW, INVALID_HANDLE):
            given.v1.memType = TensorMemType.RAW


@faulty_backend("create-version-one", "tensors of version 2 are refused", "PRE-08")
class _OnlyVersionOne(_Creates):
    def change(self, given: Any) -> None:
        if given.version == 2:
            raise QnnError(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM)


@faulty_backend("create-version-two-free", "version 2 may come with memory", "PRE-08")
class _VersionTwoUnchecked(_Creates):
    def change(self, given: Any) -> None:
        if given.version == 2 and given.v1.type != TensorType.STATIC:
            given.v1.clientBuf.data = None


@faulty_backend("create-writes-structs", "a creation writes memType and dataSize", "PRE-07")
class _WritesStructs(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        super().tensor_create_graph_tensor(graph, tensor)
        tensor[0].v1.memType = TensorMemType.RAW
        tensor[0].v1.clientBuf.dataSize = 1


@faulty_backend("create-ids-per-graph", "tensor ids begin anew in each graph", "PRE-07")
class _IdsPerGraph(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if graph in self.graphs:
            owner = self.graphs[graph]
            owner.context.tensors = len(owner.tensors)
        super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend("create-ids-of-seven-bits", "tensor ids have seven bits, and begin anew behind 127", "PRE-07")
class _IdsOfSevenBits(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if graph in self.graphs:
            self.graphs[graph].context.tensors %= 127
        super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend("node-types-win", "the node's structs say the memory type", "PRE-09")
class _NodeTypesWin(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        super().graph_add_node(graph, config)
        owner = self.graphs[graph or 0]
        node = config.v1
        given = [node.inputTensors[i].v1 for i in range(node.numOfInputs)]
        for each in (*given, *(node.outputTensors[i].v1 for i in range(node.numOfOutputs))):
            owner.tensors[each.id].mem_type = each.memType


@faulty_backend("graph-refused", "graphCreate takes every name for one that is there.", "PRE-10")
class _RefusesGraphs(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        del name, config, out
        self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE)
        raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)


@faulty_backend("graph-one-per-context", "A context holds one graph.", "PRE-10")
class _OneGraph(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        if self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE).graphs:
            raise QnnError(Error.GRAPH_ERROR_CREATE_FAILED)
        super().graph_create(context, name, config, out)


@faulty_backend("graph-names-cut", "graphCreate compares the first sixteen characters of names.", "PRE-10")
class _ComparesBeginnings(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        there = self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE).graphs
        if name is not None and any(name[:16] == each.encode()[:16] for each in there):
            raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)
        super().graph_create(context, name, config, out)


@faulty_backend("graph-names-of-all", "A name is refused that a graph of any context has.", "PRE-10")
class _NamesOfAll(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        self.require("context", context, Error.GRAPH_ERROR_INVALID_HANDLE)
        if name is not None and any(name.decode() in each.graphs for each in self.contexts.values()):
            raise QnnError(Error.GRAPH_ERROR_INVALID_NAME)
        super().graph_create(context, name, config, out)


@faulty_backend("tensor-refused", "createGraphTensor refuses every tensor.", "PRE-11")
class _RefusesTensors(ReferenceBackend):
    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        del tensor
        self.require("graph", graph, Error.TENSOR_ERROR_INVALID_HANDLE)
        raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)


@faulty_backend("finalize-refused", "graphFinalize fails for graphs of one input.", "PRE-11")
class _RefusesOneInput(ReferenceBackend):
    """validateOpConfig accepts their operators."""

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is not None and any(len(node.inputs) == 1 for node in owner.nodes):
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        super().graph_finalize(graph, profile, signal)


@faulty_backend("graph-names-twice", "A second graph of a name takes the place of the first.", "PRE-12")
class _NamesTwice(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        owner = self.contexts.get(context or 0)
        if owner is not None and name is not None:
            owner.graphs.pop(name.decode(errors="replace"), None)
        super().graph_create(context, name, config, out)


@faulty_backend("node-any-tensor", "A node of an unknown tensor is left out, and no error.", "PRE-12")
class _AnyTensor(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        owner, node = self.graphs.get(graph or 0), config.v1
        ids = {node.inputTensors[i].v1.id for i in range(node.numOfInputs)} if node.inputTensors else set()
        if owner is None or owner.finalised or ids <= owner.tensors.keys():
            super().graph_add_node(graph, config)


@faulty_backend("node-after-finalise", "A node after graphFinalize has no effect, and no error.", "PRE-12")
class _NodeAfterFinalise(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is None or not owner.finalised:
            super().graph_add_node(graph, config)


@faulty_backend("refused-tensor-keeps-name", "The name of a tensor that was refused is taken.", "PRE-15")
class _KeepsNames(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.names_of_refused: set[tuple[int, bytes]] = set()
        super().__init__(personality)

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        key = (graph or 0, tensor[0].v1.name or b"") if tensor else (0, b"")
        if key in self.names_of_refused:
            raise QnnError(Error.TENSOR_ERROR_ALREADY_EXISTS)
        try:
            super().tensor_create_graph_tensor(graph, tensor)
        except QnnError:
            if graph in self.graphs and not self.graphs[graph].finalised:
                self.names_of_refused.add(key)
            raise


@faulty_backend(
    "refused-tensor-leaves-zeros",
    "A STATIC tensor refused for want of data leaves zeros for its name.",
    "PRE-15",
)
class _LeavesZeros(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.names_of_zeros: set[tuple[int, bytes]] = set()
        super().__init__(personality)

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        key = (graph or 0, tensor[0].v1.name or b"") if tensor else (0, b"")
        try:
            super().tensor_create_graph_tensor(graph, tensor)
        except QnnError:
            if tensor and tensor[0].v1.type == TensorType.STATIC:
                self.names_of_zeros.add(key)
            raise
        if key in self.names_of_zeros:
            made = self.graphs[graph or 0].tensors[tensor[0].v1.id]
            made.data = bytes(len(made.data or b""))


@faulty_backend("refused-node-writes", "What a refused node would have written counts as written.", "PRE-15")
class _CountsOutputs(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.outputs_of_refused: set[tuple[int, int]] = set()
        super().__init__(personality)

    def graph_add_node(self, graph: int | None, config: Any) -> None:
        node = config.v1
        count = node.numOfOutputs if node.outputTensors else 0
        ids = {(graph or 0, node.outputTensors[position].v1.id) for position in range(count)}
        if ids & self.outputs_of_refused:
            raise QnnError(Error.GRAPH_ERROR_INVALID_OP_CONFIG)
        try:
            super().graph_add_node(graph, config)
        except QnnError:
            self.outputs_of_refused |= ids
            raise


@faulty_backend(
    "refused-node-reopens", "A node that comes too late is refused, and reopens the graph.", "PRE-15"
)
class _Reopens(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        try:
            super().graph_add_node(graph, config)
        except QnnError:
            if graph in self.graphs:
                self.graphs[graph].finalised = False
            raise


@faulty_backend("refused-finalise-closes", "A graph that graphFinalize refuses takes no node.", "PRE-15")
class _Closes(ReferenceBackend):
    """As if it were finalised."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.closed: set[int] = set()
        super().__init__(personality)

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        try:
            super().graph_finalize(graph, profile, signal)
        except QnnError:
            self.closed.add(graph or 0)
            raise

    def graph_add_node(self, graph: int | None, config: Any) -> None:
        if graph in self.closed:
            raise QnnError(Error.GRAPH_ERROR_GRAPH_FINALIZED)
        super().graph_add_node(graph, config)


@faulty_backend(
    "refused-graph-ends-first", "A graph of a name that is there is refused, and that one ends.", "PRE-15"
)
class _EndsFirst(ReferenceBackend):
    def graph_create(self, context: int | None, name: bytes | None, config: int | None, out: Any) -> None:
        try:
            super().graph_create(context, name, config, out)
        except QnnError as error:
            there = self.contexts[context].graphs if context in self.contexts else {}
            if error.code == Error.GRAPH_ERROR_INVALID_NAME and name is not None and name.decode() in there:
                ended = there.pop(name.decode())
                self.release_buffers(ended)
                del self.graphs[ended.handle]
            raise


@faulty_backend("tensor-without-elements", "A dimension of 0 is taken for 1.", "PRE-14")
class _ZeroIsOne(_Creates):
    def change(self, given: Any) -> None:
        shape = [max(1, given.v1.dimensions[i]) for i in range(given.v1.rank)]
        self.dimensions = (ctypes.c_uint32 * len(shape))(*shape)
        given.v1.dimensions = ctypes.cast(self.dimensions, ctypes.POINTER(ctypes.c_uint32))


@faulty_backend("tensor-scale-unchecked", "A scale that is not positive is taken.", "PRE-14")
class _AnyScale(_Creates):
    """The tensor would give no numbers; nobody computes with it."""

    def change(self, given: Any) -> None:
        encoding = given.v1.quantizeParams.scaleOffsetEncoding
        if given.v1.dataType == DataType.UFIXED_POINT_8 and not encoding.scale > 0:
            encoding.scale = 1.0


@faulty_backend(
    "scalar-of-dimensions-ends",
    "Counts a tensor's elements from its last dimension on, whatever its rank.",
    "PRE-14",
    deadly=True,
)
class _CountsFromTheEnd(ReferenceBackend):
    """Of rank 0 there is no last dimension: the number of elements leads nowhere."""

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if tensor and graph in self.graphs and tensor[0].v1.dimensions and not tensor[0].v1.rank:
            ctypes.string_at(0)
        super().tensor_create_graph_tensor(graph, tensor)


@faulty_backend(
    "scalar-closes-its-context",
    "A context in which a tensor of rank 0 was refused finalises no graph.",
    "PRE-14",
)
class _ClosesContexts(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.spoilt: set[int] = set()
        super().__init__(personality)

    def tensor_create_graph_tensor(self, graph: int | None, tensor: Any) -> None:
        if tensor and graph in self.graphs and not tensor[0].v1.rank:
            self.spoilt.add(id(self.graphs[graph].context))
            raise QnnError(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)
        super().tensor_create_graph_tensor(graph, tensor)

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        if graph in self.graphs and id(self.graphs[graph].context) in self.spoilt:
            raise QnnError(Error.GRAPH_ERROR_FINALIZE_FAILED)
        super().graph_finalize(graph, profile, signal)


@faulty_backend("validates-names-only", "validateOpConfig looks at the operator's name alone.", "PRE-13")
class _ValidatesNames(ReferenceBackend):
    def backend_validate_op_config(self, backend: int | None, config: Any) -> None:
        self.require("backend", backend, Error.BACKEND_ERROR_INVALID_HANDLE)
        if find_operator(config) is None:
            raise QnnError(Error.BACKEND_ERROR_OP_PACKAGE_NOT_FOUND)


@faulty_backend("validates-first-inputs", "validateOpConfig takes inputs behind the last for none.", "PRE-13")
class _ValidatesFirstInputs(ReferenceBackend):
    """As many inputs as the operator has are looked at; others are left out."""

    def operator_accepts(
        self, operator: str, inputs: list[Tensor], outputs: list[Tensor], parameters: Parameters
    ) -> bool:
        known = suite.OPERATORS.get(operator)
        own = inputs[: known.arity] if known else inputs
        return super().operator_accepts(operator, own, outputs, parameters)
