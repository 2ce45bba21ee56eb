"""The step `Misuse`: one call of the table with an invalid handle (NULL, unknown or freed)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

from pytest_qnn.qnn.abi.codes import (
    ContextOption,
    Error,
    HtpContextOption,
    MemType,
    Property,
    TensorMemType,
    low,
)
from pytest_qnn.qnn.abi.layouts import (
    ContextBinaryCallback,
    ContextBuffer,
    ContextParams,
    ContextProperty,
    ExecuteEnvironment,
    HtpContextProperty,
    Notify,
    ProfileEventData,
    ProvideRaw,
    ReleaseRaw,
    SectionType,
    TensorP,
)
from pytest_qnn.qnn.cases.case import FREED, TENSOR, Alloc, Churn, Misuse
from pytest_qnn.qnn.cases.misuses import NULL_IS_GOOD, TAKES, Handled, Misused
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES
from pytest_qnn.qnn.reference.table import HTP_BACKEND_ID
from pytest_qnn.qnn.runner.buffers import alloc
from pytest_qnn.qnn.runner.client import PROFILE_LEVEL_BASIC, Operator, array_of
from pytest_qnn.qnn.runner.graphs import client_bytes
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.probes import Batch
from pytest_qnn.qnn.runner.state import BOGUS_HANDLE, Graph, Skip, State
from pytest_qnn.qnn.trace import StepSeen

TAKEN: list[Any] = []
"""What a target that took an asynchronous call may work on whenever it likes, even after the case."""
_RAW_BUFFER = 1
"""Qnn_ContextBinaryCallbackType_t."""


def validate(state: State, name: str, handle: int | None) -> int:
    """QnnContext_validateBinary."""
    held, size = _last_binary(state)
    return state.client.call(name, handle, state.session.device, None, ctypes.addressof(held), size)


def create(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinary, and the same with a signal."""
    held, size = _last_binary(state)
    out = ctypes.c_void_p()
    place = (None, ctypes.addressof(held), size, ctypes.byref(out), None)
    signal = (None,) if name == "contextCreateFromBinaryWithSignal" else ()
    code = state.client.call(name, handle, state.session.device, *place, *signal)
    return _freed_again(state, code, out)


