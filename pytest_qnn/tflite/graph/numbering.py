"""Numbers of tensors: a model may give its tensors any, and delegates see these numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor


def backwards(graph: Graph) -> Graph:
    """The same graph, whose tensors are numbered from the last one to the first.

    Generated graphs number a tensor when it is made, inputs first, so that no result is tensor 0; here the
    last result is. -1 stays an absent operand. Subgraphs have tensors of their own, and stay as they are.
    """
    return _numbered(graph, range(len(graph.tensors))[::-1])


def ascending(graph: Graph) -> Graph:
    """The same graph with each result numbered above its node's operands; itself where it is so already.

    Tensors are numbered in the order in which nodes name them, and those that none names last.
    """
    if all(result > operand for node in graph.nodes for result in node.outputs for operand in node.inputs):
        return graph
    named = [index for node in graph.nodes for index in (*node.inputs, *node.outputs) if index >= 0]
    order = tuple(dict.fromkeys((*named, *range(len(graph.tensors)))))
    return _numbered(graph, order)


def side_by_side(graphs: Sequence[Graph]) -> Graph:
    """One graph with the nodes of all of them, in order, which share nothing. None has subgraphs."""
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for graph in graphs:
        first = len(tensors)

        def moved(indices: Sequence[int], first: int = first) -> tuple[int, ...]:
            return tuple(index if index < 0 else first + index for index in indices)

        tensors += graph.tensors
        nodes += (
            msgspec.structs.replace(one, inputs=moved(one.inputs), outputs=moved(one.outputs))
            for one in graph.nodes
        )
        inputs += moved(graph.inputs)
        outputs += moved(graph.outputs)
    return Graph(tuple(tensors), tuple(nodes), tuple(inputs), tuple(outputs))


def _numbered(graph: Graph, order: Sequence[int]) -> Graph:
    """The graph with its tensors in this order."""
    number = {old: new for new, old in enumerate(order)} | {-1: -1}

    def anew(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number[index] for index in indices)

    replace = msgspec.structs.replace
    return replace(
        graph,
        tensors=tuple(graph.tensors[old] for old in order),
        nodes=tuple(replace(one, inputs=anew(one.inputs), outputs=anew(one.outputs)) for one in graph.nodes),
        inputs=anew(graph.inputs),
        outputs=anew(graph.outputs),
    )
