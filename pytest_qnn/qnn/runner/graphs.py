"""Steps on graphs: prepare and execute, the unusual ways included."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable, Sequence
from operator import ne
from typing import Any, get_args

import msgspec

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.libc import protect
from pytest_qnn.isolation.observe.process import file_of
from pytest_qnn.isolation.observe.touched import Touched, Watch
from pytest_qnn.qnn.abi.codes import TensorMemType, TensorType
from pytest_qnn.qnn.abi.layouts import OpConfig, Tensor, TensorP
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    MAPPED,
    NULL,
    Binding,
    Execute,
    MendedMistake,
    Miscompose,
    Mistake,
    Prepare,
    TensorMistake,
)
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, PAGE, is_sum, pages, weights_shape
from pytest_qnn.qnn.runner.buffers import data_of, mapped
from pytest_qnn.qnn.runner.client import Operator, QnnClient, array_of
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.state import (
    BOGUS_HANDLE,
    LARGE,
    Buffer,
    Executed,
    Graph,
    MemHandle,
    NeverMade,
    Skip,
    State,
)
from pytest_qnn.qnn.trace import ExecuteCounts, PrepareCounts, StepSeen

_SPARSE_UNDEFINED = 0x7FFFFFFF
"""QNN_SPARSE_LAYOUT_UNDEFINED: what QNN_TENSOR_V2_INIT gives."""
_ID = slice(8, 12)
"""Bytes of a Qnn_Tensor_t that hold the id."""
_SCRIBBLE = 0xEE
_NO_ACCESS = 0


class Weights:
    """The client's own bytes of a STATIC tensor."""

    def __init__(self, operator: Operator, step: Prepare) -> None:
        self._memory: Any = None
        if step.weights is None or step.weights_as in ("kept", "updatable"):
            return
        tensor = operator.inputs[operator.io_inputs].v1
        if step.weights_as == "null":
            tensor.clientBuf.data = None
            return
        size = tensor.clientBuf.dataSize
        self._memory = ctypes.create_string_buffer(ctypes.string_at(tensor.clientBuf.data, size), size)
        tensor.clientBuf.data = ctypes.addressof(self._memory)

    def created(self) -> None:
        """The tensor is created: the client uses its memory for something else."""
        if self._memory is not None:
            ctypes.memset(self._memory, _SCRIBBLE, ctypes.sizeof(self._memory))


def vary(operator: Operator, step: Prepare) -> None:
    """Give the tensors the version of their structs, and the NATIVE one its memory type."""
    for position, tensor in enumerate(operator.tensors):
        tensor.version = 1 + position % 2 if step.version == 3 else step.version
        if tensor.version == 2:
            tensor.v2.sparseParams.type = _SPARSE_UNDEFINED
        if step.relay and tensor is operator.tensors[-1]:
            tensor.v1.memType = step.relay_mem_type
    if step.weights is not None and step.weights_as == "updatable":
        operator.inputs[operator.io_inputs].v1.type = TensorType.UPDATEABLE_STATIC


def create_tensors(
    client: QnnClient,
    graph: int,
    operator: Operator,
    *,
    watch: bool,
    before_each: Callable[[Tensor], None] = lambda _: None,
) -> tuple[list[tuple[str, int]], int]:
    """Create each tensor up to the first failure: the calls, and bytes written amiss."""
    calls: list[tuple[str, int]] = []
    amiss = 0
    for tensor in operator.tensors:
        before_each(tensor)
        before = bytearray(tensor) if watch else bytearray()
        calls.append(
            (
                "tensorCreateGraphTensor",
                client.call("tensorCreateGraphTensor", graph, ctypes.byref(tensor)),
            )
        )
        if watch:
            after = bytearray(tensor)
            before[_ID] = after[_ID]
            amiss += sum(one != other for one, other in zip(before, after, strict=True))
        if calls[-1][1] != 0:
            break
    return calls, amiss