def create_with_callback(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinaryWithCallback; pieces of the binary are given as raw memory."""
    held, size = _last_binary(state)
    callback = _provider(held)
    state.held.append((held, callback))
    out = ctypes.c_void_p()
    place = (ctypes.addressof(callback), ctypes.addressof(held), size)
    code = state.client.call(
        name, handle, state.session.device, None, *place, ctypes.addressof(out), None, None
    )
    return _freed_again(state, code, out)


def create_list(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinaryListAsync with a list of one."""
    held, size = _last_binary(state)
    entry = ContextParams(version=1)
    entry.v1.binaryBuffer, entry.v1.binaryBufferSize = ctypes.addressof(held), size
    entry.v1.notifyFunc = Notify(lambda *_: None)
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    code = state.client.call(name, handle, state.session.device, ctypes.addressof(listed), None, None)
    if code == 0:
        TAKEN.append((held, entry, listed))
    return code


def _last_binary(state: State) -> tuple[Any, int]:
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary to make a context from")
    return ctypes.create_string_buffer(data, len(data)), len(data)


def _freed_again(state: State, code: int, out: Any) -> int:
    if code == 0:
        state.client.call("contextFree", out.value, None)
    return code


def _provider(held: Any) -> ContextBinaryCallback:
    """Gives each piece where it lies in the client's copy of the binary."""
    base = ctypes.addressof(held)

    def provide(request: Any, response: Any, _: int | None) -> int:
        response[0].memPtr = base + request.offset
        response[0].dataStartOffset, response[0].alignedSize = 0, request.size
        return 0

    made = ContextBinaryCallback(type=_RAW_BUFFER)
    made.rawBufferCallback.version = 1
    made.rawBufferCallback.v1.dataProvide = ProvideRaw(provide)
    made.rawBufferCallback.v1.dataRelease = ReleaseRaw(lambda *_: 0)
    return made


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


def _raw(operator: Operator, memory: Any) -> tuple[Any, int, Any, int]:
    """Inputs and outputs of an execute, all of which lie in ``memory``."""
    for tensor in operator.io:
        tensor.v1.memType = TensorMemType.RAW
        tensor.v1.clientBuf.data, tensor.v1.clientBuf.dataSize = ctypes.addressof(memory), len(memory)
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
        room = client_bytes(max(1, size))
        code = state.client.call("graphExecute", graph.value, *_raw(operator, room), profile, None)
        if code != 0:
            raise Skip(f"graphExecute with a profile gives {code}")
        return
    raise Skip("there is no graph to execute with a profile")


LOG_LEVEL_ERROR = 1
KNOWN_ERROR = int(Error.MEM_ERROR_INVALID_HANDLE)
EXTENDED_EVENT = 32
"""Words of 4 bytes, more than a QnnProfile_ExtendedEventData_t has; the first is its version."""
_EVENT_VERSION = 1
Call = Callable[[State, str, int | None], int]


def call_misused(state: State, name: Misused, handle: int | None) -> int:
    """Make the call; its code.

    Raises Skip where its other arguments cannot be had, and where it fails without a log, too: then it is not
    the log that is wrong.
    """
    call = _CALLS[name]
    if handle is not None and name in NULL_IS_GOOD and TAKES[name] == "log":
        code = call(state, name, None)
        if low(code) not in (Error.SUCCESS, Error.COMMON_ERROR_NOT_SUPPORTED):
            raise Skip(f"{name} gives {code} without a log, too")
    return call(state, name, handle)


def _plain(*more: Any) -> Call:
    return lambda state, name, handle: state.client.call(name, handle, *more)


def _number(*outs: Any) -> Call:
    """A call whose handle is a number, and which writes to ``outs``: types of ctypes."""

    def call(state: State, name: str, handle: int | None) -> int:
        return state.client.call(name, handle or 0, *(ctypes.byref(out()) for out in outs))

    return call


def _answer(*outs: Any) -> Call:
    """A call that writes what it answers to ``outs``: types of ctypes."""
    return lambda state, name, handle: state.client.call(name, handle, *(ctypes.byref(out()) for out in outs))


def _maker(ender: str, *between: Any, more: tuple[Any, ...] = ()) -> Call:
    """A call that makes an object; ``ender`` frees it."""

    def call(state: State, name: str, handle: int | None) -> int:
        code, value = state.client.create(name, handle, *between)
        if code == 0:
            state.client.call(ender, value, *more)
        return code

    return call


def _named(state: State, name: str, handle: int | None) -> int:
    """A graph under a name; it goes with its context."""
    config = (None,) if name == "graphCreate" else ()
    out = ctypes.c_void_p()
    return state.client.call(name, handle, b"misuse", *config, ctypes.byref(out))


def _context(state: State, name: str, handle: int | None) -> int:
    return _maker("contextFree", state.session.device, None, more=(None,))(state, name, handle)


def _binary(state: State, name: str, handle: int | None) -> int:
    room, written = ctypes.create_string_buffer(_ROOM), ctypes.c_uint64()
    return state.client.call(name, handle, ctypes.addressof(room), _ROOM, ctypes.byref(written))


def _section(state: State, name: str, handle: int | None) -> int:
    """A call on the section of the updatable tensors of a graph, where there is one, in raw memory."""
    graph = next((each.value for each in live_graphs(state)), None)
    if name == "contextGetBinarySectionSize":
        size = ctypes.c_uint64()
        return state.client.call(name, handle, graph, SectionType.UPDATABLE, ctypes.byref(size))
    room, buffer = ctypes.create_string_buffer(_ROOM), ContextBuffer(version=1)
    buffer.v1.binaryBuf.data, buffer.v1.binaryBuf.dataSize = ctypes.addressof(room), _ROOM
    state.held.append(room)
    written = (ctypes.byref(ctypes.c_uint64()),) if name == "contextGetBinarySection" else ()
    place = (graph, SectionType.UPDATABLE, ctypes.addressof(buffer), *written)
    return state.client.call(name, handle, *place, None, None)


def _released_part(state: State, name: str, handle: int | None) -> int:
    """With memory that is no part of a binary, because there is none of a context that is none."""
    room = ctypes.create_string_buffer(_ROOM)
    return state.client.call(name, handle, ctypes.addressof(room), 0)


def _empty_list(state: State, name: str, handle: int | None) -> int:
    """A NULL-terminated array, of configurations or properties, without an entry."""
    listed = array_of(ctypes.c_void_p, 1)(None)
    return state.client.call(name, handle, ctypes.addressof(listed))


def _property(state: State, name: str, handle: int | None) -> int:
    """The alignment of external buffers."""
    asked = HtpContextProperty(option=HtpContextOption.BUFFER_START_ALIGNMENT)
    entry = ContextProperty(option=ContextOption.CUSTOM, customProperty=ctypes.addressof(asked))
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    return state.client.call(name, handle, ctypes.addressof(listed))


def memory(state: State) -> Batch:
    """Memory from rpcmem, described as of a type that the target has. Raises Skip where there is none."""
    if not alloc(state, Alloc("misused", TENSOR)).values[0]:
        raise Skip("there is no memory to register")
    return Batch(state, Churn("register", "misused", mem_type=_mem_type(state)))


def _register(state: State, name: str, handle: int | None) -> int:
    batch = memory(state)
    code = state.client.call(name, handle, batch.descriptors, batch.count, batch.handles)
    if code == 0:
        state.client.call("memDeRegister", batch.handles, batch.count)
    return code


def _mem_type(state: State) -> int:
    """Qnn_MemType_t of memory that the target says it takes; ION where it says nothing."""
    interface = state.client.interface
    htp = interface is not None and interface.backendId == HTP_BACKEND_ID
    ion, custom, dma_buf = (
        Property.MEMORY_SUPPORT_MEM_TYPE_ION,
        Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM,
        Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF,
    )
    kinds = [(MemType.ION, ion), (MemType.DMA_BUF, dma_buf), *([(MemType.CUSTOM, custom)] if htp else [])]
    offered = (kind for kind, key in kinds if state.client.call("propertyHasCapability", key) == 0)
    return int(next(offered, MemType.ION))


def _deregister(state: State, name: str, handle: int | None) -> int:
    return state.client.call(name, array_of(ctypes.c_void_p, 1)(handle), 1)


def _platform(state: State, name: str, handle: int | None) -> int:
    """QnnDevice_getPlatformInfo or, of what it gave without a log, QnnDevice_freePlatformInfo."""
    out = ctypes.c_void_p()
    getter = handle if name == "deviceGetPlatformInfo" else None
    code = state.client.call("deviceGetPlatformInfo", getter, ctypes.byref(out))
    if name == "deviceFreePlatformInfo":
        if code != 0:
            raise Skip(f"deviceGetPlatformInfo gives {code}: there is nothing to free")
        code = state.client.call(name, handle, out.value)
        if code == 0:
            return code
    if out.value:
        state.client.call("deviceFreePlatformInfo", None, out.value)
    return code


def _extended_event(state: State, name: str, handle: int | None) -> int:
    room = (ctypes.c_uint32 * EXTENDED_EVENT)(_EVENT_VERSION)
    return state.client.call(name, handle or 0, ctypes.addressof(room))


def _verbose(state: State, name: str, handle: int | None) -> int:
    out = ctypes.c_char_p()
    code = state.client.call(name, handle or 0, ctypes.byref(out))
    if code == 0 and out:
        state.client.call("errorFreeVerboseMessage", ctypes.cast(out, ctypes.c_void_p).value)
    return code


_EVENTS = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32)
_CALLS: dict[str, Call] = {
    "backendCreate": _maker("backendFree", None),
    "backendSetConfig": _empty_list,
    # A package that there is would be code of ours in the target's process.
    "backendRegisterOpPackage": _plain(b"./libNoSuchPackage.so", b"noSuchProvider", None),
    "backendGetSupportedOperations": _answer(ctypes.c_uint32, ctypes.c_void_p),
    "backendValidateOpConfig": node,
    "backendGetProperty": _empty_list,
    "backendFree": _plain(),
    "contextCreate": _context,
    "contextSetConfig": _empty_list,
    "contextFree": _plain(None),
    "contextGetBinarySize": _answer(ctypes.c_uint64),
    "contextGetBinary": _binary,
    "contextValidateBinary": validate,
    "contextCreateFromBinary": create,
    "contextCreateFromBinaryWithSignal": create,
    "contextCreateFromBinaryListAsync": create_list,
    "contextCreateFromBinaryWithCallback": create_with_callback,
    "contextGetBinarySectionSize": _section,
    "contextGetBinarySection": _section,
    "contextApplyBinarySection": _section,
    "contextGetIncrementalBinary": _answer(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64),
    "contextReleaseIncrementalBinary": _released_part,
    "contextFinalize": _plain(None),
    "contextGetProperty": _property,
    "graphCreate": _named,
    "graphCreateSubgraph": _named,
    "graphRetrieve": _named,
    "graphSetConfig": _empty_list,
    "graphGetProperty": _empty_list,
    "graphAddNode": node,
    "graphFinalize": _plain(None, None),
    "graphExecute": execute,
    "graphExecuteAsync": execute,
    "graphPrepareExecutionEnvironment": environment,
    "graphReleaseExecutionEnvironment": environment,
    "tensorCreateGraphTensor": new_tensor,
    "tensorCreateContextTensor": new_tensor,
    "tensorUpdateGraphTensors": updated_tensors,
    "tensorUpdateContextTensors": updated_tensors,
    "memRegister": _register,
    "memDeRegister": _deregister,
    "deviceCreate": _maker("deviceFree", None),
    "deviceSetConfig": _empty_list,
    "deviceGetInfo": _answer(ctypes.c_void_p),
    "deviceGetPlatformInfo": _platform,
    "deviceFreePlatformInfo": _platform,
    "deviceFree": _plain(),
    "logSetLogLevel": _plain(LOG_LEVEL_ERROR),
    "logFree": _plain(),
    "profileCreate": _maker("profileFree", PROFILE_LEVEL_BASIC),
    "profileSetConfig": _empty_list,
    "profileGetEvents": _answer(*_EVENTS),
    "profileGetSubEvents": _number(*_EVENTS),
    "profileGetEventData": _number(ProfileEventData),
    "profileGetExtendedEventData": _extended_event,
    "profileFree": _plain(),
    "signalCreate": _maker("signalFree", None),
    "signalSetConfig": _empty_list,
    "signalTrigger": _plain(),
    "signalFree": _plain(),
    "errorGetVerboseMessage": _verbose,
    "errorFreeVerboseMessage": _plain(),
}
"""How each is made."""

