"""EXE-18 and EXE-22: asynchronous execution."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Contradiction, Examined, Hung, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import BOGUS, NULL, PATIENCE, Descriptor, Execute, MemoryCase, Register
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named, one_of
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.graphs import judge_contents, require_execution, require_prepared
from pytest_qnn.qnn.rules.judging import demand_code, facts_of, own_steps, place, require_memory
from pytest_qnn.qnn.strategies.graphs import (
    OUTSIDE,
    Memory,
    any_memory,
    change,
    execute,
    graph,
    load,
    raw,
    read,
    tensors_of,
)
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import AsyncCounts, MemoryTrace

_UNSUPPORTED = int(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
_UNTOUCHED = b"\xee"
"""What the runner fills raw outputs with before an execute."""


def _are_refused(found: list[Walked]) -> bool:
    """Whether every asynchronous execute answers 1000."""
    return bool(found) and {walked.code for walked in found} == {_UNSUPPORTED}


def _demand_declared(trace: MemoryTrace, found: list[Walked]) -> None:
    """Raise Contradiction where all are refused, and property key 304 says that none need be."""
    key = Property.GRAPH_SUPPORT_ASYNC_EXECUTION
    valid = next((walked for walked in found if walked.allowed.valid), None)
    if valid is not None and _are_refused(found) and facts_of(trace).supports(key):
        said = f"success: property key {int(key)} says supported"
        raise Contradiction(said, named(_UNSUPPORTED), place(valid))


def _is_full(walked: Walked) -> bool:
    """The call is refused because others of its step are in the queue (6025)."""
    step = walked.step
    waiting = isinstance(step, Execute) and step.asynchronous > 1
    return waiting and walked.code == Error.GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL


def _demand_notified(walked: Walked) -> None:
    """A call that succeeds is followed by one notification, with its parameter; one that fails, by none."""
    counts = walked.seen.counted(AsyncCounts)
    step = walked.step
    assert isinstance(step, Execute)
    enqueued = walked.seen.calls[step.asynchronous - 1][1] == 0
    if counts.strange_notifications:
        raise Violation("a notification with the parameter of its call", "another parameter", place(walked))
    if counts.silent:
        seen = f"none within {PATIENCE:g} s"
        raise Hung("a notification when an execution is finished", seen, place(walked))
    if counts.notified != int(enqueued):
        wanted = "one notification" if enqueued else "no notification, for the call failed"
        raise Violation(wanted, str(counts.notified), place(walked))
    if counts.queued_amiss and step.freed:
        wanted = "one notification for every execution in the queue"
        seen = f"other for {counts.queued_amiss} of {step.asynchronous - 1} before the last"
        raise Violation(wanted, seen, place(walked))
    if counts.queued_amiss and Fault.BAD_GRAPH not in walked.allowed.faults:
        wanted = "success, and one notification of it, for every execution in the queue"
        seen = f"other for {counts.queued_amiss} of {step.asynchronous - 1} before the last"
        raise Violation(wanted, seen, place(walked))


_WITHOUT_CONTEXT = frozenset(
    {0, int(Error.GRAPH_ERROR_INVALID_HANDLE), int(Error.GRAPH_ERROR_INVALID_CONTEXT)}
)


def _demand_clean_end(walked: Walked) -> None:
    """An execution whose context was freed behind it was carried out before, or could not be."""
    if ("contextFree", 0) not in walked.seen.calls:
        return  # it is busy, and stays
    for call, status in walked.seen.calls:
        if call == "notify" and low(status) not in _WITHOUT_CONTEXT:
            wanted = f"a notification of {one_of(_WITHOUT_CONTEXT)}: the context is freed meanwhile"
            raise Violation(wanted, named(status), place(walked))


def _demand_left_alone(walked: Walked) -> None:
    """Inputs, what is behind the output, and all of it after the notification."""
    counts = walked.seen.counted(AsyncCounts)
    for counted, found, wanted in (
        ("inputs changed", counts.inputs_changed, "inputs as they were when the execution ends"),
        ("bytes written behind the output", counts.output_overrun, "nothing written behind the output"),
        (
            "bytes written after the notification",
            counts.late_writes,
            "no write to the tensors' memory after the notification",
        ),
    ):
        if found:
            raise Violation(wanted, f"{counted}: {found}", place(walked))


def _demand_no_output(walked: Walked) -> None:
    """An execution with a dead handle is refused, and writes nothing to a raw output."""
    step = walked.step
    raw = isinstance(step, Execute) and step.bindings[-1].kind == "raw"
    if raw and walked.allowed.only(Fault.DEAD_HANDLE) and any(map(_touched, walked.seen.data[:1])):
        raise WrongOutput("an output that is left alone", "bytes of it differ", place(walked))


def _touched(output: bytes) -> bool:
    return bool(output.strip(_UNTOUCHED))


Cases = st.SearchStrategy[MemoryCase]
_MEMORY, _HANDLES = 1101, 502
"""QNN_PROPERTY_GROUP_MEMORY, QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE."""


def _later(scene: Scene, calls: int = 1) -> None:
    """Make the execute that was added last an asynchronous one, the last of so many."""
    scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], asynchronous=calls)


def _wrong(scene: Scene, tape: Tape, name: str, *, handles: bool) -> Execute:
    """An execute that graphExecute would refuse."""
    made = scene.graphs[name]
    good = raw(scene, name)
    position = tape.below(tensors_of(scene, name))
    act = tape.below(6 if handles else 5)
    if act == 0:
        return Execute(name, change(good, position, kind="handle", handle=tape.pick((NULL, BOGUS))))
    if act == 1:
        return Execute(name, change(good, position, mem_type=tape.pick(OUTSIDE)))
    if act == 2:
        return Execute(name, change(good, position, short=nbytes(made.shape, made.dtype)))
    if act == 3:
        return Execute(name, good, inputs=(*range(io_inputs(made)), 0))
    if act == 4:
        other = scene.name("g")
        scene.add(msgspec.structs.replace(made, graph=other, finalise=False))
        return Execute(other, good)
    buffer = scene.alloc(nbytes(made.shape, made.dtype))
    described = Descriptor(buffer, made.shape, made.dtype, tape.pick(scene.types))
    (foreign,) = scene.register(scene.context(), described)
    return Execute(name, change(good, position, kind="handle", handle=foreign))


def _turn(scene: Scene, tape: Tape, name: str, memory: Memory | None, seed: int) -> None:
    """One execute with new inputs, and a look at every buffer; in one turn of four it is wrong."""
    if tape.chance(4):
        scene.add(_wrong(scene, tape, name, handles=memory is not None))
        _later(scene)
        return
    calls = tape.pick((1, 1, 2, 4))
    mixed = tape.below(8) if tape.chance(3) else 0
    if memory is not None:
        load(scene, name, memory, seed)
    execute(scene, name, memory, raw=mixed, seed=seed + tape.below(16))
    if not tape.chance(4):
        _later(scene, calls)
    if memory is not None:
        read(scene, memory.buffers)


def _with_dead_handle(scene: Scene, tape: Tape, name: str, memory: Memory) -> None:
    """One handle of the graph's memory is deregistered, and bound all the same."""
    position = tape.below(tensors_of(scene, name))
    handle = memory.handles[position]
    scene.deregister(handle)
    scene.add(Execute(name, change(raw(scene, name), position, kind="handle", handle=handle)))
    _later(scene)
    read(scene, memory.buffers)


