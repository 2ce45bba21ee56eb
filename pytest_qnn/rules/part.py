"""PART: what a delegate may claim, and that its kernels compute the partition they were given."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases import spied_strategies as spied
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right, same_bits
from pytest_qnn.trace import DelegateTrace, Kernel


@rule(
    "PART-01",
    Level.MUST,
    "Every node index that Prepare passes to ReplaceNodeSubsetsWithDelegateKernels or to "
    "PreviewDelegatePartitioning is in the current execution plan.",
    source="tflite/core/c/common.h, TfLiteContext.GetExecutionPlan, ReplaceNodeSubsetsWithDelegateKernels "
    "and PreviewDelegatePartitioning",
    subject="delegate",
    cases=spied.claimed,
)
def claims_from_the_plan(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """A node leaves the plan with the call that replaces it, so a second call must not name it again."""
    support.need_observation(trace)
    looked_at = _previewed_from_the_plan(case, trace)
    for position, applied in support.targets(trace):
        plan = {node.index for node in applied.plan_seen}
        newest = max(plan, default=-1)
        for number, replace in enumerate(applied.replaces):
            for index in replace.nodes:
                looked_at += 1
                # A second call may also name the kernels that the first one made: they have new indices.
                if index not in plan and not (number and newest < index):
                    raise Violation(
                        f"only indices of the execution plan {sorted(plan)}",
                        f"node {index} in the call with nodes {list(replace.nodes)}",
                        f"application {position} ({applied.name}), Replace call {number}",
                        support.draw(case, trace),
                    )
            if replace.status == 0:
                plan -= set(replace.nodes)
    if not looked_at:
        support.need_work(trace)
    return Examined(looked_at, "claimed node indices")


def _previewed_from_the_plan(case: DelegateCase, trace: DelegateTrace) -> int:
    """The number of indices that were passed to Preview; kernels made by then have newer ones."""
    for asked in trace.spied.asked:
        applied = trace.applied[asked.application]
        plan = {node.index for node in applied.plan_seen}
        newest = max(plan, default=-1)
        wrong = [i for i in asked.nodes if i not in plan and not (asked.made and newest < i)]
        if applied.is_target and wrong:
            raise Violation(
                f"only indices of the execution plan {sorted(plan)}",
                f"node {wrong[0]} among the previewed {list(asked.nodes)}",
                f"application {asked.application} ({applied.name})",
                support.draw(case, trace),
            )
    return sum(len(a.nodes) for a in trace.spied.asked if trace.applied[a.application].is_target)


@rule(
    "PART-02",
    Level.MUST,
    "A delegate never claims a node whose builtin code is DELEGATE (51) or that another delegate owns.",
    source="tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels; docs/runtimes.md RT-02",
    subject="delegate",
    cases=cases.behind_a_probe,
)
def leaves_foreign_kernels_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the kernels of earlier delegates that the target's Prepare could see."""
    support.need_observation(trace)
    looked_at = 0
    for position, applied in support.targets(trace):
        foreign = {n.index: n for n in applied.plan_seen if n.op == support.DELEGATE or n.owner >= 0}
        looked_at += len(foreign)
        for replace in applied.replaces:
            stolen = [foreign[index] for index in replace.nodes if index in foreign]
            if stolen:
                owner = trace.applied[stolen[0].owner].name if stolen[0].owner >= 0 else "another delegate"
                raise Violation(
                    f"no claim on the foreign kernels {sorted(foreign)}",
                    f"node {stolen[0].index}, a kernel of {owner}, among the claimed {list(replace.nodes)}",
                    f"application {position} ({applied.name})",
                    support.draw(case, trace),
                )
    return Examined(looked_at, "kernels of earlier delegates")


