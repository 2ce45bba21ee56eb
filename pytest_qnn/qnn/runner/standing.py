"""A session that stays open beside the later cases of a process, where to open one is most of what they cost.

Some libraries make tables for the first graph of their only session, and free them with it: libQnnHtp.so 2.51
takes 45 ms for them, and a case takes 50 ms, of which 4 ms are left where another session has a graph
(docs/explanation/decisions/qnn/standing-session.md).
"""

from __future__ import annotations

import time
from typing import Final

from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AllocNeeded,
    ApplySection,
    ContextCreate,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Deregister,
    Execute,
    Fill,
    Free,
    GetBinary,
    GetSection,
    Inspect,
    Lived,
    MemoryCase,
    Miscompose,
    Observe,
    Prepare,
    Read,
    Register,
    ReleaseBinary,
    Retrieve,
    ToFd,
    UpdateWeights,
    Write,
)
from pytest_qnn.qnn.cases.plain import PLAIN
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient
from pytest_qnn.qnn.runner.graphs import prepare
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.release import release
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.state import Context, Skip, State

PRICE: Final = b"price of a session"
"""The request for what `price` gives."""
_LEAST: Final = 0.01
"""Seconds that a session and a graph take at least, where one is to stay open."""
_GRAPH: Final = next(step for step in PLAIN.steps if isinstance(step, Prepare))
_ORDINARY: Final = (
    *(Alloc, AllocNeeded, Free, ToFd, Write, Fill, Read, Observe),
    *(ContextCreate, ContextFree, ContextFinalize, ContextProperty, Lived),
    *(
        GetBinary,
        ContextFromBinary,
        ReleaseBinary,
        Retrieve,
        Inspect,
        GetSection,
        ApplySection,
        UpdateWeights,
    ),
    *(Register, Deregister, Prepare, Miscompose, Execute),
)
"""Steps about what a session has. Those about sessions, logs, what is asked before there is a session,
and handles that are none, have no other session beside them."""


class Standing:
    """A session with a context and a graph, of which no case knows."""

    def __init__(self, entry: QnnEntry, rpcmem: Rpcmem) -> None:
        self._state = State(QnnClient(entry, Watch()), rpcmem)
        state, session = self._state, self._state.session
        try:
            if not session.open():
                return
            code, context = state.client.create("contextCreate", session.backend, session.device, None)
            if not code:
                state.contexts[_GRAPH.context] = Context(context)
                prepare(state, _GRAPH)
        except (NullFunction, Skip):
            pass  # it stays as far as it came

    def close(self) -> None:
        """Free what it has."""
        release(self._state)


def may_stand_beside(case: MemoryCase) -> bool:
    """Whether the case is about none of what another session may change."""
    return all(isinstance(step, _ORDINARY) for step in case.steps)


def price(entry: QnnEntry, rpcmem: Rpcmem) -> tuple[float, float]:
    """Seconds that a session with a graph takes: the only one, and one beside another; the less of two each.

    Where it takes less than ten milliseconds both are the same, and the second is not tried.
    """
    alone = _seconds(entry, rpcmem)
    if alone >= _LEAST:
        alone = min(alone, _seconds(entry, rpcmem))
    if alone < _LEAST:
        return alone, alone
    standing = Standing(entry, rpcmem)
    beside = min(_seconds(entry, rpcmem), _seconds(entry, rpcmem))
    standing.close()
    return alone, beside


def is_worth(alone: float, beside: float) -> bool:
    """Whether a session is to stay open, by what `price` gave."""
    return alone >= _LEAST and beside * 2 <= alone


def _seconds(entry: QnnEntry, rpcmem: Rpcmem) -> float:
    started = time.perf_counter()
    Standing(entry, rpcmem).close()
    return time.perf_counter() - started