_MAKERS = {
    "backend": ("backendCreate", "backendFree"),
    "device": ("deviceCreate", "deviceFree"),
    "log": ("logCreate", "logFree"),
    "profile": ("profileCreate", "profileFree"),
    "signal": ("signalCreate", "signalFree"),
}
"""Kinds of which one more can be made, with the calls that make and free it."""


@handles(Misuse)
def misuse(state: State, step: Misuse) -> StepSeen:
    """The call with an invalid handle (NULL, unknown or freed)."""
    state.session.open()
    handle = _handle(state, TAKES[step.call], step.handle)
    return StepSeen(code=call_misused(state, step.call, handle))


def _handle(state: State, kind: Handled, name: str) -> int | None:
    if name == FREED:
        return _freed(state, kind)
    if kind == "context":
        return state.context_value(name)
    if kind == "graph":
        return state.graph_value(name)
    if kind == "memory":
        return state.handle_value(name)
    return {"NULL": None, "BOGUS": BOGUS_HANDLE}.get(name, BOGUS_HANDLE)


def _freed(state: State, kind: Handled) -> int:
    """A value that an object of the kind had until now, unless a live one has it too."""
    if kind not in (*_MAKERS, "memory", "event", "text"):
        raise Skip(f"a freed {kind} is named by its name")
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    special = {"memory": _deregistered, "event": _event_of_freed, "text": _freed_text}.get(kind)
    if special is not None:
        return special(state)
    value = _made(state, kind)
    _end(state, kind, value)
    return value


