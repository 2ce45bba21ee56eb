"""BUF: the delegate's functions for buffer handles, as a client may call them, and as the runtime frees."""

from __future__ import annotations

from pytest_qnn.cases import buffer_strategies as cases
from pytest_qnn.cases.script import HandleOutput, Read, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import buffer_support as buffers
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.trace import ScriptSeen, ScriptTrace

_DELEGATE = "tflite/core/c/common.h, TfLiteDelegate"
_COPY = f"{_DELEGATE}.CopyFromBufferHandle"


@rule(
    "BUF-04",
    Level.MUST,
    "CopyFromBufferHandle copies: it can be called again, fills the whole tensor, and changes no other one.",
    source=_COPY,
    subject="delegate",
    cases=cases.copied,
    gate=("buffers",),
)
def copying_is_repeatable(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at two copies over different fills after the runtime's own, and at the border of the graph."""
    found = buffers.opened(trace)
    buffers.stale_outputs(found)
    done = buffers.copies(case, trace)
    for number, step, seen in done:
        _copied(seen, f"output {step.output}, step {number}")
    if done:
        graph = case.graphs[0]
        reads = [
            [
                one
                for tensor, one in zip(graph.outputs, seen.outputs, strict=False)
                if tensor not in graph.inputs
            ]
            for _, step, seen in scripts.numbered(case, trace)
            if isinstance(step, Read) and seen.ok
        ]
        if len(reads) > 1 and reads[0] != reads[-1]:
            raise Violation(
                "the same bytes from a second copy", "others", f"{len(done)} outputs copied again"
            )
    return Examined(len(done), "outputs copied again")


def _copied(seen: ScriptSeen, at: str) -> None:
    """Raises Violation unless a CopyFrom step went well."""
    numbers = seen.numbers
    at = f"handle {numbers['handle']}, {at}"
    if numbers["status"]:
        raise Violation("CopyFromBufferHandle to succeed", f"status {numbers['status']}", at)
    if numbers["untouched"]:
        raise Violation("all bytes of the tensor written", f"{numbers['untouched']} not written", at)
    if numbers["other"] >= 0:
        raise Violation("no other tensor changed", f"t{numbers['other']} changed", at)


@rule(
    "BUF-05",
    Level.SHOULD,
    "CopyFromBufferHandle answers what is no handle of the delegate's with an error.",
    source=f"{_COPY} (returns TfLiteStatus); docs/runtimes.md RT-04",
    subject="delegate",
    cases=cases.mistaken,
    gate=("buffers",),
)
def bad_handles_are_refused(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Passes kTfLiteNullBufferHandle, or a number that was never given out.

    The runtime itself passes what kernels have put into tensors, or clients through SetBufferHandle.
    """
    found = buffers.opened(trace)
    buffers.stale_outputs(found)
    done = buffers.copies(case, trace)
    for number, step, seen in done:
        if not seen.numbers["status"]:
            wrote = "" if seen.numbers["untouched"] else ", and data was written"
            handle = -1 if step.wrong == "none" else seen.numbers["handle"]
            raise Violation(
                f"an error for the handle {handle}", f"success{wrote}", f"output {step.output}, step {number}"
            )
    return Examined(len(done), "copies from no handle")


@rule(
    "BUF-06",
    Level.MUST,
    "FreeBufferHandle frees its handle alone, once, also at the interpreter's end; it leaves it or -1.",
    source=f"{_DELEGATE}.FreeBufferHandle; tflite/core/subgraph.cc, Subgraph::~Subgraph",
    subject="delegate",
    cases=cases.freed,
    gate=("buffers",),
)
def freeing_is_exact(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Two interpreters of one delegate: when the first has ended, the second one's buffers are still there.

    That the end of an interpreter ends the process is a crash.
    """
    found = buffers.opened(trace)
    buffers.stale_outputs(found)
    freed = buffers.calls(found, "free")
    for call in freed:
        if call.status not in (-1, call.handle):
            raise Violation(f"the handle {call.handle} or -1 after it was freed", str(call.status))
    second = scripts.interpreter(trace, "i1")
    if second is None or not all(one.ok for one in second.applied):
        return Examined(len(freed), "handles freed")
    for number, step, seen in buffers.copies(case, trace):
        _copied(seen, f"output {step.output} of i1 after the end of i0, step {number}")
    return Examined(len(freed), "handles freed")


@rule(
    "BUF-10",
    Level.SHOULD,
    "Where the client allows buffer handles as outputs, they stay stale, and can be copied any time.",
    source="tflite/core/interpreter.h, SetAllowBufferHandleOutput",
    subject="delegate",
    cases=cases.left_to_the_client,
    gate=("buffers",),
)
def outputs_stay_in_buffers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at copies that the client makes after the second invoke.

    The runtime makes none after the last node; it still copies what a node of the CPU reads.
    """
    found = buffers.opened(trace)
    stale = buffers.stale_outputs(found)
    allowed = any(
        isinstance(step, HandleOutput) and seen.ok for _, step, seen in scripts.numbered(case, trace)
    )
    done = buffers.copies(case, trace)
    if not allowed or not done or support.blame(buffers.seen_as_case(case, trace)[1]):
        return Examined(0, "outputs left in buffers")
    for number, step, seen in done:
        _copied(seen, f"output {step.output}, step {number}")
    copied = {case.graphs[0].outputs[step.output] for _, step, _ in done}
    if copied.issuperset(one.tensor for one in stale if one.tensor in case.graphs[0].outputs):
        buffers.reads_right(case, trace, "the CPU's values, copied by the client after the second invoke")
    return Examined(len(done), "outputs left in buffers")
