"""The canary: whether this build of a runtime keeps its private state where the layouts say.

Asked of a two-node model, once per process. Nothing is believed before it was read through
/proc/self/mem, where a wrong address is an error and not the end of the process.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Final

from pytest_qnn.abi import tflite
from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.model import emit
from pytest_qnn.reference.delegate import ReferenceDelegate
from pytest_qnn.run.state import context_of, delegates_applied, private_plan

if TYPE_CHECKING:
    from pytest_qnn.run.runtime import Runtime

_GRAPH: Final = Graph(
    tensors=(Tensor((2,)), Tensor((2,)), Tensor((2,))),
    nodes=(Node("NEG", (0,), (1,)), Node("ABS", (1,), (2,))),
    inputs=(0,),
    outputs=(2,),
)


def holds(runtime: Runtime) -> bool:
    """Whether plan, nodes and delegates of an interpreter can be read from its memory."""
    model = emit(_GRAPH)
    interpreter = runtime.interpreter(model)
    delegate = ReferenceDelegate(claim=(1,))
    try:
        return _layout_holds(interpreter) and _delegation_shows(interpreter, delegate)
    finally:
        del interpreter
        delegate.close()


def _layout_holds(interpreter: Any) -> bool:
    """The private vectors look as they must for an untouched two-node model."""
    try:
        context = _word(interpreter._native_handle() + tflite.INTERPRETER_CONTEXT)
        subgraph = _word(context + tflite.Context.impl_.offset)
        if _word(context) != len(_GRAPH.tensors):
            return False
        plan = _read(_word(subgraph + tflite.SUBGRAPH_PLAN), 8)
        begin, end = struct.unpack("=QQ", _read(subgraph + tflite.SUBGRAPH_PLAN, 16))
        first, last = struct.unpack("=QQ", _read(subgraph + tflite.SUBGRAPH_NODES, 16))
        inputs = _read(_word(first + tflite.NODE_STRIDE), 8)
        delegates = struct.unpack("=QQ", _read(subgraph + tflite.SUBGRAPH_DELEGATES, 16))
    except (OSError, struct.error):
        return False
    return (
        end - begin == 8
        and struct.unpack("=2i", plan) == (0, 1)
        and last - first == 2 * tflite.NODE_STRIDE
        and struct.unpack("=2i", inputs) == (1, 1)
        and delegates[0] == delegates[1]
    )


def _delegation_shows(interpreter: Any, delegate: ReferenceDelegate) -> bool:
    """A delegate that claims the second node is seen to own a kernel in its place."""
    interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    context = context_of(interpreter)
    plan = private_plan(context, {delegate.address: 7})
    seen = [(node.index, node.op, node.inputs, node.outputs, node.owner) for node in plan]
    return (
        seen == [(0, 59, (0,), (1,), -1), (2, tflite.BUILTIN_DELEGATE, (1,), (2,), 7)]
        and delegates_applied(context) == (delegate.address,)
        and not delegate.errors
    )


def _word(address: int) -> int:
    value: int = struct.unpack("=Q", _read(address, 8))[0]
    return value


def _read(address: int, count: int) -> bytes:
    """Bytes of this process. Raises OSError for memory that is not mapped."""
    handle = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return os.pread(handle, count, address)
    finally:
        os.close(handle)