class ShortMemory:
    """Raw memory that ends, after ``size`` bytes, at a page that nobody can touch."""

    def __init__(self, size: int) -> None:
        self.size = size
        body = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._length = body + mmap.PAGESIZE
        flags = libc.MAP_SHARED | libc.MAP_ANONYMOUS
        begin = libc.mmap(None, self._length, libc.PROT_READ | libc.PROT_WRITE, flags, -1, 0)
        if begin in (None, libc.MAP_FAILED):
            raise MemoryError(f"no {self._length} bytes for a raw tensor")
        self._begin: int = begin
        protect(begin + body, mmap.PAGESIZE, _NO_ACCESS)
        # The last byte is directly in front of the guard page, so one byte too many is a SIGSEGV.
        self.address = begin + body - size

    def release(self) -> None:
        """Give the memory back."""
        libc.munmap(self._begin, self._length)


def is_plain(step: Execute) -> bool:
    """Every IO tensor stands once in its array, under its own id."""
    return step.inputs is None and step.outputs is None and not any(each.of for each in step.bindings)


def arrays(state: State, step: Execute, operator: Operator) -> tuple[Any, int, Any, int]:
    """The arrays of input and output tensors with their lengths, as the step wants them.

    Raises:
        Skip: the step names a tensor or a graph that there is not.
    """
    if is_plain(step):
        return operator.inputs, operator.io_inputs, operator.outputs, 1
    tensors = [type(tensor).from_buffer_copy(tensor) for tensor in operator.io]
    for position, binding in enumerate(step.bindings[: len(tensors)]):
        if binding.of:
            tensors[position].v1.id = _foreign(state, binding, position)
    inputs = range(operator.io_inputs) if step.inputs is None else step.inputs
    outputs = (operator.io_inputs,) if step.outputs is None else step.outputs
    return *_array(tensors, inputs), *_array(tensors, outputs)


def _foreign(state: State, binding: Binding, position: int) -> int:
    if binding.of not in state.graphs:
        raise NeverMade(f"graph {binding.of} was never made")
    theirs = state.graphs[binding.of].operator.io
    return int(theirs[min(position, len(theirs) - 1)].v1.id)


def _array(tensors: list[Any], positions: Sequence[int]) -> tuple[Any, int]:
    if not all(0 <= position < len(tensors) for position in positions):
        raise Skip(f"the graph has {len(tensors)} IO tensors")
    made = array_of(Tensor, max(1, len(positions)))()
    for at, position in enumerate(positions):
        made[at] = tensors[position]
    return made, len(positions)


FILL = 0xEE
GUARD = 64
"""Bytes behind each raw output that must keep `FILL`."""
_DEFAULT = Binding()


