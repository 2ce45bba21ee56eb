"""Calls of a `BadArgument` step with properties, and with configurations of what there is already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_qnn.qnn.cases.arguments import PointedCall
from pytest_qnn.qnn.cases.case import BadArgument
from pytest_qnn.qnn.runner.client import PROFILE_LEVEL_BASIC
from pytest_qnn.qnn.runner.misuses.given import begun, options, prepared
from pytest_qnn.qnn.runner.state import Skip, State


def _properties(state: State, step: BadArgument) -> int:
    """A property of the backend, or of a graph; or a list that is NULL."""
    listed, kept = options(step)
    state.held.append(kept)
    owner = state.session.backend if step.call == "backendGetProperty" else prepared(state, step).value
    return state.client.call(step.call, owner, listed)


def _globally(state: State, step: BadArgument) -> int:
    listed, kept = options(step)
    state.held.append(kept)
    return state.client.call(step.call, listed)


def _configured(state: State, step: BadArgument) -> int:
    """A call that sets configurations: one, or NULL."""
    listed, kept = options(step)
    state.held.append(kept)
    with _owner(state, step) as owner:
        return state.client.call(step.call, owner, listed)


_MADE = {"profileSetConfig": "profile", "signalSetConfig": "signal"}


@contextmanager
def _owner(state: State, step: BadArgument) -> Iterator[int | None]:
    """What is configured. A profile or a signal is made for it, and freed; Skip where there is none."""
    made = _MADE.get(step.call)
    if made is None:
        yield _standing(state, step)
        return
    between = PROFILE_LEVEL_BASIC if made == "profile" else None
    code, owner = state.client.create(f"{made}Create", state.session.backend, between)
    if code != 0:
        raise Skip(f"{made}Create gives {code}")
    try:
        yield owner
    finally:
        state.client.call(f"{made}Free", owner)


def _standing(state: State, step: BadArgument) -> int | None:
    if step.call == "deviceSetConfig" and state.session.device is None:
        raise Skip("there is no device")
    if step.call == "deviceSetConfig":
        return state.session.device
    if step.call == "contextSetConfig":
        return state.context_value(step.context)
    if step.call == "graphSetConfig":
        return begun(state, step)[0]
    return state.session.backend


OPTIONS: dict[PointedCall, Callable[[State, BadArgument], int]] = {
    "globalConfigSet": _globally,
    "backendSetConfig": _configured,
    "deviceSetConfig": _configured,
    "contextSetConfig": _configured,
    "graphSetConfig": _configured,
    "profileSetConfig": _configured,
    "signalSetConfig": _configured,
    "backendGetProperty": _properties,
    "graphGetProperty": _properties,
}
"""How each is made."""
