"""PART: how the runtime partitions. The delegate's part is one claim for all it supports (PART-15)."""

from __future__ import annotations

from collections import Counter

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.partition import Delegated, delegate, operators_of_plan
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.trace import Applied, DelegateTrace, Kernel, PlanNode


@rule(
    "PART-05",
    Level.MUST,
    "Every node of the original plan is carried out by exactly one entry of the plan: the CPU's node or one "
    "kernel that replaces it.",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets",
    subject="delegate",
    cases=cases.with_work(cases.between_probes),
)
def covers_every_node_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Opens up every kernel of the final plan; looks only at plans with a kernel of the target."""
    support.need_work(trace)
    live = support.live_kernels(trace)
    if not support.live_target_kernels(trace):
        return Examined(0, "nodes")
    kernels = support.kernel_nodes(trace)
    count: Counter[int] = Counter()
    for node in trace.plan:
        count.update(support.originals(live[node.index], kernels) if node.index in live else (node.index,))
    for node in trace.plan_before:
        if count[node.index] != 1:
            raise Violation(
                "each node carried out once",
                f"node {node.index} carried out {count[node.index]} times",
                f"plan {[n.index for n in trace.plan]}",
                support.draw(case, trace),
            )
    return Examined(len(trace.plan_before), "nodes")


@rule(
    "PART-06",
    Level.MUST,
    "Each entry of the plan reads only what earlier entries write, graph inputs and constants.",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets",
    subject="delegate",
    cases=cases.between_probes,
    self_check=True,
)
def orders_by_dependency(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks every plan that an application left behind."""
    support.need_work(trace)
    produced = {tensor for node in case.graph.nodes for tensor in node.outputs}
    looked_at = 0
    for position, applied in _modified(trace):
        pending = set(produced)
        for node in applied.plan_after:
            early = pending.intersection(node.inputs)
            if early:
                raise Violation(
                    "inputs written by earlier entries",
                    f"entry {node.index} reads t{min(early)} before it is written",
                    f"plan {[n.index for n in applied.plan_after]} after application {position}",
                    support.draw(case, trace),
                )
            pending.difference_update(node.outputs)
            looked_at += 1
    return Examined(looked_at, "plan entries")


@rule(
    "PART-07",
    Level.MUST,
    "A kernel's input_tensors are the tensors that its nodes read and do not produce: sorted, unique, "
    "constants included, absent optional ones not.",
    source="tflite/graph_info.cc, NodeSubset.input_tensors",
    subject="delegate",
    cases=cases.between_probes,
    self_check=True,
)
def names_kernel_inputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares what init received with the operands of the nodes in the plan that Prepare saw."""
    return _boundaries(case, trace, "input")


@rule(
    "PART-08",
    Level.MUST,
    "A kernel's output_tensors are the tensors its nodes write that are read outside it or are graph "
    "outputs: sorted and unique.",
    source="tflite/graph_info.cc, NodeSubset.output_tensors",
    subject="delegate",
    cases=cases.between_probes,
    self_check=True,
)
def names_kernel_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares what init received with the readers of the nodes' results."""
    return _boundaries(case, trace, "output")


def _boundaries(case: DelegateCase, trace: DelegateTrace, side: str) -> Examined:
    support.need_work(trace)
    looked_at = 0
    for kernel in trace.kernels:
        plan = {node.index: node for node in trace.applied[kernel.application].plan_seen}
        if not plan.keys() >= set(kernel.nodes):
            continue  # it took in a kernel that an earlier call of the same Prepare had made
        expected = _inputs(kernel, plan) if side == "input" else _outputs(case, kernel, plan)
        seen = kernel.inputs if side == "input" else kernel.outputs
        if seen != expected:
            raise Violation(
                f"{side}_tensors {list(expected)}",
                f"{list(seen)}",
                f"kernel {kernel.kernel} of nodes {list(kernel.nodes)}",
                support.draw(case, trace),
            )
        looked_at += len(seen)
    return Examined(looked_at, f"kernel {side} tensors")


def _inputs(kernel: Kernel, plan: dict[int, PlanNode]) -> tuple[int, ...]:
    written = {tensor for index in kernel.nodes for tensor in plan[index].outputs}
    read = {tensor for index in kernel.nodes for tensor in plan[index].inputs if tensor >= 0}
    return tuple(sorted(read - written))


def _outputs(case: DelegateCase, kernel: Kernel, plan: dict[int, PlanNode]) -> tuple[int, ...]:
    written = {tensor for index in kernel.nodes for tensor in plan[index].outputs}
    outside = {tensor for index in plan.keys() - set(kernel.nodes) for tensor in plan[index].inputs}
    return tuple(sorted(written & (outside | set(case.graph.outputs))))


@rule(
    "PART-09",
    Level.MUST,
    "Partitions and plan are those of the runtime's documented algorithm (greedy, in the order of the plan).",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets; oracle/partition.py",
    subject="delegate",
    cases=cases.between_probes,
    self_check=True,
)
def partitions_like_the_oracle(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares members and boundaries of kernels, their order, and the plan left behind."""
    support.need_work(trace)
    looked_at = 0
    for position, applied in _modified(trace):
        kernels: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        state = Delegated(operators_of_plan(applied.plan_seen), tuple(n.index for n in applied.plan_seen), ())
        for replace in applied.replaces:
            state = delegate(state.nodes, state.plan, case.graph.outputs, replace.nodes)
            kernels += [(k.nodes, k.inputs, k.outputs) for k in state.kernels]
        seen = [(k.nodes, k.inputs, k.outputs) for k in trace.kernels if k.application == position]
        where = f"application {position} ({applied.name})"
        if seen != kernels:
            raise Violation(f"kernels {_kernels(kernels)}", _kernels(seen), where, support.draw(case, trace))
        plan = tuple(node.index for node in applied.plan_after)
        if plan != state.plan:
            raise Violation(f"plan {list(state.plan)}", f"{list(plan)}", where, support.draw(case, trace))
        looked_at += len(kernels)
    return Examined(looked_at, "kernels")


def _kernels(kernels: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]) -> str:
    return "; ".join(f"nodes {list(n)} inputs {list(i)} outputs {list(o)}" for n, i, o in kernels) or "none"


@rule(
    "PART-15",
    Level.SHOULD,
    "A delegate has no more kernels than the runtime makes of its claim as a whole: it does not split it.",
    source="tensorflow.org/lite/performance/implementing_delegate: avoid multiple partitions",
    subject="delegate",
    cases=cases.with_work(cases.behind_a_probe),
)
def does_not_split_its_claim(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares the number of kernels with the oracle's for the union of all Replace calls of one Prepare."""
    support.need_work(trace)
    looked_at = 0
    for position, applied in _modified(trace):
        if not applied.is_target:
            continue
        plan = [node.index for node in applied.plan_seen]
        union = {index for replace in applied.replaces for index in replace.nodes}
        nodes = operators_of_plan(applied.plan_seen)
        expected = len(delegate(nodes, plan, case.graph.outputs, union).kernels)
        seen = sum(kernel.application == position for kernel in trace.kernels)
        if seen > expected:
            raise Violation(
                f"{expected} kernels for the {len(union)} claimed nodes",
                f"{seen} kernels from {len(applied.replaces)} Replace calls",
                f"application {position} ({applied.name})",
                support.draw(case, trace, joined=True),
            )
        looked_at += seen
    return Examined(looked_at, "kernels")


def _modified(trace: DelegateTrace) -> list[tuple[int, Applied]]:
    return [(i, a) for i, a in enumerate(trace.applied) if a.ok and any(r.nodes for r in a.replaces)]
