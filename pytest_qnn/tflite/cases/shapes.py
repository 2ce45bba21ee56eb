"""The same graph with shorter tensors: how a case of a large one becomes small."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np
from msgspec.structs import replace

from pytest_qnn.tflite.graph.graph import Graph, Tensor

Shape = tuple[int, ...]
_ELEMENTWISE: Final = frozenset(("ADD", "SUB", "MUL", "MAXIMUM", "RELU", "ABS", "NEG", "PRELU"))
_SHORT: Final = 2


def shorter(graph: Graph) -> Iterator[Graph]:
    """Graphs with shorter dimensions, the shortest first; none where a node does more than elements.

    All activations of such a graph have one shape, and constants broadcast to it.
    """
    shapes = {tensor.shape for tensor in graph.tensors if tensor.data is None}
    elementwise = all(node.op in _ELEMENTWISE for node in graph.nodes)
    if graph.subgraphs or not elementwise or len(shapes) != 1:
        return
    if any(len(tensor.scales) > 1 or tensor.signature for tensor in graph.tensors):
        return
    (shape,) = shapes
    for smaller in _smaller(shape):
        yield replace(graph, tensors=tuple(_cut(tensor, shape, smaller) for tensor in graph.tensors))


def _smaller(shape: Shape) -> Iterator[Shape]:
    """All dimensions short; each of them short, half as long, an eighth shorter; no leading one."""
    found = [tuple(min(length, _SHORT) for length in shape)]
    for axis, length in enumerate(shape):
        lengths = (new for new in (1, _SHORT, length // 2, length * 7 // 8) if 0 < new < length)
        found += ((*shape[:axis], new, *shape[axis + 1 :]) for new in lengths)
    if len(shape) > 1 and shape[0] == 1:
        found.append(shape[1:])
    yield from dict.fromkeys(new for new in found if new != shape and prod(new) <= prod(shape))


def _cut(tensor: Tensor, old: Shape, new: Shape) -> Tensor:
    """The tensor in a graph whose activations had the shape ``old`` and have ``new``."""
    if tensor.data is None:
        return replace(tensor, shape=new)
    if len(new) < len(old):
        kept = tensor.shape[1:] if len(tensor.shape) == len(old) else tensor.shape
        return replace(tensor, shape=kept or (1,))
    lengths = zip(reversed(tensor.shape), reversed(new), strict=False)
    kept = tuple(min(pair) for pair in lengths)[::-1]
    values = np.frombuffer(tensor.data, "<f4" if tensor.dtype == "float32" else np.int8)
    part = values.reshape(tensor.shape)[tuple(slice(length) for length in kept)]
    return replace(tensor, shape=kept, data=part.tobytes())
