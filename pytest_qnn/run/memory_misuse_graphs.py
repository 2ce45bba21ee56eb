"""Calls of `Misuse` on graphs, and with tensors."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from pytest_qnn.abi.qnn import ExecuteEnvironment, TensorP
from pytest_qnn.abi.qnn_codes import TensorMemType
from pytest_qnn.oracle.qnn_ops import ELEMENT_BYTES
from pytest_qnn.run.memory_misuse_load import TAKEN
from pytest_qnn.run.memory_state import Graph, Skip, State
from pytest_qnn.run.qnn_client import Operator, array_of

_POPULATE = 1
"""QnnGraph_ExecuteEnvironmentOption_t: the only one whose tensors need no memory yet."""
_ROOM = 64


def _add() -> Operator:
    """The tensors of an operator, with ids as a graph could have given them."""
    operator = Operator("ElementWiseAdd", "UFIXED_POINT_8", (8,))
    for number, tensor in enumerate(operator.tensors, 1):
        tensor.v1.id = number
    return operator


def node(state: State, name: str, handle: int | None) -> int:
    """A call that takes an operator by value."""
    operator = _add()
    return state.client.call(name, handle, operator.config())


def new_tensor(state: State, name: str, handle: int | None) -> int:
    """A tensor; in a graph that there is one like its first, under a name of its own."""
    made = next((each.operator for each in state.graphs.values() if each.value == handle), None)
    if name != "tensorCreateGraphTensor" or made is None:
        return state.client.call(name, handle, ctypes.byref(_add().tensors[0]))
    new = made.again().tensors[0]
    new.v1.name, new.v1.memType = b"misuse", TensorMemType.RAW
    new.v1.clientBuf.data, new.v1.clientBuf.dataSize = None, 0
    return state.client.call(name, handle, ctypes.byref(new))


def updated_tensors(state: State, name: str, handle: int | None) -> int:
    """A call that takes a list of tensors, here of one."""
    operator = _add()
    listed = array_of(ctypes.c_void_p, 1)(ctypes.addressof(operator.tensors[0]))
    return state.client.call(name, handle, ctypes.addressof(listed), 1)


def execute(state: State, name: str, handle: int | None) -> int:
    """QnnGraph_execute, or QnnGraph_executeAsync without a notification; all tensors are raw."""
    operator, room = _add(), ctypes.create_string_buffer(_ROOM)
    given = _raw(operator, room)
    if name == "graphExecute":
        return state.client.call(name, handle, *given, None, None)
    code = state.client.call(name, handle, *given, None, None, None, None)
    if code == 0:
        TAKEN.append((operator, room))
    return code


def _raw(operator: Operator, room: Any) -> tuple[Any, int, Any, int]:
    """Inputs and outputs of an execute, all of which lie in ``room``."""
    for tensor in operator.io:
        tensor.v1.memType = TensorMemType.RAW
        tensor.v1.clientBuf.data, tensor.v1.clientBuf.dataSize = ctypes.addressof(room), len(room)
    return operator.inputs, operator.io_inputs, operator.outputs, len(operator.outputs)


def environment(state: State, name: str, handle: int | None) -> int:
    """A call that takes a list of execution environments, here of one."""
    operator = _add()
    given = ExecuteEnvironment(option=_POPULATE)
    given.tensorSet.version = 1
    given.tensorSet.v1.numInputs, given.tensorSet.v1.numOutputs = operator.io_inputs, 1
    given.tensorSet.v1.inputs = ctypes.cast(operator.inputs, TensorP)
    given.tensorSet.v1.outputs = ctypes.cast(operator.outputs, TensorP)
    listed = array_of(ctypes.c_void_p, 1)(ctypes.addressof(given))
    state.held.append((operator, given, listed))
    return state.client.call(name, handle, ctypes.addressof(listed), 1)


def live_graphs(state: State) -> list[Graph]:
    """Graphs whose context is not freed."""
    return [
        graph
        for graph in state.graphs.values()
        if (context := state.contexts.get(graph.step.context)) is not None and context.live
    ]


def executed(state: State, profile: int) -> None:
    """Execute a graph of the case with a profile. Raises Skip where none executes."""
    for graph in live_graphs(state):
        operator = graph.operator.again()
        size = math.prod(graph.step.shape) * ELEMENT_BYTES[graph.step.dtype]
        room = ctypes.create_string_buffer(max(1, size))
        code = state.client.call("graphExecute", graph.value, *_raw(operator, room), profile, None)
        if code != 0:
            raise Skip(f"graphExecute with a profile gives {code}")
        return
    raise Skip("there is no graph to execute with a profile")