def asynchronous(facts: MemoryFacts) -> Cases:
    """Executes of one graph, raw and with handles, most of them asynchronous, some of them wrong."""
    handles = facts.supports(_MEMORY) and facts.supports(_HANDLES)

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name) if handles and tape.chance(2) else None
        for turn in range(1 + tape.below(3)):
            _turn(scene, tape.cut(7), name, memory, 16 * turn)
        if memory is not None and tape.chance(2):
            _with_dead_handle(scene, tape, name, memory)
        if tape.chance(3):
            bindings = change(raw(scene, name), 0, seed=tape.below(16))
            scene.add(Execute(name, bindings, asynchronous=tape.pick((4, 2, 8)), freed=True))

    return scenes(facts, core, core_bytes=48)


@rule(
    "EXE-18",
    Level.MAY,
    "Of each asynchronous execution the client is notified once, with its parameter and a code of "
    "QnnGraph_execute; where its context is freed meanwhile, with success, QNN_GRAPH_ERROR_INVALID_HANDLE "
    "(6001) or QNN_GRAPH_ERROR_INVALID_CONTEXT (6039). One that is refused leaves its memory alone.",
    source="QnnGraph.h: QnnGraph_executeAsync, notifyFn is called when execution is finished; "
    "QNN_GRAPH_ERROR_INVALID_CONTEXT",
    subject="memory",
    cases=asynchronous,
    gate=("304",),
    weight=0.5,
)
def exe_18(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Codes are those of graphExecute, by the call or by the notification; 6025 too where others wait."""
    found = _executions(case, trace)
    for walked in found:
        _demand_notified(walked)
        if isinstance(walked.step, Execute) and walked.step.freed:
            _demand_clean_end(walked)
        if walked.allowed.specified and not _is_full(walked):
            demand_code(walked, walked.allowed.codes, "the rules of graphExecute hold")
    for walked in found:
        if walked.allowed.specified:
            _demand_no_output(walked)
            if walked.code:
                _demand_left_alone(walked)
    return Examined(len(found), "asynchronous executes")


@rule(
    "EXE-22",
    Level.MUST,
    "Where property key 304 says supported, QnnGraph_executeAsync is; when a client is notified of success, "
    "outputs are there and inputs unchanged, and the backend does not access their memory any more.",
    source="QnnProperty.h: QNN_PROPERTY_GRAPH_SUPPORT_ASYNC_EXECUTION; QnnGraph.h: QnnGraph_executeAsync, "
    "notifyFn is called when execution is finished",
    subject="memory",
    cases=asynchronous,
    gate=("304",),
    weight=0.5,
)
def exe_22(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """What the client writes to either from the notification on stays, and later executes are right.

    A MUST, though no backend has to offer the call: a client that is told too early reads what is not there.
    Of a notification that does not come or has another parameter, and of refused executions, EXE-18 tells.
    """
    found = [walked for walked in _executions(case, trace, declared=True) if walked.code == 0]
    counted = [walked.seen.counted(AsyncCounts) for walked in found]
    if any(counts.silent or counts.strange_notifications for counts in counted):
        return Examined(0, "asynchronous executes")
    judge_contents(
        case, trace, lambda seen: seen.where == "output", "it is there when the client is notified"
    )
    for walked in found:
        if walked.allowed.specified:
            _demand_left_alone(walked)
    judge_contents(case, trace, lambda seen: seen.where == "buffer", "what the client writes then stays")
    return Examined(len(found), "asynchronous executes")


def _executions(case: MemoryCase, trace: MemoryTrace, *, declared: bool = False) -> list[Walked]:
    """The asynchronous executes of a target that offers them.

    Args:
        case: with them.
        trace: of it.
        declared: what the property key says is held against the answers.

    Raises:
        Unsupported: it does not, or something that they need.
        Contradiction: it says that it does.
    """
    require_prepared(case, trace)
    require_execution(trace)
    found = [
        walked
        for walked in own_steps(case, trace, lambda w: isinstance(w.step, Execute))
        if isinstance(walked.step, Execute) and walked.step.asynchronous
    ]
    if declared:
        _demand_declared(trace, found)
    if _are_refused(found):
        raise Unsupported("graphExecuteAsync answers 1000")
    if any(isinstance(step, Register) for step in case.steps):
        require_memory(case, trace)
    return found
