"""PART: parameters of nodes, options that limit partitions, and the same graph once more.

Cases of the rules on limits and on repeated claims have a twin (`DelegateCase.twin`): the same delegate
without the option, or once more. So what would be claimed is seen and not guessed.
"""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.combinations import combination_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, Kernel

_MOST = "max_delegated_partitions"
_LEAST = "min_nodes_per_partition"
_OPTIONS = "tflite/delegates/utils/simple_delegate.h, SimpleDelegateInterface::Options"


@rule(
    "PART-03",
    Level.MUST,
    "A delegate claims a node only if it implements its operator with the node's types, quantisation, "
    "shapes, fused activation and options: what it claims, it computes.",
    source="tflite/delegates/utils/simple_delegate.h, IsNodeSupportedByDelegate; seed 004, 2.2",
    subject="delegate",
    cases=cases.single_nodes,
)
def implements_what_it_claims(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """One node at a time. Precision is left to NUM: an ignored parameter is off by far more."""
    support.need_work(trace)
    if support.failure(trace) or not support.live_target_kernels(trace):
        return Examined(0, "claimed nodes")
    kind = combination_of(case.graph, case.graph.nodes[0])
    outputs_are_right(case, trace, f"the CPU's values of the claimed node, {kind}", units=0.0)
    return Examined(1, "claimed nodes")


@rule(
    "PART-12",
    Level.MUST,
    f"With the option {_MOST} = N above 0 a delegate has at most N kernels; N of 0 or less is no limit.",
    source=_OPTIONS,
    subject="delegate",
    cases=cases.limited(_MOST, (1, 2, 0, 3, -1)),
    gate=("max_delegated_partitions",),
)
def has_at_most_n_kernels(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graphs of which the delegate makes a kernel, or more of them than N, without the option."""
    most = _value(case, _MOST)
    seen, without = _kernels(trace), trace.twin.kernels if trace.twin else ()
    if most is None or seen is None:
        return Examined(0, "kernels made or left out")
    if len(seen) > most > 0 or (most <= 0 and len(seen) < len(without)):
        expected = f"at most {most} kernels" if most > 0 else f"the {len(without)} kernels of no limit"
        raise Violation(
            f"{expected} with {_MOST}={most}",
            f"{len(seen)} kernels of {_sizes(seen)} nodes",
            f"{len(without)} without the option",
            support.draw(case, trace),
        )
    told = len(without) if most <= 0 else max(0, len(without) - most)
    return Examined(told, "kernels made or left out")


@rule(
    "PART-13",
    Level.MUST,
    f"With the option {_LEAST} = m every kernel of a delegate has at least m nodes.",
    source=f"{_OPTIONS}; tflite/delegates/utils.cc, GraphPartitionHelper::GetFirstNLargestPartitions",
    subject="delegate",
    cases=cases.limited(_LEAST, (2, 3, 1, 4)),
    gate=("min_nodes_per_partition",),
)
def has_kernels_of_m_nodes(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graphs of which the delegate makes a smaller kernel without the option."""
    least = _value(case, _LEAST)
    seen = _kernels(trace)
    if least is None or seen is None or trace.twin is None:
        return Examined(0, "kernels that are too small")
    small = [kernel for kernel in seen if len(kernel.nodes) < least]
    if small:
        raise Violation(
            f"at least {least} nodes in each kernel with {_LEAST}={least}",
            f"{len(small[0].nodes)} nodes, {list(small[0].nodes)}, in kernel {small[0].kernel}",
            f"kernels of {_sizes(seen)} nodes",
            support.draw(case, trace),
        )
    return Examined(sum(len(nodes) < least for nodes in trace.twin.kernels), "kernels that are too small")


@rule(
    "PART-14",
    Level.SHOULD,
    f"With {_MOST} = N below the number of partitions, those with the most nodes are delegated.",
    source="tflite/delegates/utils.cc, GraphPartitionHelper::GetFirstNLargestPartitions",
    subject="delegate",
    cases=cases.limited(_MOST, (1, 1, 2)),
    gate=("max_delegated_partitions",),
)
def delegates_the_largest_partitions(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares numbers of nodes: of partitions of one size any may be taken."""
    most = _value(case, _MOST)
    seen = _kernels(trace)
    if most is None or seen is None or trace.twin is None or len(trace.twin.kernels) <= most:
        return Examined(0, "kernels chosen among more")
    largest = sorted(map(len, trace.twin.kernels), reverse=True)[:most]
    if _sizes(seen) != largest:
        raise Violation(
            f"kernels of {largest} nodes with {_MOST}={most}",
            f"kernels of {_sizes(seen)} nodes",
            f"without the option of {sorted(map(len, trace.twin.kernels), reverse=True)} nodes",
            support.draw(case, trace),
        )
    return Examined(len(seen), "kernels chosen among more")


@rule(
    "PART-17",
    Level.SHOULD,
    "What a delegate claims is a function of the graph: the same graph is claimed alike each time, by "
    "another delegate of the library and by the same one after a resize there and back.",
    source="tflite/core/subgraph.cc, Subgraph::RedoAllDelegates: a delegate is prepared again at any time",
    subject="delegate",
    cases=cases.with_work(cases.twice),
)
def claims_alike_each_time(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Two delegates of one library on two interpreters, one after the other; and each Prepare of one."""
    support.need_work(trace)
    if trace.twin is None or support.failure(trace):
        return Examined(0, "nodes claimed twice")
    claim = support.target_claim(case, trace)
    if claim != trace.twin.claim:
        raise Violation(
            f"the claim {list(trace.twin.claim)} again, as on the first interpreter",
            f"{list(claim)}",
            picture=support.draw(case, trace),
        )
    return Examined(len(claim) + _claims_again(case, trace), "nodes claimed twice")


def _claims_again(case: DelegateCase, trace: DelegateTrace) -> int:
    """The number of nodes that later Prepares claimed, all of them as the first; of kernels seen as made.

    A kernel may take in one that an earlier call of the same Prepare made: the graph's own nodes count.
    """
    own = range(len(case.graph.nodes))
    claims: dict[int, list[set[int]]] = {position: [] for position, _ in support.targets(trace)}
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
                    support.draw(case, trace),
                )
    return sum(len(claim) for _, *later in claims.values() for claim in later)


def _value(case: DelegateCase, option: str) -> int | None:
    """What the option is set to; None in a case from a file that has no number there."""
    given = [value for one in case.applications for key, value in one.options if key == option]
    return int(given[0]) if given and given[0].removeprefix("-").isdecimal() else None


def _kernels(trace: DelegateTrace) -> list[Kernel] | None:
    """The target's kernels; None where an application failed, as with a value that the delegate refuses."""
    support.need_work(trace)
    if trace.twin is None or support.failure(trace):
        return None
    return list(support.target_kernels(trace))


def _sizes(kernels: list[Kernel]) -> list[int]:
    return sorted((len(kernel.nodes) for kernel in kernels), reverse=True)
