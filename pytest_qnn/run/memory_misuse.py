"""The step `Misuse`: one call of the table, with a handle that stands for nothing."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.cases.memory_probes import FREED, Misuse
from pytest_qnn.cases.misuses import TAKES, Handled
from pytest_qnn.run.memory_misuse_calls import (
    KNOWN_ERROR,
    LOG_LEVEL_ERROR,
    PROFILE_LEVEL_BASIC,
    call_misused,
    memory,
)
from pytest_qnn.run.memory_misuse_graphs import executed
from pytest_qnn.run.memory_state import BOGUS_HANDLE, Skip, State
from pytest_qnn.trace import StepSeen

_MAKERS = {
    "backend": ("backendCreate", "backendFree"),
    "device": ("deviceCreate", "deviceFree"),
    "log": ("logCreate", "logFree"),
    "profile": ("profileCreate", "profileFree"),
    "signal": ("signalCreate", "signalFree"),
}
"""Kinds of which one more can be made, with the calls that make and free it."""


def misuse(state: State, step: Misuse) -> StepSeen:
    """The call with a handle that stands for nothing."""
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
    """One more object of a kind. Raises Skip where there cannot be one that is told from all others."""
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
