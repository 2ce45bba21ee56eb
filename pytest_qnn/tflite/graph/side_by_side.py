"""Several graphs in one model, none of which reads what another one computes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims


def side_by_side(parts: Sequence[tuple[Graph, Claims]]) -> tuple[Graph, Claims]:
    """One graph of them all, with the nodes, inputs and outputs of each behind those of the one before.

    Args:
        parts: at least one, with as many claims each; without subgraphs and control edges.
    """
    whole, claims = parts[0]
    for graph, others in parts[1:]:
        tensors, nodes = len(whole.tensors), len(whole.nodes)
        moved = tuple(
            msgspec.structs.replace(
                node,
                inputs=tuple(index + tensors if index >= 0 else index for index in node.inputs),
                outputs=tuple(index + tensors for index in node.outputs),
            )
            for node in graph.nodes
        )
        claims = tuple(
            (*own, *(node + nodes for node in added)) for own, added in zip(claims, others, strict=True)
        )
        whole = msgspec.structs.replace(
            whole,
            tensors=whole.tensors + graph.tensors,
            nodes=whole.nodes + moved,
            inputs=whole.inputs + tuple(index + tensors for index in graph.inputs),
            outputs=whole.outputs + tuple(index + tensors for index in graph.outputs),
        )
    return whole, claims
