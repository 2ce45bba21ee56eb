"""Calls of a `BadArgument` step that a target need not offer."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.abi.layouts import (
    VERSION_1,
    CallbackType,
    ContextBinaryCallback,
    ContextParams,
    EnvironmentOption,
    ExecuteEnvironment,
    Notify,
    ProfileEventData,
    ProvideRaw,
    ReleaseRaw,
    TensorP,
)
from pytest_qnn.qnn.cases.arguments import NO_VALUE, NO_VERSION, PointedCall
from pytest_qnn.qnn.cases.case import BadArgument, Prepare
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.runner.client import PROFILE_LEVEL_BASIC, Operator, array_of
from pytest_qnn.qnn.runner.graphs import bind_raw, operator_of
from pytest_qnn.qnn.runner.misuses.given import (
    begun,
    freed_again,
    given,
    last_binary,
    new_name,
    options,
    prepared,
    spoilt_tensor,
)
from pytest_qnn.qnn.runner.misuses.handles import EXTENDED_EVENT, KNOWN_ERROR, TAKEN, executed
from pytest_qnn.qnn.runner.state import Skip, State

_LATER = 0.2
"""Seconds in which a target that took a call may die of what it was given, in a thread of its own."""


# Executions


def raw_execution(state: State, step: BadArgument) -> tuple[int, tuple[Any, ...], Any]:
    """The graph of a step, the arguments of an execute of it, and what they lead to."""
    made = prepared(state, step)
    operator = made.operator.again()
    rooms = bind_raw(operator, nbytes(made.step.shape, made.step.dtype))
    inputs, outputs = given(step, "inputs", operator.inputs), given(step, "outputs", operator.outputs)
    arrays = (inputs, operator.io_inputs, outputs, len(operator.outputs))
    return made.value, arrays, (operator, rooms)


def _execute_async(state: State, step: BadArgument) -> int:
    value, arrays, kept = raw_execution(state, step)
    code = state.client.call(step.call, value, *arrays, None, None, None, None)
    if code == 0:
        TAKEN.append(kept)
        time.sleep(_LATER)
    return code


def _subgraph(state: State, step: BadArgument) -> int:
    graph, _ = begun(state, step)
    name, out = given(step, "graphName", new_name(state)), ctypes.c_void_p()
    return state.client.call(step.call, graph, name, given(step, "subgraphHandle", ctypes.byref(out)))


def _environment(state: State, step: BadArgument) -> int:
    """graphPrepareExecutionEnvironment, or graphReleaseExecutionEnvironment of what was never prepared."""
    made = prepared(state, step)
    operator = made.operator.again()
    offered = state.client.call(
        "propertyHasCapability", Property.GRAPH_SUPPORT_ENV_OPTION_POPULATE_CLIENT_BUFS
    )
    option = EnvironmentOption.POPULATE_CLIENT_BUFS if offered == 0 else EnvironmentOption.BIND_MEM_HANDLES
    one = ExecuteEnvironment(option=NO_VALUE if step.argument == "envs.option" else option)
    one.tensorSet.version = NO_VERSION if step.argument == "envs.tensorSet.version" else VERSION_1
    tensors = one.tensorSet.v1
    tensors.numInputs, tensors.numOutputs = operator.io_inputs, len(operator.outputs)
    tensors.inputs = ctypes.cast(given(step, "envs.tensorSet.inputs", operator.inputs), TensorP)
    tensors.outputs = ctypes.cast(given(step, "envs.tensorSet.outputs", operator.outputs), TensorP)
    listed = array_of(ctypes.c_void_p, 1)(given(step, "envs[0]", ctypes.addressof(one)))
    state.held.append((operator, one, listed))
    place = given(step, "envs", ctypes.addressof(listed))
    return state.client.call(step.call, made.value, place, 1)


# Contexts out of binaries


def _with_signal(state: State, step: BadArgument) -> int:
    held, size = last_binary(state)
    config, kept = options(step)
    state.held.append(kept)
    out = ctypes.c_void_p()
    buffer, place = (
        given(step, "binaryBuffer", ctypes.addressof(held)),
        given(step, "context", ctypes.byref(out)),
    )
    owners = (state.session.backend, state.session.device)
    code = state.client.call(step.call, *owners, config, buffer, size, place, None, None)
    return freed_again(state, code, out)


def _list(state: State, step: BadArgument) -> int:
    """A list of one context. One that is made nevertheless is freed."""
    held, size = last_binary(state)
    made, notified = ctypes.c_void_p(), threading.Event()

    def notify(context: int | None, *_: object) -> None:
        made.value = context or made.value
        notified.set()

    one = ContextParams(version=NO_VERSION if step.argument == "contextParams.version" else VERSION_1)
    one.v1.binaryBuffer = given(step, "contextParams.binaryBuffer", ctypes.addressof(held))
    one.v1.binaryBufferSize = size
    if step.argument != "contextParams.notifyFunc":
        one.v1.notifyFunc = Notify(notify)
    listed = array_of(ctypes.c_void_p, 2)(given(step, "contextParams[0]", ctypes.addressof(one)), None)
    place = given(step, "contextParams", ctypes.addressof(listed))
    config, kept = options(step)
    owners = (state.session.backend, state.session.device)
    code = state.client.call(step.call, *owners, place, config, None)
    if code == 0:
        TAKEN.append((held, one, listed, kept))
        notified.wait(_LATER)
        return freed_again(state, code, made)
    return code


def _with_callback(state: State, step: BadArgument) -> int:
    """The binary is given in pieces, as raw memory where it lies."""
    held, size = last_binary(state)
    base = ctypes.addressof(held)

    def provide(request: Any, response: Any, _: int | None) -> int:
        response[0].memPtr = base + request.offset
        response[0].dataStartOffset, response[0].alignedSize = 0, request.size
        return 0

    one = ContextBinaryCallback(
        type=NO_VALUE if step.argument == "callback.type" else CallbackType.RAW_BUFFER
    )
    body = one.rawBufferCallback
    body.version = NO_VERSION if step.argument == "callback.version" else VERSION_1
    if step.argument != "callback.dataProvide":
        body.v1.dataProvide = ProvideRaw(provide)
    if step.argument != "callback.dataRelease":
        body.v1.dataRelease = ReleaseRaw(lambda *_: 0)
    state.held.append(one)
    out = ctypes.c_void_p()
    config, kept = options(step)
    state.held.append(kept)
    buffer = given(step, "binaryBuffer", base)
    arguments = (
        config,
        given(step, "callback", ctypes.addressof(one)),
        buffer,
        size,
        given(step, "context", ctypes.addressof(out)),
        None,
        None,
    )
    code = state.client.call(step.call, state.session.backend, state.session.device, *arguments)
    return freed_again(state, code, out)


def _incremental(state: State, step: BadArgument) -> int:
    """The first piece of a context's binary. One that is given nevertheless is released."""
    context = state.context_value(step.context)
    piece, start, written = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    code = state.client.call(
        step.call,
        context,
        given(step, "binaryBuffer", ctypes.byref(piece)),
        given(step, "startOffset", ctypes.byref(start)),
        given(step, "writtenBufferSize", ctypes.byref(written)),
    )
    if code == 0 and piece.value:
        state.client.call("contextReleaseIncrementalBinary", context, piece.value, start.value)
    return code


