"""QLEAK-07: what is left behind by executes that are refused."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported
from pytest_qnn.qnn.abi.codes import Error, Property, low
from pytest_qnn.qnn.cases.case import NULL, Descriptor, Execute, MemoryCase, RefusedExecutes
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
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
_NEVER_REGISTERED = 0
"""In the place of a Qnn_MemType_t: the handle is NULL, and not that of memory that was registered."""


def _case(facts: MemoryFacts, rounds: int, mem_type: int, tensor: int) -> MemoryCase:
    """One execute before the rounds: whoever dies of a single one, does so in it, as in EXE-03 and EXE-04."""
    scene = Scene(facts)
    name = scene.prepare(scene.context(), Tape(b""))
    made = scene.graphs[name]
    handle = NULL
    if mem_type != _NEVER_REGISTERED:
        buffer = scene.alloc(nbytes(made.shape, made.dtype))
        (handle,) = scene.register(made.context, Descriptor(buffer, made.shape, made.dtype, mem_type))
        scene.deregister(handle)
    bindings = change(raw(scene, name), tensor % (io_inputs(made) + 1), kind="handle", handle=handle)
    scene.add(Execute(name, bindings))
    scene.add(RefusedExecutes(name, bindings, rounds))
    return scene.case()


def refused_executes(facts: MemoryFacts) -> Cases:
    """QLEAK-07: the first input or the output has no memory, or none any more.

    A value that was never given out is in none of them: what only such a value does is EXE-05's.
    """
    if not facts.operators:
        raise NothingToJudge("no operator composes on this target", unsupported=True)
    if not facts.executes:
        key = Property.GRAPH_SUPPORT_EXECUTE
        raise NothingToJudge(f"property key {int(key)} ({key.name}) denies executes", unsupported=True)
    keys = (Property.GROUP_MEMORY, Property.TENSOR_SUPPORT_MEMHANDLE_TYPE)
    types = Scene(facts).types if all(map(facts.supports, keys)) else ()
    return st.builds(
        lambda rounds, mem_type, tensor: _case(facts, rounds, mem_type, tensor),
        st.sampled_from(_ROUNDS),
        st.sampled_from((_NEVER_REGISTERED, *types)),
        st.sampled_from((0, -1)),
    )


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
    require_session(trace)
    require_execute(case, trace)
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, RefusedExecutes) or seen.skipped or not seen.code:
            continue
        if low(seen.code) == _UNSUPPORTED:
            raise Unsupported("graphExecute answers 1000, not supported", final=False)
        counts = seen.counted(GrowthCounts)
        growth = beyond(counts)
        if growth is not None:
            where = f"step {index}, {step.rounds} rounds"
            raise Measured(
                f"at most {growth.most} more {growth.what} than before", f"{growth.seen} more", where
            )
        count += counts.rounds if counts.rounds >= _LEAST_ROUNDS else 0
    return Examined(count, "executes that were refused")
