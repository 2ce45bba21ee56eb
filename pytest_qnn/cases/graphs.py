"""Hypothesis strategies for graphs. One draw of bytes each: drawing is what costs in Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.graph import DType, Graph, Op
from pytest_qnn.cases.graph_decode import HEADER, RECORD, Builder
from pytest_qnn.cases.graph_ops import MAKE, Choices

Claims = tuple[tuple[int, ...], ...]

OPS: dict[DType, tuple[Op, ...]] = {
    "float32": tuple(MAKE),
    # NEG: the int8 kernel is missing from tflite-runtime 2.14 (it fails at invoke).
    "int8": tuple(op for op in MAKE if op != "NEG"),
}
"""The operators of generated graphs per dtype, from the simplest to the richest."""

_THRESHOLDS = (127, 31, 0, 223)
"""A node is claimed when its claim byte is above this: about 1/2, 7/8, all, 1/8 of the nodes."""


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
        dtypes: "float32", "int8" or both.

    Raises:
        ValueError: a number out of range, or a dtype for which no operator is left.
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
    """As `graphs`, with ``n_claims`` sets of node indices (ascending, perhaps empty) in the same draw."""
    if not 1 <= min_nodes <= max_nodes <= 1000:
        raise ValueError(f"no graphs of {min_nodes} to {max_nodes} nodes")
    choices = tuple((dtype, _allowed(dtype, ops)) for dtype in dtypes)
    size = HEADER + n_claims + max_nodes * (RECORD + n_claims)

    def decode(data: bytes) -> tuple[Graph, Claims]:
        return decode_graph(data, choices, n_claims, min_nodes, max_nodes)

    return st.binary(min_size=size, max_size=size).map(decode)


def decode_graph(
    data: bytes,
    choices: Sequence[tuple[DType, Sequence[Op]]],
    n_claims: int,
    min_nodes: int,
    max_nodes: int,
) -> tuple[Graph, Claims]:
    """The graph and claims that ``data`` stands for; ``choices`` are the dtypes with their operators."""
    dtype, ops = choices[data[1] % len(choices)]
    build = Builder(dtype == "int8", data[2], data[3])
    claims: list[list[int]] = [[] for _ in range(n_claims)]
    thresholds = [_THRESHOLDS[byte & 3] for byte in data[HEADER : HEADER + n_claims]]
    extra: list[int] = []
    left = min_nodes + int.from_bytes(data[0:1], "big") * (max_nodes - min_nodes + 1) // 256
    stride = RECORD + n_claims
    for at in range(HEADER + n_claims, HEADER + n_claims + left * stride, stride):
        number = len(build.nodes)
        operator = data[at]
        if not operator and number + left > min_nodes:
            left -= 1
            continue
        left -= 1
        MAKE[ops[(operator - 1) % len(ops) if operator else 0]](build, Choices(*data[at + 1 : at + RECORD]))
        if data[at + 4] >= 192:
            extra.append(number)
        for k, threshold in enumerate(thresholds):
            if data[at + RECORD + k] > threshold:
                claims[k].append(number)
    graph = build.finish(extra, input_too=data[4] >= 192)
    return graph, tuple(map(tuple, claims))


def _allowed(dtype: DType, ops: Sequence[Op] | None) -> tuple[Op, ...]:
    """The wanted operators, as many for each dtype, so that the dtype shrinks without changing the rest.

    One that the dtype does not have is replaced by the simplest that it has.
    """
    wanted = tuple(op for op in MAKE if ops is None or op in ops)
    allowed = tuple(op for op in wanted if op in OPS[dtype])
    if not allowed:
        raise ValueError(f"no operator of {ops} is generated for {dtype}")
    return tuple(op if op in allowed else allowed[0] for op in wanted)


def _first(drawn: tuple[Graph, Claims]) -> Graph:
    return drawn[0]
