"""QTHR: what may be called from several threads at once (the catalogue's THR, memory half).

Clients serialise calls on one handle, its parents and its dependents (QTHR-02): that is their duty, and the
cases here keep to it, but for QTHR-05, which is about a client that does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.abi.qnn_codes import Error, LogLevel, low
from pytest_qnn.cases import memory_load_strategies as strategies
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.memory_probes import Parallel
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory_codes import named, one_of
from pytest_qnn.rules.memory_graph_support import require_execution
from pytest_qnn.rules.memory_support import require_memory_type, require_operator, require_session
from pytest_qnn.trace import MemoryTrace, StepSeen

_UNSUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_CLEAN = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE), int(Error.GRAPH_ERROR_INVALID_CONTEXT)})


def _parallel(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, Parallel, StepSeen]]:
    """Each step in threads that was carried out; Unsupported where one of its calls answers 1000."""
    require_session(trace)
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Parallel):
            continue
        if seen.skipped:
            raise Unsupported(seen.skipped)
        for call, code in seen.calls:
            if low(code) == _UNSUPPORTED:
                raise Unsupported(f"{call} answers 1000, not supported")
        yield f"step {index}, {step.threads} threads", step, seen


def _demand_nothing_failed(found: Iterator[tuple[str, Parallel, StepSeen]]) -> int:
    """Every call of every thread succeeded, with the right outputs; gives how many rounds there were."""
    count = 0
    for where, step, seen in found:
        for call, code in seen.calls:
            wrong = f"{call} answers {named(code)}" if code else call
            raise Violation("every call succeeds, as it does alone", wrong, where)
        count += step.threads * step.rounds
    return count


@rule(
    "QTHR-01",
    Level.MUST,
    "QnnBackend_create may be called from several threads at once.",
    source="QnnBackend.h: QnnBackend_create (re-entrant and thread-safe)",
    subject="memory",
    cases=strategies.backends,
    weight=0.2,
)
def qthr_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every backendCreate succeeds, and so does the backendFree of what it gave."""
    return Examined(_demand_nothing_failed(_parallel(case, trace)), "backends created in threads")


@rule(
    "QTHR-03",
    Level.SHOULD,
    "Registering, executing and deregistering in sibling contexts is safe in parallel.",
    source="QNN documentation 2.13 by contrast (it serialises one handle's calls); ONNX Runtime does it",
    subject="memory",
    cases=strategies.siblings,
    gate=("1101", "502"),
    weight=0.2,
)
def qthr_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every call succeeds; UFIXED_POINT_8 outputs are right."""
    require_operator(trace)
    count = _demand_nothing_failed(_parallel(case, trace))
    if trace.facts is not None:
        require_memory_type(trace.facts)
    return Examined(count, "rounds in sibling contexts")


@rule(
    "QTHR-04",
    Level.SHOULD,
    "While a log is told of calls in several threads every call ends, and no message is louder than wanted, "
    "or comes once the log is freed.",
    source="QnnLog.h: QnnLog_Callback_t, QnnLog_create, QnnLog_setLogLevel, QnnLog_free",
    subject="memory",
    cases=strategies.logs,
    weight=0.2,
)
def qthr_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The callback is thread-safe and calls nothing of QNN, so every call succeeds, and comes to its end."""
    count = 0
    for where, step, seen in _parallel(case, trace):
        _demand_nothing_failed(iter([(where, step, seen)]))
        _demand_wanted_messages(where, step, seen.counts)
        count += seen.counts.get("heard", 0)
        if not count and step.what == "logs":
            told = f"nothing is told to a log of level {_level(step.level)}"
            raise Unsupported(told, settled=step.level >= LogLevel.VERBOSE)
    return Examined(count, "messages to logs")


def _demand_wanted_messages(where: str, step: Parallel, counts: dict[str, int]) -> None:
    if late := counts.get("late"):
        raise Violation("no message once logFree has returned", _messages(late), where)
    if null := counts.get("null_formats"):
        raise Violation("a format with each message", f"{_messages(null)} with NULL", where)
    if strange := counts.get("strange"):
        raise Violation(f"levels from {_level(1)} on", f"{_messages(strange)} of a lower level", where)
    if loud := counts.get("loud"):
        wanted = f"no level above {_level(step.level)}"
        if step.lowered:
            wanted += f", nor above {_level(step.lowered)} once logSetLogLevel has said so"
        seen = f"{_messages(loud)} too loud, up to {_level(counts.get('loudest', 0))}"
        raise Violation(wanted, seen, where)


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _level(level: int) -> str:
    return f"{level} ({LogLevel(level).name})" if level in set(LogLevel) else str(level)


@rule(
    "QTHR-05",
    Level.SHOULD,
    "An execute whose context is freed meanwhile fails cleanly.",
    source="QnnGraph.h: QNN_GRAPH_ERROR_INVALID_CONTEXT",
    subject="memory",
    cases=strategies.races,
    weight=0.2,
)
def qthr_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6001 or 6039, and no crash; a backend that refuses to free a busy context is not judged."""
    require_operator(trace)
    require_execution(trace)
    count = 0
    for where, _, seen in _parallel(case, trace):
        codes = dict(seen.calls)
        if "contextFree" in codes or "graphExecute" not in codes:
            continue
        if low(codes["graphExecute"]) not in _CLEAN:
            ended = named(codes["graphExecute"]) if codes["graphExecute"] else "it goes on executing"
            raise Violation(f"{one_of(_CLEAN)} once the context is freed", ended, where)
        count += 1
    return Examined(count, "executes raced by contextFree")
