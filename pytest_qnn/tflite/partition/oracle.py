"""The partition oracle: which nodes a runtime fuses into which kernel when a delegate claims some.

Source: tensorflow/lite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets, and
Subgraph::ReplaceNodeSubsetsWithDelegateKernels. Like the runtimes, it scans the plan again and again until
nothing joins a subset any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.trace import PlanNode

ABSENT = -1
"""kTfLiteOptionalTensor."""


class Operator(NamedTuple):
    """A node as the partitioner sees it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stateful: bool = False
    """It has side effects: it keeps its place among the other stateful nodes."""


class Subset(NamedTuple):
    """Nodes that run together, in the order in which they joined."""

    claimed: bool
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    """Tensors read but not produced here, constants included: sorted, unique."""
    outputs: tuple[int, ...]
    """Tensors of this subset that other subsets read, and graph outputs: sorted, unique."""


class Delegated(NamedTuple):
    """A graph after one delegate's Replace."""

    nodes: Mapping[int, Operator]
    """Every node ever made, by index; kernels have got the next free indices."""
    plan: tuple[int, ...]
    kernels: tuple[Subset, ...]
    """In the order of their init."""


class Unschedulable(ValueError):  # noqa: N818 - the field's word
    """Some nodes wait for each other: no order of execution exists."""


def operators(graph: Graph) -> dict[int, Operator]:
    """The nodes of a Graph.

    Stateful are those that touch a resource, and IF and WHILE (subgraph.cc, OpMightHaveSideEffect).
    """
    resources = resources_of(graph)
    return {
        index: Operator(
            node.inputs,
            node.outputs,
            node.op in ("IF", "WHILE") or not resources.isdisjoint(node.inputs + node.outputs),
        )
        for index, node in enumerate(graph.nodes)
    }


def resources_of(graph: Graph) -> set[int]:
    """The tensors that stand for resources."""
    return {index for index, tensor in enumerate(graph.tensors) if tensor.dtype == "resource"}


def operators_of_plan(plan: Iterable[PlanNode]) -> dict[int, Operator]:
    """The nodes of a plan as read from a runtime, taken as not stateful."""
    return {node.index: Operator(node.inputs, node.outputs) for node in plan}


def partition(
    nodes: Mapping[int, Operator],
    plan: Sequence[int],
    graph_outputs: Sequence[int],
    claim: Collection[int],
    *,
    greedy: bool = True,
    fuse: bool = True,
    edges: Iterable[tuple[int, int]] | None = None,
) -> tuple[Subset, ...]:
    """Cut ``plan`` into subsets of claimed and of unclaimed nodes, in order of execution.

    Args:
        nodes: at least every node of the plan.
        plan: node indices in order of execution.
        graph_outputs: tensors that must be readable at the end.
        claim: node indices the delegate wants; indices outside the plan do nothing.
        greedy: a subset takes every node of its kind that can run by then; else only a run of
            neighbours (``experimental_disable_delegate_clustering``).
        fuse: False makes a subset of each node (``experimental_disable_delegate_node_fusion``).
        edges: pairs of places in the plan, (before, after), that the model's metadata demand; None: the
            stateful nodes in their order, if greedy.

    Raises:
        Unschedulable: nodes or edges form a cycle.
    """
    if edges is None:
        stateful = [place for place, index in enumerate(plan) if greedy and nodes[index].stateful]
        edges = itertools.pairwise(stateful)
    wanted = set(claim)
    schedule = _Schedule(nodes, plan, [index in wanted for index in plan], set(edges))
    groups = schedule.greedy() if greedy and fuse else schedule.runs(fuse=fuse)
    return _with_boundaries(nodes, plan, groups, wanted, graph_outputs)


def delegate(
    nodes: Mapping[int, Operator],
    plan: Sequence[int],
    graph_outputs: Sequence[int],
    claim: Collection[int],
    *,
    greedy: bool = True,
    fuse: bool = True,
    edges: Iterable[tuple[int, int]] | None = None,
    stateful_tensors: Collection[int] = (),
) -> Delegated:
    """The effect of one call of Replace with ``claim``. An empty claim changes nothing.

    Unclaimed subsets give their nodes back to the plan in the order of the partition, which need not be
    the order they had. A kernel that touches one of ``stateful_tensors`` (resources) is stateful.

    Raises:
        Unschedulable: as `partition`.
    """
    if not claim:
        return Delegated(nodes, tuple(plan), ())
    subsets = partition(nodes, plan, graph_outputs, claim, greedy=greedy, fuse=fuse, edges=edges)
    after = dict(nodes)
    index = max(after, default=-1)
    new_plan: list[int] = []
    kernels = []
    for subset in subsets:
        if not subset.claimed:
            new_plan.extend(subset.nodes)
            continue
        stateful = not set(stateful_tensors).isdisjoint(subset.inputs + subset.outputs)
        index += 1
        after[index] = Operator(subset.inputs, subset.outputs, stateful)
        new_plan.append(index)
        kernels.append(subset)
    return Delegated(after, tuple(new_plan), tuple(kernels))


