"""QLEAK-07 and QLEAK-08: what is left behind by executes, those that are refused and those that succeed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import NULL, Descriptor, Execute, Executes, MemoryCase
from pytest_qnn.qnn.cases.memory import CUSTOM
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.rules.graphs import require_execute
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.rules.qleak.growth import ROUNDS, rounds_judged
from pytest_qnn.qnn.strategies.binaries import loaded, retrieved, written
from pytest_qnn.qnn.strategies.graphs import Cases, change, placed, raw
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace

_UNSUPPORTED = int(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
_NO_MEMORY = 0
"""In the place of a Qnn_MemType_t: no memory is registered."""
_SHAPE = (1, 2, 2, 2)
_OFFSET = 64
"""Bytes before an output in a shared buffer."""
_FRESH, _SECOND, _LOADED = "composed", "the second of its context", "out of a binary"
"""Where the graph is from."""


def _refused(scene: Scene, graph: str, mem_type: int, tensor: int, rounds: int) -> None:
    """One execute before the rounds: whoever dies of a single one, does so in it, as in EXE-03 and EXE-04."""
    handle = NULL if mem_type == _NO_MEMORY else _registered(scene, graph, mem_type, tensor)
    if mem_type != _NO_MEMORY:
        scene.deregister(handle)
    _repeat(scene, graph, handle, tensor, rounds, refused=True)


def _succeeding(scene: Scene, graph: str, mem_type: int, tensor: int, rounds: int) -> None:
    """One execute before the rounds: what goes wrong in a single one is seen there."""
    handle = "" if mem_type == _NO_MEMORY else _registered(scene, graph, mem_type, tensor)
    _repeat(scene, graph, handle, tensor, rounds, refused=False)


def _prepared(scene: Scene, tape: Tape, place: str) -> str:
    """A graph of one operator, from that place."""
    context = scene.context()
    if place == _SECOND:
        scene.prepare(context, tape, shape=_SHAPE)
    graph = scene.prepare(context, tape, shape=_SHAPE)
    if place != _LOADED:
        return graph
    return retrieved(scene, loaded(scene, written(scene, context)), graph)


def _registered(scene: Scene, graph: str, mem_type: int, tensor: int) -> str:
    """The handle of memory for one tensor of the graph; an output's may be behind the begin of its buffer."""
    made = scene.graphs[graph]
    offset = placed(scene, _OFFSET) if mem_type == CUSTOM and tensor < 0 else 0
    buffer = scene.alloc(offset + nbytes(made.shape, made.dtype))
    described = Descriptor(buffer, made.shape, made.dtype, mem_type, offset=offset)
    (handle,) = scene.register(made.context, described)
    return handle


def _repeat(scene: Scene, graph: str, handle: str, tensor: int, rounds: int, *, refused: bool) -> None:
    """``handle``: of one tensor, whatever it stands for; the others are raw. Empty: all of them."""
    bindings = raw(scene, graph)
    if handle:
        position = tensor % (io_inputs(scene.graphs[graph]) + 1)
        bindings = change(bindings, position, kind="handle", handle=handle)
    scene.add(Execute(graph, bindings))
    scene.add(Executes(graph, bindings, rounds, refused))


def _executes(facts: MemoryFacts, repeat: Callable[[Scene, str, int, int, int], None]) -> Cases:
    if not facts.operators:
        raise NothingToJudge("no operator composes on this target", unsupported=True)
    if not facts.executes:
        key = Property.GRAPH_SUPPORT_EXECUTE
        raise NothingToJudge(f"property key {int(key)} ({key.name}) denies executes", unsupported=True)
    keys = (Property.GROUP_MEMORY, Property.TENSOR_SUPPORT_MEMHANDLE_TYPE)
    types = Scene(facts).types if all(map(facts.supports, keys)) else ()
    saves = facts.supports(Property.CONTEXT_SUPPORT_CACHING)
    places = (_FRESH, _SECOND, _LOADED) if saves else (_FRESH, _SECOND)

    def case(rounds: int, mem_type: int, tensor: int, place: str, operators: bytes) -> MemoryCase:
        scene = Scene(facts)
        graph = _prepared(scene, Tape(operators), place)
        repeat(scene, graph, mem_type, tensor, rounds)
        return scene.case()

    return st.builds(
        case,
        st.sampled_from(ROUNDS),
        st.sampled_from((_NO_MEMORY, *types)),
        st.sampled_from((0, -1)),
        st.sampled_from(places),
        st.binary(min_size=2, max_size=2),
    )


def refused_executes(facts: MemoryFacts) -> Cases:
    """QLEAK-07: the first input or the output has no memory, or none any more.

    A value that was never given out is in none of them: what only such a value does is EXE-05's.
    """
    if facts.executes_grow:
        raise NothingToJudge("executes that succeed leave something behind, too")
    return _executes(facts, _refused)


def executes(facts: MemoryFacts) -> Cases:
    """QLEAK-08: all tensors have raw memory, or the first input or the output has some that is registered."""
    return _executes(facts, _succeeding)


def _judge(case: MemoryCase, trace: MemoryTrace, what: str, *, refused: bool) -> Examined:
    """The process did not grow with the number of rounds."""
    require_session(trace)
    require_execute(case, trace)
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, Executes) or step.refused is not refused or seen.skipped:
            continue
        if low(seen.code or 0) == _UNSUPPORTED:
            raise Unsupported("graphExecute answers 1000, not supported", final=False)
        counts = seen.counted(GrowthCounts)
        if seen.calls and not refused:
            after = "before any is measured" if seen.counts is None else f"after {counts.rounds}"
            answer = f"graphExecute answers {named(seen.code or 0)} {after}"
            where = f"step {index}, {step.rounds} rounds"
            raise FailedCall("success in every round", answer, where, call="graphExecute")
        if seen.calls:
            continue
        count += rounds_judged(counts, f"step {index}, {counts.rounds} rounds")
    return Examined(count, what)


@rule(
    "QLEAK-07",
    Level.SHOULD,
    "Executes that are refused leave nothing behind, however often.",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR, QNN_GRAPH_ERROR_INVALID_ARGUMENT; "
    "no handle is given out that could be freed",
    subject="memory",
    cases=refused_executes,
    weight=0.05,
)
def qleak_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings, malloc's blocks and resident bytes stay flat over up to 10,000 refusals.

    An execute that succeeds is EXE-03's or EXE-04's, as is the code of one that is refused.
    """
    return _judge(case, trace, "executes that were refused", refused=True)


@rule(
    "QLEAK-08",
    Level.SHOULD,
    "However often a graph is executed, each execute succeeds as the first does, and leaves nothing behind.",
    source="QnnGraph.h: QnnGraph_execute; no handle is given out that could be freed",
    subject="memory",
    cases=executes,
    weight=0.05,
)
def qleak_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings, malloc's blocks and resident bytes stay flat over up to 10,000 executes."""
    return _judge(case, trace, "executes", refused=False)