class ClientMemory:
    """Memory of the client behind one raw tensor.

    Large pieces are shared anonymous mappings: they never merge with a mapping of the target's, and
    freeing them does not change how the target's own allocator works.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._small: Any = None
        if size < LARGE:
            self._small = array_of(ctypes.c_char, size)()
            self.address = ctypes.addressof(self._small)
            return
        flags = libc.MAP_SHARED | libc.MAP_ANONYMOUS
        address = libc.mmap(None, size, libc.PROT_READ | libc.PROT_WRITE, flags, -1, 0)
        if address in (None, libc.MAP_FAILED):
            raise MemoryError(f"no {size} bytes for a raw tensor")
        libc.madvise(address, size, libc.MADV_POPULATE_WRITE)  # one call instead of a fault for each page
        self.address = address

    def release(self) -> None:
        """Give the memory back."""
        if self._small is None:
            libc.munmap(self.address, self.size)


@handles(Prepare)
def prepare(state: State, step: Prepare) -> StepSeen:
    """graphCreate, tensorCreateGraphTensor per tensor, graphAddNode, graphFinalize.

    ``calls``: each call with its code; ``code``: that of the last one; ``values``: (graph handle, id of each
    tensor, inputs first).
    """
    state.session.open()
    context = state.context_value(step.context)
    operator = operator_of(step)
    vary(operator, step)
    memory = _preset(operator, step)
    mistakes = Mistakes(state.client, step)
    try:
        graph, calls, amiss = compose(state, context, step, operator, mistakes)
    finally:
        memory.release()
    code = calls[-1][1]
    if code == 0:
        state.graphs[step.graph] = Graph(graph, step, operator)
    ids = [tensor.v1.id for tensor in operator.tensors]
    counts = PrepareCounts(amiss, mistakes.refused)
    return StepSeen(code=code, calls=tuple(calls), values=(graph, *ids), counts=counts)


def compose(
    state: State, context: int | None, step: Prepare, operator: Operator, mistakes: Mistakes | None = None
) -> tuple[int, list[tuple[str, int]], int]:
    """Call after call up to the first failure: the graph's handle, the calls, and bytes written amiss.

    Args:
        state: of the client.
        context: in which the graph is made.
        step: says how.
        operator: its tensors.
        mistakes: of the step; None: they are made, and nobody counts them.

    Raises:
        Skip: a call with a mistake succeeds.
    """
    client, name = state.client, state.name_of_graph(step.graph)
    mistakes = mistakes or Mistakes(client, step)
    code, graph = client.create("graphCreate", context, name, None)
    calls = [("graphCreate", code)]
    if code != 0:
        return graph, calls, 0
    mistakes.name_again(context, name)
    weights = Weights(operator, step)
    created, amiss = create_tensors(
        client, graph, operator, watch=step.watch, before_each=lambda tensor: mistakes.tensor(graph, tensor)
    )
    calls += created
    weights.created()
    if calls[-1][1] == 0:
        mistakes.early(graph)
    for tensor, mem_type in zip(operator.io, step.node_mem_types, strict=False):
        tensor.v1.memType = mem_type
    following: list[tuple[str, tuple[Any, ...]]] = [
        # Qnn_OpConfig_t is passed by value, but with pointers to the tensors, whose ids are known by now.
        *(("graphAddNode", (config,)) for config in operator.configs()),
        *([("graphFinalize", (None, None))] if step.finalise else []),
    ]
    for call, arguments in following:
        if calls[-1][1] != 0:
            break
        if call == "graphAddNode":
            mistakes.node(graph, *arguments)
        calls.append((call, client.call(call, graph, *arguments)))
    if calls[-1] == ("graphFinalize", 0):
        mistakes.late(graph, operator)
    return graph, calls, amiss


_NO_ID = 0x7FFF_0000
"""Of a tensor: no graph has as many."""
_NO_DATA_TYPE = 0x7FFF_FFF0
"""Qnn_DataType_t has no such value."""


_CREATED_WRONGLY = frozenset({TensorType.APP_WRITE, TensorType.APP_READ, TensorType.STATIC})


class Mistakes:
    """The calls of a Prepare that have a mistake (`Prepare.mistakes`): each is to be refused.

    Raises:
        Skip: one succeeds, so that the graph is not what the step says.
    """

    def __init__(self, client: QnnClient, step: Prepare) -> None:
        self.refused = 0
        """How many were."""
        self._client = client
        self._wanted = step.mistakes
        self._memory = ctypes.create_string_buffer(
            math.prod(step.shape) * ELEMENT_BYTES[step.dtype] if "data" in step.mistakes else 1
        )

    def name_again(self, context: int | None, name: bytes) -> None:
        """A graph of the name is there."""
        if "name" in self._wanted:
            self._demand("graphCreate", self._client.create("graphCreate", context, name, None)[0], "name")

    def tensor(self, graph: int, right: Tensor) -> None:
        """The tensor is about to be created: the same, with each mistake that it can have."""
        # Nearly every graph is composed without any.
        if not self._wanted or right.v1.type not in _CREATED_WRONGLY:
            return
        static = right.v1.type == TensorType.STATIC
        for mistake in self._wanted:
            wrong, behind = Tensor.from_buffer_copy(right), None
            if mistake == "data":
                wrong.v1.memType = TensorMemType.RAW
                wrong.v1.clientBuf.data = None if static else ctypes.addressof(self._memory)
                wrong.v1.clientBuf.dataSize = 0 if static else ctypes.sizeof(self._memory)
            elif mistake == "handle" and not static:
                wrong.v1.memType = TensorMemType.MEMHANDLE
                wrong.v1.memHandle = BOGUS_HANDLE
            elif mistake == "zero-dimension":
                behind = _without_elements(wrong)
            elif mistake == "data-type":
                wrong.v1.dataType = _NO_DATA_TYPE
            else:
                continue
            code = self._client.call("tensorCreateGraphTensor", graph, ctypes.byref(wrong))
            del behind
            self._demand("tensorCreateGraphTensor", code, mistake)

    def early(self, graph: int) -> None:
        """The graph has all of its tensors, and no node."""
        if "early" in self._wanted:
            self._demand("graphFinalize", self._client.call("graphFinalize", graph, None, None), "early")

    def node(self, graph: int, right: OpConfig) -> None:
        """The node is about to be added: the same, of tensors that the graph has not."""
        for mistake in self._wanted:
            wrong = OpConfig.from_buffer_copy(right)
            v1 = wrong.v1
            if mistake == "input":
                tensors = array_of(Tensor, v1.numOfInputs)(*v1.inputTensors[: v1.numOfInputs])
                v1.inputTensors = ctypes.cast(tensors, TensorP)
            elif mistake == "output":
                tensors = array_of(Tensor, v1.numOfOutputs)(*v1.outputTensors[: v1.numOfOutputs])
                v1.outputTensors = ctypes.cast(tensors, TensorP)
            else:
                continue
            tensors[0].v1.id = _NO_ID
            self._demand("graphAddNode", self._client.call("graphAddNode", graph, wrong), mistake)

    def late(self, graph: int, operator: Operator) -> None:
        """The graph is finalised: its last node again."""
        if "late" in self._wanted:
            again: OpConfig = operator.configs()[-1]
            again.v1.name = b"late"
            self._demand("graphAddNode", self._client.call("graphAddNode", graph, again), "late")

    def _demand(self, call: str, code: int, mistake: MendedMistake) -> None:
        if code == 0:
            raise Skip(f"{call} succeeds with the mistake {mistake!r}")
        self.refused += 1


def _validated_wrongly(state: State, operator: Operator, *, few: bool) -> StepSeen:
    """The node as it is, and with an input less or more."""
    right = ("backendValidateOpConfig", validated(state, operator))
    if right[1] != 0:
        return StepSeen(calls=(right,))
    config: OpConfig = operator.config()
    kept = (*operator.inputs[:-1],) if few else (*operator.inputs, operator.inputs[-1])
    inputs = array_of(Tensor, len(kept))(*kept)
    config.v1.numOfInputs = len(kept)
    config.v1.inputTensors = ctypes.cast(inputs, TensorP) if kept else TensorP()
    code = state.client.call("backendValidateOpConfig", state.session.backend, config)
    return StepSeen(code=code, calls=(right, ("backendValidateOpConfig", code)))


_TENSOR_MISTAKES = frozenset(get_args(TensorMistake))
_SCALES: dict[Mistake, float] = {"scale-zero": 0.0, "scale-negative": -0.5, "scale-nan": math.nan}


def _ruled_out(mistake: Mistake, model: Tensor) -> tuple[Tensor, Any]:
    """A tensor like another one but for its name and the mistake, and what it points to."""
    made = Tensor.from_buffer_copy(model)
    v1 = made.v1
    v1.name = b"ruled out"
    if mistake == "zero-dimension":
        return made, _without_elements(made)
    if mistake == "rank-zero":
        v1.rank = 0
        return made, None
    v1.quantizeParams.scaleOffsetEncoding.scale = _SCALES[mistake]
    return made, None


def _without_elements(tensor: Tensor) -> Any:
    """Give a tensor version 2 and a last dimension of 0: the dimensions, to be kept as long as it."""
    v1 = tensor.v1
    dimensions = (ctypes.c_uint32 * v1.rank)(*v1.dimensions[: v1.rank])
    dimensions[v1.rank - 1] = 0
    v1.dimensions = ctypes.cast(dimensions, ctypes.POINTER(ctypes.c_uint32))
    tensor.version = 2
    tensor.v2.sparseParams.type = _SPARSE_UNDEFINED
    return dimensions


def _with_ruled_out_tensor(state: State, step: Miscompose, made: Prepare, operator: Operator) -> StepSeen:
    """A graph with the operator's tensors, and one more that is wrong."""
    if step.mistake in _SCALES and step.dtype != "UFIXED_POINT_8":
        raise Skip(f"a tensor of {step.dtype} has no scale")
    client = state.client
    context = state.context_value(step.context)
    code, graph = client.create("graphCreate", context, state.name_of_graph(made.graph), None)
    calls = [("graphCreate", code)]
    if code == 0:
        calls += create_tensors(client, graph, operator, watch=False)[0]
    if calls[-1][1] != 0:
        return StepSeen(calls=tuple(calls))
    wrong, behind = _ruled_out(step.mistake, operator.tensors[0])
    code = client.call("tensorCreateGraphTensor", graph, ctypes.byref(wrong))
    del behind
    return StepSeen(code=code, calls=(*calls, ("tensorCreateGraphTensor", code)))


