"""The end of a case: all that it has made is given back."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from pytest_qnn.qnn.runner import asynchronous, buffers, pieces
from pytest_qnn.qnn.runner.client import NullFunction, array_of
from pytest_qnn.qnn.runner.state import Buffer, Context, MemHandle, State


def release(state: State, *, session: bool = True) -> list[tuple[str, int]]:
    """End a case: deregister, free contexts, close the session, free buffers, as real clients do.

    Returns each call with its code, in order. Without ``session`` that stays open.
    """
    codes: list[tuple[str, int]] = []

    def call(name: str, *arguments: Any) -> None:
        with contextlib.suppress(NullFunction):
            codes.append((name, state.client.call(name, *arguments)))

    # Handles before their contexts, contexts before the session, memory last: any other order is tested by
    # steps of the case, never by its end.
    left = [*state.retired, *state.handles.values(), *state.contexts.values(), *state.buffers.values()]
    for handle in left:
        if isinstance(handle, MemHandle) and handle.live:
            call("memDeRegister", array_of(ctypes.c_void_p, 1)(handle.value), 1)
    for context in left:
        if isinstance(context, Context) and context.live:
            call("contextFree", context.value, None)
    if session:
        codes += state.session.close()
    asynchronous.release(state)
    pieces.release(state)
    for buffer in left:
        if isinstance(buffer, Buffer) and buffer.live:
            buffers.give_back(state, buffer)
    return codes