@rule(
    "PART-04",
    Level.MUST,
    "A node that the delegate does not support is left to the CPU; it does not fail in Prepare, in kernel "
    "prepare or in invoke.",
    source="tflite/delegates/utils/simple_delegate.h, IsNodeSupportedByDelegate",
    subject="delegate",
    cases=cases.anything,
)
def runs_any_graph(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Every node of the graph has to be carried out by somebody, whatever the delegate supports."""
    support.runs_end_to_end(case, trace)
    return Examined(len(case.graph.nodes), "nodes carried out")


@rule(
    "PART-10",
    Level.MUST,
    "A kernel computes from nodes_to_replace, input_tensors and output_tensors as given, not from an "
    "assumed order or number of them.",
    source="tflite/core/c/common.h, TfLiteDelegateParams",
    subject="delegate",
    cases=cases.routing,
)
def computes_what_it_was_given(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at kernels that have a shape to get wrong: two nodes, or two boundary tensors of one side.

    A value sent the wrong way is off by its own magnitude: `outputs_are_right` judges only that.
    """
    support.need_work(trace)
    kernels = [k for k in support.live_target_kernels(trace) if _intricate(k)]
    if kernels and not support.failure(trace):
        outputs_are_right(
            case, trace, "the CPU's values from a kernel with several nodes or boundary tensors"
        )
    return Examined(0 if support.failure(trace) else len(kernels), "kernels with several nodes or tensors")


def _intricate(kernel: Kernel) -> bool:
    return len(kernel.nodes) > 1 or len(kernel.inputs) > 1 or len(kernel.outputs) > 1


@rule(
    "PART-11",
    Level.MUST,
    "A tensor that is read inside a partition and also outside it, or is a graph output, is written.",
    source="tflite/core/c/common.h, TfLiteDelegateParams.output_tensors",
    subject="delegate",
    cases=cases.fan_out,
)
def writes_fan_out_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at output tensors of a kernel that a node of the same kernel reads too."""
    support.need_work(trace)
    shared = [tensor for k in support.live_target_kernels(trace) for tensor in _read_inside(case, trace, k)]
    if shared and not support.failure(trace):
        outputs_are_right(case, trace, f"the fan-out tensors {_named(shared)} written by their kernel")
    return Examined(0 if support.failure(trace) else len(shared), "outputs read inside their own partition")


def _read_inside(case: DelegateCase, trace: DelegateTrace, kernel: Kernel) -> list[int]:
    nodes = [case.graph.nodes[i] for i in support.originals(kernel, support.kernel_nodes(trace))]
    read = {tensor for node in nodes for tensor in node.inputs}
    return [tensor for tensor in kernel.outputs if tensor in read]


def _named(tensors: list[int]) -> str:
    return ", ".join(f"t{tensor}" for tensor in sorted(set(tensors)))


@rule(
    "PART-16",
    Level.MUST,
    "On a graph without a node that it supports, Prepare succeeds and claims nothing; the plan stays as it "
    "was and the results are the CPU's.",
    source="tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels accepts an empty set",
    subject="delegate",
    cases=cases.nothing_to_claim,
)
def claims_nothing_gracefully(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at applications that claimed no node: there was none that the delegate supports."""
    support.need_observation(trace)
    idle = [(i, a) for i, a in support.targets(trace) if not any(r.nodes for r in a.replaces)]
    for position, applied in idle:
        where = f"application {position} ({applied.name})"
        if applied.prepare_status:
            raise Violation("status 0 (kTfLiteOk) of Prepare", f"status {applied.prepare_status}", where)
        if not applied.ok and not support.blame(trace):
            raise Violation("a successful application", applied.message, where)
        if applied.ok and applied.plan_after != applied.plan_seen:
            before, after = ([n.index for n in p] for p in (applied.plan_seen, applied.plan_after))
            raise Violation(f"the plan unchanged, {before}", f"{after}", where, support.draw(case, trace))
    if idle and not support.failure(trace) and not trace.kernels:
        same_bits(case, trace, "the CPU's own results, bit for bit, as no node was claimed")
    return Examined(len(idle), "applications that claimed nothing")
