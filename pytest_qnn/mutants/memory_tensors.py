"""Reference backends with one fault each in how tensors are created and given (EXE, PRE, QMG)."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi.qnn import Tensor as TensorStruct
from pytest_qnn.abi.qnn_codes import Error, TensorMemType, TensorType
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_execute import Stored
from pytest_qnn.reference.backend_objects import Binding, Graph, QnnError, Registration, Tensor
from pytest_qnn.reference.mapping import at
from pytest_qnn.reference.personalities import DEFAULT, Personality

_BAD_TENSOR = Error.GRAPH_ERROR_INVALID_TENSOR
_BAD_PARAMETER = Error.TENSOR_ERROR_INVALID_TENSOR_PARAM
_HANDLE = TensorMemType.MEMHANDLE


class _Keeps(ReferenceBackend):
    """Has memory of its own to give to tensors."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.kept: list[Any] = []

    def own(self, size: int) -> int:
        self.kept.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.kept[-1])


@faulty_backend("execute-data-size", "a handle's dataSize must be the tensor's", "EXE-06")
class _DataSizeCounts(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        size = given.clientBuf.dataSize
        if given.memType == _HANDLE and size and size != tensor.size:
            raise QnnError(_BAD_TENSOR)
        return super().bind(graph, tensor, given)


@faulty_backend("execute-any-registration", "a registration may be too small", "EXE-07")
class _AnyRegistration(_Keeps):
    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        pass

    def registered(self, binding: Binding, registration: Registration) -> Stored:
        if registration.request.size < binding.tensor.size:
            return at(self.own(binding.tensor.size), binding.tensor.size)
        return super().registered(binding, registration)


@faulty_backend("execute-exact-registration", "a registration must not be larger", "EXE-07")
class _ExactRegistration(ReferenceBackend):
    def check_registration(self, registration: Registration, tensor: Tensor) -> None:
        if registration.request.size != tensor.size:
            raise QnnError(_BAD_TENSOR)


@faulty_backend("execute-bound-for-ever", "a handle serves its first tensor only", "EXE-08")
class _BoundForEver(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.of: dict[int, str] = {}

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        if binding.registration is not None:
            first = self.of.setdefault(binding.registration.handle, tensor.name)
            if first != tensor.name:
                raise QnnError(_BAD_TENSOR)
        return binding


@faulty_backend("execute-outputs-stay", "an output's handle is no input later", "EXE-09")
class _OutputsStay(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.outputs: set[int] = set()

    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        if binding.registration is not None:
            handle = binding.registration.handle
            if tensor.type == TensorType.APP_READ:
                self.outputs.add(handle)
            elif handle in self.outputs:
                raise QnnError(_BAD_TENSOR)
        return binding


@faulty_backend("execute-scrubs-inputs", "raw inputs are zeroed once they are read", "EXE-10")
class _ScrubsInputs(ReferenceBackend):
    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        stored = super().read_input(graph, binding).copy()
        if binding.registration is None:
            at(binding.address, binding.tensor.size)[:] = 0
        return stored


@faulty_backend("execute-writes-behind", "a byte behind raw outputs is written", "EXE-10")
class _WritesBehind(ReferenceBackend):
    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        super().write_output(graph, binding, stored)
        if binding.registration is None:
            at(binding.address, binding.tensor.size + 1)[-1] = 0


@faulty_backend("execute-rewrites-structs", "the tensors' structs are written to", "EXE-11")
class _RewritesStructs(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        binding = super().bind(graph, tensor, given)
        given.dataFormat = 7
        return binding


@faulty_backend("execute-clears-first", "a refused execute changes raw outputs", "EXE-12")
class _ClearsFirst(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        try:
            return super().bind_all(graph, given, count, wanted)
        except QnnError:
            for address in self.outputs:
                at(address, 1)[:] = 0
            raise

    outputs: tuple[int, ...] = ()

    def graph_execute(self, graph: int | None, *arguments: Any) -> None:
        outputs, count = arguments[2:4]
        given = [outputs[i].v1 for i in range(count)] if outputs else []
        self.outputs = tuple(each.clientBuf.data for each in given if each.memType == TensorMemType.RAW)
        super().graph_execute(graph, *arguments)


@faulty_backend("execute-any-type-raw", "an unknown memory type is taken for RAW", "EXE-13")
class _AnyTypeIsRaw(ReferenceBackend):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        if given.memType in (TensorMemType.RAW, _HANDLE):
            return super().bind(graph, tensor, given)
        self.check_client_buffer(tensor, given.clientBuf)
        return Binding(tensor, address=given.clientBuf.data)


@faulty_backend("execute-any-data-size", "raw memory may be too small", "EXE-14")
class _AnyDataSize(_Keeps):
    def bind(self, graph: Graph, tensor: Tensor, given: Any) -> Binding:
        if given.memType == TensorMemType.RAW and given.clientBuf.dataSize < tensor.size:
            return Binding(tensor, address=self.own(tensor.size))
        return super().bind(graph, tensor, given)


@faulty_backend("execute-by-position", "tensors are told by their places", "EXE-15")
class _ByPosition(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        super().bind_all(graph, given, count, wanted)
        return [
            self.bind(graph, tensor, given[position].v1) for position, tensor in enumerate(wanted.values())
        ]


@faulty_backend("execute-any-arrays", "missing and foreign tensors go unnoticed", "EXE-16")
class _AnyArrays(_Keeps):
    """What is missing is full of zeros, what is there twice or unknown is overlooked."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        by_id = {given[position].v1.id: given[position].v1 for position in range(count)}
        return [
            self.bind(graph, tensor, by_id[number])
            if number in by_id
            else Binding(tensor, address=self.own(tensor.size))
            for number, tensor in wanted.items()
        ]


@faulty_backend("execute-previous-data", "a missing input is that of before", "EXE-16")
class _PreviousData(_Keeps):
    """An input that is missing has the bytes of the execute before."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.last: dict[int, int] = {}

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        there = {given[position].v1.id for position in range(count)}
        if wanted is not graph.inputs or len(there) < count or not there < wanted.keys():
            return super().bind_all(graph, given, count, wanted)
        missing = wanted.keys() - there
        if not missing <= self.last.keys():
            raise QnnError(_BAD_TENSOR)
        some = {number: tensor for number, tensor in wanted.items() if number in there}
        found = super().bind_all(graph, given, count, some)
        return found + [Binding(wanted[number], address=self.last[number]) for number in missing]

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        data = super().read_input(graph, binding)
        self.last[binding.tensor.id] = address = self.own(len(data))
        ctypes.memmove(address, data.tobytes(), len(data))
        return data


@faulty_backend("execute-twice-is-once", "a tensor may be there twice", "EXE-16")
class _TwiceIsOnce(ReferenceBackend):
    """Of a tensor that is there twice the first counts."""

    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        first = {given[position].v1.id: position for position in reversed(range(count))}
        if first.keys() != wanted.keys():
            raise QnnError(_BAD_TENSOR)
        return [self.bind(graph, wanted[number], given[at].v1) for number, at in first.items()]


@faulty_backend("execute-finalises", "an execute finalises the graph", "EXE-17")
class _FinalisesItself(ReferenceBackend):
    def graph_execute(self, graph: int | None, *arguments: Any) -> None:
        if graph in self.graphs and not self.graphs[graph].finalised:
            self.graph_finalize(graph, None, None)
        super().graph_execute(graph, *arguments)


@faulty_backend("static-read-later", "a STATIC tensor's data is read at addNode", "PRE-03")
class _WeightsLater(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        super().graph_add_node(graph, config)
        for position in range(config.v1.numOfInputs):
            given = config.v1.inputTensors[position].v1
            if given.type == TensorType.STATIC:
                data = ctypes.string_at(given.clientBuf.data, given.clientBuf.dataSize)
                self.graphs[graph or 0].tensors[given.id].data = data


class _Creates(_Keeps):
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
        if given.v1.type == TensorType.NATIVE and given.v1.memType == _HANDLE:
            raise QnnError(_BAD_PARAMETER)


@faulty_backend("create-any-type-raw", "an unknown memory type is created as RAW", "PRE-06")
class _UnknownIsRaw(_Creates):
    def change(self, given: Any) -> None:
        if given.v1.memType not in (TensorMemType.RAW, _HANDLE):
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


@faulty_backend("node-types-win", "the node's structs say the memory type", "PRE-09")
class _NodeTypesWin(ReferenceBackend):
    def graph_add_node(self, graph: int | None, config: Any) -> None:
        super().graph_add_node(graph, config)
        owner = self.graphs[graph or 0]
        node = config.v1
        given = [node.inputTensors[i].v1 for i in range(node.numOfInputs)]
        for each in (*given, *(node.outputTensors[i].v1 for i in range(node.numOfOutputs))):
            owner.tensors[each.id].mem_type = each.memType


@faulty_backend("free-keeps-buffers", "contextFree leaves IO buffers behind", "QMG-09")
class _BuffersStay(ReferenceBackend):
    def release_buffers(self, graph: Graph) -> None:
        graph.buffers.clear()


@faulty_backend("hint-changes-codes", "graphs with the hint answer 6000 for 6004", "QMG-11")
class _HintedErrors(ReferenceBackend):
    def bind_all(self, graph: Graph, given: Any, count: int, wanted: dict[int, Tensor]) -> list[Binding]:
        try:
            return super().bind_all(graph, given, count, wanted)
        except QnnError:
            hinted = any(tensor.mem_type == _HANDLE for tensor in wanted.values())
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT if hinted else _BAD_TENSOR) from None