@handles(Miscompose)
def miscompose(state: State, step: Miscompose) -> StepSeen:
    """Calls in order up to the mistaken one, each with its code in ``calls``."""
    state.session.open()
    client, context = state.client, state.context_value(step.context)
    state.mistaken += 1
    made = Prepare(f"mistaken {state.mistaken}", step.context, step.op, step.dtype)
    operator, name = operator_of(made), state.name_of_graph(made.graph)
    if step.mistake in ("few-inputs", "many-inputs"):
        return _validated_wrongly(state, operator, few=step.mistake == "few-inputs")
    if step.mistake in _TENSOR_MISTAKES:
        return _with_ruled_out_tensor(state, step, made, operator)
    if step.mistake == "late":
        graph, calls, _ = compose(state, context, made, operator)
    else:
        code, graph = client.create("graphCreate", context, name, None)
        calls = [("graphCreate", code)]
        if code == 0 and step.mistake == "tensor":
            calls += create_tensors(client, graph, operator, watch=False)[0]
    if calls[-1][1] != 0:
        return StepSeen(calls=tuple(calls))
    if step.mistake == "name":
        call, (code, _) = "graphCreate", client.create("graphCreate", context, name, None)
    else:
        if step.mistake == "tensor":
            operator.tensors[0].v1.id = _NO_ID
        config: OpConfig = operator.config()
        config.v1.name = b"mistaken"
        call, code = "graphAddNode", client.call("graphAddNode", graph, config)
    return StepSeen(code=code, calls=(*calls, (call, code)))


