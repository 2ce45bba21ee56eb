"""ERR: what a delegate does when a function of the context fails."""

from __future__ import annotations

from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.rules.prec import undone_to_cpu
from pytest_qnn.trace import Applied, Call, DelegateTrace

_NODE = "GetNodeAndRegistration"

Refused = list[tuple[Applied, list[Call]]]


@rule(
    "ERR-01",
    Level.MUST,
    "Prepare returns an error when GetExecutionPlan, Preview or Replace failed. Where "
    "GetNodeAndRegistration failed it may also go on without the node.",
    source="tflite/core/c/common.h, TF_LITE_ENSURE_STATUS; tflite/delegates/xnnpack, "
    "Delegate::PrepareOpsToDelegate (a node that cannot be read is skipped)",
    subject="delegate",
    cases=cases.refused_in_prepare,
)
def propagates_errors(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """One of the functions answers with kTfLiteError."""
    spied.need_callbacks(trace)
    looked_at = 0
    refused = spied.refused_applications(trace)
    for applied, calls in refused:
        looked_at += len(calls)
        for call in calls:
            if call.function != _NODE and not applied.prepare_status:
                raise Violation(
                    f"an error of Prepare after {call.function} had failed",
                    "status 0",
                    f"Prepare of {applied.name}",
                    support.draw(case, trace),
                )
    if refused:
        _goes_on_soundly(case, trace, refused)
    return Examined(looked_at, "failed calls")


@rule(
    "ERR-02",
    Level.MUST,
    "When something fails within Prepare, it returns an error rather than leave a half-claimed graph: what "
    "it reports as a success runs, with right results.",
    source="tflite/core/interpreter.h, Interpreter::ModifyGraphWithDelegate (kTfLiteDelegateError)",
    subject="delegate",
    cases=cases.refused_anywhere,
)
def fails_as_a_whole(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """A function answers with kTfLiteError in Prepare or in one of its inits."""
    spied.need_callbacks(trace)
    refused = spied.refused_applications(trace)
    for applied, _ in refused:
        kernels = [node for node in applied.plan_after if node.op == support.DELEGATE]
        if not applied.ok and kernels:
            raise Violation(
                "no kernel left in the plan of a failed application",
                f"{len(kernels)} of them",
                f"Prepare of {applied.name}",
                support.draw(case, trace),
            )
    if refused:
        _goes_on_soundly(case, trace, refused)
    return Examined(sum(len(calls) for _, calls in refused), "failed calls")


def _goes_on_soundly(case: DelegateCase, trace: DelegateTrace, refused: Refused) -> None:
    """Undone if it failed, and right if it did not; a failed allocate has reported the failure too.

    Of several delegates, one may fail because a kernel of an earlier one cannot be prepared: what the
    runtime then leaves is not judged.
    """
    failed = next((applied for applied in trace.applied if not applied.ok), None)
    if failed is not None:
        if any(applied is failed for applied, _ in refused) and not trace.applied[-1].ok:
            undone_to_cpu(case, trace)
        return
    if trace.allocate_error:
        return
    expected = "a graph that runs, as Prepare reported success"
    spied.works(case, trace, expected)
    outputs_are_right(case, trace, f"the CPU's values from {expected}")


@rule(
    "ERR-07",
    Level.SHOULD,
    "A Prepare that fails says why through context->ReportError, so that the application's exception does.",
    source="tflite/core/c/common.h, TfLiteContext.ReportError; TF_LITE_KERNEL_LOG",
    subject="delegate",
    cases=cases.refused_plan,
)
def explains_its_failure(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """GetExecutionPlan fails without a word. Of a failed kernel the runtime says at least which one it is."""
    spied.need_callbacks(trace)
    looked_at = 0
    for applied, calls in spied.refused_applications(trace):
        if applied.ok:
            continue
        looked_at += len(calls)
        if not _explained(trace, calls[0]):
            raise Violation(
                "a text given to ReportError",
                f"none; the exception says {_line(applied)}",
                f"Prepare of {applied.name}",
                support.draw(case, trace),
            )
    return Examined(looked_at, "failures of Prepare")


def _explained(trace: DelegateTrace, call: Call) -> bool:
    return any(r.application == call.application and r.text.strip() for r in trace.spied.reports)


def _line(applied: Applied) -> str:
    return repr(" ".join(applied.message.split()))
