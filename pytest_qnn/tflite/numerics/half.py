"""Telling from results that float32 operators were computed in float16."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from pytest_qnn.tflite.graph.graph import Graph, Tensor
from pytest_qnn.tflite.numerics.bounds import expected_outputs, mismatch
from pytest_qnn.tflite.numerics.precision import EVERY_OP, SINGLE, Array, is_half, to_half


def is_of_halved_operands(graph: Graph, inputs: Sequence[Array], tensor: int, seen: Array) -> bool:
    """The output is what float32 gives of inputs and constants rounded to float16, as mixed precision does.

    Args:
        graph: of one node, or of nodes that read inputs and constants only.
        inputs: contents in the graph's order.
        tensor: a graph output, float32.
        seen: what the target gave for it.
    """
    halved = msgspec.structs.replace(graph, tensors=tuple(map(_halved, graph.tensors)))
    found = expected_outputs(halved, [to_half(array) for array in inputs], SINGLE)
    return mismatch(found[graph.outputs.index(tensor)], seen) is None


def _halved(tensor: Tensor) -> Tensor:
    if tensor.data is None or tensor.dtype != "float32":
        return tensor
    return msgspec.structs.replace(tensor, data=to_half(np.frombuffer(tensor.data, np.float32)).tobytes())


def is_computed_in_half(
    graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array], written: Collection[int]
) -> bool | None:
    """Whether what the target wrote was computed in float16; None: it could be float32 as well.

    It was, if results are beyond the bounds of float32 and within those of float16, and either are float16
    numbers or come of operands that are.

    Args:
        graph: of nodes that read inputs and constants only.
        inputs: contents in the graph's order, many of which float16 cannot hold.
        outputs: what came of them, in the graph's order.
        written: tensors that the target wrote.
    """
    single = expected_outputs(graph, inputs, SINGLE)
    beyond = False
    for place, (in_single, seen) in enumerate(zip(single, outputs, strict=True)):
        if in_single.tensor not in written:
            continue
        if mismatch(in_single, seen) is None:
            if not is_half(seen):
                return False
            continue
        half = expected_outputs(graph, inputs, SINGLE.with_half(EVERY_OP))
        if mismatch(half[place], seen) is not None:
            return False
        if not is_half(seen) and not is_of_halved_operands(graph, inputs, in_single.tensor, seen):
            return False
        beyond = True
    return beyond or None
