"""QLEAK-07 and QLEAK-08: what is left behind by executes, those that are refused and those that succeed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Measured, Unsupported
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import NULL, Descriptor, Execute, Executes, MemoryCase
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.growth import beyond
from pytest_qnn.qnn.rules.graphs import require_execute
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.strategies.graphs import Cases, change, raw
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace

_UNSUPPORTED = int(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)
_ROUNDS = (1000, 300, 300, 1000, 10_000)
"""As of refused registrations (QLEAK-03)."""
_LEAST_ROUNDS = 100
_NO_MEMORY = 0
"""In the place of a Qnn_MemType_t: no memory is registered."""


def _refused(facts: MemoryFacts, rounds: int, mem_type: int, tensor: int) -> MemoryCase:
    """One execute before the rounds: whoever dies of a single one, does so in it, as in EXE-03 and EXE-04."""
    scene, name = _prepared(facts)
    handle = NULL if mem_type == _NO_MEMORY else _registered(scene, name, mem_type)
    if mem_type != _NO_MEMORY:
        scene.deregister(handle)
    return _repeated(scene, name, handle, tensor, rounds, refused=True)


def _succeeding(facts: MemoryFacts, rounds: int, mem_type: int, tensor: int) -> MemoryCase:
    """One execute before the rounds: what goes wrong in a single one is seen there."""
    scene, name = _prepared(facts)
    handle = "" if mem_type == _NO_MEMORY else _registered(scene, name, mem_type)
    return _repeated(scene, name, handle, tensor, rounds, refused=False)


def _prepared(facts: MemoryFacts) -> tuple[Scene, str]:
    scene = Scene(facts)
    return scene, scene.prepare(scene.context(), Tape(b""))


def _registered(scene: Scene, graph: str, mem_type: int) -> str:
    """The handle of memory for one tensor of the graph."""
    made = scene.graphs[graph]
    buffer = scene.alloc(nbytes(made.shape, made.dtype))
    (handle,) = scene.register(made.context, Descriptor(buffer, made.shape, made.dtype, mem_type))
    return handle


def _repeated(
    scene: Scene, graph: str, handle: str, tensor: int, rounds: int, *, refused: bool
) -> MemoryCase:
    """``handle``: of one tensor, whatever it stands for; the others are raw. Empty: all of them."""
    bindings = raw(scene, graph)
    if handle:
        bindings = change(
            bindings, tensor % (io_inputs(scene.graphs[graph]) + 1), kind="handle", handle=handle
        )
    scene.add(Execute(graph, bindings))
    scene.add(Executes(graph, bindings, rounds, refused))
    return scene.case()


def _executes(facts: MemoryFacts, case: Callable[[MemoryFacts, int, int, int], MemoryCase]) -> Cases:
    if not facts.operators:
        raise NothingToJudge("no operator composes on this target", unsupported=True)
    if not facts.executes:
        key = Property.GRAPH_SUPPORT_EXECUTE
        raise NothingToJudge(f"property key {int(key)} ({key.name}) denies executes", unsupported=True)
    keys = (Property.GROUP_MEMORY, Property.TENSOR_SUPPORT_MEMHANDLE_TYPE)
    types = Scene(facts).types if all(map(facts.supports, keys)) else ()
    return st.builds(
        lambda rounds, mem_type, tensor: case(facts, rounds, mem_type, tensor),
        st.sampled_from(_ROUNDS),
        st.sampled_from((_NO_MEMORY, *types)),
        st.sampled_from((0, -1)),
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
        where = f"step {index}, {step.rounds} rounds"
        if seen.calls and not refused:
            after = 0 if seen.counts is None else seen.counted(GrowthCounts).rounds
            answer = f"graphExecute answers {named(seen.code or 0)} after {after}"
            raise FailedCall("success in every round", answer, where, call="graphExecute")
        if seen.calls:
            continue
        counts = seen.counted(GrowthCounts)
        growth = beyond(counts)
        if growth is not None:
            raise Measured(
                f"at most {growth.most} more {growth.what} than before", f"{growth.seen} more", where
            )
        count += counts.rounds if counts.rounds >= _LEAST_ROUNDS else 0
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
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 refusals.

    An execute that succeeds is EXE-03's or EXE-04's, as is the code of one that is refused.
    """
    return _judge(case, trace, "executes that were refused", refused=True)


@rule(
    "QLEAK-08",
    Level.SHOULD,
    "Executes that succeed leave nothing behind, however often.",
    source="QnnGraph.h: QnnGraph_execute; no handle is given out that could be freed",
    subject="memory",
    cases=executes,
    weight=0.05,
)
def qleak_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors, mappings and resident bytes stay flat over up to 10,000 executes, all of which succeed."""
    return _judge(case, trace, "executes", refused=False)
