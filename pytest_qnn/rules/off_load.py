"""OFF: graphs that come out of context binaries, what they allocate and compute."""

from __future__ import annotations

import msgspec

from pytest_qnn.abi.qnn_codes import TensorMemType
from pytest_qnn.cases import memory_binary_strategies as strategies
from pytest_qnn.cases.memory import ContextFromBinary, MemoryCase, Prepare, Retrieve
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules.binary_support import (
    demand_equal,
    executed_after_release,
    judge_flow,
    require_binaries,
)
from pytest_qnn.rules.memory_graph_support import require_execute
from pytest_qnn.rules.qmg_rows import (
    Row,
    demand_copied,
    demand_new,
    demand_not_copied,
    require_htp,
    require_visible,
    row_at,
)
from pytest_qnn.trace import MemoryTrace

_OFFLINE = "seed 001, Offline Prepare"
_GATE = ("202",)


def _loads(case: MemoryCase, trace: MemoryTrace) -> list[Row]:
    """Each load of a binary of one graph with a look before and after it, and the executes of its graph."""
    prepared = {step.graph: step for step in case.steps if isinstance(step, Prepare)}
    contexts = {step.context: at for at, step in enumerate(case.steps) if isinstance(step, ContextFromBinary)}
    found = []
    for step in case.steps:
        if isinstance(step, Retrieve) and step.context in contexts and step.source in prepared:
            made = msgspec.structs.replace(prepared[step.source], graph=step.graph)
            row = row_at(case, trace, contexts[step.context], made)
            found += [row] if row is not None else []
    return found


def _demand_at_load(row: Row) -> None:
    if len(row.at_prepare) != row.raw:
        wanted = f"{row.raw} IO buffers allocated by loading ({row.raw} of {row.tensors} tensors are RAW)"
        raise Violation(wanted, f"{len(row.at_prepare)}", f"step {row.step}, context-from-binary")


def _demand_table(row: Row) -> None:
    """Seed 001's table for a loaded graph: what its executes allocate and copy."""
    raw_before = False
    for inference in row.inferences:
        if inference.kinds == {"handle"}:
            demand_new(inference, 0, "memory handles need none")
            demand_not_copied(row, inference)
        elif inference.kinds == {"raw"}:
            wanted = 0 if raw_before else row.tensors - row.raw
            because = "the first raw inference has allocated them" if raw_before else "they carry the hint"
            demand_new(inference, wanted, because)
            demand_copied(row, inference, {**inference.after, **inference.new})
            raw_before = True


@rule(
    "OFF-02",
    Level.MUST,
    "A graph out of a binary allocates and copies by seed 001's table, as if it had been composed: loading "
    "makes IO buffers for RAW tensors only.",
    source=f"{_OFFLINE}; the table of mismatching memory types",
    subject="memory",
    cases=strategies.load_hinted,
    gate=("202", "HTP", "separate IO buffers"),
    weight=0.15,
)
def off_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """As many new mappings at loading as RAW tensors, the others at the first raw inference.

    Raw executes fill them. Those with handles bring none and fill none. In the same process and in another.
    """
    require_htp(trace)
    require_binaries(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    found = _loads(case, trace)
    require_visible(found)
    for row in found:
        _demand_at_load(row)
        _demand_table(row)
    return Examined(len(found), "binaries loaded")


@rule(
    "OFF-03",
    Level.MUST,
    "Graphs out of a binary compute what they computed as composed, raw and with memory handles, "
    "in the same process and in another.",
    source=f"{_OFFLINE}; the table of mismatching memory types",
    subject="memory",
    cases=strategies.same_numbers,
    gate=_GATE,
    weight=0.5,
)
def off_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every step of the way succeeds, outputs are right, and those for equal inputs equal bit by bit."""
    require_binaries(case, trace)
    require_execute(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    composed = {step.graph for step in case.steps if isinstance(step, Prepare)}
    return Examined(demand_equal(case, trace, composed), "outputs compared with those of the composed graph")


@rule(
    "OFF-05",
    Level.MUST,
    "Leaving out the memory type at offline preparation changes no result of an inference.",
    source=f"{_OFFLINE} (skipping this option)",
    subject="memory",
    cases=strategies.option_or_not,
    gate=_GATE,
)
def off_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Two binaries of one graph, with the hint and without: equal outputs for equal inputs, bit by bit.

    That it costs no time either cannot be judged from outside.
    """
    require_binaries(case, trace)
    judge_flow(case, trace, "the graph comes out of a binary")
    hinted = {
        step.graph
        for step in case.steps
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types
    }
    plain = {step.graph for step in case.steps if isinstance(step, Retrieve) and step.source not in hinted}
    return Examined(demand_equal(case, trace, plain), "outputs with the hint compared with those without")


@rule(
    "OFF-10",
    Level.SHOULD,
    "The client may release a binary once an ordinary createFromBinary has returned.",
    source="H:QnnContext_createFromBinary (only deferred initialisation asks for more); common use",
    subject="memory",
    cases=strategies.scribbled,
    gate=_GATE,
)
def off_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The binary's bytes are overwritten; retrieving and executing give what they must."""
    require_binaries(case, trace)
    judge_flow(case, trace, "the binary was released after createFromBinary")
    return Examined(executed_after_release(case, trace), "executes after the binary was released")
