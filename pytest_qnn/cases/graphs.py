"""Hypothesis strategies for graphs. One draw of bytes each: drawing is what costs in Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.combinations import Combination
from pytest_qnn.cases.graph import DType, Graph, Op, Tensor
from pytest_qnn.cases.graph_decode import HEADER, RECORD, Builder
from pytest_qnn.cases.graph_ops import MAKE, Choices

Claims = tuple[tuple[int, ...], ...]

OPS: dict[DType, tuple[Op, ...]] = {
    "float32": tuple(MAKE),
    # NEG: the int8 kernel is missing from tflite-runtime 2.14 (it fails at invoke).
    "int8": tuple(op for op in MAKE if op != "NEG"),
}
"""The operators of generated graphs per dtype, from the simplest to the richest."""

Wants = dict[int, tuple[Combination, ...]]
"""By rank of the first operand: kinds of one operator's nodes, of which a record makes one."""


class Kind(NamedTuple):
    """A kind of graph that bytes are decoded to."""

    dtype: DType
    slots: Sequence[Op | Wants]
    """What a record's operator byte chooses from: an operator in any form, or wanted kinds of node."""
    zero_points: bool | None = None
    """As for `pytest_qnn.cases.graph_decode.Builder`, as is the next."""
    large: bool = False


MAX_CLAIMS = 8
_VARIANTS = 20
_FIRST_EXTRA = 15
"""From this variant of an operator on (one in four), its result is a graph output in any case."""


def graphs(
    *,
    min_nodes: int = 1,
    max_nodes: int = 20,
    ops: Sequence[Op] | None = None,
    dtypes: Sequence[DType] = ("float32", "int8"),
) -> SearchStrategy[Graph]:
    """Valid graphs of ``min_nodes`` to ``max_nodes`` nodes, float32 or int8 throughout.

    They shrink towards few nodes, small shapes, the simplest operators, and the first of ``dtypes``.

    Args:
        min_nodes: at least 1.
        max_nodes: at least ``min_nodes``, at most 1000 (Hypothesis' own limit on one draw).
        ops: the operators to choose from; None: all that both runtimes have for the dtype.
        dtypes: "float32", "int8" or both; one for which no operator is left is passed over.

    Raises:
        ValueError: a number out of range, or no dtype for which an operator is left.
    """
    return graphs_with_claims(0, min_nodes=min_nodes, max_nodes=max_nodes, ops=ops, dtypes=dtypes).map(_first)


def single_op_graphs(
    ops: Sequence[Op] | None = None, dtypes: Sequence[DType] = ("float32", "int8")
) -> SearchStrategy[Graph]:
    """Graphs of exactly one node."""
    return graphs(min_nodes=1, max_nodes=1, ops=ops, dtypes=dtypes)


def graphs_with_claims(
    n_claims: int = 1,
    *,
    min_nodes: int = 1,
    max_nodes: int = 20,
    ops: Sequence[Op] | None = None,
    dtypes: Sequence[DType] = ("float32", "int8"),
) -> SearchStrategy[tuple[Graph, Claims]]:
    """As `graphs`, with ``n_claims`` sets of node indices (ascending, perhaps empty) in the same draw.

    Raises:
        ValueError: as `graphs`, or more than `MAX_CLAIMS` claims.
    """
    if not 1 <= min_nodes <= max_nodes <= 1000:
        raise ValueError(f"no graphs of {min_nodes} to {max_nodes} nodes")
    if not 0 <= n_claims <= MAX_CLAIMS:
        raise ValueError(f"{n_claims} claims are not between 0 and {MAX_CLAIMS}")
    choices = tuple((dtype, allowed) for dtype in dtypes if (allowed := _allowed(dtype, ops)))
    if not choices:
        raise ValueError(f"no operator of {ops} is generated for {' or '.join(dtypes)}")
    size = size_of(max_nodes, n_claims)

    def decode(data: bytes) -> tuple[Graph, Claims]:
        return decode_graph(data, choices, n_claims, min_nodes, max_nodes)

    return st.binary(min_size=size, max_size=size).map(decode)


