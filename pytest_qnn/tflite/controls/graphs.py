"""Graphs of controls: nodes by themselves, plain forms of whole graphs, and the smallest of their kind."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.reduce import is_plain, restricted
from pytest_qnn.tflite.cases.script import Open, Resize, ScriptCase, SetInputs, flat
from pytest_qnn.tflite.graph.combinations import GRID, Combination, Form, Quantisation, combination_of
from pytest_qnn.tflite.graph.constants import constant
from pytest_qnn.tflite.graph.floors import USUAL, Floor
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.kinds import graph_of
from pytest_qnn.tflite.numerics.flat import flattened

ADDITION = Combination("ADD", "float32", 2)
_MOST_FORMS = 4
"""Shapes and ways of one script that are looked at."""
_MOST_ELEMENTS = 1 << 16
"""Of an input of such a form: rules about size have controls of their own."""


def kinds_of(alone: Sequence[Graph]) -> list[Combination]:
    """Of the nodes; of a node whose rank the grid does not have, the next that it has."""
    kinds = (combination_of(graph, graph.nodes[0]) for graph in alone)
    found = (_in_the_grid(kind) for kind in kinds if kind is not None)
    return list(dict.fromkeys(kind for kind in found if kind is not None))


def _in_the_grid(kind: Combination) -> Combination | None:
    ranks = ranks_of(kind.op, kind.form)
    rank = min(ranks, key=lambda rank: abs(rank - kind.rank), default=None)
    return None if rank is None else msgspec.structs.replace(kind, rank=rank)


@functools.cache
def ranks_of(op: Op, form: Form) -> tuple[int, ...]:
    """Those that the grid has of the operator in this form."""
    return tuple(kind.rank for kind in GRID if (kind.op, kind.form) == (op, form))


def simplest(kind: Combination, floor: Floor = USUAL) -> Graph:
    """The simplest graph of one node with operands of their own: a - a is 0 in any order."""
    graph = graph_of(kind, floor)
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


def chained(graph: Graph, *, inner_last: bool = False) -> Graph | None:
    """The graph's node and, on its result, the node again; both results are outputs.

    The two are one partition, whose inner result is read inside it and outside. None where the result is no
    operand of such a node. ``inner_last``: of the two results the inner one has the higher number.
    """
    (node,) = graph.nodes
    (result,), added = node.outputs, len(graph.tensors)
    operand, made = (graph.tensors[tensor] for tensor in (node.inputs[0], result))
    if (operand.dtype, operand.shape) != (made.dtype, made.shape):
        return None
    inner, outer = (added, result) if inner_last else (result, added)
    first = msgspec.structs.replace(node, outputs=(inner,))
    again = msgspec.structs.replace(node, inputs=(inner, *node.inputs[1:]), outputs=(outer,))
    return msgspec.structs.replace(
        graph, tensors=(*graph.tensors, made), nodes=(first, again), outputs=(result, added)
    )


def of_two_shapes(kind: Combination, floor: Floor) -> Iterator[Graph]:
    """Of a kind whose operands are broadcast: two inputs of which the first is, or both are."""
    graph = simplest(msgspec.structs.replace(kind, form=""), floor)
    one, other = graph.nodes[0].inputs
    shape = graph.tensors[one].shape
    shorter = {one: (*shape[:-1], 1)}
    yield _with_shapes(graph, shorter)
    if len(shape) > 1:
        yield _with_shapes(graph, {**shorter, other: (*shape[:-2], 1, shape[-1])})


def _with_shapes(graph: Graph, shapes: Mapping[int, tuple[int, ...]]) -> Graph:
    tensors = (
        msgspec.structs.replace(tensor, shape=shapes.get(at, tensor.shape))
        for at, tensor in enumerate(graph.tensors)
    )
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def of_three_elements(graph: Graph) -> Graph:
    """The graph of one node with tensors of three elements, where it is element-wise and has no constants."""
    if graph.nodes[0].op not in _ELEMENTWISE or any(tensor.data is not None for tensor in graph.tensors):
        return graph
    return _with_shapes(
        graph, {at: (*(1 for _ in each.shape[1:]), 3) for at, each in enumerate(graph.tensors)}
    )


def with_small_tensors(graph: Graph) -> Graph | None:
    """The graph with a few elements in place of each dimension of more; the same ones of the same length.

    None where a node is not element-wise, or a tensor has a scale for each channel.
    """
    if any(node.op not in _ELEMENTWISE for node in graph.nodes):
        return None
    if any(len(tensor.scales) > 1 for tensor in graph.tensors):
        return None
    lengths = sorted({length for tensor in graph.tensors for length in tensor.shape if length > _SMALL})
    shorter = {length: _SMALL + at for at, length in enumerate(lengths)}
    return msgspec.structs.replace(graph, tensors=tuple(_shortened(each, shorter) for each in graph.tensors))


def _shortened(tensor: Tensor, shorter: Mapping[int, int]) -> Tensor:
    shape = tuple(shorter.get(length, length) for length in tensor.shape)
    data = tensor.data
    if data is not None and tensor.shape:
        data = data[: len(data) // max(1, math.prod(tensor.shape)) * math.prod(shape)]
    return msgspec.structs.replace(tensor, shape=shape, data=data, signature=())


_SMALL = 3
"""Elements of a dimension that is not shortened."""


def has_two_shapes(graph: Graph) -> bool:
    """Whether operands of the graph's first node are broadcast."""
    node = graph.nodes[0]
    if node.op not in _OF_TWO:
        return False
    shapes = [graph.tensors[tensor].shape for tensor in (*node.inputs, *node.outputs)]
    return len({*shapes}) > 1


