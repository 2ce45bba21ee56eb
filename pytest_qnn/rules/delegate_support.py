"""What the delegate rules share: gates, lookups in a trace, and the picture of a partitioning."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Graph
from pytest_qnn.trace import Applied, DelegateTrace, Kernel, PlanNode
from pytest_qnn.verdict import Unsupported, Violation

DELEGATE = 51
"""TfLiteBuiltinOperator of a delegate's kernel."""

KernelMap = dict[int, Kernel]


def need_observation(trace: DelegateTrace) -> None:
    """Raises Unsupported when plans and kernels cannot be read on this runtime."""
    if not trace.observed:
        runtime = trace.facts.runtime if trace.facts else ""
        raise Unsupported(
            f"the private layout of {runtime or 'the runtime'} is not the expected one: no plan"
        )


def need_work(trace: DelegateTrace) -> None:
    """Raises Unsupported when there is no plan to read, or the target failed before it could be judged.

    That it failed is the finding of PART-04 and PART-16, and not of every other rule too.
    """
    need_observation(trace)
    reason = blame(trace)
    if reason:
        raise Unsupported(reason)


def targets(trace: DelegateTrace) -> Iterator[tuple[int, Applied]]:
    """The applications of the target whose Prepare was called, with their positions."""
    return ((i, a) for i, a in enumerate(trace.applied) if a.is_target and a.prepared)


def target_kernels(trace: DelegateTrace) -> tuple[Kernel, ...]:
    """The kernels that delegates of the target made."""
    return tuple(k for k in trace.kernels if trace.applied[k.application].is_target)


def live_kernels(trace: DelegateTrace) -> KernelMap:
    """Kernels that stand in the final plan, by plan node index.

    A kernel node is known by its owner and its boundary tensors: no two kernels share an output.
    """
    known = {(k.application, k.inputs, k.outputs): k for k in trace.kernels}
    return {
        node.index: known[node.owner, node.inputs, node.outputs]
        for node in trace.plan
        if (node.owner, node.inputs, node.outputs) in known
    }


def live_target_kernels(trace: DelegateTrace) -> tuple[Kernel, ...]:
    """The target's kernels that stand in the final plan."""
    return tuple(k for k in live_kernels(trace).values() if trace.applied[k.application].is_target)


def kernel_nodes(trace: DelegateTrace) -> dict[int, Kernel]:
    """Every kernel node index that some application's plan showed, with its kernel."""
    known = {(k.application, k.inputs, k.outputs): k for k in trace.kernels}
    found = {}
    for applied in trace.applied:
        for node in applied.plan_after:
            kernel = known.get((node.owner, node.inputs, node.outputs))
            if kernel is not None:
                found[node.index] = kernel
    return found


def originals(kernel: Kernel, kernels: dict[int, Kernel]) -> tuple[int, ...]:
    """The original nodes that a kernel stands for, kernels it swallowed opened up."""
    opened: list[int] = []
    for node in kernel.nodes:
        inner = kernels.get(node)
        opened += originals(inner, kernels) if inner is not None and inner is not kernel else (node,)
    return tuple(opened)


def statuses(trace: DelegateTrace, kind: str, kernel: Kernel) -> tuple[int, ...]:
    """Statuses of one kind of callback of a kernel, in order."""
    return tuple(e.status for e in trace.events if e.kind == kind and e.kernel == kernel.kernel)


def failure(trace: DelegateTrace) -> str:
    """The first thing that failed in the case, or an empty text."""
    for position, applied in enumerate(trace.applied):
        if not applied.ok:
            return f"application {position} ({applied.name}) failed: {_line(applied.message)}"
    if trace.allocate_error:
        return f"allocate_tensors failed: {_line(trace.allocate_error)}"
    for number, error in enumerate(trace.invoke_errors):
        if error:
            return f"invoke {number} failed: {_line(error)}"
    return ""


def blame(trace: DelegateTrace) -> str:
    """The first failure that a delegate of the target caused, or an empty text.

    A failed ModifyGraphWithDelegate is the delegate's own only when one of its callbacks reported it:
    the runtime may also refuse a delegate because of a failed one before it (RT-01).
    """
    for position, applied in targets(trace):
        if applied.prepare_status and not any(r.status for r in applied.replaces):
            return f"Prepare of application {position} ({applied.name}) returned {applied.prepare_status}"
    for event in trace.events:
        if event.status and event.kind != "Prepare" and trace.applied[event.application].is_target:
            name = trace.applied[event.application].name
            return f"{event.kind} of kernel {event.kernel} ({name}) returned {event.status}"
    return ""


def runs_end_to_end(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raises Violation when the case failed; its probes have no fault, so the target is the cause."""
    seen = blame(trace) or failure(trace)
    if seen:
        raise Violation(
            "every application, allocate_tensors and invoke to succeed", seen, picture=draw(case, trace)
        )


def draw(case: DelegateCase, trace: DelegateTrace) -> str:
    """A drawing of the graph in order of execution: operator, operands, who claimed it, where it runs."""
    kernels = kernel_nodes(trace)
    landed: dict[int, str] = {}
    for number, kernel in live_kernels(trace).items():
        landed |= dict.fromkeys(originals(kernel, kernels), f"kernel {kernel.kernel} (node {number})")
    rows = [("node", "operator", "reads", "writes", "claimed by", "runs in")]
    for index in _execution_order(case.graph, trace.plan, kernels):
        node = case.graph.nodes[index]
        claimed = [a.name for a in trace.applied if any(index in r.nodes for r in a.replaces)]
        rows.append(
            (
                str(index),
                node.op,
                _tensors(node.inputs),
                _tensors(node.outputs),
                ", ".join(claimed) or "-",
                landed.get(index, "CPU"),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(
        [*lines, f"graph inputs {_tensors(case.graph.inputs)}, outputs {_tensors(case.graph.outputs)}"]
    )


def _execution_order(graph: Graph, plan: tuple[PlanNode, ...], kernels: dict[int, Kernel]) -> list[int]:
    order: list[int] = []
    for node in plan:
        order += originals(kernels[node.index], kernels) if node.index in kernels else (node.index,)
    known = [index for index in dict.fromkeys(order) if 0 <= index < len(graph.nodes)]
    return known + [index for index in range(len(graph.nodes)) if index not in set(known)]


def _tensors(indices: tuple[int, ...]) -> str:
    return " ".join(f"t{index}" if index >= 0 else "none" for index in indices) or "-"


def _line(text: str) -> str:
    return " ".join(text.split()) or "(no text)"
