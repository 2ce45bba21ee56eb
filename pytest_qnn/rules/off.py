"""OFF: context binaries, what they record and how they are asked for."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases import memory_binary_strategies as strategies
from pytest_qnn.cases.memory import (
    ContextFree,
    ContextFromBinary,
    GetBinary,
    Inspect,
    MemoryCase,
    Prepare,
    Retrieve,
)
from pytest_qnn.cases.memory_probes import Misuse
from pytest_qnn.cases.memory_scene import io_inputs
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Model, Walked
from pytest_qnn.oracle.memory_codes import SENTINEL
from pytest_qnn.rules.binary_support import inspected, judge_flow, require_binaries
from pytest_qnn.rules.memory_support import demand_code, own_steps, place
from pytest_qnn.trace import MemoryTrace

_OFFLINE = "seed 001, Offline Prepare"
_GATE = ("202",)
_CLOSED = frozenset({int(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED), int(Error.GRAPH_ERROR_GRAPH_FINALIZED)})
"""What a tensor is refused with in a graph that is finalised, and whose context is read-only."""


def _graphs_of(case: MemoryCase, trace: MemoryTrace) -> dict[str, list[Prepare]]:
    """By binary: its graphs, by name."""
    model = Model(trace.facts)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        model.follow(step, seen)
    return {
        binary: sorted(graphs.values(), key=lambda made: made.graph.encode())
        for binary, graphs in model.binaries.items()
    }


def _memory_types(made: Prepare) -> tuple[int, ...]:
    tensors = io_inputs(made) + 1
    return (*made.mem_types, *[0] * tensors)[:tensors]


@rule(
    "OFF-01",
    Level.MUST,
    "A context binary records the memory type of each IO tensor, as it was created.",
    source=_OFFLINE,
    subject="memory",
    cases=strategies.metadata,
    gate=_GATE,
)
def off_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """What the System interface says of each tensor's memType, against the types given at creation."""
    require_binaries(case, trace)
    graphs = _graphs_of(case, trace)
    count = 0
    for walked in inspected(case, trace):
        assert isinstance(walked.step, Inspect)
        demand_code(walked, {0}, "the binary is whole")
        wanted = tuple(kind for made in graphs[walked.step.binary] for kind in _memory_types(made))
        if walked.seen.values != wanted:
            seen = f"{list(walked.seen.values)}"
            raise Violation(f"memory types {list(wanted)} in the binary", seen, place(walked))
        count += len(wanted)
    return Examined(count, "IO tensors in binaries")


@rule(
    "OFF-06",
    Level.MUST,
    "The tensors that a context binary's information lists carry no data.",
    source="H:QnnSystemContext_getBinaryInfo",
    subject="memory",
    cases=strategies.metadata,
    gate=_GATE,
)
def off_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """clientBuf.data of each IO tensor is NULL."""
    require_binaries(case, trace)
    count = 0
    for walked in inspected(case, trace):
        if walked.code == 0 and walked.seen.counts.get("data", 0):
            seen = f"{walked.seen.counts['data']} with another pointer"
            raise Violation("a NULL data pointer in every tensor", seen, place(walked))
        count += len(walked.seen.values)
    return Examined(count, "IO tensors in binaries")


def _demand_unharmed(walked: Walked) -> None:
    """A refused call has written nothing; an accepted one not more than there was room for."""
    for kind, words in (("touched", "into the buffer"), ("overrun", "behind the buffer")):
        if walked.seen.counts.get(kind, 0):
            seen = f"{walked.seen.counts[kind]} bytes {words}"
            raise Violation("nothing is written beyond an accepted buffer", seen, place(walked))


@rule(
    "OFF-07",
    Level.MUST,
    "A binary can be had of a context whose graphs are all finalised, into a buffer that is large enough.",
    source="H:QnnContext_getBinarySize, QnnContext_getBinary",
    subject="memory",
    cases=strategies.get_binary,
    gate=_GATE,
)
def off_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Success; 5000 for NULL, 5007 (or 5000) for too little room, 5003 before finalise, 1005 out of a binary.

    A buffer that is too small stays as it was.
    """
    require_binaries(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, GetBinary) and w.allowed.settled):
        _demand_unharmed(walked)
        demand_code(walked, walked.allowed.codes, ", ".join(sorted(walked.allowed.faults)))
        count += 1
    return Examined(count, "binaries asked for")


@rule(
    "OFF-08",
    Level.MUST,
    "A truncated, lengthened or foreign binary is refused, and makes no context.",
    source="H:QnnContext_createFromBinary",
    subject="memory",
    cases=strategies.damaged,
    gate=_GATE,
)
def off_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5005, 5004 or 5008 (5000 too for no bytes at all), and *context is NULL or as it was.

    No document says that a flipped bit must be noticed: one that is, is refused in the same way.
    """
    require_binaries(case, trace)
    count = 0
    unnoticed = 0
    for walked in own_steps(case, trace, lambda w: "damaged" in w.allowed.faults):
        if walked.code == 0 and not walked.allowed.settled:
            unnoticed += 1
            continue
        demand_code(walked, walked.allowed.codes, "the binary is damaged")
        if walked.seen.values and walked.seen.values[0] not in (0, SENTINEL):
            seen = f"*context is 0x{walked.seen.values[0]:x}"
            raise Violation("no context handle from a binary that is refused", seen, place(walked))
        count += 1
    judge_flow(case, trace, "the whole binary is loaded after damaged ones were refused")
    only = f" ({unnoticed} with a flipped bit taken)" if unnoticed else ""
    return Examined(count, f"damaged binaries{only}")


def _require_before(case: MemoryCase, trace: MemoryTrace) -> None:
    """`require_binaries` without what the rule's own, wrong step is answered with."""
    own = [index for index, step in enumerate(case.steps) if isinstance(step, ContextFromBinary)]
    steps = case.steps[: own[0] + 1] if own else case.steps
    require_binaries(MemoryCase(steps), trace)


@rule(
    "OFF-09",
    Level.MUST,
    "A context from a binary cannot be altered.",
    source="H:QnnContext_createFromBinary; H:QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED, "
    "QNN_GRAPH_ERROR_GRAPH_FINALIZED",
    subject="memory",
    cases=strategies.altered,
    gate=_GATE,
)
def off_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """GraphCreate answers 1005, a new tensor in one of its graphs 1005 or 6024, and its graphs go on."""
    _require_before(case, trace)
    count = 0
    retrieved: dict[str, str] = {}
    for walked in own_steps(case, trace, lambda _: True):
        step = walked.step
        if isinstance(step, Retrieve) and walked.code == 0:
            retrieved[step.graph] = step.context
        elif isinstance(step, ContextFree) and walked.code == 0:
            retrieved = {graph: owner for graph, owner in retrieved.items() if owner != step.context}
        elif walked.allowed.only("read-only"):
            demand_code(walked, walked.allowed.codes, "the context comes from a binary")
            count += 1
        elif isinstance(step, Misuse) and step.handle in retrieved:
            demand_code(walked, _CLOSED, "the graph comes from a binary")
            count += 1
    judge_flow(case, trace, "the context goes on")
    return Examined(count, "graphs and tensors refused")
