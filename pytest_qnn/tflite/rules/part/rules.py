"""PART: what a delegate may claim, and that its kernels compute the partition they were given."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import changed, decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.script import Allocate, AnyScriptStep, ScriptCase, flat
from pytest_qnn.tflite.checks import judging, shapes
from pytest_qnn.tflite.checks.numbers import outputs_are_right, same_bits
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.combinations import combination_of
from pytest_qnn.tflite.graph.control import Bytes, Choice
from pytest_qnn.tflite.graph.decode import HEADER, RECORD
from pytest_qnn.tflite.graph.graph import Graph, Op
from pytest_qnn.tflite.graph.kinds import Claims, decode_graph
from pytest_qnn.tflite.graph.numbering import backwards
from pytest_qnn.tflite.graph.scales import Scale
from pytest_qnn.tflite.partition.oracle import Delegated, delegate, operators, operators_of_plan, resources_of
from pytest_qnn.tflite.strategies import delegates, spied
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, mixed_kinds, need_claims, option_kinds
from pytest_qnn.tflite.strategies.delegates import (
    MILD,
    POISON,
    Factory,
    claimed_alone,
    delegate_cases,
    plain_case,
    probe_application,
    target_application,
)
from pytest_qnn.tflite.strategies.shapes import ONE, claimed_choices, opened_steps, shape_cases, shape_steps
from pytest_qnn.tflite.strategies.spied import CaseStrategy
from pytest_qnn.tflite.trace import (
    DELEGATE,
    Applied,
    DelegateTrace,
    InterpreterSeen,
    Kernel,
    PlanNode,
    ScriptTrace,
)

_MOST = "max_delegated_partitions"
_LEAST = "min_nodes_per_partition"
_OPTIONS = "tflite/delegates/utils/simple_delegate.h, SimpleDelegateInterface::Options"


def single_nodes(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One node of a kind that the target claims, one parameter at a time."""
    need_claims(facts, is_owner=True)
    return delegate_cases(option_kinds(facts), claimed_alone, 0, max_nodes=1, fills=MILD)


