"""Variants of nodes that few delegates compute, and that the grid of kinds does not hold.

A delegate that checks an operator, and not all of a node's parameters, takes them for what it knows. What
they compute is not judged: they are for rules about who carries a node out.
"""

from __future__ import annotations

import msgspec

from pytest_qnn.tflite.graph.constants import (
    SYMMETRIC,
    activation,
    float_weights,
    int8_weights,
)
from pytest_qnn.tflite.graph.graph import Graph, Node

_IMAGE = (1, 3, 3, 4)
_GROUPED = ((4, 2, 2, 2), (4, 2, 2, 1), (8, 1, 1, 2))
"""Weights of a CONV_2D for fewer channels than the image has: convolutions in two groups or four."""


def with_grouped(graph: Graph, place: int, choice: int) -> Graph:
    """The graph with a CONV_2D in groups that has an input and an output of the graph to itself.

    Args:
        graph: of float32 or of int8.
        place: number of the new node, up to the number of nodes there are; those from there on move up.
        choice: of the weights' shape.
    """
    params = SYMMETRIC[0] if any(tensor.dtype == "int8" for tensor in graph.tensors) else None
    shape = _GROUPED[choice % len(_GROUPED)]
    layer = (
        float_weights(shape, choice % 16, 1)
        if params is None
        else int8_weights(shape, choice % 16, params[0], False)
    )
    image, weights, bias, result = range(len(graph.tensors), len(graph.tensors) + 4)
    of_result = (*_IMAGE[:3], shape[0])
    node = Node("CONV_2D", (image, weights, bias), (result,))
    return msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, activation(_IMAGE, params), *layer, activation(of_result, params)),
        nodes=(*graph.nodes[:place], node, *graph.nodes[place:]),
        inputs=(*graph.inputs, image),
        outputs=(*graph.outputs, result),
    )
