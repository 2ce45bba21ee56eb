"""PART: plans and previews are used while they are valid, and previews are true."""

from __future__ import annotations

from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace


@rule(
    "PART-19",
    Level.MUST,
    "Preview and Replace agree: the partitions of one are those of the other.",
    source="tflite/core/subgraph.cc, Subgraph::PreviewDelegatePartitioning",
    subject="delegate",
    cases=cases.previewed,
    self_check=True,
)
def previews_truly(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """The suite asks for a preview right before each Replace that a delegate did not preview itself."""
    support.need_work(trace)
    looked_at = 0
    ends = [preview.kernels for preview in trace.spied.previews[1:]] + [len(trace.kernels)]
    for preview, end in zip(trace.spied.previews, ends, strict=False):
        made = trace.kernels[preview.kernels : end]
        kernels = [kernel for kernel in made if kernel.application == preview.application]
        looked_at += len(preview.partitions)
        seen = [(k.nodes, k.inputs, k.outputs) for k in kernels]
        if preview.status or seen != list(preview.partitions):
            raise Violation(
                f"the previewed partitions {[list(nodes) for nodes, *_ in preview.partitions]}",
                f"{[list(nodes) for nodes, *_ in seen]} from Replace",
                f"application {preview.application}",
                support.draw(case, trace),
            )
    return Examined(looked_at, "previewed partitions")


@rule(
    "PART-20",
    Level.MUST,
    "What Preview answers is not used after Prepare has returned: the runtime has freed it.",
    source="tflite/core/subgraph.cc, Subgraph::SwitchToKernelContext and FreeDelegatePartitioningData",
    subject="delegate",
    cases=cases.lent_nodes,
    gate=("previews",),
)
def forgets_previews(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies, which are emptied when it returns; the kernels' results must stand."""
    spied.need_callbacks(trace)
    count = trace.spied.previews_taken_back
    if not count:
        raise Unsupported("the delegate asks for no preview of its partitions", settled=False)
    if support.target_kernels(trace):
        expected = "kernels that work without the preview that Prepare was lent"
        spied.works(case, trace, expected)
        if not support.failure(trace):
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count if support.target_kernels(trace) else 0, "previews")


@rule(
    "PART-21",
    Level.MUST,
    "An execution plan is not used any more once GetExecutionPlan was called again, by whomever.",
    source="tflite/core/c/common.h, note on TfLiteContext.GetExecutionPlan: future calls invalidate earlier "
    "outputs",
    subject="delegate",
    cases=cases.lent_plans,
)
def forgets_old_plans(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies; the next GetExecutionPlan turns their entries into a number that is no node's."""
    spied.need_callbacks(trace)
    for call in trace.spied.stale:
        if spied.of_target(trace, call):
            raise Violation(
                "only nodes of the plan that GetExecutionPlan gave last",
                f"a call of {call.function} with an entry of an earlier one",
                spied.where(trace, call),
                support.draw(case, trace),
            )
    count = trace.spied.plans_taken_back
    if count and support.target_kernels(trace):
        expected = "kernels that work without a plan that is not valid any more"
        spied.works(case, trace, expected)
        if not support.failure(trace):
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count, "plans that a later call made invalid")
