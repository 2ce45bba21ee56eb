"""IF: the three calls that open a session (docs/explanation/decisions/qnn/no-session.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, LogLevel, Property, low
from pytest_qnn.qnn.cases.case import ContextCreate, Execute, Logged, LogKind, MemoryCase, Prepare
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.judging import call_name, facts_of, own_steps, place, require_session
from pytest_qnn.qnn.strategies.history import without
from pytest_qnn.qnn.strategies.scene import SHAPES, Scene, Tape, scenes
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
_IN_WORDS: dict[LogKind, str] = {
    "callback": "a log with a callback",
    "own": "a log without a callback",
    "none": "no log",
}
_NO_LOG: tuple[LogKind, ...] = ("none",)
_COMPOSITION = Property.BACKEND_SUPPORT_COMPOSITION
_EXECUTION = Property.GRAPH_SUPPORT_EXECUTE
_USES = (ContextCreate, Prepare, Execute)
_OR_NONE: tuple[LogKind, ...] = ("callback", "none", "own", "none")
"""No log at all stands here twice: all other cases open their sessions with the library's own log."""


def _opened(scene: Scene, tape: Tape, logs: Sequence[LogKind]) -> None:
    """The first step opens the session with one of these logs; then it is used: backends log what they do."""
    log = tape.pick(logs)
    level = 1 if log == "none" else 1 + tape.below(int(LogLevel.DEBUG))
    beside = log == "none" and tape.chance(2)
    scene.add(Logged(level, log, beside=beside))
    context = scene.context()
    graph = scene.prepare(context, tape, shape=SHAPES[0]) if scene.facts.supports(_COMPOSITION) else ""
    if graph:
        scene.execute_raw(graph)


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


def _demand_use(case: MemoryCase, trace: MemoryTrace, logs: Collection[LogKind]) -> None:
    """With one of these logs a context and a graph are made and executed as with any other."""
    log: LogKind = next((step.log for step in case.steps if isinstance(step, Logged)), "own")
    if log not in logs or not facts_of(trace).supports(_COMPOSITION):
        return
    declared = facts_of(trace).supports(_EXECUTION)
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and isinstance(w.step, _USES)):
        if isinstance(walked.step, Execute) and walked.code == _NOT_SUPPORTED and not declared:
            continue  # As with any log: a target that does not execute need not know the key that says so.
        if walked.code:
            call = walked.seen.calls[-1][0] if walked.seen.calls else call_name(walked.step)
            seen = f"{call} answers {named(walked.code)} with {_IN_WORDS[log]}"
            raise FailedCall(named(0), seen, place(walked), call=call_name(walked.step))


@rule(
    "IF-11",
    Level.MUST,
    "QnnLog_create with a valid level, with a callback or without one, succeeds or answers "
    "QNN_COMMON_ERROR_NOT_SUPPORTED (1000); the calls behind it succeed with that log.",
    source="QnnLog.h: QnnLog_create",
    subject="memory",
    cases=_opening("logCreate", _LOGS),
    weight=0.2,
)
def if_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Levels 1 to 5, with a callback and without one."""
    examined = _judge(trace, "logCreate", optional=True)
    _demand_use(case, trace, _LOGS)
    return examined


@rule(
    "IF-12",
    Level.MUST,
    "QnnBackend_create with a live log, or without one, and without configurations succeeds on a machine "
    "that has what the backend needs; so do the calls behind it without a log, even where "
    "another backend has one.",
    source="QnnBackend.h: QnnBackend_create",
    subject="memory",
    cases=_opening("backendCreate", _OR_NONE),
    weight=0.2,
)
def if_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Nothing of it is optional: without a backend there is nothing to judge but the interface."""
    examined = _judge(trace, "backendCreate", optional=False)
    _demand_use(case, trace, _NO_LOG)
    return examined


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
