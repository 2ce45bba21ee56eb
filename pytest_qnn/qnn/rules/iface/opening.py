"""IF: the three calls that open a session (docs/explanation/decisions/qnn/no-session.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, LogLevel, low
from pytest_qnn.qnn.cases.case import Logged, LogKind, MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.judging import facts_of, require_session
from pytest_qnn.qnn.strategies.history import without
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_NOT_SUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_HOST = frozenset(
    int(code)
    for code in (
        Error.BACKEND_ERROR_UNSUPPORTED_PLATFORM,
        Error.BACKEND_ERROR_CANNOT_INITIALIZE,
        Error.DEVICE_ERROR_HARDWARE_UNAVAILABLE,
        Error.COMMON_ERROR_SYSTEM_COMMUNICATION,
        Error.COMMON_ERROR_LOADING_BINARIES,
        Error.COMMON_ERROR_RESOURCE_UNAVAILABLE,
        Error.COMMON_ERROR_SYSTEM_COMMUNICATION_FATAL,
    )
)
"""Codes by which a call may say that this machine lacks what the backend needs, whatever it was given."""

Cases = st.SearchStrategy[MemoryCase]


_LOGS: tuple[LogKind, ...] = ("callback", "own")
_OR_NONE: tuple[LogKind, ...] = ("callback", "none", "own", "none")
"""No log at all stands here twice: all other cases open their sessions with the library's own log."""


def _opened(scene: Scene, tape: Tape, logs: Sequence[LogKind]) -> None:
    """The session is opened by the first step, with one of these logs."""
    log = tape.pick(logs)
    level = 1 if log == "none" else 1 + tape.below(int(LogLevel.DEBUG))
    scene.add(Logged(level, log))
    scene.context()


def _opening(call: str, logs: Sequence[LogKind]) -> Callable[[MemoryFacts], Cases]:
    """Cases in which ``call`` is made, in whatever way a session is opened."""

    def cases(facts: MemoryFacts) -> Cases:
        failure = facts.session_failure
        if failure is not None and failure[0] == call and low(failure[1]) in _HOST:
            raise NothingToJudge(
                f"no session opens on this machine: {call} answers {named(failure[1])}. Judge the library "
                "where it has the hardware and the libraries that it needs"
            )
        return scenes(
            facts, functools.partial(_opened, logs=logs), before=0, after=1, without=without("IF-11")
        )

    return cases


def _judge(trace: MemoryTrace, call: str, *, optional: bool) -> Examined:
    """The call succeeds; ``optional``: or answers 1000, and is judged no further."""
    made = [code for name, code in trace.session if name == call]
    if not made:
        require_session(trace)  # the call before it failed, which another rule judges
        if trace.session and call in facts_of(trace).null_functions:
            if optional:
                raise Unsupported(f"{call} is NULL in the interface table")
            raise Violation(f"{call} in the interface table", "NULL", "session")
    for code in made:
        if optional and low(code) == _NOT_SUPPORTED:
            raise Unsupported(f"{call} answers {named(code)}")
        if code:
            raise Violation(named(0), f"{call} answers {named(code)}", "session")
    return Examined(len(made), f"{call} calls")


@rule(
    "IF-11",
    Level.MUST,
    "QnnLog_create with a valid level, with a callback or without one, succeeds or answers "
    "QNN_COMMON_ERROR_NOT_SUPPORTED (1000).",
    source="QnnLog.h: QnnLog_create",
    subject="memory",
    cases=_opening("logCreate", _LOGS),
    weight=0.2,
)
def if_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Levels 1 to 5, with a callback and without one."""
    del case
    return _judge(trace, "logCreate", optional=True)


@rule(
    "IF-12",
    Level.MUST,
    "QnnBackend_create with a live log, or without one, and without configurations succeeds on a machine "
    "that has what the backend needs.",
    source="QnnBackend.h: QnnBackend_create",
    subject="memory",
    cases=_opening("backendCreate", _OR_NONE),
    weight=0.2,
)
def if_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Nothing of it is optional: without a backend there is nothing to judge but the interface."""
    del case
    return _judge(trace, "backendCreate", optional=False)


@rule(
    "IF-13",
    Level.MUST,
    "QnnDevice_create with a live log, or without one, and without configurations succeeds on a machine "
    "that has what the backend needs, or answers QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE (1000).",
    source="QnnDevice.h: QnnDevice_create",
    subject="memory",
    cases=_opening("deviceCreate", _OR_NONE),
    weight=0.2,
)
def if_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The device with the default configuration."""
    del case
    return _judge(trace, "deviceCreate", optional=True)
