"""EXT: what weights and spill-fill memory may be registered, with which context, and when."""

from __future__ import annotations

from collections.abc import Collection

from pytest_qnn.cases import memory_external_strategies as strategies
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.oracle.memory_external import SPILL, WEIGHTS
from pytest_qnn.rules.binary_support import demand_refused, judge_flow, require_external, require_needed
from pytest_qnn.rules.memory_support import demand_code, judge_faults, own_steps
from pytest_qnn.trace import MemoryTrace

_FLOW = "seed 002, external weights and spill-fill buffers"
_GATE = ("202", "217", "1101", "1103")


def _judge_refused(
    case: MemoryCase, trace: MemoryTrace, faults: Collection[str], what: str, because: str
) -> Examined:
    """Registrations with one of these faults are refused; whatever is in order goes on."""
    require_external(case, trace)
    examined = judge_faults(case, trace, faults, what, because)
    judge_flow(case, trace, f"a registration was refused ({because})")
    return examined


@rule(
    "EXT-07",
    Level.MUST,
    "External memory is at least as large as the context's property says.",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=strategies.too_small,
    gate=_GATE,
)
def ext_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8004 for a byte too little, from the offset on; just enough is enough."""
    return _judge_refused(case, trace, {"external-small"}, "buffers that are too small", "it is too small")


@rule(
    "EXT-08",
    Level.MUST,
    "External memory starts, offset included, where the alignment property allows.",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=strategies.misaligned,
    gate=_GATE,
)
def ext_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8000 or 8004 for another offset; multiples of the alignment are taken."""
    what = "misaligned offsets"
    return _judge_refused(case, trace, {"external-misaligned"}, what, "its offset is not aligned")


@rule(
    "EXT-09",
    Level.MUST,
    "External memory is a DMA buffer.",
    source=f"{_FLOW}, step 3",
    subject="memory",
    cases=strategies.no_dma,
    gate=_GATE,
)
def ext_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8003 or 8000 for the descriptor of a pipe, a plain file, a socket or a folder, a closed one, and -1."""
    return _judge_refused(case, trace, {"not-dma"}, "descriptors of other things", "it is no DMA buffer")


@rule(
    "EXT-11",
    Level.MUST,
    "Shape and data type of external memory mean nothing.",
    source=f"{_FLOW}, code example",
    subject="memory",
    cases=strategies.any_shape,
    gate=_GATE,
)
def ext_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering succeeds with any shape, and the graphs are right."""
    return _judge_given(case, trace, "registrations of any shape", "shape and data type mean nothing here")


def _judge_given(case: MemoryCase, trace: MemoryTrace, what: str, because: str) -> Examined:
    """Registrations of external memory that are in order succeed, and so does what follows."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if walked.allowed.notes & {"weights", "spill"}:
            demand_code(walked, {0}, because)
            count += 1
    judge_flow(case, trace, because)
    return Examined(count, what)


@rule(
    "EXT-12",
    Level.MUST,
    "A client may register weights memory, spill-fill memory, both or neither.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.none_one_both,
    gate=_GATE,
)
def ext_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering, finalising and executing succeed in each combination, and outputs are right."""
    require_external(case, trace)
    count = judge_flow(case, trace, "any combination of external memory will do")
    return Examined(count, "executes with external memory, or without")


@rule(
    "EXT-13",
    Level.MUST,
    "Memory for weights belongs to one context.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.weights_shared,
    gate=_GATE,
)
def ext_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002 or 8000 for the weights memory of another context, which goes on."""
    require_needed(case, trace, WEIGHTS)
    what = "weights buffers of another context"
    return _judge_refused(case, trace, {"weights-shared"}, what, "another context has its weights there")


@rule(
    "EXT-14",
    Level.SHOULD,
    "A context takes one buffer of each kind of external memory.",
    source=f"{_FLOW}, step 4 (the external weights buffer, the external spill-fill buffer)",
    subject="memory",
    cases=strategies.second,
    gate=_GATE,
)
def ext_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002 or 8000 for a second one."""
    return _judge_refused(case, trace, {"second-external"}, "second buffers", "the context has one already")


@rule(
    "EXT-15",
    Level.MUST,
    "One buffer may be the spill-fill memory of several contexts.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.spill_shared,
    gate=("202", "217", "1101", "1103", "spill-fill"),
)
def ext_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Registering it with each of them succeeds."""
    require_external(case, trace)
    require_needed(case, trace, SPILL)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and "spill-shared" in w.allowed.notes):
        demand_code(walked, {0}, "spill-fill memory may be shared between contexts")
        count += 1
    return Examined(count, "spill-fill buffers of another context")


@rule(
    "EXT-16",
    Level.MUST,
    "Memory for weights or spill-fill has no other use, in any context.",
    source=f"{_FLOW}, step 4",
    subject="memory",
    cases=strategies.other_use,
    gate=_GATE,
)
def ext_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8002 or 8000 for the second use of a buffer: IO tensors, weights, spill-fill, in either order."""
    return _judge_refused(case, trace, {"other-use"}, "buffers with two uses", "the buffer has another use")


@rule(
    "EXT-24",
    Level.SHOULD,
    "External memory is registered between deferred creation and contextFinalize.",
    source=f"{_FLOW}, the order of the steps",
    subject="memory",
    cases=strategies.too_late,
    gate=_GATE,
)
def ext_24(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A refusal, with whatever code, after contextFinalize and for contexts that were never deferred."""
    require_external(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.settled and "not-open" in w.allowed.faults):
        demand_refused(walked, "the context does not wait for contextFinalize")
        count += 1
    judge_flow(case, trace, "external memory was refused")
    return Examined(count, "registrations too late, or for ordinary contexts")
