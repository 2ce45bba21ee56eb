"""Calls of `Misuse` that would make a context out of a binary: the one that the case has written last."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.abi.qnn_load import (
    ContextBinaryCallback,
    ContextParams,
    Notify,
    ProvideRaw,
    ReleaseRaw,
)
from pytest_qnn.run.memory_state import Skip, State
from pytest_qnn.run.qnn_client import array_of

TAKEN: list[Any] = []
"""What a target that took an asynchronous call may work on whenever it likes, even after the case."""
_RAW_BUFFER = 1
"""Qnn_ContextBinaryCallbackType_t."""


def validate(state: State, name: str, handle: int | None) -> int:
    """QnnContext_validateBinary."""
    held, size = _binary(state)
    return state.client.call(name, handle, state.session.device, None, ctypes.addressof(held), size)


def create(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinary, and the same with a signal."""
    held, size = _binary(state)
    out = ctypes.c_void_p()
    place = (None, ctypes.addressof(held), size, ctypes.byref(out), None)
    signal = (None,) if name == "contextCreateFromBinaryWithSignal" else ()
    code = state.client.call(name, handle, state.session.device, *place, *signal)
    return _freed(state, code, out)


def create_with_callback(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinaryWithCallback; pieces of the binary are given as raw memory."""
    held, size = _binary(state)
    callback = _provider(held)
    state.held.append((held, callback))
    out = ctypes.c_void_p()
    place = (ctypes.addressof(callback), ctypes.addressof(held), size)
    code = state.client.call(
        name, handle, state.session.device, None, *place, ctypes.addressof(out), None, None
    )
    return _freed(state, code, out)


def create_list(state: State, name: str, handle: int | None) -> int:
    """QnnContext_createFromBinaryListAsync with a list of one."""
    held, size = _binary(state)
    entry = ContextParams(version=1)
    entry.v1.binaryBuffer, entry.v1.binaryBufferSize = ctypes.addressof(held), size
    entry.v1.notifyFunc = Notify(lambda *_: None)
    listed = array_of(ctypes.c_void_p, 2)(ctypes.addressof(entry), None)
    code = state.client.call(name, handle, state.session.device, ctypes.addressof(listed), None, None)
    if code == 0:
        TAKEN.append((held, entry, listed))
    return code


def _binary(state: State) -> tuple[Any, int]:
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary to make a context from")
    return ctypes.create_string_buffer(data, len(data)), len(data)


def _freed(state: State, code: int, out: Any) -> int:
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