@rule(
    "PART-03",
    Level.MUST,
    "A delegate claims a node only if it implements its operator with the node's types, quantisation, "
    "shapes, fused activation and options: the results of claimed nodes are right.",
    source="tflite/delegates/utils/simple_delegate.h, IsNodeSupportedByDelegate; seed 004, 2.2",
    subject="delegate",
    cases=single_nodes,
)
def implements_what_it_claims(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """One node at a time. Precision is left to NUM: an ignored parameter is off by far more."""
    judging.need_work(trace)
    if judging.failure(trace) or not judging.live_target_kernels(trace):
        return Examined(0, "claimed nodes")
    kind = combination_of(case.graph, case.graph.nodes[0])
    outputs_are_right(case, trace, f"the CPU's values of the claimed node, {kind}", units=0.0)
    return Examined(1, "claimed nodes")


def limited(option: str, values: tuple[int, ...]) -> Factory:
    """Graphs that fall into several partitions, with ``option`` at each of ``values`` for the target.

    A target without the option has no such cases: NothingToJudge says how that was learned.
    """

    def cases(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
        need_claims(facts)
        reason = facts.limits.get(option, "it was not learned what options the delegate has")
        if reason:
            raise NothingToJudge(reason, unsupported=True)

        def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
            chosen = _LARGER if len(graph.nodes) > _USUAL else values
            value = str(chosen[choice % len(chosen)])
            target = target_application(facts, claims[0], choice >> 3)
            target = msgspec.structs.replace(target, options=((option, value),))
            parting = claims[1] if choice & 64 else _parting(graph, claims)
            return DelegateCase(graph, (probe_application(parting), target), invokes=0, baseline="plain")

        return delegate_cases(mixed_kinds(facts), make, 2, min_nodes=8, max_nodes=_USUAL, chained=True)

    return cases


def _parting(graph: Graph, claims: Claims) -> tuple[int, ...]:
    """Nodes of a row at equal distances, behind one to three nodes: the first part is of another length."""
    first, distance = (len(claim) % most for claim, most in zip(claims, (3, 4), strict=True))
    return tuple(range(1 + first, len(graph.nodes), 2 + distance))


_USUAL = 20
"""Nodes of a graph that is in no class of many."""
_LARGER = (3, 4, 6, 8, 5)
"""Values for graphs of more nodes."""


@rule(
    "PART-12",
    Level.MUST,
    f"With the option {_MOST} = N above 0 a delegate has at most N kernels; N of 0 or less is no limit.",
    source=_OPTIONS,
    subject="delegate",
    cases=limited(_MOST, (1, 2, 0, 3, -1)),
    gate=("max_delegated_partitions",),
)
def has_at_most_n_kernels(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graphs of which the delegate makes a kernel, or more of them than N, without the option."""
    most = _value(case, _MOST)
    seen, without = _kernels(trace), trace.baseline.kernels if trace.baseline else ()
    if most is None or seen is None:
        return Examined(0, "kernels made or left out")
    if len(seen) > most > 0 or (most <= 0 and len(seen) < len(without)):
        expected = f"at most {most} kernels" if most > 0 else f"the {len(without)} kernels of no limit"
        raise Violation(
            f"{expected} with {_MOST}={most}",
            f"{len(seen)} kernels of {_sizes(seen)} nodes",
            f"{len(without)} without the option",
            judging.draw(case, trace),
        )
    count = len(without) if most <= 0 else max(0, len(without) - most)
    return Examined(count, "kernels made or left out")


@rule(
    "PART-13",
    Level.MUST,
    f"With the option {_LEAST} = m every kernel of a delegate has at least m nodes.",
    source=f"{_OPTIONS}; tflite/delegates/utils.cc, GraphPartitionHelper::GetFirstNLargestPartitions",
    subject="delegate",
    cases=limited(_LEAST, (2, 3, 1, 4)),
    gate=("min_nodes_per_partition",),
)
def has_kernels_of_m_nodes(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graphs of which the delegate makes a smaller kernel without the option."""
    least = _value(case, _LEAST)
    seen = _kernels(trace)
    if least is None or seen is None or trace.baseline is None:
        return Examined(0, "kernels that are too small")
    small = [kernel for kernel in seen if len(kernel.nodes) < least]
    if small:
        raise Violation(
            f"at least {least} nodes in each kernel with {_LEAST}={least}",
            f"{len(small[0].nodes)} nodes, {list(small[0].nodes)}, in kernel {small[0].kernel}",
            f"kernels of {_sizes(seen)} nodes",
            judging.draw(case, trace),
        )
    return Examined(sum(len(nodes) < least for nodes in trace.baseline.kernels), "kernels that are too small")


@rule(
    "PART-14",
    Level.SHOULD,
    f"With {_MOST} = N below the number of partitions, those with the most nodes are delegated.",
    source="tflite/delegates/utils.cc, GraphPartitionHelper::GetFirstNLargestPartitions",
    subject="delegate",
    cases=limited(_MOST, (1, 1, 2)),
    gate=("max_delegated_partitions",),
)
def delegates_the_largest_partitions(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares numbers of nodes: of partitions of one size any may be taken."""
    most = _value(case, _MOST)
    seen = _kernels(trace)
    if most is None or seen is None or trace.baseline is None or len(trace.baseline.kernels) <= most:
        return Examined(0, "kernels chosen among more")
    largest = sorted(map(len, trace.baseline.kernels), reverse=True)[:most]
    if _sizes(seen) != largest:
        raise Violation(
            f"kernels of {largest} nodes with {_MOST}={most}",
            f"kernels of {_sizes(seen)} nodes",
            f"without the option of {sorted(map(len, trace.baseline.kernels), reverse=True)} nodes",
            judging.draw(case, trace),
        )
    return Examined(len(seen), "kernels chosen among more")


def twice(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph, given to the target on two interpreters; it claims what it wants.

    Three cases of four resize an input there and back too, once or more, so that the target claims again.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        target = target_application(facts, claims[0], choice)
        return DelegateCase(graph, (target,), invokes=0, baseline="alone", redo=(choice >> 1) % 4)

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=10)


@rule(
    "PART-17",
    Level.SHOULD,
    "A delegate's claim is a function of the graph: another delegate of the library claims the same nodes, "
    "and so does the same delegate after a resize to another shape and back.",
    source="tflite/core/subgraph.cc, Subgraph::RedoAllDelegates: a delegate is prepared again at any time",
    subject="delegate",
    cases=delegates.with_work(twice),
)
def claims_alike_each_time(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Two delegates of one library on two interpreters, one after the other; and each Prepare of one."""
    judging.need_work(trace)
    if trace.baseline is None or judging.failure(trace):
        return Examined(0, "nodes claimed twice")
    claim = judging.target_claim(case, trace)
    if claim != trace.baseline.claim:
        raise Violation(
            f"the claim {list(trace.baseline.claim)} again, as on the first interpreter",
            f"{list(claim)}",
            picture=judging.draw(case, trace),
        )
    return Examined(len(claim) + _claims_again(case, trace), "nodes claimed twice")


def _claims_again(case: DelegateCase, trace: DelegateTrace) -> int:
    """The number of nodes that later Prepares claimed, all of them as the first; of kernels seen as made.

    A kernel may take in one that an earlier call of the same Prepare made: the graph's own nodes count.
    """
    own = range(len(case.graph.nodes))
    claims: dict[int, list[set[int]]] = {position: [] for position, _ in judging.targets(trace)}
    for event in trace.events:
        if event.application in claims and event.kind == "Prepare":
            claims[event.application].append(set())
        elif event.application in claims and event.kind == "init":
            nodes = trace.kernels[event.kernel].nodes
            claims[event.application][-1].update(index for index in nodes if index in own)
    for position, (first, *later) in claims.items():
        for number, claim in enumerate(later, 1):
            if claim != first:
                raise Violation(
                    f"the claim {sorted(first)} again, as before the resize there and back",
                    f"{sorted(claim)}",
                    f"application {position}, redo {number}",
                    judging.draw(case, trace),
                )
    return sum(len(claim) for _, *later in claims.values() for claim in later)


def _value(case: DelegateCase, option: str) -> int | None:
    """What the option is set to; None in a case from a file that has no number there."""
    given = [value for one in case.applications for key, value in one.options if key == option]
    return int(given[0]) if given and given[0].removeprefix("-").isdecimal() else None


def _kernels(trace: DelegateTrace) -> list[Kernel] | None:
    """The target's kernels; None where an application failed, as with a value that the delegate refuses."""
    judging.need_work(trace)
    if trace.baseline is None or judging.failure(trace):
        return None
    return list(judging.target_kernels(trace))


def _sizes(kernels: list[Kernel]) -> list[int]:
    return sorted((len(kernel.nodes) for kernel in kernels), reverse=True)


def beside_the_cpu(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target between probes, which take no more than a node each in half of the cases: more is left."""

    def left(case: DelegateCase) -> DelegateCase:
        if case.data_seed & 1:
            return case
        fewer = (
            msgspec.structs.replace(one, claim=(one.claim or ())[:1]) if one.who == "probe" else one
            for one in case.applications
        )
        return msgspec.structs.replace(case, applications=tuple(fewer))

    return changed(delegates.between_probes(facts), left)


@rule(
    "PART-05",
    Level.MUST,
    "Every node of the original plan is executed by exactly one entry of the plan: the CPU's node, or one "
    "kernel that replaces it.",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets",
    subject="delegate",
    cases=delegates.with_work(beside_the_cpu),
)
def covers_every_node_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Opens up every kernel of the final plan; looks only at plans with a kernel of the target."""
    judging.need_work(trace)
    live = judging.live_kernels(trace)
    if not judging.live_target_kernels(trace):
        return Examined(0, "nodes")
    kernels = judging.kernel_nodes(trace)
    count: Counter[int] = Counter()
    for node in trace.plan:
        count.update(judging.originals(live[node.index], kernels) if node.index in live else (node.index,))
    for node in trace.plan_before:
        if count[node.index] != 1:
            raise Violation(
                "each node carried out once",
                f"node {node.index} carried out {count[node.index]} times",
                f"plan {[n.index for n in trace.plan]}",
                judging.draw(case, trace),
            )
    return Examined(len(trace.plan_before), "nodes")


@rule(
    "PART-06",
    Level.MUST,
    "Each entry of the plan reads only outputs of earlier entries, graph inputs and constants.",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def orders_by_dependency(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks every plan that an application left behind."""
    judging.need_work(trace)
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
                    judging.draw(case, trace),
                )
            pending.difference_update(node.outputs)
            looked_at += 1
    return Examined(looked_at, "plan entries")


@rule(
    "PART-07",
    Level.MUST,
    "A kernel's input_tensors are the tensors that its nodes read and do not produce: sorted, unique, "
    "including constants, without absent optional inputs.",
    source="tflite/graph_info.cc, NodeSubset.input_tensors",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def names_kernel_inputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares what init received with the operands of the nodes in the plan that Prepare saw."""
    return _boundaries(case, trace, "input")


@rule(
    "PART-08",
    Level.MUST,
    "A kernel's output_tensors are the tensors that its nodes write and that are read outside it or are "
    "graph outputs: sorted and unique.",
    source="tflite/graph_info.cc, NodeSubset.output_tensors",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def names_kernel_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares what init received with the readers of the nodes' results."""
    return _boundaries(case, trace, "output")


def _boundaries(case: DelegateCase, trace: DelegateTrace, side: str) -> Examined:
    judging.need_work(trace)
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
                judging.draw(case, trace),
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
    "Partitions and plan are those of the runtime's algorithm (greedy, in the order of the plan).",
    source="tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets; tflite/partition/oracle.py",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def partitions_like_the_oracle(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares members and boundaries of kernels, their order, and the plan left behind."""
    judging.need_work(trace)
    looked_at = 0
    for position, applied in _modified(trace):
        kernels: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        state = Delegated(operators_of_plan(applied.plan_seen), tuple(n.index for n in applied.plan_seen), ())
        for call in applied.replaces:
            state = delegate(state.nodes, state.plan, case.graph.outputs, call.nodes)
            kernels += [(k.nodes, k.inputs, k.outputs) for k in state.kernels]
        seen = [(k.nodes, k.inputs, k.outputs) for k in trace.kernels if k.application == position]
        where = f"application {position} ({applied.name})"
        if seen != kernels:
            raise Violation(
                f"kernels {_kernel_list(kernels)}", _kernel_list(seen), where, judging.draw(case, trace)
            )
        plan = tuple(node.index for node in applied.plan_after)
        if plan != state.plan:
            raise Violation(f"plan {list(state.plan)}", f"{list(plan)}", where, judging.draw(case, trace))
        looked_at += len(kernels)
    return Examined(looked_at, "kernels")


def _kernel_list(kernels: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]) -> str:
    return "; ".join(f"nodes {list(n)} inputs {list(i)} outputs {list(o)}" for n, i, o in kernels) or "none"


@rule(
    "PART-15",
    Level.SHOULD,
    "A delegate has no more kernels than the runtime makes of all its claimed nodes at once: it does not "
    "split its claim.",
    source="tensorflow.org/lite/performance/implementing_delegate: avoid multiple partitions",
    subject="delegate",
    cases=delegates.with_work(delegates.behind_a_probe),
)
def does_not_split_its_claim(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares the number of kernels with the oracle's for the union of all Replace calls of one Prepare."""
    judging.need_work(trace)
    looked_at = 0
    for position, applied in _modified(trace):
        if not applied.is_target:
            continue
        plan = [node.index for node in applied.plan_seen]
        union = {index for call in applied.replaces for index in call.nodes}
        nodes = operators_of_plan(applied.plan_seen)
        expected = len(delegate(nodes, plan, case.graph.outputs, union).kernels)
        seen = sum(kernel.application == position for kernel in trace.kernels)
        if seen > expected:
            raise Violation(
                f"{expected} kernels for the {len(union)} claimed nodes",
                f"{seen} kernels from {len(applied.replaces)} Replace calls",
                f"application {position} ({applied.name})",
                judging.draw(case, trace, joined=True),
            )
        looked_at += seen
    return Examined(looked_at, "kernels")


def _modified(trace: DelegateTrace) -> list[tuple[int, Applied]]:
    return [(i, a) for i, a in enumerate(trace.applied) if a.ok and any(r.nodes for r in a.replaces)]


_WHAT = "kernels of graphs with an order to keep"


def _ordered(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph with control edges in its metadata."""
    graph = control.elastic(data, choices)
    count, edges = len(graph.nodes), set()
    for at in range(0, len(data.records) - 1, 5):
        first, then = data.records[at] % count, data.records[at + 1] % count
        if first < then:
            edges.add((first, then))
    return msgspec.structs.replace(graph, control_edges=tuple(sorted(edges)))


def stateful(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with variables, with control edges, or with WHILE, for the target; invoked three times."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(shape_steps(seed) for seed in (1, choice[2], choice[3]))
        plain = not graph.subgraphs
        return (*opened_steps(facts, graph, choice[0] if plain else 0), Allocate(ONE), *runs)

    kinds = (control.stateful, _ordered, control.looping)
    return shape_cases(claimed_choices(facts), kinds, steps, nodes=10)


@rule(
    "PART-18",
    Level.MUST,
    "Nodes with side effects, and nodes ordered by the model's metadata (control edges), are claimed or left "
    "to the CPU, and keep their order in either case.",
    source="tflite/graph_info.cc, control edges; tflite/core/subgraph.cc, OpMightHaveSideEffect",
    subject="delegate",
    cases=stateful,
)
def keeps_the_order(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares the partitions of the main graph with the oracle's, and the results with the CPU's."""
    if trace.order_lost:
        return Examined(0, _WHAT)
    _refuses_nothing(trace)
    seen = shapes.applied_interpreter(trace)
    graph = case.graphs[0]
    plan = shapes.plan_at(seen, len(flat(case.steps)))
    mine = shapes.target_nodes(seen, plan)
    if (
        not mine
        or len(seen.applied) > 1
        or not (graph.control_edges or any(each.stateful for each in operators(graph).values()))
    ):
        return Examined(0, _WHAT)
    claims = seen.applied[0].claims()
    if graph.control_edges is not None and len(claims) > 1:
        # RT-05: the runtime uses control edges on a plan that is shorter by then, and loses the order itself.
        return Examined(0, _WHAT)
    _compare(_expected(graph, claims), seen)
    at, failed = shapes.step_failure(case, trace)
    if failed:
        raise FailedCall("the graph to run", failed, f"step {at}")
    for reading in shapes.readings(case, trace, seen):
        reading.check("the CPU's values, with every side effect in its place")
    return Examined(len(mine), _WHAT)


def _refuses_nothing(trace: ScriptTrace) -> None:
    """Raises Violation where Prepare of the target fails by itself: the runtime accepted what it claimed.

    Nodes with side effects that a delegate does not compute are left to the CPU, as any other (PART-04, whose
    graphs have none).
    """
    seen = shapes.the_interpreter(trace)
    for applied in seen.applied:
        refused = any(call.status for call in applied.replaces)
        if applied.is_target and applied.prepared and applied.prepare_status and not refused:
            raise FailedCall(
                "nodes that the delegate does not compute to be left to the CPU",
                f"Prepare of {applied.name} returns {applied.prepare_status}",
                "a graph with side effects, or with an order to keep",
            )


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
    judging.need_observation(trace)
    looked_at = _previewed_from_the_plan(case, trace)
    for position, applied in judging.targets(trace):
        plan = {node.index for node in applied.plan_seen}
        newest = max(plan, default=-1)
        for number, call in enumerate(applied.replaces):
            for index in call.nodes:
                looked_at += 1
                # A second call may also name the kernels that the first one made: they have new indices.
                if index not in plan and not (number and newest < index):
                    raise Violation(
                        f"only indices of the execution plan {sorted(plan)}",
                        f"node {index} in the call with nodes {list(call.nodes)}",
                        f"application {position} ({applied.name}), Replace call {number}",
                        judging.draw(case, trace),
                    )
            if call.status == 0:
                plan -= set(call.nodes)
    if not looked_at:
        judging.need_work(trace)
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
                judging.draw(case, trace),
            )
    return sum(len(a.nodes) for a in trace.spied.asked if trace.applied[a.application].is_target)


@rule(
    "PART-02",
    Level.MUST,
    "A delegate never claims a node whose builtin code is DELEGATE (51) or that another delegate owns.",
    source="tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels; docs/reference/runtimes.md RT-02",
    subject="delegate",
    cases=delegates.behind_a_probe,
)
def leaves_foreign_kernels_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the kernels of earlier delegates that the target's Prepare could see."""
    judging.need_observation(trace)
    looked_at = 0
    for position, applied in judging.targets(trace):
        foreign = {n.index: n for n in applied.plan_seen if n.op == DELEGATE or n.owner >= 0}
        looked_at += len(foreign)
        for call in applied.replaces:
            stolen = [foreign[index] for index in call.nodes if index in foreign]
            if stolen:
                owner = trace.applied[stolen[0].owner].name if stolen[0].owner >= 0 else "another delegate"
                raise Violation(
                    f"no claim on the foreign kernels {sorted(foreign)}",
                    f"node {stolen[0].index}, a kernel of {owner}, among the claimed {list(call.nodes)}",
                    f"application {position} ({applied.name})",
                    judging.draw(case, trace),
                )
    return Examined(looked_at, "kernels of earlier delegates")


def _turned(case: DelegateCase) -> DelegateCase:
    return replace(case, graph=backwards(case.graph)) if case.data_seed & 1 else case


def any_graph(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """As `with_rare`; half of the graphs number their tensors backwards, as for `any_numbers`."""
    return changed(delegates.with_rare(facts), _turned)


@rule(
    "PART-04",
    Level.MUST,
    "A node that the delegate does not support is left to the CPU; it does not fail in Prepare, in kernel "
    "prepare or in invoke.",
    source="tflite/delegates/utils/simple_delegate.h, IsNodeSupportedByDelegate",
    subject="delegate",
    cases=any_graph,
)
def runs_any_graph(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Every node of the graph has to be carried out by somebody, whatever the delegate supports."""
    judging.runs_end_to_end(case, trace)
    return Examined(len(case.graph.nodes), "nodes carried out")


def any_numbers(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """As `routing`; half of the graphs number their tensors backwards, so that a result is tensor 0."""
    return changed(delegates.routing(facts), _turned)


@rule(
    "PART-10",
    Level.MUST,
    "A kernel computes from nodes_to_replace, input_tensors and output_tensors as given, and assumes no "
    "order or number of them.",
    source="tflite/core/c/common.h, TfLiteDelegateParams",
    subject="delegate",
    cases=any_numbers,
)
def computes_what_it_was_given(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at kernels that have a shape to get wrong: two nodes, or two boundary tensors of one side.

    A value sent the wrong way is off by its own magnitude: `outputs_are_right` judges only that.
    """
    judging.need_work(trace)
    kernels = [k for k in judging.live_target_kernels(trace) if _intricate(k)]
    if kernels and not judging.failure(trace):
        outputs_are_right(
            case, trace, "the CPU's values from a kernel with several nodes or boundary tensors"
        )
    return Examined(0 if judging.failure(trace) else len(kernels), "kernels with several nodes or tensors")


def _intricate(kernel: Kernel) -> bool:
    return len(kernel.nodes) > 1 or len(kernel.inputs) > 1 or len(kernel.outputs) > 1


def fan_out(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """As `routing`, invoked twice with different bytes in the outputs beforehand."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        target = target_application(facts, claims[0], choice)
        return DelegateCase(plain_case(graph), (target,), invokes=2, poison=POISON)

    return delegate_cases(mixed_kinds(facts), make, 1, min_nodes=2, max_nodes=16, fills=MILD)


@rule(
    "PART-11",
    Level.MUST,
    "A kernel writes a tensor that is read inside its partition and is also read outside it or is a graph "
    "output.",
    source="tflite/core/c/common.h, TfLiteDelegateParams.output_tensors",
    subject="delegate",
    cases=fan_out,
)
def writes_fan_out_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at output tensors of a kernel that a node of the same kernel reads too.

    Only where outputs were filled before every invoke: what memory holds by chance may be what is expected.
    """
    judging.need_work(trace)
    kernels = judging.live_target_kernels(trace)
    if kernels and all(len(kernel.nodes) == 1 for kernel in kernels):
        raise Unsupported("every kernel of the delegate has one node", final=False)
    shared = [tensor for kernel in kernels for tensor in _read_inside(case, trace, kernel)]
    if judging.failure(trace) or len(case.poison) < len(trace.outputs):
        return Examined(0, _READ_INSIDE)
    if shared:
        expected = f"the fan-out tensors {_named(shared)} written by their kernel"
        if set(shared).issubset(case.graph.outputs):
            outputs_are_right(case, _with_fills_only(case, trace), expected, among=shared)
        else:
            outputs_are_right(case, trace, expected)
    return Examined(len(shared), _READ_INSIDE)


_READ_INSIDE = "outputs read inside their own partition"


def _with_fills_only(case: DelegateCase, trace: DelegateTrace) -> DelegateTrace:
    """The trace with the CPU's values wherever an output is not as it was filled: a kernel wrote something.

    Whether that is the right value is PART-10's question.
    """
    outputs = tuple(
        tuple(_written(one, cpu, fill) for one, cpu in zip(seen, trace.cpu, strict=True))
        for seen, fill in zip(trace.outputs, case.poison, strict=False)
    )
    return replace(trace, outputs=outputs)


def _written(seen: Array, cpu: Array, fill: int) -> Array:
    values, right = seen.numpy(), cpu.numpy()
    if values.shape != right.shape:
        return cpu
    left = np.frombuffer(bytes([fill]) * values.itemsize, values.dtype)
    bits = f"u{values.itemsize}"
    return Array.of(np.where(values.view(bits) == left.view(bits), values, right))


def _read_inside(case: DelegateCase, trace: DelegateTrace, kernel: Kernel) -> list[int]:
    nodes = [case.graph.nodes[i] for i in judging.originals(kernel, judging.kernel_nodes(trace))]
    read = {tensor for node in nodes for tensor in node.inputs}
    return [tensor for tensor in kernel.outputs if tensor in read]


def _named(tensors: list[int]) -> str:
    return ", ".join(f"t{tensor}" for tensor in sorted(set(tensors)))


def nothing_to_claim(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs that leave the target nothing: a probe has taken all; or its claim says so; or as it comes."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        target = Application(claim=() if facts.steerable else None)
        return DelegateCase(graph, (target,) if choice & 1 else (Application("probe"), target))

    return delegate_cases(mixed_kinds(facts), make, 0, max_nodes=6)


@rule(
    "PART-16",
    Level.MUST,
    "On a graph without a node that it supports, Prepare succeeds and claims nothing; the plan is unchanged "
    "and the results are those of the CPU.",
    source="tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels accepts an empty set",
    subject="delegate",
    cases=nothing_to_claim,
)
def claims_nothing_gracefully(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at applications that claimed no node: there was none that the delegate supports."""
    judging.need_observation(trace)
    idle = [(i, a) for i, a in judging.targets(trace) if not any(r.nodes for r in a.replaces)]
    for position, applied in idle:
        where = f"application {position} ({applied.name})"
        if applied.prepare_status:
            raise FailedCall("status 0 (kTfLiteOk) of Prepare", f"status {applied.prepare_status}", where)
        if not applied.ok and not judging.blame(trace):
            raise Violation("a successful application", applied.message, where)
        if applied.ok and applied.plan_after != applied.plan_seen:
            before, after = ([n.index for n in p] for p in (applied.plan_seen, applied.plan_after))
            raise Violation(f"the plan unchanged, {before}", f"{after}", where, judging.draw(case, trace))
    if idle and not judging.failure(trace) and not trace.kernels:
        same_bits(case, trace, "the CPU's own results, bit for bit, as no node was claimed")
    return Examined(len(idle), "applications that claimed nothing")


def previewed(facts: DelegateFacts) -> CaseStrategy:
    """The runtime is asked for the partitions of each claim before it is replaced."""
    return changed(delegates.between_probes(facts), lambda case: replace(case, look=("previews",)))


@rule(
    "PART-19",
    Level.MUST,
    "PreviewDelegatePartitioning and ReplaceNodeSubsetsWithDelegateKernels give the same partitions.",
    source="tflite/core/subgraph.cc, Subgraph::PreviewDelegatePartitioning",
    subject="delegate",
    cases=previewed,
    self_check=True,
)
def previews_truly(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """The suite asks for a preview right before each Replace that a delegate did not preview itself."""
    judging.need_work(trace)
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
                judging.draw(case, trace),
            )
    return Examined(looked_at, "previewed partitions")


@rule(
    "PART-20",
    Level.MUST,
    "A delegate does not use the result of PreviewDelegatePartitioning after Prepare has returned: the "
    "runtime has freed it.",
    source="tflite/core/subgraph.cc, Subgraph::SwitchToKernelContext and FreeDelegatePartitioningData",
    subject="delegate",
    cases=spied.lent_nodes,
    gate=("previews",),
)
def forgets_previews(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies, which are emptied when it returns; the kernels' results must stand."""
    judging.need_callbacks(trace)
    count = trace.spied.previews_invalidated
    if not count:
        raise Unsupported("the delegate asks for no preview of its partitions", final=False)
    if judging.target_kernels(trace):
        expected = "kernels that work without the preview that Prepare was lent"
        judging.works(case, trace, expected)
        if not judging.failure(trace):
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count if judging.target_kernels(trace) else 0, "previews")


def lent_plans(facts: DelegateFacts) -> CaseStrategy:
    """As `lent_nodes`, with probes that ask for a plan of their own after the target."""
    return changed(delegates.before_probes(facts), lambda case: replace(case, look=("lifetimes",)))


@rule(
    "PART-21",
    Level.MUST,
    "A delegate does not use an execution plan once GetExecutionPlan was called again, by any caller.",
    source="tflite/core/c/common.h, note on TfLiteContext.GetExecutionPlan: future calls invalidate earlier "
    "outputs",
    subject="delegate",
    cases=lent_plans,
)
def forgets_old_plans(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies; the next GetExecutionPlan turns their entries into a number that is no node's."""
    judging.need_callbacks(trace)
    for call in trace.spied.stale:
        if judging.of_target(trace, call):
            raise Violation(
                "only nodes of the plan that GetExecutionPlan gave last",
                f"a call of {call.function} with an entry of an earlier one",
                judging.where(trace, call),
                judging.draw(case, trace),
            )
    judging.need_no_conflict(trace.applied)
    count = trace.spied.plans_invalidated
    if count and judging.target_kernels(trace):
        expected = "kernels that work without a plan that is not valid any more"
        failed = judging.failure(trace)
        if trace.allocate_error or any(trace.invoke_errors):
            raise FailedCall(expected, failed, picture=judging.draw(case, trace))
        if not failed:
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count, "plans that a later call made invalid")


_KERNELS = (64, 40) + (24,) * 6
"""Partitions of the target, by eighths of a byte. The first case has the most: every search meets it."""
_RECORDS = 16
"""Of nodes that are drawn: they stand again and again."""
_ENDS: frozenset[Op] = frozenset(("CONCATENATION", "CONV_2D", "MEAN"))
"""Operators that end a chain, or cost too much: RELU stands in their place."""


def many_kernels(facts: DelegateFacts) -> CaseStrategy:
    """A chain of up to 128 nodes, of which a probe has taken each second one: no two of the rest touch."""
    kinds = claimed_kinds(facts)
    head, stride = HEADER + 2, RECORD + 1  # 2: modes of the claims

    def decode(data: bytes) -> DelegateCase:
        nodes = 2 * _KERNELS[data[0] // 32]
        first, records = data[2 : 2 + head], data[2 + head :]
        drawn = bytes(first[:HEADER]) + bytes(2) + (records * -(-nodes // _RECORDS))[: nodes * stride]
        scale = Scale("many kernels", many=True, parted=True, most=nodes, without=_ENDS)
        graph, claims = decode_graph(drawn, kinds, 2, nodes, nodes, scale)
        applications = (probe_application(claims[data[1] & 1]), Application())
        return DelegateCase(plain_case(graph), applications, data_seed=data[1], fill="mixed")

    return decoded(2 + head + _RECORDS * stride, decode)


@rule(
    "PART-22",
    Level.SHOULD,
    "A graph in which a delegate's nodes fall into up to 64 partitions runs: nodes for whose kernels the "
    "delegate has no means are left to the CPU.",
    source=f"{_OPTIONS}: {_MOST} is for a delegate that cannot have a kernel for each partition",
    subject="delegate",
    cases=many_kernels,
    weight=0.2,
)
def runs_many_kernels(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Each second node of a chain is another delegate's. The chain itself, one partition, is the control.

    A delegate that takes as many partitions as it has means for does as it should, and so does one that finds
    none large enough. What it claims must be prepared and carried out.
    """
    judging.runs_end_to_end(case, trace)
    kernels = judging.live_target_kernels(trace)
    if not kernels:
        raise Unsupported("the delegate leaves partitions of one node to the CPU", final=False)
    outputs_are_right(case, trace, f"the CPU's values from {len(kernels)} kernels of the delegate")
    return Examined(len(kernels), "kernels of graphs of many partitions")
