"""Controls: plain runs of what a case uses, to tell a wrong operator from what the case's rule is about.

Three sizes: each operator of the case's graphs at its plainest, each node alone, each whole graph. A graph is
applied to once, prepared, invoked and destroyed, with no option, probe or further interpreter; the last
controls alone have the history of the case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.cases.plugin import DESTROY, PluginCase
from pytest_qnn.tflite.cases.reduce import is_plain, restricted
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AllocCustom,
    AnyScriptStep,
    Apply,
    AssignCustom,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    ReadCustom,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import Claim, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination, Quantisation, combination_of
from pytest_qnn.tflite.graph.graph import Graph, Tensor
from pytest_qnn.tflite.graph.kinds import graph_of
from pytest_qnn.tflite.graph.operators import SUMS

_SURVIVES = ("RUN-01",)
"""The owner of a process that a plain run ends or blocks."""
_LARGE = ("ERR-04",)
"""The same where kernels of small tensors of the same kind survive: size is what ERR-04 is about."""
_LARGE_FROM = 4096
"""Elements of a tensor that is large."""
_CALLS = (("tflite_plugin_create_delegate", "ABI-02"), ("FreeBufferHandle", "BUF-06"))
"""Of a death in these calls another rule is the owner."""
_ENDS = ((DESTROY, "RUN-01"), *_CALLS)
"""The same of any plain run, whatever its graph is: every case makes and destroys a delegate."""
_FAILS = "PART-04"
"""The owner of a call that fails in a plain run."""
_FEW = 4
"""Nodes that are run repeatedly of a graph that cannot be."""
_NOTHING = Graph((), (), (), ())
_ADDITION = Combination("ADD", "float32", 2)
_ONCE = DelegateCase(_NOTHING)
_AGAIN = DelegateCase(_NOTHING, invokes=2)
_FILLED = DelegateCase(_NOTHING, invokes=2, poison=(0xEE, 0x99))
"""Other bytes in the outputs before each invoke."""
_OTHERS = (1, 2)
_WITH_OTHERS = DelegateCase(_NOTHING, invokes=3, reseed=(1, 2, 1))
"""With the inputs of these seeds by turns."""
_RESIZED = DelegateCase(_NOTHING, redo=3)
"""Often enough that what a repetition adds shows: once more, RELU of RELU is RELU."""
_PARTITIONS = ("PART-11", "PART-10")
"""Owners of a wrong output of a graph whose nodes are right by themselves."""


def controls(case: Any, *, died: bool) -> Iterator[Control]:
    """See `pytest_qnn.core.target.Target.controls`; ``case`` is of any kind that concerns delegates."""
    graphs, seed, fill = _used(case)
    present = map(_with_operands, _flat(graphs))
    each = {msgspec.msgpack.encode(one): one for one in present if not _has_absent_operands(one)}
    alone = [one for graph in each.values() for one in _single_nodes(graph)]
    whole = [graph for graph in each.values() if is_plain(graph)]
    if died:
        made = _of_a_death(alone, whole)
    else:
        made = itertools.chain(
            _of_an_output(alone, whole, seed, _other_seeds(case)), _of_a_history(case, whole or alone[:_FEW])
        )
    known: set[bytes] = set()
    if not died:
        yield from _of_memory(case, [_simplest(kind) for kind in (*_kinds(alone)[:_FEW], _ADDITION)])
    for graph, owners, repeats in made:
        case = msgspec.structs.replace(repeats, graph=graph, data_seed=repeats.data_seed or seed, fill=fill)
        key = msgspec.msgpack.encode((case, owners))
        if key not in known:
            known.add(key)
            yield Control(case, owners, _CALLS)
    if died:
        # No graph of the case may be fit for a plain run. What ends a process in any delegate's life does so
        # with another graph as well; a death in a kernel does not, so this explains calls of `_ENDS` only.
        yield Control(msgspec.structs.replace(_ONCE, graph=_simplest(_ADDITION)), (), _ENDS)


def _of_memory(case: Any, some: Sequence[Graph]) -> Iterator[Control]:
    """Nodes whose results may be in buffers; the same, and the case's graph, in custom memory if it has any.

    What these rules look for is no matter of numbers, so nothing plainer comes before them.
    """
    for graph in some:
        # Where a handle is none, nothing can be said of what is in its buffer, or who copies it.
        yield Control(_run(graph, buffers=True), ("BUF-01",), spoils=True)
        yield Control(_run(graph, buffers=True), ("BUF-02",))
    if not isinstance(case, ScriptCase):
        return
    position = next((step.position for step in case.steps if isinstance(step, AllocCustom)), None)
    if position is not None:
        yield from (Control(_run(graph, position), ("TFL-10",)) for graph in some)
        yield Control(_run(case.graphs[0], position), ("TFL-18",))


def _run(graph: Graph, custom: int | None = None, *, buffers: bool = False) -> ScriptCase:
    """One invoke; ``custom``: with every tensor in custom memory of that delegate, and then without it."""
    placed: list[AnyScriptStep] = []
    if custom is not None:
        border = sorted({*graph.inputs, *graph.outputs})
        tensors = [tensor for tensor in border if graph.tensors[tensor].data is None]
        placed += [AllocCustom(f"c{at}", _bytes(graph.tensors[at]), position=custom) for at in tensors]
        placed += [*(AssignCustom("i0", at, f"c{at}") for at in tensors), Allocate("i0")]
    steps = (*_applied("0", custom or 0, *placed), Poison("i0"), Invoke("i0"), Read("i0"))
    own = tuple(ReadCustom("i0", at) for at in graph.outputs)
    plain = (*_applied("1", custom or 0), Invoke("i1"), Read("i1"))
    return ScriptCase((graph,), (*steps, *own, *plain) if custom is not None else steps, buffers=buffers)


def _applied(name: str, position: int, *placed: AnyScriptStep) -> tuple[AnyScriptStep, ...]:
    """An interpreter with a delegate of its own, ready to be invoked."""
    first = (MakeDelegate(f"d{name}", position=position), Open(f"i{name}"), *placed)
    return (*first, Apply(f"i{name}", f"d{name}"), Allocate(f"i{name}"), SetInputs(f"i{name}"))


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _other_seeds(case: Any) -> tuple[int, ...]:
    """Seeds of the inputs that later invokes have, of the case or of a control."""
    reseed = case.reseed if isinstance(case, DelegateCase) else ()
    return tuple(dict.fromkeys((*_OTHERS, *filter(None, reseed))))


class Owned(NamedTuple):
    """A plain run of a graph, and who owns what goes wrong in it."""

    graph: Graph
    owners: tuple[str, ...]
    repeats: DelegateCase = _ONCE
    """A ``data_seed`` of 0 stands for the case's."""