def execute(state: State, step: Execute) -> StepSeen:
    """QnnGraph_execute with each IO tensor in raw memory or behind a handle.

    ``data``: (the output's bytes,), read after the call whatever its code: from the raw buffer (0xEE before
    the call), or through the client's pointer at the descriptor's offset; b"" where the client has no such
    memory (NULL, BOGUS, a freed buffer), or looks at none (MAPPED).
    """
    state.session.open()
    value = state.graph_value(step.graph)
    run = Run(state, step.graph)
    try:
        given = run.bind_all(step)
        before = (bytes(given[0]), bytes(given[2])) if step.watch else None
        watch = run.watched() if step.measured else None
        code = state.client.call("graphExecute", value, *given, state.session.profile, None)
        touched = watch.end() if watch is not None else None
        changed = sum(map(ne, before, (bytes(given[0]), bytes(given[2])))) if before is not None else 0
        return run.seen(code, changed, touched)
    finally:
        run.release()


def operator_of(step: Prepare) -> Operator:
    """The tensors of the step's graph. Raises Skip for one that there cannot be."""
    if step.terms:
        if not is_sum(step):
            raise Skip(f"{step.op} {step.dtype} is no sum of {step.terms} terms")
        return Operator(step.op, step.dtype, step.shape, terms=step.terms)
    if step.weights is None:
        return Operator(step.op, step.dtype, step.shape, relay=step.relay)
    if step.op in ("Relu", "Reshape"):
        raise Skip(f"{step.op} has no second input that could be weights")
    shape = weights_shape(step)
    weights = data_of(step.dtype, step.weights, math.prod(shape) * ELEMENT_BYTES[step.dtype])
    return Operator(step.op, step.dtype, step.shape, weights, relay=step.relay, weights_shape=shape)


def client_bytes(nbytes: int) -> ctypes.Array[ctypes.c_char]:
    """Memory of the client, with `GUARD` bytes behind it: who writes there damages nothing else."""
    return (ctypes.c_char * nbytes).from_buffer(ctypes.create_string_buffer(nbytes + GUARD))


def bind_raw(operator: Operator, nbytes: int) -> list[ctypes.Array[ctypes.c_char]]:
    """Give each IO tensor client memory of its own: that memory, to be kept until the execute is over."""
    rooms = [client_bytes(nbytes) for _ in operator.io]
    for tensor, room in zip(operator.io, rooms, strict=True):
        tensor.v1.memType = TensorMemType.RAW
        tensor.v1.clientBuf.data = ctypes.addressof(room)
        tensor.v1.clientBuf.dataSize = nbytes
    return rooms


