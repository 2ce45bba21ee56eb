"""How each call of `pytest_qnn.cases.misuses` is made with a handle: every other argument is good.

What a call that succeeds nevertheless makes is given back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from pytest_qnn.abi.qnn import (
    ContextProperty,
    HtpContextProperty,
    ProfileEventData,
)
from pytest_qnn.abi.qnn_codes import (
    ContextOption,
    Error,
    HtpContextOption,
    MemType,
    Property,
    low,
)
from pytest_qnn.abi.qnn_sections import ContextBuffer, SectionType
from pytest_qnn.cases.memory import Alloc
from pytest_qnn.cases.memory_probes import TENSOR, Churn
from pytest_qnn.cases.misuses import NULL_IS_GOOD, TAKES, Misused
from pytest_qnn.reference.backend_table import HTP_BACKEND_ID
from pytest_qnn.run import memory_misuse_graphs as graphs
from pytest_qnn.run import memory_misuse_load as load
from pytest_qnn.run.memory_buffers import alloc
from pytest_qnn.run.memory_rounds import Batch
from pytest_qnn.run.memory_state import Skip, State
from pytest_qnn.run.qnn_client import array_of

LOG_LEVEL_ERROR = 1
PROFILE_LEVEL_BASIC = 1
KNOWN_ERROR = int(Error.MEM_ERROR_INVALID_HANDLE)
_ROOM = 64
_EXTENDED_EVENT = 32
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
    graph = next((each.value for each in graphs.live_graphs(state)), None)
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
    room = (ctypes.c_uint32 * _EXTENDED_EVENT)(_EVENT_VERSION)
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
    "backendValidateOpConfig": graphs.node,
    "backendGetProperty": _empty_list,
    "backendFree": _plain(),
    "contextCreate": _context,
    "contextSetConfig": _empty_list,
    "contextFree": _plain(None),
    "contextGetBinarySize": _answer(ctypes.c_uint64),
    "contextGetBinary": _binary,
    "contextValidateBinary": load.validate,
    "contextCreateFromBinary": load.create,
    "contextCreateFromBinaryWithSignal": load.create,
    "contextCreateFromBinaryListAsync": load.create_list,
    "contextCreateFromBinaryWithCallback": load.create_with_callback,
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
    "graphAddNode": graphs.node,
    "graphFinalize": _plain(None, None),
    "graphExecute": graphs.execute,
    "graphExecuteAsync": graphs.execute,
    "graphPrepareExecutionEnvironment": graphs.environment,
    "graphReleaseExecutionEnvironment": graphs.environment,
    "tensorCreateGraphTensor": graphs.new_tensor,
    "tensorCreateContextTensor": graphs.new_tensor,
    "tensorUpdateGraphTensors": graphs.updated_tensors,
    "tensorUpdateContextTensors": graphs.updated_tensors,
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