def _released(state: State, step: BadArgument) -> int:
    """A piece that is NULL."""
    return state.client.call(step.call, state.context_value(step.context), None, 0)


# Tensors


def _context_tensor(state: State, step: BadArgument) -> int:
    operator = operator_of(Prepare("bad argument", step.context, step.op, step.dtype))
    tensor = spoilt_tensor(operator.tensors[0], step)
    tensor.v1.name = None if step.argument == "tensor.name" else new_name(state)
    place = given(step, "tensor", ctypes.byref(tensor))
    return state.client.call(step.call, state.context_value(step.context), place)


def _updated_graph(state: State, step: BadArgument) -> int:
    """With the weights that the graph has, if it has any; else with its last input."""
    made = prepared(state, step)
    return _updated(state, step, made.value, made.operator.again())


def _updated_context(state: State, step: BadArgument) -> int:
    """With a tensor of no context."""
    operator = operator_of(Prepare("bad argument", step.context, step.op, step.dtype))
    return _updated(state, step, state.context_value(step.context), operator)


def _updated(state: State, step: BadArgument, owner: int | None, operator: Operator) -> int:
    tensor = operator.inputs[len(operator.inputs) - 1]
    if step.argument == "tensor.version":
        tensor.version = NO_VERSION
    listed = array_of(ctypes.c_void_p, 1)(given(step, "tensor[0]", ctypes.addressof(tensor)))
    state.held.append((operator, listed))
    return state.client.call(step.call, owner, given(step, "tensor", ctypes.addressof(listed)), 1)


