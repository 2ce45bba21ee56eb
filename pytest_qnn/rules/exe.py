"""EXE: executing with memory handles, good ones and bad ones."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases import memory_graph_strategies as strategies
from pytest_qnn.cases.memory import Execute, MemoryCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory_contents import Compared, compare, differs
from pytest_qnn.rules.memory_graph_support import (
    judge_contents,
    judge_executes,
    judge_run,
    kinds,
    require_execute,
    require_executed_memory,
)
from pytest_qnn.rules.memory_support import demand_code, own_steps, place
from pytest_qnn.trace import MemoryTrace

_REFUSED = frozenset({int(Error.GRAPH_ERROR_INVALID_TENSOR)})
_UNTOUCHED = 0xEE
"""What the runner fills raw outputs with before an execute."""


@rule(
    "EXE-01",
    Level.MUST,
    "graphExecute with registered handles for inputs and outputs succeeds with correct numbers.",
    source="seed 002, execute QNN graph with input tensor and output tensor",
    subject="memory",
    cases=strategies.executed_both_ways,
    gate=("502", "1101"),
)
def exe_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs through handles are right, and are those of a raw execute with the same inputs, bit by bit."""
    require_executed_memory(case, trace)
    because = "all tensors have registered handles"
    judge_executes(case, trace, lambda step: kinds(step) == {"handle"}, because)
    judge_contents(case, trace, lambda seen: _through(seen) == {"handle"}, because)
    raw: dict[tuple[object, ...], bytes] = {}
    count = 0
    for seen in compare(case, trace):
        if seen.made is None:
            continue
        key = (seen.made.op, seen.made.dtype, seen.made.shape, *seen.inputs)
        if _through(seen) == {"raw"}:
            raw[key] = seen.data
        elif _through(seen) == {"handle"}:
            if key in raw and raw[key] != seen.data:
                difference = differs(raw[key], seen.data, "UFIXED_POINT_8")
                raise Violation("the output of the raw execute", difference, place(seen.walked))
            count += 1
    return Examined(count, "outputs through memory handles")


def _through(seen: Compared) -> set[str]:
    return kinds(seen.execute) if seen.execute else set()


@rule(
    "EXE-02",
    Level.MUST,
    "Raw memory and memory handles may be mixed, tensor by tensor, in one execute.",
    source="seed 001 (memory types are given per IO tensor); QnnTypes.h: Qnn_TensorMemType_t",
    subject="memory",
    cases=strategies.executed_mixed,
    gate=("502", "1101"),
)
def exe_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Mixed executes succeed with correct numbers."""
    require_executed_memory(case, trace)
    because = "raw memory and handles may be mixed"
    judge_executes(case, trace, lambda step: len(kinds(step)) == 2, because)
    count = judge_contents(case, trace, lambda seen: len(_through(seen)) == 2, because)
    return Examined(count, "outputs of mixed executes")


def _judge_refused(
    case: MemoryCase, trace: MemoryTrace, fault: str, because: str, *, untouched: bool = False
) -> int:
    """Executes whose only fault this is answer 6004; gives how many there were.

    ``untouched``: and they wrote no raw output.
    """
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.only(fault)):
        if not isinstance(walked.step, Execute):
            continue
        demand_code(walked, _REFUSED, because)
        for data in walked.seen.data if untouched else ():
            if data.strip(bytes([_UNTOUCHED])):
                seen = differs(_same(data), data, "UFIXED_POINT_8")
                raise Violation("an output that is left alone", seen, place(walked))
        count += 1
    return count


def _same(data: bytes) -> bytes:
    return bytes([_UNTOUCHED]) * len(data)


@rule(
    "EXE-03",
    Level.MUST,
    "Memory type MEMHANDLE with a NULL handle is refused.",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR",
    subject="memory",
    cases=strategies.executed_with_null,
)
def exe_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """NULL answers 6004, whether handles are live or none is."""
    require_execute(case, trace)
    count = _judge_refused(case, trace, "null-handle", "the memory handle is NULL")
    return Examined(count, "executes with a NULL handle")


@rule(
    "EXE-04",
    Level.MUST,
    "A deregistered handle is refused and outputs are not touched.",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR; observed on devices (6004)",
    subject="memory",
    cases=strategies.executed_with_stale,
    gate=("502", "1101"),
)
def exe_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A stale handle answers 6004; raw outputs and the output's buffer stay as they were."""
    require_executed_memory(case, trace)
    count = _judge_refused(case, trace, "dead-handle", "the handle was deregistered", untouched=True)
    if count:
        judge_contents(case, trace, lambda seen: seen.where == "buffer", "the execute was refused")
    return Examined(count, "executes with a deregistered handle")


@rule(
    "EXE-05",
    Level.MUST,
    "An unknown handle value is refused without a crash.",
    source="QnnGraph.h: QnnGraph_execute, QNN_GRAPH_ERROR_INVALID_TENSOR; observed on devices (6004)",
    subject="memory",
    cases=strategies.executed_with_bogus,
)
def exe_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A value that was never given out, or is a context's, answers 6004, whether handles are live or none is.

    A context's value that is a live memory handle as well is not judged (IF-09).
    """
    require_execute(case, trace)
    count = _judge_refused(case, trace, "bad-handle", "no such handle was ever given out")
    return Examined(count, "executes with an unknown handle")


@rule(
    "EXE-19",
    Level.MUST,
    "An execute reads what the client wrote last to registered memory, and the client what it wrote.",
    source="seed 002, RPCMEM_DEFAULT_FLAGS (cached memory); load the input, execute, get the output",
    subject="memory",
    cases=strategies.rewritten_and_reread,
    gate=("502", "1101"),
)
def exe_19(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs are right, round after round: a cache line that is stale on either side shows in one of them.

    A host's caches are coherent: there the rule finds only what a backend keeps itself.
    """
    require_executed_memory(case, trace)
    because = "no stale bytes, whoever wrote last"
    return judge_run(case, trace, "outputs and buffers, written and read in turns", because)