def _of_a_death(alone: Sequence[Graph], whole: Sequence[Graph]) -> Iterator[Owned]:
    for kind in _kinds(alone):
        yield Owned(_simplest(kind), _SURVIVES)
    for graph in (*alone, *whole):
        sizes = (math.prod(tensor.shape) for tensor in graph.tensors)
        yield Owned(graph, _LARGE if max(sizes) >= _LARGE_FROM else _SURVIVES)


def _of_an_output(
    alone: Sequence[Graph], whole: Sequence[Graph], seed: int, others: Sequence[int]
) -> Iterator[Owned]:
    """From what is plainest on: each adds one thing, and the rule about that thing owns what it breaks.

    ``seed`` is that of the case's inputs, ``others`` are further ones.
    """
    kinds = _kinds(alone)
    for kind in kinds:
        rank = 4 if kind.op == "CONV_2D" else 2
        plainest = _simplest(Combination(kind.op, kind.dtype, rank, quantisation=_plain_scale(kind)))
        yield Owned(plainest, (_FAILS, *_arithmetic(plainest)))
    some = whole or alone[:_FEW]
    # These two compare a run with itself, so that a number that is wrong each time is none of theirs. What a
    # kernel of several nodes does not write is a partition's (PART-11).
    for graph in some:
        yield Owned(graph, ("DET-01",), _AGAIN)
    for graph in alone[:_FEW]:
        yield Owned(graph, ("DET-04",), _FILLED)
    for kind in kinds:
        formed = Combination(kind.op, kind.dtype, kind.rank, "NONE", _plain_scale(kind), form=kind.form)
        yield Owned(_simplest(formed), (_FAILS, "PART-03"))
    for graph in alone:
        yield from _of_a_node(graph)
    for graph in alone[:_FEW]:
        # An end of the range, or an activation, shows with some inputs only.
        for one in _of_a_node(graph):
            for other in others:
                yield one._replace(repeats=msgspec.structs.replace(_ONCE, data_seed=other))
    for graph in whole:
        yield Owned(graph, (_FAILS, *_PARTITIONS, *_owners(graph)))
        for other in others:
            once = msgspec.structs.replace(_ONCE, data_seed=other)
            yield Owned(graph, (_FAILS, *_PARTITIONS, *_owners(graph)), once)
        # Memory that nobody wrote may hold the right values by chance, of a run before.
        yield Owned(graph, _PARTITIONS, _FILLED)
    for graph in some:
        yield Owned(graph, ("DET-02",), _WITH_OTHERS)
        yield Owned(graph, ("DET-02",), msgspec.structs.replace(_WITH_OTHERS, reseed=(1, seed, 1)))
        yield Owned(graph, ("LIFE-02",), _RESIZED)


