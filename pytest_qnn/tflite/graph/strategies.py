"""Hypothesis strategies for graphs. One draw of bytes each: drawing is what costs in Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.tflite.graph.graph import DType, Graph, Op
from pytest_qnn.tflite.graph.kinds import OPS, Claims, decode_graph, size_of
from pytest_qnn.tflite.graph.operators import MAKE

MAX_CLAIMS = 8


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

    return decoded(size, decode)


def _allowed(dtype: DType, ops: Sequence[Op] | None) -> tuple[Op, ...]:
    """The wanted operators, as many for each dtype, so that the dtype shrinks without changing the rest.

    One that the dtype does not have is replaced by the simplest that it has; none at all is an empty tuple.
    """
    wanted = tuple(op for op in MAKE if ops is None or op in ops)
    allowed = tuple(op for op in wanted if op in OPS[dtype])
    return tuple(op if op in allowed else allowed[0] for op in wanted) if allowed else ()


def _first(drawn: tuple[Graph, Claims]) -> Graph:
    return drawn[0]
