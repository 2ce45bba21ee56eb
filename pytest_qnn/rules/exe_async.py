"""EXE: asynchronous execution keeps to the memory rules until it notifies, and then leaves memory alone."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, Property
from pytest_qnn.cases import memory_async_strategies as strategies
from pytest_qnn.cases.memory import Execute, MemoryCase, Register
from pytest_qnn.cases.memory_async import PATIENCE
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Hung, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_graph_support import judge_contents, require_execution, require_prepared
from pytest_qnn.rules.memory_support import demand_code, facts_of, own_steps, place, require_memory
from pytest_qnn.trace import MemoryTrace

_UNSUPPORTED = int(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
_UNTOUCHED = b"\xee"
"""What the runner fills raw outputs with before an execute."""
_AMISS = {
    "inputs_changed": "inputs as they were when the execution ends",
    "output_overrun": "nothing written behind the output",
    "late_writes": "no write to the tensors' memory after the notification",
}
"""Counts that must be nought, and what each says."""


def _require_asynchronous(trace: MemoryTrace, found: list[Walked]) -> None:
    """Raise Unsupported where every asynchronous execute answers 1000, unless property 304 says supported."""
    if not found or {walked.code for walked in found} != {_UNSUPPORTED}:
        return
    key = Property.GRAPH_SUPPORT_ASYNC_EXECUTION
    if not facts_of(trace).supports(key):
        raise Unsupported(f"graphExecuteAsync answers 1000, and property key {int(key)} is not supported")
    for walked in found:
        if walked.allowed.valid:
            raise Contradiction(
                f"success: property key {int(key)} says supported", named(_UNSUPPORTED), place(walked)
            )


def _demand_notified(walked: Walked) -> None:
    """A call that succeeds is followed by one notification, with its parameter; one that fails, by none."""
    counts = walked.seen.counts
    step = walked.step
    assert isinstance(step, Execute)
    enqueued = walked.seen.calls[step.asynchronous - 1][1] == 0
    if counts.get("strange_notifications"):
        raise Violation("a notification with the parameter of its call", "another parameter", place(walked))
    if counts.get("silent"):
        seen = f"none within {PATIENCE:g} s"
        raise Hung("a notification when an execution is finished", seen, place(walked))
    if counts["notified"] != int(enqueued):
        wanted = "one notification" if enqueued else "no notification, for the call failed"
        raise Violation(wanted, str(counts["notified"]), place(walked))
    if counts.get("queued_amiss"):
        wanted = "success, and one notification of it, for every execution in the queue"
        seen = f"other for {counts['queued_amiss']} of {step.asynchronous - 1} before the last"
        raise Violation(wanted, seen, place(walked))


def _demand_left_alone(walked: Walked) -> None:
    for counted, wanted in _AMISS.items():
        found = walked.seen.counts.get(counted, 0)
        if found:
            raise Violation(wanted, f"{counted.replace('_', ' ')}: {found}", place(walked))
    step = walked.step
    raw = isinstance(step, Execute) and step.bindings[-1].kind == "raw"
    if raw and walked.allowed.only("dead-handle") and any(map(_touched, walked.seen.data[:1])):
        raise Violation("an output that is left alone", "bytes of it differ", place(walked))


def _touched(output: bytes) -> bool:
    return bool(output.strip(_UNTOUCHED))


@rule(
    "EXE-18",
    Level.MAY,
    "Asynchronous execution follows the memory rules until its one notification, and then uses no memory.",
    source="QnnGraph.h: QnnGraph_executeAsync, notifyFn is called when execution is finished",
    subject="memory",
    cases=strategies.asynchronous,
    gate=("304",),
    weight=0.5,
)
def exe_18(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Codes are those of graphExecute, by the call or by the notification.

    At the notification the output is right and inputs are unchanged. What the client writes to either from
    then on stays, and later executes are right.
    """
    require_prepared(case, trace)
    require_execution(trace)
    found = [
        walked
        for walked in own_steps(case, trace, lambda w: isinstance(w.step, Execute))
        if isinstance(walked.step, Execute) and walked.step.asynchronous
    ]
    _require_asynchronous(trace, found)
    if any(isinstance(step, Register) for step in case.steps):
        require_memory(case, trace)
    for walked in found:
        _demand_notified(walked)
        if walked.allowed.settled:
            demand_code(walked, walked.allowed.codes, "the rules of graphExecute hold")
    judge_contents(
        case, trace, lambda seen: seen.where == "output", "it is there when the client is notified"
    )
    for walked in found:
        if walked.allowed.settled:
            _demand_left_alone(walked)
    judge_contents(case, trace, lambda seen: seen.where == "buffer", "what the client writes then stays")
    return Examined(len(found), "asynchronous executes")