def _of_a_history(case: Any, some: Sequence[Graph]) -> Iterator[Owned]:
    """The graphs behind the history of the case: what that leaves in results is the affair of one rule."""
    if isinstance(case, DelegateCase) and case.history is not None:
        for graph in some:
            yield Owned(graph, ("DET-02",), msgspec.structs.replace(_WITH_OTHERS, history=case.history))


def _of_a_node(graph: Graph) -> Iterator[Owned]:
    """A node by itself: without activation and zero points, without activation, as it is."""
    common = (_FAILS, *_arithmetic(graph), *_claimed(graph))
    bare = _without_activation(graph)
    barest = _without_zero_points(bare)
    yield Owned(barest, common)
    if bare != barest:
        yield Owned(bare, ("NUM-05", *common))
    if graph != bare:
        yield Owned(graph, ("NUM-06", *common))


_FORMS = frozenset((kind.op, kind.rank, kind.form) for kind in GRID)


def _kinds(alone: Sequence[Graph]) -> list[Combination]:
    """Of the nodes; of those that the grid has, whose ranks end at 4."""
    kinds = (combination_of(graph, graph.nodes[0]) for graph in alone)
    return [kind for kind in kinds if kind is not None and (kind.op, kind.rank, kind.form) in _FORMS]


def _simplest(kind: Combination) -> Graph:
    """The simplest graph of one node with operands of their own: a - a is 0 in any order."""
    graph = graph_of(kind)
    (node,) = graph.nodes
    if len(node.inputs) != 2 or node.inputs[0] != node.inputs[1]:
        return graph
    other = len(graph.tensors)
    return msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, graph.tensors[node.inputs[1]]),
        nodes=(msgspec.structs.replace(node, inputs=(node.inputs[0], other)),),
        inputs=(*graph.inputs, other),
    )


def around(facts: DelegateFacts, case: Any) -> DelegateFacts:
    """The facts as if the target left nodes of the control's kind to the CPU.

    Once nodes of one operator and type were left out at one rank, all of them are: an operator that is
    wrong at two ranks is most often wrong at all.
    """
    if not isinstance(case, DelegateCase) or len(case.graph.nodes) != 1:
        return facts
    kind = combination_of(case.graph, case.graph.nodes[0])
    if kind is None:
        return facts
    known = facts.claims or tuple(Claim(each, "claimed") for each in GRID)
    alike = [claim for claim in known if (claim.kind.op, claim.kind.dtype) == (kind.op, kind.dtype)]
    one_rank = [claim for claim in alike if claim.kind.rank == kind.rank]
    first = all(claim.outcome != "refused" for claim in alike)
    avoided = {id(claim) for claim in (one_rank if first else alike)}
    claims = tuple(Claim(claim.kind, "refused") if id(claim) in avoided else claim for claim in known)
    return facts if claims == known else msgspec.structs.replace(facts, claims=claims)


def _used(case: Any) -> tuple[tuple[Graph, ...], int, Fill]:
    """The case's graphs, and the contents of their inputs."""
    if isinstance(case, ScriptCase):
        return case.graphs, 0, "mixed"
    if isinstance(case, PluginCase):
        return (case.graph,), case.data_seed, "mixed"
    # NaN and infinity are what ERR-04 and NUM-07 are about, the ends of a range NUM-04: not for plain runs.
    return (case.graph,), case.data_seed, case.fill if case.fill == "ramp" else "mixed"


