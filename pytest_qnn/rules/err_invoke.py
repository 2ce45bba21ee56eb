"""ERR: failures of a kernel, what it answers with, and what it leaves."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.arrays import Array
from pytest_qnn.cases.data import inputs_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.oracle.kernels import run_graph
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.rules.rule import rule
from pytest_qnn.trace import DelegateTrace
from pytest_qnn.verdict import Examined, Level, Unsupported, Violation

_CANCELLED = 8
_SHAPE_NOT_KNOWN = 9
_STATUSES = "tflite/core/c/c_api_types.h, TfLiteStatus"


@rule(
    "ERR-04",
    Level.MUST,
    "A kernel answers what it cannot do with a status: it never exits, aborts, or lets an exception through.",
    source="the interface is C's (tflite/core/c/common.h, TfLiteRegistration): an exception or exit ends the "
    "application",
    subject="delegate",
    cases=cases.hostile,
)
def survives_hostile_inputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """NaN, infinities, ends of ranges, functions that fail: that the process lives is what is judged."""
    spied.need_callbacks(trace)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    invokes = sum(event.kind == "invoke" and event.kernel in mine for event in trace.events)
    hostile = case.fill in ("special", "extreme")
    return Examined(invokes if hostile else 0, "invokes of kernels with hostile inputs")


@rule(
    "ERR-05",
    Level.SHOULD,
    "After a failed invoke the next one gives right results or fails too: no success with old data.",
    source="tflite/core/subgraph.cc, Subgraph::Invoke: a failed invoke leaves the graph invokable",
    subject="delegate",
    cases=cases.failing_invoke,
)
def recovers_or_fails_again(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Each invoke has inputs of its own, and outputs that were overwritten beforehand."""
    first = _first_failed_invoke(trace)
    looked_at = 0
    for number in range(first + 1, len(trace.outputs)):
        if trace.invoke_errors[number]:
            looked_at += 1
            continue
        inputs = _inputs(case, number)
        values = run_graph(case.graph, [array.numpy() for array in inputs])
        right = tuple(Array.of(values[tensor]) for tensor in case.graph.outputs)
        seen = trace.outputs[number : number + 1]
        outputs_are_right(
            case,
            msgspec.structs.replace(trace, inputs=inputs, cpu=right, outputs=seen),
            f"the values of this invoke's inputs, or an error (invoke {number}, after invoke {first} failed)",
        )
        looked_at += 1
    return Examined(looked_at, "invokes after a failed one")


@rule(
    "ERR-06",
    Level.SHOULD,
    "A failed invoke leaves the inputs and constants as they were, and other tensors than its outputs too.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke: only outputs are unspecified after an error",
    subject="delegate",
    cases=cases.failing_invoke_watched,
)
def spares_inputs_when_it_fails(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks for writes of the kernels, and at the graph's inputs after the last invoke."""
    _first_failed_invoke(trace)
    for write in trace.writes:
        if trace.applied[write.application].is_target:
            raise Violation(
                f"tensor t{write.tensor} as it was",
                f"byte {write.offset} of it changed",
                f"an invoke of kernel {write.kernel}, of which one failed",
                support.draw(case, trace),
            )
    failed = sum(map(bool, trace.invoke_errors))
    expected = _inputs(case, case.invokes - 1)
    for tensor, before, after in zip(case.graph.inputs, expected, trace.inputs_after, strict=True):
        if before.data != after.data and tensor not in case.graph.outputs:
            raise Violation(
                "the graph's inputs as they were set", f"other contents in t{tensor}", "after a failed invoke"
            )
    return Examined(failed, "failed invokes")


def _first_failed_invoke(trace: DelegateTrace) -> int:
    """Number of the first invoke that a kernel of the target failed in.

    Raises:
        Unsupported: there was none.
    """
    spied.need_callbacks(trace)
    applied = next((a for a in trace.applied if not a.ok), None)
    if applied or trace.allocate_error:
        raise Unsupported(support.failure(trace), settled=False)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    failed = any(e.kind == "invoke" and e.status and e.kernel in mine for e in trace.events)
    number = next((number for number, error in enumerate(trace.invoke_errors) if error), None)
    if number is None or not failed:
        raise Unsupported("no invoke of the delegate failed, and it cannot be told to fail", settled=False)
    return number


def _inputs(case: DelegateCase, number: int) -> tuple[Array, ...]:
    """The graph's inputs during an invoke."""
    seeds = case.reseed[: number + 1]
    changed = msgspec.structs.replace(case, data_seed=seeds[-1]) if seeds else case
    return tuple(map(Array.of, inputs_of(changed)))


@rule(
    "ERR-08",
    Level.SHOULD,
    "A kernel's status is one of TfLiteStatus: 8 (kTfLiteCancelled) only for a cancellation, and 9 "
    "(kTfLiteOutputShapeNotKnown) never on 2.14, which does not know it.",
    source=_STATUSES,
    subject="delegate",
    cases=cases.failing_callbacks,
)
def answers_with_a_status(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the status of each prepare and invoke of the target's kernels. Nothing is cancelled here."""
    spied.need_callbacks(trace)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    old = trace.facts is not None and trace.facts.runtime == "tflite_runtime"
    looked_at = 0
    for event in trace.events:
        if event.kind not in ("prepare", "invoke") or event.kernel not in mine:
            continue
        looked_at += 1
        wrong = ""
        if event.status == _CANCELLED:
            wrong = "8 (kTfLiteCancelled), although nothing was cancelled"
        elif event.status == _SHAPE_NOT_KNOWN and (old or event.kind == "invoke"):
            wrong = "9 (kTfLiteOutputShapeNotKnown)"
        elif not 0 <= event.status <= _SHAPE_NOT_KNOWN:
            wrong = f"{event.status}, which is no TfLiteStatus"
        if wrong:
            raise Violation(
                "0, or the status of an error",
                wrong,
                f"{event.kind} of kernel {event.kernel}",
                support.draw(case, trace),
            )
    return Examined(looked_at, "statuses of kernel prepare and invoke")