def size_of(max_nodes: int, n_claims: int) -> int:
    """Bytes that `decode_graph` wants. Hypothesis takes about 2 us for each, so they are few."""
    return HEADER + n_claims + max_nodes * (RECORD + (n_claims > 0))


def decode_graph(
    data: bytes,
    choices: Sequence[Kind | tuple[DType, Sequence[Op]]],
    n_claims: int,
    min_nodes: int,
    max_nodes: int,
) -> tuple[Graph, Claims]:
    """The graph and claims that ``data`` stands for.

    ``choices`` are the kinds of graph, or just dtypes and their operators.
    """
    dtype, slots, zero_points, large = Kind(*choices[data[1] % len(choices)])
    build = Builder(dtype == "int8", data[2], data[3], zero_points=zero_points, large=large)
    modes = data[HEADER : HEADER + n_claims]
    claims: list[list[int]] = [[] for _ in modes]
    extra: list[int] = []
    left = min_nodes + data[0] * (max_nodes - min_nodes + 1) // 256
    stride = RECORD + (n_claims > 0)
    for at in range(HEADER + n_claims, HEADER + n_claims + left * stride, stride):
        number = len(build.nodes)
        left -= 1
        if not data[at] and number + left >= min_nodes:
            continue
        variant, place = divmod(max(data[at] - 1, 0), len(slots))
        slot = slots[place]
        first, second, options = data[at + 1 : at + 4]
        if isinstance(slot, str):
            variant %= _VARIANTS
            MAKE[slot](build, Choices(first, second, options, variant))
        else:
            # Bytes that no other choice hangs on together: their sum is as good as one more byte.
            want = _one_of(slot, build.rank, 31 * first + 17 * second + 7 * options)
            variant = (variant + first + second + options) % _VARIANTS
            MAKE[want.op](build, Choices(first, second, options, variant, want))
        if variant >= _FIRST_EXTRA:
            extra.append(number)
        for k, mode in enumerate(modes):
            if _claimed(data[at + RECORD], k, mode):
                claims[k].append(number)
    graph = build.finish(extra, input_too=data[4] >= 192)
    return graph, tuple(map(tuple, claims))


def _one_of(wants: Wants, rank: int, choice: int) -> Combination:
    """A wanted kind, of a first operand's rank that the graph has to offer where there is such a one."""
    of_rank = wants.get(rank) or next(iter(wants.values()))
    return of_rank[choice % len(of_rank)]


def graph_of(want: Combination, copies: int = 1) -> Graph:
    """The simplest graph of one node of this kind, or of ``copies`` nodes that read the same operands."""
    build = Builder(want.dtype == "int8", 0, 0, zero_points=want.zero_points)
    MAKE[want.op](build, Choices(0, 0, 0, 0, want))
    graph = build.finish([], input_too=False)
    node, result = graph.nodes[0], graph.tensors[graph.nodes[0].outputs[0]]
    first = len(graph.tensors)
    outputs = (*graph.outputs, *range(first, first + copies - 1))
    tensors: tuple[Tensor, ...] = graph.tensors + (result,) * (copies - 1)
    nodes = tuple(msgspec.structs.replace(node, outputs=(output,)) for output in outputs)
    return msgspec.structs.replace(graph, tensors=tensors, nodes=nodes, outputs=outputs)


def _claimed(byte: int, claim: int, mode: int) -> bool:
    """Whether a node is in a claim: about 1/2, 3/4, 1/4 or (almost) all of the nodes are, by ``mode``."""
    one, other = byte >> claim & 1, byte >> (claim + 3) % 8 & 1
    return bool((one, one | other, one & other, byte)[mode & 3])


def _allowed(dtype: DType, ops: Sequence[Op] | None) -> tuple[Op, ...]:
    """The wanted operators, as many for each dtype, so that the dtype shrinks without changing the rest.

    One that the dtype does not have is replaced by the simplest that it has; none at all is an empty tuple.
    """
    wanted = tuple(op for op in MAKE if ops is None or op in ops)
    allowed = tuple(op for op in wanted if op in OPS[dtype])
    return tuple(op if op in allowed else allowed[0] for op in wanted) if allowed else ()


def _first(drawn: tuple[Graph, Claims]) -> Graph:
    return drawn[0]
