"""PREC: several delegates on one graph, first come, first served."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.partition import operators_of_plan, partition
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right, same_bits
from pytest_qnn.trace import DelegateTrace

_MODIFY = "tflite/core/subgraph.cc, Subgraph::ModifyGraphWithDelegateImpl"


@rule(
    "PREC-01",
    Level.MUST,
    "First come, first served: a node that one delegate has claimed is never carried out by a later one.",
    source=_MODIFY,
    subject="delegate",
    cases=cases.permuted,
    self_check=True,
)
def serves_the_first(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the claims of all successful applications in order."""
    support.need_work(trace)
    owner: dict[int, int] = {}
    for kernel in trace.kernels:
        if trace.applied[kernel.application].ok:
            for index in kernel.nodes:
                first = owner.setdefault(index, kernel.application)
                if first != kernel.application:
                    raise Violation(
                        f"node {index} to stay with application {first}, which claimed it first",
                        f"the node in kernel {kernel.kernel} of application {kernel.application}",
                        picture=support.draw(case, trace),
                    )
    return Examined(
        len(owner) if len(set(owner.values())) > 1 else 0, "nodes claimed beside another delegate's"
    )


@rule(
    "PREC-02",
    Level.MUST,
    "A later delegate sees the kernels of earlier ones as nodes with builtin code 51 and their boundary "
    "tensors.",
    source="tflite/core/subgraph.cc, Subgraph::ReplaceNodeSubsetsWithDelegateKernels",
    subject="delegate",
    cases=cases.permuted,
    self_check=True,
)
def shows_earlier_kernels(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every plan that a later Prepare could read."""
    support.need_work(trace)
    looked_at = 0
    for position, applied in enumerate(trace.applied):
        if not applied.prepared or not all(a.ok for a in trace.applied[:position]):
            continue
        taken = {i for k in trace.kernels if k.application < position for i in k.nodes}
        nodes = support.kernel_nodes(trace)
        expected = [(n, k) for n, k in nodes.items() if k.application < position and n not in taken]
        seen = {node.index: node for node in applied.plan_seen}
        for index, kernel in expected:
            looked_at += 1
            node = seen.get(index)
            if node is None or (node.op, node.inputs, node.outputs) != (
                support.DELEGATE,
                kernel.inputs,
                kernel.outputs,
            ):
                raise Violation(
                    f"node {index}: code 51, inputs {list(kernel.inputs)}, outputs {list(kernel.outputs)}",
                    f"{node}" if node else f"no node {index} in the plan {sorted(seen)}",
                    f"Prepare of application {position} ({applied.name})",
                    support.draw(case, trace),
                )
    return Examined(looked_at, "kernels seen by a later delegate")


@rule(
    "PREC-03",
    Level.MUST,
    "A delegate works as the first, the middle or the last of several, with the same numbers.",
    source=_MODIFY,
    subject="delegate",
    cases=cases.with_work(cases.permuted),
)
def works_in_any_position(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at cases in which both the target and a probe have a kernel in the final plan."""
    support.need_observation(trace)
    support.runs_end_to_end(case, trace)
    live = support.live_kernels(trace).values()
    mine = [k for k in live if trace.applied[k.application].is_target]
    if not mine or len(mine) == len(live):
        return Examined(0, "kernels beside another delegate's")
    outputs_are_right(case, trace, "the CPU's values with kernels of several delegates")
    return Examined(len(mine), "kernels beside another delegate's")


@rule(
    "PREC-04",
    Level.SHOULD,
    "Behind other delegates' kernels a delegate claims of the nodes that are left what it claims alone.",
    source=f"{_MODIFY}; tflite/core/c/common.h, TfLiteContext.GetExecutionPlan",
    subject="delegate",
    cases=cases.beside_foreign_kernels,
)
def claims_what_is_left(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares with the same graph without the probes.

    A partition left out as a whole may be too small, or one too many, for the delegate: that counts only
    where it made as small ones, and more of them, alone.
    """
    support.need_work(trace)
    seen = next((applied.plan_seen for _, applied in support.targets(trace)), ())
    foreign = [node.index for node in seen if node.op == support.DELEGATE]
    if trace.twin is None or support.failure(trace) or not foreign:
        return Examined(0, "nodes left by another delegate")
    remaining = set(trace.twin.claim) & {node.index for node in seen}
    missing = remaining.difference(support.target_claim(case, trace))
    plan = [node.index for node in seen]
    smallest = min(map(len, trace.twin.kernels), default=0)
    many = len(support.target_kernels(trace)) >= len(trace.twin.kernels)
    for part in partition(operators_of_plan(seen), plan, case.graph.outputs, remaining):
        left = sorted(missing.intersection(part.nodes))
        whole = len(left) == len(part.nodes)
        if left and not (whole and (many or len(left) < smallest)):
            raise Violation(
                f"the claim {sorted(remaining)}, as without the foreign kernels {foreign}",
                f"{left} not claimed",
                picture=support.draw(case, trace),
            )
    return Examined(len(remaining), "nodes left by another delegate")


@rule(
    "PREC-06",
    Level.MUST,
    "The failure of a later delegate undoes all earlier ones and leaves a graph that runs on the CPU.",
    source="tflite/core/interpreter.h, note on Interpreter::ModifyGraphWithDelegate",
    subject="delegate",
    cases=cases.before_a_failure,
    self_check=True,
)
def failure_undoes_all(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at cases in which the target was applied and a probe after it failed."""
    support.need_work(trace)
    if trace.applied[-1].ok or not all(applied.ok for applied in trace.applied[:-1]):
        return Examined(0, "kernels undone")
    undone_to_cpu(case, trace)
    return Examined(len(trace.kernels), "kernels undone")


def undone_to_cpu(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raises Violation unless the plan is the original one and gives the CPU's results, bit for bit."""
    before, after = ([(n.index, n.op) for n in plan] for plan in (trace.plan_before, trace.plan))
    if after != before:
        raise Violation(
            f"the original plan {[index for index, _ in before]}",
            f"{[index for index, _ in after]}",
            "after the failed application",
            support.draw(case, trace),
        )
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        raise Violation("the graph to run on the CPU", error, "after the failed application")
    same_bits(case, trace, "the CPU's own results, bit for bit, after the failed application")
