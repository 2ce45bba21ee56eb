"""What the rules about executing graphs share: their gates, and judging codes together with contents."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnn.core.verdict import Examined, Unsupported, WrongOutput
from pytest_qnn.qnn.abi.codes import Error, HtpMemType, MemType, Property, TensorMemType, low
from pytest_qnn.qnn.cases.case import Execute, MemoryCase, Prepare, Register
from pytest_qnn.qnn.facts import HTP_BACKEND_ID
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.contents import Compared, compare
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.rules.judging import (
    demand_code,
    facts_of,
    own_steps,
    place,
    require_memory,
    require_operator,
)
from pytest_qnn.qnn.trace import MemoryTrace

CREATE_TENSOR = "tensorCreateGraphTensor"
"""The call that makes an IO tensor, as a Prepare's trace names it."""
_UNSUPPORTED = int(Error.COMMON_ERROR_NOT_SUPPORTED)
_ALIGNMENT = 64


def require_type(trace: MemoryTrace, mem_type: int) -> None:
    """Raise Unsupported unless the target declares memory of this type (CUSTOM: the HTP's shared buffers)."""
    facts = facts_of(trace)
    key = {
        MemType.ION: Property.MEMORY_SUPPORT_MEM_TYPE_ION,
        MemType.CUSTOM: Property.MEMORY_SUPPORT_MEM_TYPE_CUSTOM,
        MemType.DMA_BUF: Property.MEMORY_SUPPORT_MEM_TYPE_DMA_BUF,
    }[MemType(mem_type)]
    if facts.capabilities and not facts.supports(key):
        answer = facts.capabilities.get(key, _UNSUPPORTED)
        raise Unsupported(f"property key {int(key)} ({key.name}) answers {named(answer)}")
    if mem_type == MemType.CUSTOM and facts.backend_id not in (0, HTP_BACKEND_ID):
        raise Unsupported(
            f"shared buffers are the HTP backend's (id 6); this backend has id {facts.backend_id}"
        )


def require_prepared(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when a graph of the case could not be prepared, with the call and its code.

    No rule here says that a target takes an operator in every shape. A backend that refuses memory type
    MEMHANDLE at creation is named as such.
    """
    require_operator(trace)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Prepare) and not any(step.preset) and seen.code:
            call = seen.calls[-1][0] if seen.calls else "prepare"
            hinted = TensorMemType.MEMHANDLE in step.mem_types and call == CREATE_TENSOR
            of = "a MEMHANDLE tensor" if hinted else f"{step.op} {step.dtype} {list(step.shape)}"
            raise Unsupported(f"{call} of {of} answers {named(seen.code)}")


def require_execution(trace: MemoryTrace) -> None:
    """Raise Unsupported when property 311 says that graphs are not executed (libQnnSaver records them)."""
    facts, key = facts_of(trace), Property.GRAPH_SUPPORT_EXECUTE
    if not facts.executes:
        raise Unsupported(f"property key {int(key)} ({key.name}) answers {named(facts.capabilities[key])}")


def require_handles(trace: MemoryTrace, code: int | None) -> None:
    """Raise Unsupported where key 502 denies memory handles, and a call with one answers so (1000)."""
    facts, key = facts_of(trace), Property.TENSOR_SUPPORT_MEMHANDLE_TYPE
    if code is not None and low(code) == _UNSUPPORTED and facts.capabilities and not facts.supports(key):
        raise Unsupported(f"property key {int(key)} ({key.name}) is not supported, and the call answers so")


def require_execute(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported when graphs cannot be prepared, or every execute is answered "not supported".

    A target that declares MEMHANDLE tensors (property 502) is judged on that answer.
    """
    require_prepared(case, trace)
    require_execution(trace)
    answers = {
        low(seen.code)
        for step, seen in zip(case.steps, trace.steps, strict=False)
        if isinstance(step, Execute) and seen.code is not None
    }
    if answers == {_UNSUPPORTED} and not facts_of(trace).supports(Property.TENSOR_SUPPORT_MEMHANDLE_TYPE):
        raise Unsupported("graphExecute answers 1000, not supported")


def require_executed_memory(case: MemoryCase, trace: MemoryTrace) -> None:
    """The gates of a rule that registers memory and executes with it."""
    require_memory(case, trace)
    require_execute(case, trace)


def judge_contents(
    case: MemoryCase,
    trace: MemoryTrace,
    own: Callable[[Compared], bool] = lambda _: True,
    because: str = "",
) -> int:
    """Everything seen for which ``own`` holds must be right; gives how many comparisons there were."""
    count = 0
    for seen in compare(case, trace):
        if not own(seen):
            continue
        if seen.difference:
            of = "the output" if seen.where == "output" else "the buffer"
            wanted = f"{of} with the right contents" + (f": {because}" if because else "")
            raise WrongOutput(wanted, seen.difference, place(seen.walked))
        count += 1
    return count


def judge_run(case: MemoryCase, trace: MemoryTrace, what: str, because: str) -> Examined:
    """Registers and executes that are in order must succeed, and all contents seen must be right."""
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register):
            _demand_registered(walked, walked.step, because)
        elif isinstance(walked.step, Execute):
            demand_code(walked, {0}, because)
    return Examined(judge_contents(case, trace, because=because), what)


def judge_executes(case: MemoryCase, trace: MemoryTrace, own: Callable[[Execute], bool], because: str) -> int:
    """Executes that are in order, and for which ``own`` holds, must succeed; gives how many there were."""
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Execute) and own(walked.step):
            demand_code(walked, {0}, because)
            count += 1
    return count


def kinds(step: Execute) -> set[str]:
    """``raw``, ``handle`` or both: the memory behind the tensors of an execute."""
    return {binding.kind for binding in step.bindings}


def _demand_registered(walked: Walked, step: Register, because: str) -> None:
    shape = int(Error.MEM_ERROR_INVALID_SHAPE)
    uneven = any(d.offset % _ALIGNMENT for d in step.descriptors if d.htp_type == HtpMemType.SHARED_BUFFER)
    if walked.code == shape and uneven:
        # Alignment of offsets is another rule's business, and only a SHOULD (SHB-10).
        raise Unsupported(f"an offset that is no multiple of {_ALIGNMENT} is answered with {named(shape)}")
    demand_code(walked, {0}, because)
