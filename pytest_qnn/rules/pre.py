"""PRE: what IO tensors may come with when they are created."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, Property, TensorMemType
from pytest_qnn.cases import memory_graph_strategies, memory_matrix_strategies
from pytest_qnn.cases.memory import MemoryCase, Prepare
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_graph_support import (
    CREATE_TENSOR,
    require_prepared,
)
from pytest_qnn.rules.memory_support import (
    demand_code,
    facts_of,
    own_steps,
    require_operator,
    require_session,
)
from pytest_qnn.rules.qmg_rows import rows
from pytest_qnn.trace import MemoryTrace, StepSeen

_REFUSED = frozenset({int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)})


def _creations(seen: StepSeen) -> list[int]:
    """The codes of the tensor creations of a prepare, in the order of its IO tensors."""
    return [code for call, code in seen.calls if call == CREATE_TENSOR]


def _judge_preset(case: MemoryCase, trace: MemoryTrace, mem_type: int, because: str) -> int:
    """The first tensor of this memory type that comes with memory answers 7004; gives how many there were."""
    require_session(trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Prepare)):
        step = walked.step
        if not isinstance(step, Prepare) or True not in step.preset:
            continue
        first = step.preset.index(True)
        codes = _creations(walked.seen)
        given = step.mem_types[first] if first < len(step.mem_types) else TensorMemType.RAW
        if given != mem_type or len(codes) <= first:
            continue
        demand_code(_with_code(walked, codes[first]), _REFUSED, because)
        count += 1
    return count


def _with_code(walked: Walked, code: int) -> Walked:
    return Walked(walked.index, walked.step, StepSeen(code=code), walked.allowed)


def _require_hint(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when a target without property 502 refuses a MEMHANDLE tensor that has no handle."""
    if facts_of(trace).supports(Property.TENSOR_SUPPORT_MEMHANDLE_TYPE):
        return
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if (
            isinstance(step, Prepare)
            and TensorMemType.MEMHANDLE in step.mem_types
            and True not in step.preset
        ):
            codes = _creations(seen)
            if codes and codes[-1] != 0:
                raise Unsupported(f"{CREATE_TENSOR} of a MEMHANDLE tensor answers {named(codes[-1])}")


@rule(
    "PRE-01",
    Level.MUST,
    "An IO tensor of memory type MEMHANDLE has a NULL memHandle when it is created.",
    source="seed 001, Online Prepare, comment; seed 002, comment; QnnTensor.h: QnnTensor_createGraphTensor",
    subject="memory",
    cases=memory_graph_strategies.preset_handles,
)
def pre_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A handle at creation answers 7004."""
    require_session(trace)
    _require_hint(case, trace)
    count = _judge_preset(case, trace, TensorMemType.MEMHANDLE, "memHandle is NULL at creation")
    return Examined(count, "MEMHANDLE tensors created with a handle")


@rule(
    "PRE-02",
    Level.MUST,
    "An IO tensor of memory type RAW has NULL data when it is created.",
    source="QnnTensor.h: QnnTensor_createGraphTensor",
    subject="memory",
    cases=memory_graph_strategies.preset_data,
)
def pre_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Data at creation answers 7004."""
    count = _judge_preset(case, trace, TensorMemType.RAW, "clientBuf.data is NULL at creation")
    return Examined(count, "RAW tensors created with data")


@rule(
    "PRE-04",
    Level.MUST,
    "Memory type MEMHANDLE with a NULL handle at creation is the hint: it is taken and has its effect.",
    source="seed 001, Online Prepare",
    subject="memory",
    cases=memory_matrix_strategies.hinted,
    weight=0.5,
)
def pre_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Creation, node and finalise answer 0; no IO buffers appear where raw preparation shows some.

    The effect can be judged only where a graph prepared raw shows its IO buffers to an observer outside.
    """
    require_operator(trace)
    _require_hint(case, trace)
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Prepare)):
        step = walked.step
        if isinstance(step, Prepare) and TensorMemType.MEMHANDLE in step.mem_types:
            demand_code(walked, {0}, "the tensors carry the hint")
            count += 1
    require_prepared(case, trace)
    found = rows(case, trace)
    raw_has_buffers = any(row.raw and row.at_prepare for row in found)
    for row in found:
        if raw_has_buffers and not row.raw and row.at_prepare:
            seen = f"{len(row.at_prepare)} of them at preparation"
            raise Violation("no IO buffers: every tensor carries the hint", seen, f"step {row.step}, prepare")
    return Examined(count, "graphs created with the hint")