def validated(state: State, operator: Operator) -> int:
    """QnnBackend_validateOpConfig."""
    config: OpConfig = operator.config()
    return state.client.call("backendValidateOpConfig", state.session.backend, config)


class Run:
    """One execute: the memory behind each tensor, and what became of it."""

    def __init__(self, state: State, graph: str, *, apart: bool = False) -> None:
        """``apart``: the tensors are in structs of their own, and not in those of the graph."""
        self.made = made = state.graphs.get(graph)
        shape = made.step if made is not None else Prepare(graph=graph, context=NULL)
        self.state = state
        self.dtype = shape.dtype
        operator = made.operator if made is not None else _numbered(operator_of(shape))
        self.operator = operator.again() if apart else operator
        self.nbytes = math.prod(shape.shape) * ELEMENT_BYTES[shape.dtype]
        self.raw: list[ClientMemory | ShortMemory] = []
        self.shared: list[Buffer] = []
        """The buffer behind each tensor that has a handle."""
        self.inputs: list[tuple[int, bytes]] = []
        """Address and contents before the call of each input the client can read."""
        self.output: tuple[int, int] | None = None
        """Address and length of the output, where the client can read it."""
        self.guard: int | None = None
        """Address of the guard behind a raw output."""

    def bind_all(self, step: Execute) -> tuple[Any, int, Any, int]:
        """Point every tensor at its memory: the arrays of inputs and outputs, with their lengths."""
        for position in range(len(self.operator.io)):
            self.bind(position, step.bindings[position] if position < len(step.bindings) else _DEFAULT)
        return arrays(self.state, step, self.operator)

    def bind(self, position: int, binding: Binding) -> None:
        """Point the tensor at its memory."""
        v1 = self.operator.io[position].v1
        is_output = position == self.operator.io_inputs
        if binding.kind == "raw":
            self._bind_raw(v1, binding, is_output=is_output)
            return
        if binding.handle == MAPPED:
            value: int | None = self._lend(binding, is_output=is_output)
        else:
            value = self.state.handle_value(binding.handle)
        v1.memType = TensorMemType.MEMHANDLE
        v1.clientBuf.data = None
        v1.clientBuf.dataSize = binding.data_size or 0
        v1.memHandle = value
        handle = self.state.handles.get(binding.handle)
        if handle is not None and handle.buffer is not None:
            self.shared.append(handle.buffer)
        spot = None if binding.handle in (NULL, BOGUS, MAPPED) else self._spot(handle)
        if spot is not None:
            if is_output:
                self.output = spot
            else:
                self.inputs.append((spot[0], ctypes.string_at(*spot)))

    def _lend(self, binding: Binding, *, is_output: bool) -> int:
        """The address of memory that would do for the tensor, were it raw. It is not looked at afterwards."""
        address = self.state.lend(self.nbytes + GUARD)
        if is_output:
            ctypes.memset(address, FILL, self.nbytes + GUARD)
        else:
            ctypes.memmove(address, data_of(self.dtype, binding.seed, self.nbytes), self.nbytes)
        return address

    def _bind_raw(self, v1: Any, binding: Binding, *, is_output: bool) -> None:
        size = max(0, self.nbytes - binding.short)
        guard = GUARD if is_output and not binding.short else 0
        memory = ShortMemory(size) if binding.short else ClientMemory(size + guard)
        self.raw.append(memory)
        if is_output:
            ctypes.memset(memory.address, FILL, memory.size)
            self.output = (memory.address, size)
            self.guard = memory.address + size if guard else None
        else:
            data = data_of(self.dtype, binding.seed, self.nbytes)[:size]
            ctypes.memmove(memory.address, data, size)
            self.inputs.append((memory.address, data))
        v1.memType = TensorMemType.RAW if binding.mem_type is None else binding.mem_type
        v1.clientBuf.data = memory.address
        v1.clientBuf.dataSize = size

    def _spot(self, handle: MemHandle | None) -> tuple[int, int] | None:
        """Where the client sees the handle's tensor: as much of it as lies within a live buffer."""
        buffer = handle.buffer if handle is not None else None
        if handle is None or buffer is None or not (buffer.live and buffer.usable):
            return None
        length = min(self.nbytes, buffer.size - handle.offset)
        if length <= 0 or not mapped(buffer.pointer + handle.offset, length):
            return None
        return buffer.pointer + handle.offset, length

    def watched(self) -> Watch | None:
        """A watch over the memory beside that of the tensors; None where the kernel offers none."""
        # A small piece lies in the heap, all of which would go uncounted with it.
        own = [memory.address for memory in self.raw if memory.size >= LARGE]
        watch = Watch(self.state.inodes, own)
        return watch if watch.begin() else None

    def seen(self, code: int, tensors_changed: int = 0, touched: Touched | None = None) -> StepSeen:
        """The output's bytes, and whether anything was written that must not be."""
        data = ctypes.string_at(*self.output) if self.output is not None else b""
        self.state.keep(data)
        if code == 0 and self.made is not None and len(self.inputs) == self.operator.io_inputs:
            inputs = tuple(before for _, before in self.inputs)
            self.state.executed.append(Executed(self.made.step, inputs, data))
        output = self.output or (0, 0)
        changed = sum(
            libc.memcmp(address, before, len(before)) != 0
            for address, before in self.inputs
            if not _overlap(address, len(before), output)
        )
        counts = ExecuteCounts(changed, self.overrun(), tensors_changed)
        if touched is not None:
            counts = msgspec.structs.replace(
                counts,
                new=touched.new,
                used=touched.used,
                buffers=self.used_buffers(touched),
                mapped_late=self.mapped_late(touched),
            )
        return StepSeen(code=code, data=(data,), counts=counts)

    def used_buffers(self, touched: Touched) -> tuple[tuple[str, int], ...]:
        """Of each live buffer whose file is known, what was used of it."""
        files = ((name, _file_of(buffer)) for name, buffer in self.state.buffers.items())
        return tuple((name, touched.own.get(file, 0)) for name, file in files if file is not None)

    def mapped_late(self, touched: Touched) -> int:
        """Bytes of the tensors, in whole pages, whose buffers only the client had mapped."""
        files = ((buffer, _file_of(buffer)) for buffer in self.shared)
        late = sum(
            file is not None and touched.mapped.get(file, 0) <= pages(buffer.size) for buffer, file in files
        )
        return late * (pages(self.nbytes) + PAGE)

    def overrun(self) -> int:
        """Bytes written behind a raw output."""
        return 0 if self.guard is None else GUARD - ctypes.string_at(self.guard, GUARD).count(FILL)

    def overlapping(self) -> bool:
        """The output lies on memory of an input."""
        output = self.output or (0, 0)
        return any(_overlap(address, len(data), output) for address, data in self.inputs)

    def release(self) -> None:
        """Give the raw memory back."""
        for memory in self.raw:
            memory.release()


