"""TFL: custom memory beyond the inputs and outputs of one small graph.

Tensors between partitions, models of many nodes and of megabytes, and several interpreters in one memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Close,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims, decode_graph, joined, size_of
from pytest_qnn.tflite.graph.scales import CLASSES, NONE, SOME_PARTITIONS, scale_of
from pytest_qnn.tflite.qnn_delegate.rules import assigned, judged, works
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, mixed_kinds, need_claims
from pytest_qnn.tflite.trace import ScriptTrace

Steps = tuple[AnyScriptStep, ...]
Cases = SearchStrategy[ScriptCase]
_CHOICE = 3
_NODES = 6
_NODES_OF_PARTITIONS = 14
_MANY_NODES = 18
"""Three times as many where a graph is of the class "many nodes"."""
_LARGE = ("many nodes", "many partitions", "1 MiB", "1 MiB", "1 MiB")
"""Classes that small models are not of; of "1 MiB" a graph has one node, which may hide what is wrong."""
_EVERY_CLASS = [*_LARGE, *(scale.name for scale in CLASSES)]
_SEED = "seed 000"


class _Model:
    """A graph, what is claimed of it, and some of its tensors with a buffer each."""

    def __init__(
        self, facts: DelegateFacts, graph: Graph, claims: Claims, choice: bytes, tensors: list[int]
    ) -> None:
        self.graph = graph
        self.choice = choice
        self.tensors = tensors
        self._position = facts.custom_memory
        self._claim = claims[0] if facts.steerable else None

    def delegate(self, name: str) -> MakeDelegate:
        """A new one, with the case's claim where it can be given."""
        return MakeDelegate(name, position=self._position, claim=self._claim)

    def alloc(self) -> Steps:
        """A buffer for each of the tensors."""
        return tuple(
            AllocCustom(f"c{tensor}", self._size(tensor), position=self._position, seed=tensor)
            for tensor in self.tensors
        )

    def placed(self, interpreter: str, delegate: str) -> Steps:
        """The interpreter, with its tensors in the buffers, and the delegate."""
        assign = tuple(AssignCustom(interpreter, tensor, f"c{tensor}") for tensor in self.tensors)
        return (
            Open(interpreter),
            *assign,
            Allocate(interpreter),
            Apply(interpreter, delegate),
            Allocate(interpreter),
        )

    def plain(self) -> Steps:
        """The same graph on another interpreter, ``i1``, without custom memory."""
        return (self.delegate("d1"), Open("i1"), Apply("i1", "d1"), Allocate("i1"), *use("i1", 0))

    def _size(self, tensor: int) -> int:
        described = self.graph.tensors[tensor]
        return prod(described.shape) * np.dtype(described.dtype).itemsize


def use(interpreter: str, seed: int) -> Steps:
    """Set the inputs, invoke, read the outputs."""
    return (SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))


Pick = Callable[[Graph], list[int]]
"""The tensors of a graph that can have a buffer."""


def _between(graph: Graph) -> list[int]:
    """What nodes leave for other nodes: no outputs of the graph."""
    return [
        tensor
        for node in graph.nodes
        for tensor in node.outputs
        if tensor not in graph.outputs and graph.tensors[tensor].data is None
    ]


def _border(graph: Graph) -> list[int]:
    """Inputs and outputs of the graph."""
    border = sorted({*graph.inputs, *graph.outputs})
    return [tensor for tensor in border if graph.tensors[tensor].data is None]


def _cases(
    facts: DelegateFacts,
    pick: Pick,
    make: Callable[[_Model], Steps],
    nodes: int,
    scales: Sequence[str],
    *,
    early: bool = False,
) -> Cases:
    """``scales``: names of classes of graphs; as many cases are of each as of none, which are small.

    ``early``: nodes of two operands read one that was computed early, which is in two kernels then.

    Raises:
        NothingToJudge: the delegate offers no custom memory, or claims nothing.
    """
    if facts.custom_memory < 0:
        raise NothingToJudge("the delegate offers no custom memory", unsupported=True)
    need_claims(facts)
    # A case's claim leaves nodes to the CPU; a target that takes what it likes is given some that it refuses.
    kinds = claimed_kinds(facts) if facts.steerable else mixed_kinds(facts)

    def decode(data: bytes) -> ScriptCase:
        which = data[0] * (len(scales) + 1) // 256
        scale = scale_of(255, nodes, scales[which - 1 : which]) if which else NONE
        drawn = data[1 + _CHOICE :]
        graph, claims = decode_graph(joined(drawn, 1) if early else drawn, kinds, 1, 2, nodes, scale)
        tensors = pick(graph)
        mask = data[1] | data[2] << 8
        some = [tensor for at, tensor in enumerate(tensors) if mask >> at % 16 & 1]
        model = _Model(facts, graph, claims, data[1 : 1 + _CHOICE], some or tensors)
        return ScriptCase((graph,), (*make(model), *model.plain()))

    return decoded(1 + _CHOICE + size_of(nodes, 1), decode)


