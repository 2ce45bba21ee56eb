"""QTHR: what may be called from several threads at once (THR in the catalogue)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.qnn.abi.codes import Error, LogLevel, low
from pytest_qnn.qnn.cases.case import MemoryCase, Parallel, ThreadCall
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.model.codes import named, one_of
from pytest_qnn.qnn.rules.graphs import require_execution
from pytest_qnn.qnn.rules.judging import (
    AS_RAW,
    require_memory_type,
    require_operator,
    require_session,
    wrong_output,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import LogCounts, MemoryTrace, StepSeen, ThreadCounts

_UNSUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_CLEAN = frozenset({int(Error.GRAPH_ERROR_INVALID_HANDLE), int(Error.GRAPH_ERROR_INVALID_CONTEXT)})


def _carried_out(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, Parallel, StepSeen]]:
    """Each step in threads; Unsupported where one could not be carried out."""
    require_session(trace)
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Parallel):
            continue
        if seen.skipped:
            raise Unsupported(seen.skipped)
        yield f"step {index}, {step.threads} threads", step, seen


def _parallel(case: MemoryCase, trace: MemoryTrace) -> Iterator[tuple[str, Parallel, StepSeen]]:
    """The same; Unsupported also where one of the calls answers 1000."""
    for where, step, seen in _carried_out(case, trace):
        for call, code in seen.calls:
            if low(code) == _UNSUPPORTED:
                raise Unsupported(f"{call} answers 1000, not supported")
        yield where, step, seen


def _demand_nothing_failed(found: Iterator[tuple[str, Parallel, StepSeen]]) -> int:
    """Every call of every thread succeeded, with the right outputs; gives how many rounds there were."""
    count = 0
    for where, step, seen in found:
        for call, code in seen.calls:
            if not code:
                wrong = wrong_output(seen, step.dtype, "thread") or call
                raise WrongOutput(f"every output is right, as it is alone: {AS_RAW}", wrong, where)
            raise FailedCall("every call succeeds, as it does alone", f"{call} answers {named(code)}", where)
        count += step.threads * step.rounds
    return count


Cases = st.SearchStrategy[MemoryCase]


def _threads(facts: MemoryFacts, step: Parallel, *, most: int = 8) -> Cases:
    def core(scene: Scene, tape: Tape) -> None:
        op, dtype = tape.pick(scene.operators) if scene.operators else ("ElementWiseAdd", "UFIXED_POINT_8")
        changed = msgspec.structs.replace(
            step,
            threads=2 + tape.below(most - 1),
            rounds=4 + tape.below(8),
            mem_type=tape.pick(scene.types),
            op=op,
            dtype=dtype,
        )
        scene.add(changed)

    return scenes(facts, core, before=1, after=0)


def backends(facts: MemoryFacts) -> Cases:
    """QTHR-01: backendCreate and backendFree in several threads."""
    return _threads(facts, Parallel("backends"))


@rule(
    "QTHR-01",
    Level.MUST,
    "QnnBackend_create may be called from several threads at once.",
    source="QnnBackend.h: QnnBackend_create (re-entrant and thread-safe)",
    subject="memory",
    cases=backends,
    weight=0.2,
)
def qthr_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every backendCreate succeeds, and so does the backendFree of what it gave."""
    return Examined(_demand_nothing_failed(_parallel(case, trace)), "backends created in threads")


def siblings(facts: MemoryFacts) -> Cases:
    """QTHR-03: registrations and executes in sibling contexts, one thread each."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return _threads(facts, Parallel("contexts"), most=4)


@rule(
    "QTHR-03",
    Level.SHOULD,
    "Registering, executing and deregistering in different contexts is safe in parallel.",
    source="QNN documentation 2.13 by contrast (it serialises one handle's calls); ONNX Runtime does it",
    subject="memory",
    cases=siblings,
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


_LOG_BYTES = 12
CACHING, MEMORY = 202, 1101
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING, QNN_PROPERTY_GROUP_MEMORY."""