def _made(state: State, kind: str) -> int:
    """One more object of a kind. Raises Skip where there cannot be one that differs from all others."""
    backend = state.session.backend
    arguments: dict[str, tuple[Any, Any]] = {
        "log": (None, LOG_LEVEL_ERROR),
        "profile": (backend, PROFILE_LEVEL_BASIC),
        "signal": (backend, None),
    }
    maker, _ = _MAKERS[kind]
    code, value = state.client.create(maker, *arguments.get(kind, (None, None)))
    # The session has no profiles and signals: only a value of a kind that it has can be one of its own.
    own = state.session.handles() if kind not in ("profile", "signal") else set()
    if code != 0 or value in own:
        raise Skip(f"there cannot be a {kind} beside the session's")
    return value


def _end(state: State, kind: str, value: int) -> None:
    _, ender = _MAKERS[kind]
    code = state.client.call(ender, value)
    if code != 0:
        raise Skip(f"{ender} of one more {kind} gave {code}")


def _deregistered(state: State) -> int:
    """A memory handle, registered in a context of the case and deregistered again."""
    context = next((each.value for each in state.contexts.values() if each.live), None)
    if context is None:
        raise Skip("there is no context to register memory in")
    batch = memory(state)
    code = state.client.call("memRegister", context, batch.descriptors, batch.count, batch.handles)
    if code != 0:
        raise Skip(f"memRegister gives {code}")
    value = batch.handles[0] or 0
    code = state.client.call("memDeRegister", batch.handles, batch.count)
    if code != 0 or value in {each.value for each in state.known_handles() if each.live}:
        raise Skip(f"memDeRegister gives {code}, or the handle is that of other memory, too")
    return int(value)


def _event_of_freed(state: State) -> int:
    """The first event of an execute, as it was known to a profile that is freed."""
    profile = _made(state, "profile")
    events, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint32()
    try:
        executed(state, profile)
        out = (ctypes.byref(events), ctypes.byref(count))
        code = state.client.call("profileGetEvents", profile, *out)
        if code != 0 or not count.value or not events:
            raise Skip(f"profileGetEvents gives {code} and {count.value} events of an execute")
        first = int(events[0])
    finally:
        _end(state, "profile", profile)
    return first


def _freed_text(state: State) -> int:
    """Where the verbose message of an error was."""
    out = ctypes.c_void_p()
    code = state.client.call("errorGetVerboseMessage", KNOWN_ERROR, _text_out(out))
    if code != 0 or not out.value:
        raise Skip(f"errorGetVerboseMessage gives {code} and no text")
    code = state.client.call("errorFreeVerboseMessage", out.value)
    if code != 0:
        raise Skip(f"errorFreeVerboseMessage gives {code}")
    return out.value


def _text_out(out: Any) -> Any:
    return ctypes.cast(ctypes.byref(out), ctypes.POINTER(ctypes.c_char_p))
