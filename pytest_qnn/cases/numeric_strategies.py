"""Hypothesis strategies for the rules about numbers: contents, parameters and cuts that show an error.

As in `pytest_qnn.cases.delegate_strategies`, each case is one draw of bytes, zero is the simplest choice,
and a target that cannot be told what to claim is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.delegate import Application, DelegateCase, Fill
from pytest_qnn.cases.delegate_strategies import ELEMENTWISE, SUMS
from pytest_qnn.cases.graph import Activation, Graph, Node, Op, Tensor
from pytest_qnn.cases.graph_constants import float_weights, integers, single
from pytest_qnn.cases.graph_decode import HEADER, RECORD
from pytest_qnn.cases.graph_kinds import Claims, Kind, decode_graph
from pytest_qnn.cases.kinds import and_larger, claimed_kinds, mixed_kinds, need_claims, taken
from pytest_qnn.core.drawing import decoded
from pytest_qnn.facts import LIMITS, DelegateFacts

LONG = 2048
"""Terms of a sum that is long enough to tell half precision from single."""
FUSING: tuple[Op, ...] = ("ADD", "SUB", "MUL", "FULLY_CONNECTED", "CONV_2D")
"""Operators that take a fused activation."""
_WEIGHTED: tuple[Op, ...] = ("FULLY_CONNECTED", "CONV_2D")
_FILLS: tuple[Fill, ...] = ("mixed", "ramp", "extreme")
_EXTRA = 4
"""Bytes after the graph's: shape of the case, seed (2), contents."""
_ZERO_POINT = 7
"""Instead of zero points of 0, which a delegate may ignore without being found."""
_AGAIN: tuple[Literal["interpreter", "process"], ...] = ("interpreter",) * 6 + ("process",)

Make = Callable[[Graph, Claims, int], DelegateCase]
"""(graph, claims, choice 0..255) -> case; seed and contents of the inputs are filled in afterwards."""