_LEVELS = (4, 4, 4, 5, 3)
"""QnnLog_Level_t; below INFO there is little to hear of calls that succeed."""
_LOWERED = (1, 2, 3, 0)
_HANDLES = 502
"""QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE."""


def _offered(facts: MemoryFacts) -> tuple[int, ...]:
    """Qnn_MemType_t of the memory that can be registered; 0: there is none."""
    if not (facts.supports(MEMORY) and facts.supports(_HANDLES)):
        return (0,)
    # Behind MEMORY come the keys of the memory types, in the order of Qnn_MemType_t.
    return tuple(kind for kind in memory_types(facts) if facts.supports(MEMORY + kind)) or (0,)


def logs(facts: MemoryFacts) -> Cases:
    """QTHR-04: all that a backend may tell a log of, in several threads; most logs want less halfway."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    operators, types = Scene(facts).operators, _offered(facts)

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        op, dtype = tape.pick(operators)
        level = tape.pick(_LEVELS)
        step = Parallel(
            "logs",
            threads=2 + tape.below(3),
            rounds=2 + tape.below(4),
            mem_type=tape.pick(types),
            op=op,
            dtype=dtype,
            level=level,
            lowered=min(tape.pick(_LOWERED), level - 1),
        )
        return MemoryCase((step,))

    return decoded(_LOG_BYTES, decode)


@rule(
    "QTHR-04",
    Level.SHOULD,
    "While calls of several threads are logged, every call returns, no message is above the level that was "
    "set, and none comes once the log is freed.",
    source="QnnLog.h: QnnLog_Callback_t, QnnLog_create, QnnLog_setLogLevel, QnnLog_free",
    subject="memory",
    cases=logs,
    weight=0.2,
)
def qthr_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The callback is thread-safe and calls nothing of QNN, so every call succeeds, and comes to its end."""
    count = 0
    for where, step, seen in _parallel(case, trace):
        _demand_nothing_failed(iter([(where, step, seen)]))
        counts = seen.counted(LogCounts) if step.what == "logs" else LogCounts()
        _demand_wanted_messages(where, step, counts)
        count += counts.messages
        if not count and step.what == "logs":
            told = f"nothing is told to a log of level {_level(step.level)}"
            raise Unsupported(told, final=step.level >= LogLevel.VERBOSE)
    return Examined(count, "messages to logs")


def _demand_wanted_messages(where: str, step: Parallel, counts: LogCounts) -> None:
    if late := counts.late:
        raise Violation("no message once logFree has returned", _messages(late), where)
    if null := counts.null_formats:
        raise Violation("a format with each message", f"{_messages(null)} with NULL", where)
    if strange := counts.strange:
        raise Violation(f"levels from {_level(1)} on", f"{_messages(strange)} of a lower level", where)
    if loud := counts.loud:
        wanted = f"no level above {_level(step.level)}"
        if step.lowered:
            wanted += f", nor above {_level(step.lowered)} once logSetLogLevel has said so"
        seen = f"{_messages(loud)} too loud, up to {_level(counts.loudest)}"
        raise Violation(wanted, seen, where)


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"


def _level(level: int) -> str:
    return f"{level} ({LogLevel(level).name})" if level in set(LogLevel) else str(level)


def races(facts: MemoryFacts) -> Cases:
    """QTHR-05: an execute while its context is freed; not where graphs are not executed at all."""
    if not facts.executes:
        raise NothingToJudge("property key 311 says that graphs are not executed", unsupported=True)
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return _threads(facts, Parallel("race"))


