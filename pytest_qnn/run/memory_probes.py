"""Steps that ask a target about itself, and calls on handles that stand for nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from pytest_qnn.abi.qnn import (
    ApiVersion,
    ContextProperty,
    ExecuteEnvironment,
    HtpContextProperty,
    TensorP,
)
from pytest_qnn.abi.qnn_codes import ContextOption, HtpContextOption, TensorMemType
from pytest_qnn.abi.qnn_table import Interface as InterfaceStruct
from pytest_qnn.abi.qnn_table import InterfaceP
from pytest_qnn.cases.memory_probes import FREED, Environment, Interface, Message, Misuse, Restart, Version
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.run.memory_state import BOGUS_HANDLE, Skip, State
from pytest_qnn.run.qnn_client import UNTOUCHED, Operator, array_of
from pytest_qnn.trace import StepSeen

_TEXT = 512
_LOG_LEVEL_ERROR = 1
_SENTINEL_TEXT = ctypes.create_string_buffer(b"untouched")
_MAKERS = {"backend": "backendCreate", "device": "deviceCreate", "log": "logCreate"}
_ENDERS = {"backend": "backendFree", "device": "deviceFree", "log": "logFree"}


def interface(state: State, step: Interface) -> StepSeen:
    """The bytes of the first interface, its name, and its version."""
    del step
    listed, count = ctypes.POINTER(InterfaceP)(), ctypes.c_uint32()
    code: int = state.client.entry.get_providers(ctypes.byref(listed), ctypes.byref(count))
    if code or not count.value or not listed or not listed[0]:
        return StepSeen(code=code)
    found = listed[0].contents
    address = ctypes.cast(listed[0], ctypes.c_void_p).value or 0
    body = ctypes.string_at(address, ctypes.sizeof(InterfaceStruct))
    counts = _version(found.apiVersion)
    return StepSeen(code=code, values=(address,), data=(body, found.providerName or b""), counts=counts)


def _version(api: Any) -> dict[str, int]:
    core, own = api.coreApiVersion, api.backendApiVersion
    named = {"core": core, "backend": own}
    return {
        f"{name}_{part}": getattr(version, part)
        for name, version in named.items()
        for part in ("major", "minor", "patch")
    }


def version(state: State, step: Version) -> StepSeen:
    """The version, or the build id, as a backend says it before it is created."""
    if step.call == "api":
        said = ApiVersion()
        code = state.client.call("backendGetApiVersion", None if step.null else ctypes.byref(said))
        return StepSeen(code=code, counts=_version(said) if code == 0 and not step.null else {})
    code, values, data = _text(state, step.null, "backendGetBuildId")
    return StepSeen(code=code, values=values, data=data)


def message(state: State, step: Message) -> StepSeen:
    """What an error code means, in the backend's words."""
    state.session.open()
    code, values, data = _text(state, step.null, "errorGetMessage", step.error)
    return StepSeen(code=code, values=values, data=data)


def _text(
    state: State, null: bool, call: str, *arguments: int
) -> tuple[int, tuple[int, ...], tuple[bytes, ...]]:
    """A call that gives a text: (0,) NULL, (1,) a text, or `UNTOUCHED` for its pointer; and the text."""
    out = ctypes.c_char_p(ctypes.addressof(_SENTINEL_TEXT))
    code = state.client.call(call, *arguments, None if null else ctypes.byref(out))
    address = ctypes.cast(out, ctypes.c_void_p).value or 0
    if address == ctypes.addressof(_SENTINEL_TEXT):
        return code, (UNTOUCHED,), ()
    return code, (int(bool(address)),), (out.value[:_TEXT],) if out.value else ()


def restart(state: State, step: Restart) -> StepSeen:  # noqa: ARG001 - each kind of step has one
    """Only the reference can be made to lose what a restart takes."""
    backend = state.client.entry.owner
    if not isinstance(backend, ReferenceBackend):
        raise Skip("nothing here can make the subsystem behind this target restart")
    backend.restart()
    return StepSeen()


def environment(state: State, step: Environment) -> StepSeen:
    """QnnGraph_prepareExecutionEnvironment over the graph's own tensors."""
    state.session.open()
    graph = state.graph_value(step.graph)
    made = state.graphs.get(step.graph)
    if made is None:
        raise Skip(f"graph {step.graph} was never made")
    operator = made.operator
    given = ExecuteEnvironment(option=step.option)
    given.tensorSet.version = 1
    given.tensorSet.v1.numInputs, given.tensorSet.v1.numOutputs = operator.io_inputs, 1
    given.tensorSet.v1.inputs = ctypes.cast(operator.inputs, TensorP)
    given.tensorSet.v1.outputs = ctypes.cast(operator.outputs, TensorP)
    table = array_of(ctypes.c_void_p, 1)(ctypes.addressof(given))
    code = state.client.call("graphPrepareExecutionEnvironment", graph, table, 1)
    if code == 0:
        state.client.call("graphReleaseExecutionEnvironment", graph, table, 1)
    return StepSeen(code=code)


def misuse(state: State, step: Misuse) -> StepSeen:
    """The call with a handle that stands for nothing."""
    state.session.open()
    kind, call = _CALLS[step.call]
    return StepSeen(code=call(state, step.call, _handle(state, kind, step.handle)))


