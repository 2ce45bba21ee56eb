"""EXE: how the tensors of an execute are given, and what an execute must leave alone."""

from __future__ import annotations

from pytest_qnn.cases import memory_execute_strategies as strategies
from pytest_qnn.cases.memory import Execute, MemoryCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_contents import Compared, differs
from pytest_qnn.rules.memory_graph_support import (
    judge_contents,
    judge_executes,
    judge_run,
    require_execute,
    require_executed_memory,
)
from pytest_qnn.rules.memory_support import demand_code, own_steps, place
from pytest_qnn.trace import MemoryTrace

_EXECUTE = "QnnGraph.h: QnnGraph_execute"
_UNTOUCHED = 0xEE
"""What the runner fills raw outputs with before an execute."""


def _executes(case: MemoryCase, trace: MemoryTrace) -> list[Walked]:
    return list(own_steps(case, trace, lambda walked: isinstance(walked.step, Execute)))


def judge_mistakes(case: MemoryCase, trace: MemoryTrace, fault: str, because: str) -> int:
    """Executes whose only fault this is are refused with its codes; gives how many there were."""
    found = [walked for walked in _executes(case, trace) if walked.allowed.only(fault)]
    for walked in found:
        demand_code(walked, walked.allowed.codes, because)
    return len(found)


def _noted(case: MemoryCase, trace: MemoryTrace, note: str, because: str) -> int:
    """Executes in order with this note succeed, with the right output; gives how many outputs were seen."""
    for walked in _executes(case, trace):
        if walked.allowed.valid and note in walked.allowed.notes:
            demand_code(walked, {0}, because)

    def own(seen: Compared) -> bool:
        return seen.where == "output" and note in seen.walked.allowed.notes

    return judge_contents(case, trace, own, because)


@rule(
    "EXE-06",
    Level.MUST,
    "The union of a tensor is read by its memory type: with MEMHANDLE the dataSize is of no matter.",
    source="QnnTypes.h: Qnn_TensorV1_t, memType; ONNX Runtime passes 0",
    subject="memory",
    cases=strategies.sized_handles,
    gate=("502", "1101"),
)
def exe_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes with handles and any dataSize succeed with correct numbers."""
    require_executed_memory(case, trace)
    count = _noted(case, trace, "data-size", "dataSize belongs to raw memory")
    return Examined(count, "outputs of executes with handles and a dataSize")


@rule(
    "EXE-07",
    Level.MUST,
    "A handle of fewer bytes than its tensor is refused, one of as many or more is taken.",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR; ONNX Runtime uses larger registrations",
    subject="memory",
    cases=strategies.handle_sizes,
    gate=("502", "1101"),
)
def exe_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000 for too few bytes; success and correct numbers for more than enough."""
    require_executed_memory(case, trace)
    count = judge_mistakes(case, trace, "short-handle", "the registered memory is too small for the tensor")
    count += judge_executes(case, trace, lambda _: True, "the registered memory is large enough")
    judge_contents(case, trace, lambda seen: seen.where == "output")
    return Examined(count, "executes with smaller and larger registrations")


@rule(
    "EXE-08",
    Level.SHOULD,
    "A handle may serve any tensor of any graph of its context, again and again.",
    source="public device report: executorch #13421",
    subject="memory",
    cases=strategies.shared_handles,
    gate=("502", "1101"),
)
def exe_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every execute succeeds with correct numbers."""
    require_executed_memory(case, trace)
    return judge_run(case, trace, "outputs through handles in any role", "a handle belongs to no one tensor")


@rule(
    "EXE-09",
    Level.MUST,
    "The output of one graph may be the input of the next through the same handle.",
    source="seed 002, execute QNN graph with input tensor and output tensor",
    subject="memory",
    cases=strategies.chained,
    gate=("502", "1101"),
)
def exe_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Chains of graphs succeed with correct numbers."""
    require_executed_memory(case, trace)
    return judge_run(case, trace, "outputs of chains", "an output's handle may be the next graph's input")