def _twice(model: _Model) -> Steps:
    """Two invokes with other inputs."""
    return (
        model.delegate("d0"),
        *model.alloc(),
        *model.placed("i0", "d0"),
        *use("i0", 0),
        *use("i0", 1),
    )


def between_partitions(facts: DelegateFacts) -> Cases:
    """Tensors between nodes, of graphs that are claimed in part."""
    return _cases(facts, _between, _twice, _NODES_OF_PARTITIONS, [SOME_PARTITIONS], early=True)


@rule(
    "TFL-17",
    Level.SHOULD,
    "A tensor between two partitions, or between a partition and the CPU, may be in custom memory.",
    source=f"{_SEED} (specified tensors, usually graph inputs and outputs)",
    subject="delegate",
    cases=between_partitions,
    gate=("custom memory",),
)
def takes_tensors_between_partitions(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the results of two invokes, where tensors at the border of kernels are in custom memory.

    What such a tensor holds shows in the results: a node of the CPU or another kernel reads it there.
    """
    count = judged(case, trace)
    if count:
        works(case, trace, "right results with tensors between partitions in custom memory")
    return Examined(count, "tensors at borders of partitions in custom memory")


def large_models(facts: DelegateFacts) -> Cases:
    """Graphs of all classes of size: fifty nodes in one partition and in many, tensors of a mebibyte, ..."""

    def every(graph: Graph) -> list[int]:
        return [*_border(graph), *_between(graph)]

    return _cases(facts, every, _twice, _MANY_NODES, _EVERY_CLASS)


@rule(
    "TFL-18",
    Level.MUST,
    "Custom memory works in models of fifty nodes and of megabytes as in small ones.",
    source=f"{_SEED}, the output (128 nodes); a model with huge graph input/output benefits the most",
    subject="delegate",
    cases=large_models,
    gate=("custom memory",),
)
def works_in_large_models(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the results of two invokes; any of a graph's tensors that are no constants may be placed."""
    count = judged(case, trace)
    if count:
        works(case, trace, "right results, however large the model is")
    return Examined(count, "tensors of partitions in custom memory")


def shared_by_interpreters(facts: DelegateFacts) -> Cases:
    """Two interpreters whose tensors are in the same buffers, used by turns; then one of them ends.

    They have a delegate each, or one for both.
    """

    def make(model: _Model) -> Steps:
        one = bool(model.choice[2] & 1)
        delegates: Steps = (model.delegate("d0"),) if one else (model.delegate("d0"), model.delegate("d2"))
        turns = (*use("i0", 0), *use("i2", 1), *use("i0", 2), *use("i2", 3))
        return (
            *delegates,
            *model.alloc(),
            *model.placed("i0", "d0"),
            *model.placed("i2", "d0" if one else "d2"),
            *turns,
            Close("i0"),
            *use("i2", 4),
        )

    return _cases(facts, _border, make, _NODES, ["many partitions"])


@rule(
    "TFL-19",
    Level.SHOULD,
    "Tensors of several interpreters may be in the same custom memory, used one after the other, and the end "
    "of one interpreter leaves the others' tensors there.",
    source=f"{_SEED}, steps 1 and 4 (the memory is the user's, and of no interpreter)",
    subject="delegate",
    cases=shared_by_interpreters,
    gate=("custom memory",),
)
def serves_several_interpreters(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the results of both, read right after each invoke, and of the second one when the first ended.

    A delegate that refuses a second interpreter is not judged (PREC-08).
    """
    count = judged(case, trace)
    other = scripts.view(case, trace, "i2")
    if not count or other is None:
        return Examined(0, _SHARED)
    if len(_delegates(case)) < 3 and not all(each.ok for each in other[1].applied):
        return Examined(0, _SHARED)
    wanted = "right results in memory that two interpreters share"
    works(case, trace, wanted)
    failed = judging.failure(other[1])
    if failed:
        raise Violation(wanted, failed, "interpreter i2", judging.draw(*other))
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Read) and step.interpreter == "i2" and seen.ok and seen.cpu:
            until = scripts.view(case, trace, "i2", upto=number + 1)
            if until is not None:
                outputs_are_right(*until, wanted)
    return Examined(len(set(assigned(case, trace)) & set(assigned(case, trace, "i2"))), _SHARED)


_SHARED = "tensors of two interpreters in one memory"


def _delegates(case: ScriptCase) -> set[str]:
    return {step.delegate for step in case.steps if isinstance(step, MakeDelegate)}