_OF_TWO: tuple[Op, ...] = ("ADD", "SUB", "MUL", "MAXIMUM")
_ELEMENTWISE: tuple[Op, ...] = (*_OF_TWO, "RELU", "ABS", "NEG")


def linked() -> tuple[Graph, tuple[int, ...]]:
    """Four additions, and the one that parts the last from the first, whose result it reads."""
    tensor = graph_of(ADDITION).tensors[0]
    operands = ((0, 1), (1, 0), (3, 1), (2, 4))
    nodes = tuple(Node("ADD", pair, (at,)) for at, pair in enumerate(operands, 2))
    return Graph((tensor,) * 6, nodes, (0, 1), (5,)), (2,)


def row_of_additions(count: int) -> Graph:
    """Each addition adds the second input to the result of the one before it."""
    tensor = graph_of(ADDITION).tensors[0]
    nodes = tuple(Node("ADD", (at and at + 1, 1), (at + 2,)) for at in range(count))
    return Graph((tensor,) * (count + 2), nodes, (0, 1), (count + 1,))


def many_kernels(count: int) -> tuple[Graph, tuple[int, ...]]:
    """A row of additions, and each second of them: where others have these, ``count`` partitions are left."""
    return row_of_additions(2 * count), tuple(range(1, 2 * count, 2))


def body_of_addition() -> Graph:
    """From one tensor to another of its kind, as the body of a loop."""
    tensor = graph_of(ADDITION).tensors[0]
    more = constant(tensor.shape[-1:], None, 1)
    return Graph((tensor, more, tensor), (Node("ADD", (0, 1), (2,)),), (0,), (2,))


def forms(case: ScriptCase, fill: Fill) -> Iterator[Graph]:
    """What the case's graphs amount to where they have loops, branches or variables, or are resized.

    Of each the first few: calls are written out, and shapes are those that the inputs have got.
    """
    shaped: dict[str, Graph] = {}
    seen: list[Graph] = []
    for step in flat(case.steps):
        if isinstance(step, Open) and step.graph < len(case.graphs):
            shaped[step.interpreter] = case.graphs[step.graph]
        elif isinstance(step, Resize) and step.interpreter in shaped:
            shaped[step.interpreter] = _resized(shaped[step.interpreter], step)
        elif isinstance(step, SetInputs) and step.interpreter in shaped and len(seen) < _MOST_FORMS:
            graph = shaped[step.interpreter]
            found = None if graph in case.graphs and is_plain(graph) else _plain_form(graph, step.seed, fill)
            if found is not None and found not in seen:
                seen.append(found)
                yield found


def _resized(graph: Graph, step: Resize) -> Graph:
    if step.input >= len(graph.inputs):
        return graph
    tensors = list(graph.tensors)
    index = graph.inputs[step.input]
    tensors[index] = msgspec.structs.replace(tensors[index], shape=step.shape)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def _plain_form(graph: Graph, seed: int, fill: Fill) -> Graph | None:
    """None where there is none: no such shapes, no end, no nodes."""
    if any(math.prod(graph.tensors[index].shape) > _MOST_ELEMENTS for index in graph.inputs):
        return None
    with contextlib.suppress(KeyError, ValueError):
        whole = flattened(graph, inputs_of(DelegateCase(graph, data_seed=seed, fill=fill)))
        written = {tensor for node in whole.nodes for tensor in node.outputs}
        whole = msgspec.structs.replace(whole, outputs=tuple(t for t in whole.outputs if t in written))
        plain = restricted(whole, frozenset(range(len(whole.nodes))), join=False)
        return plain if plain.nodes and plain.inputs and is_plain(plain) else None
    return None


def parts(graphs: Sequence[Graph]) -> Iterator[Graph]:
    """The graphs and their subgraphs."""
    for graph in graphs:
        yield graph
        yield from graph.subgraphs


def with_operands(graph: Graph) -> Graph:
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


def has_absent_operands(graph: Graph) -> bool:
    """Whether the graph has what MEM-08 is about; to leave it out gives another node."""
    return any(-1 in node.inputs for node in graph.nodes)


def single_nodes(graph: Graph) -> Iterator[Graph]:
    """A graph of each node: of those with one result, no state, and no contents that say a shape."""
    for index, node in enumerate(graph.nodes):
        if len(node.outputs) != 1 or not node.inputs or node.subgraphs or node.variable:
            continue
        alone = restricted(graph, frozenset((index,)), join=False)
        if is_plain(alone):
            yield alone


def plain_scale(kind: Combination) -> Quantisation:
    """Of an operator at its plainest."""
    return "tensor" if kind.dtype == "int8" else ""


def with_all_outputs(graph: Graph) -> Graph:
    """The graph with the result of each node as an output."""
    results = (tensor for node in graph.nodes for tensor in node.outputs)
    return msgspec.structs.replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *results))))


def without_activation(graph: Graph) -> Graph:
    """The graph with no fused activation."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def without_zero_points(graph: Graph) -> Graph:
    """The graph with zero points of 0, and with the first channel's scale for all."""
    tensors = tuple(
        msgspec.structs.replace(each, scales=each.scales[:1], zero_points=(0,) * len(each.zero_points[:1]))
        for each in graph.tensors
    )
    return msgspec.structs.replace(graph, tensors=tensors)


def with_wide_results(graph: Graph) -> Graph:
    """The graph with scales of activated results four times as large: int8 exceeds 6 without zero points."""
    active = {tensor for node in graph.nodes if node.activation != "NONE" for tensor in node.outputs}
    tensors = tuple(
        msgspec.structs.replace(each, scales=tuple(4 * scale for scale in each.scales))
        if at in active
        else each
        for at, each in enumerate(graph.tensors)
    )
    return msgspec.structs.replace(graph, tensors=tensors)