# Events of profiles, messages


@contextmanager
def _event(state: State) -> Iterator[int]:
    """The first event of an execute. Raises Skip where there is none."""
    code, profile = state.client.create("profileCreate", state.session.backend, PROFILE_LEVEL_BASIC)
    if code != 0:
        raise Skip(f"profileCreate gives {code}")
    try:
        executed(state, profile)
        events, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
        code = state.client.call("profileGetEvents", profile, ctypes.byref(events), ctypes.byref(count))
        if code != 0 or not count.value or not events:
            raise Skip(f"profileGetEvents gives {code} and {count.value} events of an execute")
        yield int(events[0])
    finally:
        state.client.call("profileFree", profile)


def _sub_events(state: State, step: BadArgument) -> int:
    events, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
    listed = given(step, "subEventIds", ctypes.byref(events))
    counted = given(step, "numSubEvents", ctypes.byref(count))
    with _event(state) as event:
        return state.client.call(step.call, event, listed, counted)


def _event_data(state: State, step: BadArgument) -> int:
    """Of an event that has data of this kind: else it is the kind that is wrong (12002)."""
    data, extended = ProfileEventData(), (ctypes.c_uint32 * EXTENDED_EVENT)(VERSION_1)
    place: Any = ctypes.byref(data)
    if step.call == "profileGetExtendedEventData":
        place = ctypes.addressof(extended)
    with _event(state) as event:
        code = state.client.call(step.call, event, place)
        if low(code) not in (Error.SUCCESS, Error.COMMON_ERROR_NOT_SUPPORTED):
            raise Skip(f"{step.call} of an event gives {code}")
        return code or state.client.call(step.call, event, None)


def _verbose(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, KNOWN_ERROR, None)


OPTIONAL: dict[PointedCall, Callable[[State, BadArgument], int]] = {
    "contextCreateFromBinaryWithSignal": _with_signal,
    "contextCreateFromBinaryListAsync": _list,
    "contextCreateFromBinaryWithCallback": _with_callback,
    "contextGetIncrementalBinary": _incremental,
    "contextReleaseIncrementalBinary": _released,
    "graphCreateSubgraph": _subgraph,
    "graphExecuteAsync": _execute_async,
    "graphPrepareExecutionEnvironment": _environment,
    "graphReleaseExecutionEnvironment": _environment,
    "tensorCreateContextTensor": _context_tensor,
    "tensorUpdateGraphTensors": _updated_graph,
    "tensorUpdateContextTensors": _updated_context,
    "profileGetSubEvents": _sub_events,
    "profileGetEventData": _event_data,
    "profileGetExtendedEventData": _event_data,
    "errorGetVerboseMessage": _verbose,
}
"""How each is made."""