@rule(
    "EXE-10",
    Level.MUST,
    "An execute changes neither its inputs nor bytes behind its output.",
    source=f"seed 002; {_EXECUTE}, inputs and outputs",
    subject="memory",
    cases=strategies.inputs_kept,
)
def exe_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Inputs byte by byte, the bytes behind raw outputs, and every byte of registered buffers."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not walked.allowed.valid or walked.code != 0:
            continue
        for counted, wanted in (
            ("inputs_changed", "inputs as they were"),
            ("output_overrun", "nothing written behind the output"),
        ):
            found = walked.seen.counts.get(counted, 0)
            if found:
                raise Violation(wanted, f"{counted.replace('_', ' ')}: {found}", place(walked))
        count += 1
    judge_contents(case, trace, lambda seen: seen.where == "buffer", "only the output's bytes are written")
    return Examined(count, "executes")


@rule(
    "EXE-11",
    Level.MUST,
    "An execute does not write to the structs of its tensors.",
    source=f"{_EXECUTE} (the inputs are const); QnnTypes.h: Qnn_Tensor_t",
    subject="memory",
    cases=strategies.watched_tensors,
)
def exe_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The arrays are the same before and after, byte by byte."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not isinstance(walked.step, Execute) or not walked.step.watch:
            continue
        if walked.seen.counts.get("tensors_changed"):
            raise Violation("the tensors' structs as they were", "bytes of them differ", place(walked))
        count += 1
    return Examined(count, "executes with a look at their structs")


@rule(
    "EXE-12",
    Level.SHOULD,
    "An execute that fails leaves its outputs alone.",
    source="inference: documents are silent, and clients keep the last good output",
    subject="memory",
    cases=strategies.refused_executes,
)
def exe_12(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Raw outputs of refused executes are as the client left them."""
    require_execute(case, trace)
    count = 0
    for walked in _executes(case, trace):
        if not walked.allowed.faults or not walked.code:
            continue
        for data in walked.seen.data:
            before = bytes([_UNTOUCHED]) * len(data)
            if data != before:
                seen = differs(before, data, "UFIXED_POINT_8")
                raise Violation("an output that is left alone", seen, place(walked))
        count += 1
    return Examined(count, "executes that were refused")


@rule(
    "EXE-13",
    Level.MUST,
    "A memory type that is none is refused at execute.",
    source=f"QnnTypes.h: Qnn_TensorMemType_t; {_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR",
    subject="memory",
    cases=strategies.unknown_memory_types,
)
def exe_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 for values outside the enum and for UNDEFINED."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, "mem-type", "there is no such memory type")
    return Examined(count, "executes with an unknown memory type")


@rule(
    "EXE-14",
    Level.MUST,
    "Raw memory that is smaller than its tensor is refused.",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR (ill-formed)",
    subject="memory",
    cases=strategies.undersized,
)
def exe_14(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000; behind the memory lies a page that nobody can touch, so an overrun ends the process."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, "short-data", "dataSize is smaller than the tensor")
    return Examined(count, "executes with too little raw memory")


@rule(
    "EXE-15",
    Level.MUST,
    "Tensors of an execute are told by their ids: their order in the arrays is free.",
    source=f"{_EXECUTE}, note on the order of tensors",
    subject="memory",
    cases=strategies.permuted,
)
def exe_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes with permuted inputs succeed with correct numbers."""
    require_execute(case, trace)
    count = _noted(case, trace, "permuted", "tensors are told by their ids")
    return Examined(count, "outputs of executes with permuted inputs")


@rule(
    "EXE-16",
    Level.MUST,
    "An execute with a tensor that is missing, there twice, foreign or too much is refused.",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_INVALID_TENSOR, QNN_GRAPH_ERROR_INVALID_ARGUMENT",
    subject="memory",
    cases=strategies.wrong_arrays,
)
def exe_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004 or 6000."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, "tensors", "every IO tensor is there exactly once")
    return Examined(count, "executes with wrong arrays of tensors")


@rule(
    "EXE-17",
    Level.MUST,
    "An execute before the graph is finalised is refused.",
    source=f"{_EXECUTE}, QNN_GRAPH_ERROR_GRAPH_NOT_FINALIZED",
    subject="memory",
    cases=strategies.unfinished,
)
def exe_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6023."""
    require_execute(case, trace)
    count = judge_mistakes(case, trace, "not-finalised", "the graph is not finalised")
    return Examined(count, "executes of graphs that are not finalised")