@rule(
    "QTHR-05",
    Level.SHOULD,
    "QnnGraph_execute whose context is freed meanwhile fails with QNN_GRAPH_ERROR_INVALID_HANDLE (6001) or "
    "QNN_GRAPH_ERROR_INVALID_CONTEXT (6039), without a crash.",
    source="QnnGraph.h: QNN_GRAPH_ERROR_INVALID_CONTEXT",
    subject="memory",
    cases=races,
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


_HISTORY_BYTES = 44
_ROUNDS = 5000
_MOST_CALLS = 5
_GRAPHS = 2
"""That a thread composes at most: the first differs from other threads', the second does not."""


def histories(facts: MemoryFacts) -> Cases:
    """QTHR-06: two to four threads, two to five calls each; in every second case all make the same calls."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    operators, types = Scene(facts).operators, _offered(facts)
    if not facts.executes and types == (0,):
        raise NothingToJudge("it has neither executes nor memory to register", unsupported=True)

    def decode(data: bytes) -> MemoryCase:
        tape = Tape(data)
        op, dtype = tape.pick(operators)
        mem_type = tape.pick(types)
        count, alike = 2 + tape.pick((0, 0, 1, 2)), not tape.chance(2)
        own, shared = tape.chance(2), tape.chance(3)
        others = [name for name, kind in operators if kind == dtype] if tape.chance(2) else []
        drawn = [
            _calls(tape, memory=mem_type > 0, executes=facts.executes, own=own)
            for _ in range(1 if alike else count)
        ]
        step = Parallel(
            "histories",
            threads=count,
            rounds=_ROUNDS,
            mem_type=mem_type,
            op=op,
            dtype=dtype,
            calls=tuple(drawn * (count if alike else 1)),
            ops=tuple(tape.pick(others) for _ in range(count if others else 0)),
            own=own,
            shared=shared,
        )
        return MemoryCase((step,))

    return decoded(_HISTORY_BYTES, decode)


def _calls(tape: Tape, *, memory: bool, executes: bool, own: bool) -> tuple[ThreadCall, ...]:
    """Calls of one thread, each of which has something to work on."""
    found: list[ThreadCall] = []
    there: set[ThreadCall] = set()

    def either(makes: ThreadCall, ends: ThreadCall) -> ThreadCall:
        return ends if makes in there else makes

    for _ in range(2 + tape.below(_MOST_CALLS - 1)):
        options: list[ThreadCall] = []
        if memory:
            options += [either("memRegister", "memDeRegister")]
        if executes:
            options += ["graphExecute"]
        if memory or "graphExecute" in found:
            options += ["refused"]
        if own:
            options += [either("backendCreate", "backendFree"), either("contextCreate", "contextFree")]
        if own and executes and "contextCreate" in there and found.count("graphCreate") < _GRAPHS:
            options += ["graphCreate"] * 2
        if own and memory and "contextCreate" in there and "kept" not in there:
            options += ["kept"]
        call = tape.pick(options)
        found.append(call)
        if call in _ENDS:
            there -= {_ENDS[call], "kept"} if call == "contextFree" else {_ENDS[call]}
        else:
            there.add(call)
    return tuple(found)


_ENDS: dict[ThreadCall, ThreadCall] = {
    "memDeRegister": "memRegister",
    "backendFree": "backendCreate",
    "contextFree": "contextCreate",
}
"""What each call ends."""


@rule(
    "QTHR-06",
    Level.SHOULD,
    "Calls of several threads, each on a context of its own, answer as they do one after the other.",
    source="QNN documentation 2.13 by contrast (it serialises one handle's calls); ONNX Runtime does it",
    subject="memory",
    cases=histories,
    weight=0.2,
    by_chance=True,
)
def qthr_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every call of every thread answers as without other threads, and every output is what it is then.

    Contexts of different threads have nothing in common that a call could change: in whatever order the calls
    take effect, each must answer so, and a history in which one does not is not linearisable.
    """
    require_operator(trace)
    count = 0
    for where, step, seen in _carried_out(case, trace):
        if step.what != "histories":  # where one thread ends what another uses, calls may fail
            continue
        for call, code in seen.calls:
            answered = call if " " in call else f"{call} answers {named(code)}"
            wrong = wrong_output(seen, step.dtype, "thread") or answered
            raise WrongOutput("what is answered without other threads", wrong, where)
        # How often the clock alone says; what a rule examined is the same in each run.
        if seen.counted(ThreadCounts).rounds:
            count += sum(map(len, step.calls))
    return Examined(count, "calls in threads")
