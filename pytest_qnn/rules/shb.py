"""SHB: several tensors in one QNN_HTP_MEM_SHARED_BUFFER, each at an offset of its own."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, MemType
from pytest_qnn.cases import memory_graph_strategies as strategies
from pytest_qnn.cases.memory import Deregister, MemoryCase, Observe, Register
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules.memory_graph_support import judge_run, require_executed_memory, require_type
from pytest_qnn.rules.memory_support import (
    demand_code,
    judge_faults,
    own_steps,
    place,
    require_memory,
)
from pytest_qnn.trace import MemoryTrace

_GATE = ("1101", "1103")


def _require_shared(case: MemoryCase, trace: MemoryTrace) -> None:
    require_memory(case, trace)
    require_type(trace, MemType.CUSTOM)


def _judge_bounds(case: MemoryCase, trace: MemoryTrace, fault: str, because: str) -> Examined:
    """Descriptors with the fault are refused with 8000; shared buffers without one are registered."""
    _require_shared(case, trace)
    found = judge_faults(case, trace, (fault,), f"registrations with {fault} and good ones", because)
    if not found.count:
        return found
    good = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        if isinstance(walked.step, Register) and _shared_only(walked.step):
            demand_code(walked, {0}, because)
            good += 1
    return Examined(found.count + good, found.what)


def _shared_only(step: Register) -> bool:
    return all(descriptor.mem_type == MemType.CUSTOM for descriptor in step.descriptors)


@rule(
    "SHB-03",
    Level.MUST,
    "Size is the total size of the buffer, the same in all registrations of its fd; another size is refused.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, note on size; QnnHtpMem.h",
    subject="memory",
    cases=strategies.shared_sizes,
    gate=_GATE,
)
def shb_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Another size for a mapped fd answers 8000 and leaves the right size usable."""
    return _judge_bounds(case, trace, "size-mismatch", "size is the same for all registrations of an fd")


@rule(
    "SHB-04",
    Level.MUST,
    "A tensor lies inside its buffer: offset + bytes <= size.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER; observed on devices (8000)",
    subject="memory",
    cases=strategies.shared_ends,
    gate=_GATE,
)
def shb_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """An exact fit is registered; a tensor past the end answers 8000."""
    return _judge_bounds(case, trace, "past-end", "offset + bytes <= size")


@rule(
    "SHB-06",
    Level.MUST,
    "Offsets are 64 bits wide: huge ones, and those that wrap around with the tensor, are refused.",
    source="QnnHtpMem.h: QnnHtpMem_SharedBufferConfig_t.offset",
    subject="memory",
    cases=strategies.shared_wraps,
    gate=_GATE,
)
def shb_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Offsets from 2**32 on answer 8000 in buffers that are smaller."""
    return _judge_bounds(case, trace, "huge-offset", "the offset counts with all its 64 bits")


@rule(
    "SHB-07",
    Level.MUST,
    "Each offset in one buffer gives a handle of its own.",
    source="QnnHtpMem.h; seed 002, Using QNN_HTP_MEM_SHARED_BUFFER",
    subject="memory",
    cases=strategies.shared_offsets,
    gate=_GATE,
)
def shb_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The live handles of all registrations differ and none is NULL."""
    _require_shared(case, trace)
    live: dict[str, int] = {}
    count = 0
    for walked in own_steps(case, trace, lambda w: w.allowed.settled):
        step = walked.step
        if isinstance(step, Deregister) and walked.code == 0:
            for name in step.handles:
                live.pop(name, None)
        if not isinstance(step, Register) or not walked.allowed.valid:
            continue
        if _shared_only(step):
            demand_code(walked, {0}, "each offset gives a handle")
        if walked.code != 0:
            continue
        for name, value in zip(step.handles, walked.seen.values, strict=False):
            if value == 0 or value in live.values():
                other = next((each for each, given in live.items() if given == value), "NULL")
                raise Violation("a handle of its own for each offset", f"{name} is {other}", place(walked))
            live[name] = value
            count += _shared_only(step)
    return Examined(count, "handles of shared buffers")


def _judge_layout(case: MemoryCase, trace: MemoryTrace, because: str) -> Examined:
    require_executed_memory(case, trace)
    require_type(trace, MemType.CUSTOM)
    return judge_run(case, trace, "outputs and buffers", because)


@rule(
    "SHB-08",
    Level.MUST,
    "A tensor is read and written exactly in [offset, offset + bytes) of its buffer; the rest is left alone.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, memory pointer offset of each tensor",
    subject="memory",
    cases=strategies.shared_layout,
    gate=_GATE,
)
def shb_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The whole buffer is compared after each execute: output, inputs, neighbours and padding."""
    return _judge_layout(case, trace, "only [offset, offset + bytes) belongs to a tensor")


@rule(
    "SHB-09",
    Level.MUST,
    "Inputs and outputs may lie in one buffer in any order, registered one by one or in one batch.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, loop over tensors; QnnMem.h: QnnMem_register",
    subject="memory",
    cases=strategies.shared_layout,
    gate=_GATE,
)
def shb_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every order of layout and of registration is accepted and computes the same."""
    return _judge_layout(case, trace, "tensors may lie in one buffer in any order")


@rule(
    "SHB-13",
    Level.MUST,
    "Deregistering one handle leaves the buffer's other tensors usable; its mapping goes with the last one.",
    source="seed 002, Using QNN_HTP_MEM_SHARED_BUFFER, loop of deregistrations",
    subject="memory",
    cases=strategies.shared_farewell,
    gate=_GATE,
)
def shb_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Executes between the deregistrations are right; mappings of shared files are back to what they were."""
    found = _judge_layout(case, trace, "other tensors of the buffer are still registered")
    for walked in own_steps(case, trace, lambda w: w.allowed.valid and isinstance(w.step, Deregister)):
        demand_code(walked, {int(Error.SUCCESS)}, "the handle is live")
    looks = [
        (index, seen.counts.get("memfds", 0))
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Observe) and not seen.skipped
    ]
    if len(looks) != 3:
        return found
    (_, before), (_, registered), (last, after) = looks
    if registered > before and after > before:
        raise Violation(
            f"{before} mappings of shared files once the last handle is gone, as before the first",
            f"{after} (and {registered} while handles were live)",
            f"step {last}, observe",
        )
    return Examined(found.count + 1, found.what)
