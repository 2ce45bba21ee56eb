"""BUF: results that a delegate keeps in buffers of its device, as the runtime meets them."""

from __future__ import annotations

from pytest_qnn.cases import buffer_strategies as cases
from pytest_qnn.cases.script import ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import buffer_support as buffers
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import ScriptTrace

_TENSOR = "tflite/core/c/common.h, TfLiteTensor.buffer_handle and data_is_stale"
_DELEGATE = "tflite/core/c/common.h, TfLiteDelegate"
_READABLE = "tflite/core/subgraph.cc, EnsureTensorDataIsReadable"


@rule(
    "BUF-01",
    Level.MUST,
    "A tensor that a kernel leaves stale has a buffer handle of 0 or more, and the kernel's delegate.",
    source=f"{_TENSOR}; {_READABLE}",
    subject="delegate",
    cases=cases.kept,
    gate=("buffers",),
)
def stale_tensors_have_handles(case: ScriptCase, trace: ScriptTrace) -> Examined:  # noqa: ARG001 - as all checks
    """Looks at the outputs of kernels right after each invoke, before the runtime looks at them."""
    found = buffers.opened(trace)
    stale = buffers.stale_outputs(found)
    for one in stale:
        if one.handle < 0:
            raise Violation(
                "a handle of 0 or more in a stale tensor", str(one.handle), buffers.where(found, one)
            )
        if not one.owned:
            raise Violation(
                "the delegate in a stale tensor", "none, or another one", buffers.where(found, one)
            )
    return Examined(len(stale), "stale tensors")


@rule(
    "BUF-02",
    Level.MUST,
    "A delegate whose kernels leave tensors stale has CopyFromBufferHandle, which fills all of the data.",
    source=f"{_DELEGATE}.CopyFromBufferHandle; {_READABLE}",
    subject="delegate",
    cases=cases.kept,
    gate=("buffers",),
)
def stale_data_is_copied(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs, filled beforehand: the runtime drops what a copy of an output answers (RT-04)."""
    found = buffers.opened(trace)
    buffers.stale_outputs(found)
    if not all(one.copy_from for one in buffers.target_functions(found)):
        raise Violation("a function CopyFromBufferHandle, as tensors are left stale", "NULL")
    done = buffers.calls(found, "from")
    for call in done:
        if call.status and call.handle >= 0:
            raise Violation(
                "CopyFromBufferHandle to succeed",
                f"status {call.status}",
                f"handle {call.handle} of t{call.tensor}, step {call.step}",
            )
    if not done or support.blame(buffers.seen_as_case(case, trace)[1]):
        return Examined(0, "copies from buffers")
    buffers.reads_right(case, trace, "the CPU's values, copied from buffers")
    return Examined(len(done), "copies from buffers")


@rule(
    "BUF-03",
    Level.MUST,
    "A kernel that writes a tensor's data leaves data_is_stale false, and one that does not sets it.",
    source=f"{_TENSOR}; {_READABLE}",
    subject="delegate",
    cases=cases.kept,
)
def fresh_data_is_not_stale(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of kernels, and at what the client reads.

    A device may share its memory with the CPU, so that data changes as the buffer does: a tensor that is
    written and stale too is all right where a copy from its buffer leaves it right.
    """
    found = buffers.opened(trace)
    outputs = buffers.boundary(found)
    if not outputs or support.blame(buffers.seen_as_case(case, trace)[1]):
        return Examined(0, "outputs of kernels")
    both = [one for one in outputs if one.stale and one.written]
    for one in both:
        if one.handle < 0 or not found.functions[found.kernels[one.kernel].application].copy_from:
            raise Violation(
                "data_is_stale false after the kernel has written the data",
                "true, with no buffer to be copied from",
                buffers.where(found, one),
            )
    if both or not all(one.stale for one in outputs):
        which = f"t{both[0].tensor}, stale and written" if both else "tensors that are not stale"
        buffers.reads_right(case, trace, f"the CPU's values in {which}")
    return Examined(len(outputs), "outputs of kernels")


@rule(
    "BUF-07",
    Level.MUST,
    "A kernel reads a stale input of its own delegate's from the buffer: the runtime does not copy it.",
    source="tflite/core/subgraph.cc, Subgraph::InvokeImpl (tensor->delegate != node.delegate)",
    subject="delegate",
    cases=cases.connected,
    gate=("buffers",),
)
def own_buffers_are_read(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at outputs where one kernel of the delegate feeds another; a probe's node lies between them."""
    found = buffers.opened(trace)
    buffers.stale_outputs(found)
    fed = [one for one in buffers.boundary(found, inputs=True) if one.owned]
    if not fed:
        return Examined(0, "stale inputs of the delegate's own")
    seen = buffers.seen_as_case(case, trace)
    failed = support.blame(seen[1])
    if failed:
        raise Violation(
            "a kernel to read a stale input of its own delegate's",
            failed,
            buffers.where(found, fed[0]),
            support.draw(*seen),
        )
    buffers.reads_right(case, trace, f"the CPU's values, by way of t{fed[0].tensor} in a buffer")
    return Examined(len(fed), "stale inputs of the delegate's own")


@rule(
    "BUF-08",
    Level.MUST,
    "The delegate does not rely on CopyToBufferHandle being called: no runtime calls it.",
    source=f"{_DELEGATE}.CopyToBufferHandle (no call site in tflite/core); docs/runtimes.md",
    subject="delegate",
    cases=cases.kept,
    gate=("buffers",),
)
def nothing_is_uploaded(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of delegates that have the function."""
    found = buffers.opened(trace)
    if not any(one.copy_to for one in buffers.target_functions(found)):
        raise Unsupported("CopyToBufferHandle is NULL: the delegate cannot rely on it")
    kernels = len(buffers.boundary(found))
    if not kernels:
        return Examined(0, "outputs of kernels")
    buffers.need_success(case, trace, "kernels that work though nobody calls CopyToBufferHandle")
    buffers.reads_right(case, trace, "the CPU's values, though nobody calls CopyToBufferHandle")
    return Examined(kernels, "outputs of kernels")


@rule(
    "BUF-09",
    Level.SHOULD,
    "After delegates are undone and redone, as by a resize, results are right whatever handles tensors keep.",
    source="tflite/core/subgraph.cc, UndoAllDelegates (leaves buffer_handle as it is), Subgraph::~Subgraph",
    subject="delegate",
    cases=cases.resized,
    gate=("buffers",),
)
def handles_survive_a_redo(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the invoke after it, and at the interpreter's end, where the runtime frees all handles."""
    found = buffers.opened(trace)
    stale = buffers.stale_outputs(found)
    if sum(event.kind == "Prepare" for event in found.events) < 2 * len(found.applied):
        return Examined(0, "stale tensors before and after a redo")
    later = max(number for number, step in enumerate(case.steps) if type(step).__name__ == "Resize")
    before = buffers.seen_as_case(case, trace, upto=later)
    if not before[1].outputs:
        return Examined(0, "stale tensors before and after a redo")
    buffers.need_success(case, trace, "allocate_tensors and invoke to succeed after a resize")
    outputs_are_right(*buffers.seen_as_case(case, trace), "the CPU's values after a resize there and back")
    return Examined(len(stale), "stale tensors before and after a redo")