def quantised_graphs(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to five int8 nodes, for the target.

    Every second case is a single node with enough elements for statistics on how they are rounded.
    """
    kinds = claimed_kinds(facts, dtypes=("int8",))
    single = tuple(kind._replace(large=True) for kind in kinds)
    return _cases(and_larger(kinds), _alone, 0, max_nodes=5, single=single)


def saturating_graphs(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to three int8 nodes with inputs of -128 and 127 only, for the target."""
    return _cases(claimed_kinds(facts, dtypes=("int8",)), _alone, 0, max_nodes=3, fills=("extreme",))


def per_channel(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One or two int8 nodes: distinct scales for each channel of weights, and zero points that are not 0."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        return DelegateCase(_with_zero_points(_with_channels(graph) if choice < 224 else graph))

    kinds = claimed_kinds(facts, ops=(*_WEIGHTED, "ADD", "SUB", "MUL", "MEAN"), dtypes=("int8",))
    return _cases(kinds, make, 0, max_nodes=2, fills=("mixed", "extreme"))


def activated(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to three nodes, each with a fused activation."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        fused: tuple[Activation, ...] = ("RELU", "RELU6", "RELU6")
        nodes = tuple(
            msgspec.structs.replace(node, activation=fused[(choice >> number) % len(fused)])
            for number, node in enumerate(graph.nodes)
        )
        return DelegateCase(msgspec.structs.replace(graph, nodes=nodes))

    return _cases(claimed_kinds(facts, ops=FUSING), make, 0, max_nodes=3, fills=("mixed", "ramp"))


def special_values(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 node that computes or copies elements, on NaN, infinities, zeros and denormal numbers."""

    def make(graph: Graph, _: Claims, __: int) -> DelegateCase:
        nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
        return DelegateCase(msgspec.structs.replace(graph, nodes=nodes))

    kinds = claimed_kinds(facts, ops=ELEMENTWISE, dtypes=("float32",))
    return _cases(kinds, make, 0, max_nodes=1, fills=("special",))


def cut_anywhere(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs cut into partitions of every kind.

    By a claim, by a probe that takes nodes first, and by a plugin's own limits on partitions.
    """
    need_claims(facts)
    limits = [option for option in LIMITS if facts.limits.get(option, "unknown") == ""]

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        told = facts.steerable and choice & 1
        options = ((limits[choice % len(limits)], str(1 + choice % 3)),) if limits and choice & 4 else ()
        target = Application(claim=claims[0] if told else None, options=options)
        probe = Application("probe", claims[1])
        return DelegateCase(graph, (probe, target) if choice & 2 else (target,))

    return _cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=9)


def revisited(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Inputs A, then B, then A again, on one interpreter."""
    need_claims(facts)

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, invokes=3, reseed=(0, choice + 1, 0))

    return _cases(mixed_kinds(facts), make, 0, max_nodes=6).map(_returning)


def _returning(case: DelegateCase) -> DelegateCase:
    seed = case.data_seed
    return msgspec.structs.replace(case, reseed=(seed, seed + case.reseed[1], seed))


def twice(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The same case on a second interpreter, one in seven in a process of its own."""
    need_claims(facts)

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, invokes=2, again=_AGAIN[choice % len(_AGAIN)])

    return _cases(mixed_kinds(facts), make, 0, max_nodes=6)


def long_sums(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 sum of `LONG` terms of either sign: a mean, a dense layer or a 1 x 1 convolution."""
    claimed_kinds(facts, ops=SUMS, dtypes=("float32",))  # there is one
    known = {kind.op for kind in taken(facts) if kind.dtype == "float32"}
    makers = [make for op, make in _LONG_SUMS.items() if op in known]

    def decode(data: bytes) -> DelegateCase:
        batch, units = 1 + data[1] % 3, 1 + data[2] % 3
        make = makers[data[0] % len(makers)]
        seed = 1 + int.from_bytes(data[3:], "big")
        return DelegateCase(make(batch, units, 1 + seed % 15), data_seed=seed)

    return decoded(5, decode)


def _long_mean(batch: int, _: int, __: int) -> Graph:
    tensors = (Tensor((batch, LONG)), integers((1,)), Tensor((batch,)))
    return Graph(tensors, (Node("MEAN", (0, 1), (2,)),), (0,), (2,))


def _long_dense(batch: int, units: int, seed: int) -> Graph:
    tensors = (Tensor((batch, LONG)), *float_weights((units, LONG), seed, 1), Tensor((batch, units)))
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))


def _long_convolution(batch: int, units: int, seed: int) -> Graph:
    weights = float_weights((units, 1, 1, LONG), seed, 1)
    tensors = (Tensor((1, 1, batch, LONG)), *weights, Tensor((1, 1, batch, units)))
    return Graph(tensors, (Node("CONV_2D", (0, 1, 2), (3,)),), (0,), (3,))


_LONG_SUMS: dict[Op, Callable[[int, int, int], Graph]] = {
    "MEAN": _long_mean,
    "FULLY_CONNECTED": _long_dense,
    "CONV_2D": _long_convolution,
}
"""(batch, units, seed of the weights) -> graph."""


def _with_channels(graph: Graph) -> Graph:
    """The graph with scales s, s/2, s/3, ... of the channels of all int8 weights, and biases to match."""
    tensors = list(graph.tensors)
    for node in graph.nodes:
        if node.op not in _WEIGHTED:
            continue
        value, weights = (tensors[index] for index in node.inputs[:2])
        scales = tuple(single(weights.scales[0] / (1 + unit)) for unit in range(weights.shape[0]))
        zeros = (0,) * len(scales)
        tensors[node.inputs[1]] = msgspec.structs.replace(weights, scales=scales, zero_points=zeros, axis=0)
        for index in node.inputs[2:]:
            steps = tuple(single(value.scales[0] * scale) for scale in scales)
            tensors[index] = msgspec.structs.replace(tensors[index], scales=steps, zero_points=zeros)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def _with_zero_points(graph: Graph) -> Graph:
    """The graph without zero points of 0, but for weights and biases, which must have them."""
    fixed = {index for node in graph.nodes if node.op in _WEIGHTED for index in node.inputs[1:]}
    tensors = tuple(
        msgspec.structs.replace(tensor, zero_points=(_ZERO_POINT,))
        if tensor.zero_points == (0,) and index not in fixed
        else tensor
        for index, tensor in enumerate(graph.tensors)
    )
    return msgspec.structs.replace(graph, tensors=tensors)


def _alone(graph: Graph, _: Claims, __: int) -> DelegateCase:
    return DelegateCase(graph)


def _cases(
    kinds: Sequence[Kind],
    make: Make,
    n_claims: int,
    *,
    min_nodes: int = 1,
    max_nodes: int,
    fills: Sequence[Fill] = _FILLS,
    single: Sequence[Kind] = (),
) -> SearchStrategy[DelegateCase]:
    """Cases decoded from one draw of bytes. ``single``: every second one is a node of these kinds."""
    size = _EXTRA + HEADER + n_claims + max_nodes * (RECORD + (n_claims > 0))

    def decode(data: bytes) -> DelegateCase:
        choice, seed, fill = data[0], int.from_bytes(data[1:3], "big"), fills[data[3] % len(fills)]
        if single and choice & 1:
            graph, claims = decode_graph(data[_EXTRA:], single, n_claims, 1, 1)
            fill = "mixed"
        else:
            graph, claims = decode_graph(data[_EXTRA:], kinds, n_claims, min_nodes, max_nodes)
        return msgspec.structs.replace(make(graph, claims, choice), data_seed=seed, fill=fill)

    return decoded(size, decode)
