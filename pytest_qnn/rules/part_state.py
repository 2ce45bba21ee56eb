"""PART: nodes that must keep their order, by their side effects or by the model's metadata."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qnn.cases import shape_strategies as cases
from pytest_qnn.cases.graph import Graph
from pytest_qnn.cases.script import ScriptCase, flat
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.partition import Delegated, delegate, operators, resources_of
from pytest_qnn.rules import shape_support as support
from pytest_qnn.trace import InterpreterSeen, Kernel, ScriptTrace

_WHAT = "kernels of graphs with an order to keep"


@rule(
    "PART-18",
    Level.MUST,
    "Nodes with side effects, and nodes that the model's metadata put in order, keep their order: none moves "
    "across another, claimed or not.",
    source="tflite/graph_info.cc, control edges; tflite/core/subgraph.cc, OpMightHaveSideEffect",
    subject="delegate",
    cases=cases.stateful,
)
def keeps_the_order(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares the partitions of the main graph with the oracle's, and the results with the CPU's."""
    if trace.order_lost:
        return Examined(0, _WHAT)
    seen = support.applied_interpreter(trace)
    graph = case.graphs[0]
    plan = support.plan_at(seen, len(flat(case.steps)))
    mine = support.target_nodes(seen, plan)
    if (
        not mine
        or len(seen.applied) > 1
        or not (graph.control_edges or any(each.stateful for each in operators(graph).values()))
    ):
        return Examined(0, _WHAT)
    claims = seen.applied[0].claims()
    if graph.control_edges is not None and len(claims) > 1:
        return Examined(0, _WHAT)  # by RT-05 the runtime itself does not keep the order
    _compare(_expected(graph, claims), seen)
    at, failed = support.step_failure(case, trace)
    if failed:
        raise Violation("the graph to run", failed, f"step {at}")
    for reading in support.readings(case, trace, seen):
        reading.check("the CPU's values, with every side effect in its place")
    return Examined(len(mine), _WHAT)


def _expected(graph: Graph, claims: Sequence[tuple[int, ...]]) -> list[Delegated]:
    """The effect of each Replace on the main graph."""
    states = [Delegated(operators(graph), tuple(range(len(graph.nodes))), ())]
    for claim in claims:
        states.append(
            delegate(
                states[-1].nodes,
                states[-1].plan,
                graph.outputs,
                claim,
                edges=graph.control_edges,
                stateful_tensors=resources_of(graph),
            )
        )
    return states[1:]


def _compare(expected: list[Delegated], seen: InterpreterSeen) -> None:
    """Raises Violation where the kernels or the plan of the main graph are others than expected."""
    (applied,) = seen.applied
    made = [
        kernel
        for kernel, step in zip(seen.kernels, seen.kernel_steps, strict=True)
        if step == applied.step and kernel.subgraph == 0
    ]
    wanted = [kernel.nodes for state in expected for kernel in state.kernels]
    if [kernel.nodes for kernel in made] != wanted:
        raise Violation(f"kernels of the nodes {_listed(wanted)}", _nodes(made), applied.name)
    plan = tuple(node.index for node in applied.plan_after)
    if expected and plan != expected[-1].plan:
        raise Violation(f"the plan {list(expected[-1].plan)}", f"{list(plan)}", applied.name)


def _nodes(kernels: list[Kernel]) -> str:
    return _listed([kernel.nodes for kernel in kernels])


def _listed(groups: list[tuple[int, ...]]) -> str:
    return "; ".join(str(list(group)) for group in groups) or "none"
