"""Unusual ways of preparing and executing a graph: what `Prepare` and `Execute` are not by default."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

from pytest_qnn.abi.qnn import Tensor
from pytest_qnn.abi.qnn_codes import TensorType
from pytest_qnn.cases.memory import Binding, Execute, Prepare
from pytest_qnn.isolation import libc
from pytest_qnn.run.guard import protect
from pytest_qnn.run.memory_state import Skip, State
from pytest_qnn.run.qnn_client import Operator, QnnClient, array_of

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
    for tensor in operator.tensors:
        tensor.version = step.version
        if step.version == 2:
            tensor.v2.sparseParams.type = _SPARSE_UNDEFINED
        if step.relay and tensor is operator.tensors[-1]:
            tensor.v1.memType = step.relay_mem_type
    if step.weights is not None and step.weights_as == "updatable":
        operator.inputs[operator.io_inputs].v1.type = TensorType.UPDATEABLE_STATIC


def create_tensors(
    client: QnnClient, graph: int, operator: Operator, *, watch: bool
) -> tuple[list[tuple[str, int]], int]:
    """Create each tensor up to the first failure: the calls, and bytes written amiss."""
    calls: list[tuple[str, int]] = []
    amiss = 0
    for tensor in operator.tensors:
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
        raise Skip(f"graph {binding.of} was never made")
    theirs = state.graphs[binding.of].operator.io
    return int(theirs[min(position, len(theirs) - 1)].v1.id)


def _array(tensors: list[Any], positions: Sequence[int]) -> tuple[Any, int]:
    if not all(0 <= position < len(tensors) for position in positions):
        raise Skip(f"the graph has {len(tensors)} IO tensors")
    made = array_of(Tensor, max(1, len(positions)))()
    for at, position in enumerate(positions):
        made[at] = tensors[position]
    return made, len(positions)
