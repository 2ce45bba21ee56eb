"""The step `BadArgument`: one call of the table with one argument that leads nowhere."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from pytest_qnn.qnn.abi.codes import ContextOption, Error
from pytest_qnn.qnn.abi.layouts import ContextProperty, SectionType
from pytest_qnn.qnn.cases.arguments import NO_VERSION, WITHOUT_SESSION, PointedCall
from pytest_qnn.qnn.cases.case import BadArgument, Prepare
from pytest_qnn.qnn.runner.client import PROFILE_LEVEL_BASIC, array_of
from pytest_qnn.qnn.runner.graphs import create_tensors, operator_of
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.misuses.given import (
    begun,
    freed_again,
    given,
    last_binary,
    new_name,
    options,
    prepared,
    spoilt_operator,
    spoilt_tensor,
)
from pytest_qnn.qnn.runner.misuses.handles import LOG_LEVEL_ERROR
from pytest_qnn.qnn.runner.misuses.optional import OPTIONAL, raw_execution
from pytest_qnn.qnn.runner.misuses.options import OPTIONS
from pytest_qnn.qnn.runner.misuses.updates import UPDATES
from pytest_qnn.qnn.runner.sections import raw_buffer
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import StepSeen

_PACKAGE_PATH, _PROVIDER = b"./libNoSuchPackage.so", b"noSuchProvider"
_ROOM = 1 << 20
"""Bytes for a binary: those of the graphs of the suite have some thousand."""


@handles(BadArgument)
def bad_argument(state: State, step: BadArgument) -> StepSeen:
    """The code of the call."""
    if not state.session.open() and step.call not in WITHOUT_SESSION:
        raise Skip(f"there is no session: {state.session.failure}")
    return StepSeen(code=_CALLS[step.call](state, step))


def _log_create(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, None, LOG_LEVEL_ERROR, None)


def _message(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, int(Error.MEM_ERROR_INVALID_HANDLE), None)


def _made_once_more(state: State, step: BadArgument) -> int:
    """BackendCreate or deviceCreate with the session's log, as the session itself has made its own.

    What is made nevertheless is freed, unless it is ours.
    """
    config, kept = options(step)
    state.held.append(kept)
    out = ctypes.c_void_p()
    place = None if config is None else ctypes.byref(out)
    code = state.client.call(step.call, state.session.log, config, place)
    own = state.session.backend if step.call == "backendCreate" else state.session.device
    if code == 0 and out.value and out.value != own:
        state.client.call("backendFree" if step.call == "backendCreate" else "deviceFree", out.value)
    return code


def _package(state: State, step: BadArgument) -> int:
    path = given(step, "packagePath", _PACKAGE_PATH)
    provider = given(step, "interfaceProvider", _PROVIDER)
    return state.client.call(step.call, state.session.backend, path, provider, None)


def _operations(state: State, step: BadArgument) -> int:
    count, listed = ctypes.c_uint32(), ctypes.c_void_p()
    counted = given(step, "numOperations", ctypes.byref(count))
    return state.client.call(
        step.call, state.session.backend, counted, given(step, "operations", ctypes.byref(listed))
    )


def _validated(state: State, step: BadArgument) -> int:
    operator = operator_of(Prepare("bad argument", "", step.op, step.dtype))
    return state.client.call(step.call, state.session.backend, spoilt_operator(operator, step))


def _device_info(state: State, step: BadArgument) -> int:
    if state.session.device is None:
        raise Skip("there is no device")
    return state.client.call(step.call, state.session.device, None)


def _platform_info(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, None, None)


def _infrastructure(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, None)


def _context_create(state: State, step: BadArgument) -> int:
    config, kept = options(step)
    state.held.append(kept)
    session, out = state.session, ctypes.c_void_p()
    place = given(step, "context", ctypes.byref(out))
    code = state.client.call(step.call, session.backend, session.device, config, place)
    return freed_again(state, code, out)


def _binary_size(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, state.context_value(step.context), None)


def _binary(state: State, step: BadArgument) -> int:
    room, written = ctypes.create_string_buffer(_ROOM), ctypes.c_uint64()
    buffer = given(step, "binaryBuffer", ctypes.addressof(room))
    place = given(step, "writtenBufferSize", ctypes.byref(written))
    return state.client.call(step.call, state.context_value(step.context), buffer, _ROOM, place)


def _from_binary(state: State, step: BadArgument) -> int:
    """ContextValidateBinary or contextCreateFromBinary of the binary that was written last."""
    held, size = last_binary(state)
    out = ctypes.c_void_p()
    config, kept = options(step)
    state.held.append(kept)
    buffer = given(step, "binaryBuffer", ctypes.addressof(held))
    read = (state.session.backend, state.session.device, config, buffer, size)
    if step.call == "contextValidateBinary":
        return state.client.call(step.call, *read)
    place = given(step, "context", ctypes.byref(out))
    return freed_again(state, state.client.call(step.call, *read, place, None), out)


def _property(state: State, step: BadArgument) -> int:
    entry = ContextProperty(option=ContextOption.CUSTOM)
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    return state.client.call(step.call, state.context_value(step.context), ctypes.addressof(listed))


def _section_size(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, *_asked(state, step), None)


def _asked(state: State, step: BadArgument) -> tuple[int | None, int | None, int]:
    """Context, graph and section. Raises Skip where the graph was never made."""
    if step.graph not in state.graphs:
        raise Skip(f"graph {step.graph} was never made")
    return state.context_value(step.context), state.graph_value(step.graph), SectionType.UPDATABLE


def _section(state: State, step: BadArgument) -> int:
    """ContextGetBinarySection, or contextApplyBinarySection of what that has given."""
    asked, size, written = _asked(state, step), ctypes.c_uint64(), ctypes.c_uint64()
    code = state.client.call("contextGetBinarySectionSize", *asked, ctypes.byref(size))
    if code != 0 or not 0 < size.value <= _ROOM:
        raise Skip(f"contextGetBinarySectionSize gives {code} and {size.value} bytes")
    room = ctypes.create_string_buffer(size.value)
    buffer = raw_buffer(ctypes.addressof(room), size.value)
    if step.call == "contextApplyBinarySection":
        whole = (ctypes.addressof(buffer), ctypes.byref(written), None, None)
        code = state.client.call("contextGetBinarySection", *asked, *whole)
        if code != 0:
            raise Skip(f"contextGetBinarySection gives {code}")
    if step.argument == "binaryBuffer.version":
        buffer.version = NO_VERSION
    elif step.argument == "binaryBuffer.data":
        buffer.v1.binaryBuf.data = None
    place = given(step, "binaryBuffer", ctypes.addressof(buffer))
    if step.call == "contextApplyBinarySection":
        return state.client.call(step.call, *asked, place, None, None)
    counted = given(step, "writtenBufferSize", ctypes.byref(written))
    return state.client.call(step.call, *asked, place, counted, None, None)


def _graph_create(state: State, step: BadArgument) -> int:
    out = ctypes.c_void_p()
    config, kept = options(step)
    state.held.append(kept)
    name = given(step, "graphName", new_name(state))
    place = given(step, "graphHandle", ctypes.byref(out))
    return state.client.call(step.call, state.context_value(step.context), name, config, place)


def _graph_retrieve(state: State, step: BadArgument) -> int:
    made = prepared(state, step)
    name = given(step, "graphName", state.name_of_graph(made.step.graph))
    place = given(step, "graphHandle", ctypes.byref(ctypes.c_void_p()))
    return state.client.call(step.call, state.context_value(made.step.context), name, place)


def _node(state: State, step: BadArgument) -> int:
    graph, operator = begun(state, step)
    created, _ = create_tensors(state.client, graph, operator, watch=False)
    if created[-1][1] != 0:
        raise Skip(f"{created[-1][0]} gives {created[-1][1]}")
    return state.client.call(step.call, graph, spoilt_operator(operator, step))


def _tensor(state: State, step: BadArgument) -> int:
    graph, operator = begun(state, step)
    tensor = spoilt_tensor(operator.tensors[0], step)
    return state.client.call(step.call, graph, given(step, "tensor", ctypes.byref(tensor)))


def _execute(state: State, step: BadArgument) -> int:
    value, arrays, kept = raw_execution(state, step)
    state.held.append(kept)
    return state.client.call(step.call, value, *arrays, None, None)


def _profile_create(state: State, step: BadArgument) -> int:
    return state.client.call(step.call, state.session.backend, PROFILE_LEVEL_BASIC, None)


def _profile_events(state: State, step: BadArgument) -> int:
    code, profile = state.client.create("profileCreate", state.session.backend, PROFILE_LEVEL_BASIC)
    if code != 0:
        raise Skip(f"profileCreate gives {code}")
    ids, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
    listed = given(step, "profileEventIds", ctypes.byref(ids))
    code = state.client.call(step.call, profile, listed, given(step, "numEvents", ctypes.byref(count)))
    state.client.call("profileFree", profile)
    return code


def _signal_create(state: State, step: BadArgument) -> int:
    config, kept = options(step)
    state.held.append(kept)
    out = ctypes.c_void_p()
    place = given(step, "signal", ctypes.byref(out))
    code = state.client.call(step.call, state.session.backend, config, place)
    if code == 0 and out.value:
        state.client.call("signalFree", out.value)
    return code


_CALLS: dict[PointedCall, Callable[[State, BadArgument], int]] = {
    "logCreate": _log_create,
    "errorGetMessage": _message,
    "backendCreate": _made_once_more,
    "backendRegisterOpPackage": _package,
    "backendGetSupportedOperations": _operations,
    "backendValidateOpConfig": _validated,
    "deviceCreate": _made_once_more,
    "deviceGetInfo": _device_info,
    "deviceGetPlatformInfo": _platform_info,
    "deviceFreePlatformInfo": _platform_info,
    "deviceGetInfrastructure": _infrastructure,
    "contextCreate": _context_create,
    "contextGetBinarySize": _binary_size,
    "contextGetBinary": _binary,
    "contextValidateBinary": _from_binary,
    "contextCreateFromBinary": _from_binary,
    "contextGetProperty": _property,
    "contextGetBinarySectionSize": _section_size,
    "contextGetBinarySection": _section,
    "contextApplyBinarySection": _section,
    "graphCreate": _graph_create,
    "graphRetrieve": _graph_retrieve,
    "graphAddNode": _node,
    "graphExecute": _execute,
    "tensorCreateGraphTensor": _tensor,
    "profileCreate": _profile_create,
    "profileGetEvents": _profile_events,
    "signalCreate": _signal_create,
    **OPTIONAL,
    **OPTIONS,
    **UPDATES,
}
"""How each is made."""