def _file_of(buffer: Buffer) -> tuple[int, int] | None:
    """Device and inode of a live buffer's file."""
    return file_of(buffer.fd) if buffer.live else None


def _overlap(address: int, length: int, other: tuple[int, int]) -> bool:
    return address < other[0] + other[1] and other[0] < address + length


def _numbered(operator: Operator) -> Operator:
    """Give tensors that no graph has created the ids 1, 2, ..."""
    for number, tensor in enumerate(operator.tensors, 1):
        tensor.v1.id = number
    return operator


def _preset(operator: Operator, step: Prepare) -> ClientMemory:
    """Set memType, and a non-NULL pointer or handle where the step wants one; gives the pointer's memory."""
    if len(step.mem_types) > len(operator.io):
        raise Skip(f"{step.op} has {len(operator.io)} IO tensors, not {len(step.mem_types)}")
    nbytes = math.prod(step.shape) * ELEMENT_BYTES[step.dtype]
    memory = ClientMemory(nbytes if any(step.preset) else 1)
    for tensor, mem_type in zip(operator.io, step.mem_types, strict=False):
        tensor.v1.memType = mem_type
    for tensor, wanted in zip(operator.io, step.preset, strict=False):
        if not wanted:
            continue
        if tensor.v1.memType == TensorMemType.MEMHANDLE:
            # A value that no target has handed out: one that looks it up at creation answers with an error.
            tensor.v1.memHandle = BOGUS_HANDLE
        else:
            tensor.v1.clientBuf.data = memory.address
            tensor.v1.clientBuf.dataSize = nbytes
    return memory