def _handle(state: State, kind: str, name: str) -> int | None:
    if name == FREED:
        return _freed(state, kind)
    if kind == "context":
        return state.context_value(name)
    if kind == "graph":
        return state.graph_value(name)
    if kind == "memory":
        return state.handle_value(name)
    return {"NULL": None, "BOGUS": BOGUS_HANDLE}.get(name, BOGUS_HANDLE)


def _freed(state: State, kind: str) -> int:
    """The value of a backend, device or log that was made and freed, unless it is that of a live one."""
    if kind not in _MAKERS:
        raise Skip(f"a freed {kind} is named by its name")
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    middle = _LOG_LEVEL_ERROR if kind == "log" else None
    code, value = state.client.create(_MAKERS[kind], None, middle)
    if code != 0 or value in state.session.handles():
        raise Skip(f"there cannot be a second {kind}")
    code = state.client.call(_ENDERS[kind], value)
    if code != 0:
        raise Skip(f"{_ENDERS[kind]} of a second {kind} gave {code}")
    return value


Call = Callable[[State, str, int | None], int]


def _plain(*more: Any) -> Call:
    return lambda state, name, handle: state.client.call(name, handle, *more)


def _out(state: State, name: str, handle: int | None) -> int:
    """A call that answers a size or a graph under a name."""
    out = ctypes.c_uint64() if name == "contextGetBinarySize" else ctypes.c_void_p()
    named = () if name == "contextGetBinarySize" else (b"misuse",)
    named = (*named, None) if name == "graphCreate" else named
    return state.client.call(name, handle, *named, ctypes.byref(out))


def _binary(state: State, name: str, handle: int | None) -> int:
    room, written = ctypes.create_string_buffer(64), ctypes.c_uint64()
    return state.client.call(name, handle, ctypes.addressof(room), 64, ctypes.byref(written))


def _tensors(state: State, name: str, handle: int | None) -> int:
    """A call that takes a node, a tensor, or arrays of tensors."""
    made = next((each.operator for each in state.graphs.values() if each.value == handle), None)
    if name == "tensorCreateGraphTensor" and made is not None:
        return _another_tensor(state, handle, made)
    operator = Operator("ElementWiseAdd", "UFIXED_POINT_8", (8,))
    for number, tensor in enumerate(operator.tensors, 1):
        tensor.v1.id = number
    if name == "tensorCreateGraphTensor":
        return state.client.call(name, handle, ctypes.byref(operator.tensors[0]))
    if name != "graphExecute":
        return state.client.call(name, handle, operator.config())
    room = ctypes.create_string_buffer(64)
    for tensor in operator.tensors:
        tensor.v1.clientBuf.data, tensor.v1.clientBuf.dataSize = ctypes.addressof(room), 8
    return state.client.call(name, handle, operator.inputs, 2, operator.outputs, 1, None, None)


def _another_tensor(state: State, graph: int | None, operator: Operator) -> int:
    """A tensor like a graph's first one, under a name of its own."""
    new = operator.again().tensors[0]
    new.v1.name, new.v1.memType = b"misuse", TensorMemType.RAW
    new.v1.clientBuf.data, new.v1.clientBuf.dataSize = None, 0
    return state.client.call("tensorCreateGraphTensor", graph, ctypes.byref(new))


def _context(state: State, name: str, handle: int | None) -> int:
    code, value = state.client.create(name, handle, state.session.device, None)
    if code == 0:
        state.client.call("contextFree", value, None)
    return code


def _from_binary(state: State, name: str, handle: int | None) -> int:
    """With the binary that the case has written last."""
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary to make a context from")
    held = ctypes.create_string_buffer(data, len(data))
    out = ctypes.c_void_p()
    place = (None, ctypes.addressof(held), len(data), ctypes.byref(out), None)
    code = state.client.call(name, handle, state.session.device, *place)
    if code == 0:
        state.client.call("contextFree", out.value, None)
    return code


def _property(state: State, name: str, handle: int | None) -> int:
    """The alignment of external buffers."""
    asked = HtpContextProperty(option=HtpContextOption.BUFFER_START_ALIGNMENT)
    entry = ContextProperty(option=ContextOption.CUSTOM, customProperty=ctypes.addressof(asked))
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    return state.client.call(name, handle, ctypes.addressof(listed))


def _deregister(state: State, name: str, handle: int | None) -> int:
    return state.client.call(name, array_of(ctypes.c_void_p, 1)(handle), 1)


_CALLS: dict[str, tuple[str, Call]] = {
    "backendValidateOpConfig": ("backend", _tensors),
    "backendFree": ("backend", _plain()),
    "contextCreate": ("backend", _context),
    "contextFree": ("context", _plain(None)),
    "contextGetBinarySize": ("context", _out),
    "contextGetBinary": ("context", _binary),
    "contextCreateFromBinary": ("backend", _from_binary),
    "contextFinalize": ("context", _plain(None)),
    "contextGetProperty": ("context", _property),
    "graphCreate": ("context", _out),
    "graphRetrieve": ("context", _out),
    "graphAddNode": ("graph", _tensors),
    "graphFinalize": ("graph", _plain(None, None)),
    "graphExecute": ("graph", _tensors),
    "tensorCreateGraphTensor": ("graph", _tensors),
    "memDeRegister": ("memory", _deregister),
    "deviceFree": ("device", _plain()),
    "logSetLogLevel": ("log", _plain(_LOG_LEVEL_ERROR)),
    "logFree": ("log", _plain()),
    "profileFree": ("profile", _plain()),
}
"""What kind of handle each call takes, and how it is called with one."""