class _Schedule:
    """Which places of a plan can run when. A place waits for its producers and its control edges."""

    def __init__(
        self,
        nodes: Mapping[int, Operator],
        plan: Sequence[int],
        kinds: list[bool],
        edges: set[tuple[int, int]],
    ) -> None:
        self._kinds = kinds
        self._followers: list[list[int]] = [[] for _ in plan]
        self._waits = [0] * len(plan)
        self._done = [False] * len(plan)
        producer = {
            tensor: place
            for place, index in enumerate(plan)
            for tensor in nodes[index].outputs
            if tensor != ABSENT
        }
        for place, index in enumerate(plan):
            for tensor in nodes[index].inputs:
                if tensor in producer:
                    self._follow(producer[tensor], place)
        for before, after in edges:
            self._follow(before, after)

    def _follow(self, before: int, after: int) -> None:
        self._followers[before].append(after)
        self._waits[after] += 1

    def _runs(self, place: int) -> None:
        """What waits for ``place`` alone can run now."""
        self._done[place] = True
        for after in self._followers[place]:
            self._waits[after] -= 1

    def _ready(self) -> Iterator[int]:
        """Places that can run, in order; those that become ready behind the scan are left to the next."""
        places = range(len(self._done))
        return (place for place in places if not (self._done[place] or self._waits[place]))

    def _check(self) -> None:
        if not all(self._done):
            raise Unschedulable(f"{self._done.count(False)} nodes wait for each other")

    def greedy(self) -> list[list[int]]:
        """Subsets as large as can be: the plan is scanned for nodes of one kind until none joins."""
        groups: list[list[int]] = []
        while (first := next(self._ready(), None)) is not None:
            group: list[int] = []
            size = -1
            while size < len(group):
                size = len(group)
                for place in self._ready():
                    if self._kinds[place] == self._kinds[first]:
                        group.append(place)
                        self._runs(place)
            groups.append(group)
        self._check()
        return groups

    def runs(self, *, fuse: bool) -> list[list[int]]:
        """Subsets of neighbours: the first place that can run, and those right after it of its kind."""
        groups: list[list[int]] = []
        while (place := next(self._ready(), None)) is not None:
            group: list[int] = []
            while place is not None:
                group.append(place)
                self._runs(place)
                place = self._neighbour(place) if fuse else None
            groups.append(group)
        self._check()
        return groups

    def _neighbour(self, place: int) -> int | None:
        """The place that a run goes on with. After the last one the scan starts again at the first."""
        kind = self._kinds[place]
        last = place + 1 == len(self._done)
        wanted = range(len(self._done)) if last else (place + 1,)
        return next((one for one in self._ready() if one in wanted and self._kinds[one] == kind), None)


def _with_boundaries(
    nodes: Mapping[int, Operator],
    plan: Sequence[int],
    groups: list[list[int]],
    wanted: set[int],
    graph_outputs: Sequence[int],
) -> tuple[Subset, ...]:
    """The tensors that cross each group's boundary."""
    home = {
        tensor: number
        for number, group in enumerate(groups)
        for place in group
        for tensor in nodes[plan[place]].outputs
        if tensor != ABSENT
    }
    inputs: list[set[int]] = [set() for _ in groups]
    outputs: list[set[int]] = [set() for _ in groups]
    for number, group in enumerate(groups):
        for place in group:
            for tensor in nodes[plan[place]].inputs:
                if tensor == ABSENT or home.get(tensor) == number:
                    continue
                inputs[number].add(tensor)
                if tensor in home:
                    outputs[home[tensor]].add(tensor)
    for tensor in graph_outputs:
        if tensor in home:
            outputs[home[tensor]].add(tensor)
    return tuple(
        Subset(
            plan[group[0]] in wanted,
            tuple(plan[place] for place in group),
            tuple(sorted(inputs[number])),
            tuple(sorted(outputs[number])),
        )
        for number, group in enumerate(groups)
    )