def _flat(graphs: Sequence[Graph]) -> Iterator[Graph]:
    for graph in graphs:
        yield graph
        yield from graph.subgraphs


def _with_operands(graph: Graph) -> Graph:
    """The graph with a bias of zeros for each that is absent, which is what MEM-08 is about."""
    tensors, nodes = list(graph.tensors), []
    for node in graph.nodes:
        if node.op == "FULLY_CONNECTED" and node.inputs[2:] == (-1,):
            nodes.append(msgspec.structs.replace(node, inputs=(*node.inputs[:2], len(tensors))))
            tensors.append(_zeros(*(graph.tensors[tensor] for tensor in node.inputs[:2])))
        else:
            nodes.append(node)
    return msgspec.structs.replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _zeros(operand: Tensor, weights: Tensor) -> Tensor:
    """A bias, int32 where the operand is int8: of its scale times that of each channel."""
    units = weights.shape[:1]
    if operand.dtype != "int8":
        return Tensor(units, data=bytes(4 * units[0]))
    scales = tuple(float(np.float32(operand.scales[0] * scale)) for scale in weights.scales)
    return Tensor(units, "int32", scales, (0,) * len(scales), data=bytes(4 * units[0]))


def _has_absent_operands(graph: Graph) -> bool:
    """Whether the graph has what MEM-08 is about; to leave it out gives another node."""
    return any(-1 in node.inputs for node in graph.nodes)


def _single_nodes(graph: Graph) -> Iterator[Graph]:
    """A graph of each node: of those with one result, no state, and no contents that say a shape."""
    for index, node in enumerate(graph.nodes):
        if len(node.outputs) != 1 or not node.inputs or node.subgraphs or node.variable:
            continue
        alone = restricted(graph, frozenset((index,)), join=False)
        if is_plain(alone):
            yield alone


def _plain_scale(kind: Combination) -> Quantisation:
    return "tensor" if kind.dtype == "int8" else ""


def _without_activation(graph: Graph) -> Graph:
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def _without_zero_points(graph: Graph) -> Graph:
    """The graph with zero points of 0, and with the first channel's scale for all."""
    tensors = tuple(
        msgspec.structs.replace(each, scales=each.scales[:1], zero_points=(0,) * len(each.zero_points[:1]))
        for each in graph.tensors
    )
    return msgspec.structs.replace(graph, tensors=tensors)


def _arithmetic(graph: Graph) -> tuple[str, ...]:
    """Owners of wrong numbers of one node, whatever its form is."""
    node = graph.nodes[0]
    if graph.tensors[node.outputs[0]].dtype == "int8":
        return ("NUM-03", "NUM-04")
    return ("NUM-02", "NUM-08") if node.op in SUMS else ("NUM-10", "NUM-01", "NUM-07")


def _claimed(graph: Graph) -> tuple[str, ...]:
    """Owners of wrong numbers of a node whose operator is right at its plainest."""
    return ("PART-03", "NUM-09", *(("NUM-07",) if _arithmetic(graph)[0] == "NUM-02" else ()))


def _owners(graph: Graph) -> tuple[str, ...]:
    """The rules that own wrong numbers of a graph whose operators are right at their plainest.

    The most particular first: what an activation, a scale, an end of the range or a partition does.
    """
    written = {graph.tensors[tensor].dtype for node in graph.nodes for tensor in node.outputs}
    sums = any(node.op in SUMS for node in graph.nodes)
    owners = (
        ("NUM-06", any(node.activation != "NONE" for node in graph.nodes)),
        ("NUM-05", any(len(set(each.scales)) > 1 or any(each.zero_points) for each in graph.tensors)),
        ("NUM-03", "int8" in written),
        ("NUM-04", "int8" in written),
        ("NUM-02", "float32" in written and sums),
        ("NUM-10", "float32" in written),
        ("NUM-08", "float32" in written and sums),
        ("PART-03", True),
        ("NUM-01", "float32" in written),
        ("NUM-07", "float32" in written),
        ("NUM-09", True),
    )
    return tuple(rule for rule, concerned in owners if concerned)
