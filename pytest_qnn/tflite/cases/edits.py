"""Edits: where the file of a script's first graph says something else than the graph does, as data.

The graph itself is one that every runtime runs. A model that none may trust is such a graph with edits, so
that whoever asks what goes wrong without them (`pytest_qnn.tflite.controls`) has it at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

MOST_STATED = 1 << 20
"""Elements of a constant whose contents follow its stated shape."""
MOST_COPIED = 1 << 15
"""Tensors of a graph that is copied."""
_ITEM_BYTES = {"float32": 4, "int32": 4, "int8": 1, "bool": 1, "resource": 4}
Length = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Index = Annotated[int, Meta(ge=0, le=1000)]
Operand = Annotated[int, Meta(ge=-1, le=1000)]


class Edit(msgspec.Struct, frozen=True, gc=False, tag_field="edit", omit_defaults=True):
    """One difference between file and graph. The tag ``edit`` names it in JSON."""


class StatedShape(Edit, tag="shape", frozen=True, gc=False, omit_defaults=True):
    """The file states this shape of a tensor of the main graph.

    A constant's contents are cut to as many elements, or go on with zero bytes, up to `MOST_STATED`.
    """

    tensor: Index
    shape: Annotated[tuple[Length, ...], Meta(max_length=8)]


class StatedOperands(Edit, tag="operands", frozen=True, gc=False, omit_defaults=True):
    """The file states these operands of a node of the main graph; -1: an absent one."""

    node: Index
    inputs: Annotated[tuple[Operand, ...], Meta(max_length=16)]


class CustomOperator(Edit, tag="custom", frozen=True, gc=False, omit_defaults=True):
    """In the file a node of the main graph is a custom operator of this name, without options."""

    node: Index
    name: Annotated[str, Meta(max_length=40)]


class Copies(Edit, tag="copies", frozen=True, gc=False, omit_defaults=True):
    """The file holds the nodes of the main graph so many times, and what is edited besides is the first time.

    Where the graph's first output is like its first input, the nodes of a copy read what the copy before has
    given instead of the input. The graph's outputs are those of the last copy.
    """

    times: Annotated[int, Meta(ge=1, le=1 << 13)]


class StatedEdges(Edit, tag="edges", frozen=True, gc=False, omit_defaults=True):
    """The file's metadata has these control edges of the main graph, pairs of nodes (first, then).

    They may lead backwards, in a circle, or to nodes that there are not.
    """

    edges: Annotated[tuple[tuple[Index, Index], ...], Meta(max_length=64)]


class NoNodes(Edit, tag="no-nodes", frozen=True, gc=False, omit_defaults=True):
    """A graph of the file has no node: the main one, whose output is its first input, or a further one."""

    where: Literal["main", "beside"] = "main"


AnyEdit = StatedShape | StatedOperands | CustomOperator | Copies | StatedEdges | NoNodes
_EMPTY = Graph((Tensor((2,)),), (), (0,), (0,))
"""Its output is its input."""


def edited(graph: Graph, edits: Sequence[AnyEdit]) -> Graph:
    """The graph as the file has it, but for custom operators; it may be one that no runtime runs."""
    for copies in (edit for edit in edits if isinstance(edit, Copies)):
        graph = _copied(graph, copies.times)
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    for edit in edits:
        if isinstance(edit, StatedShape):
            tensors[edit.tensor] = _stated(tensors[edit.tensor], edit.shape)
        elif isinstance(edit, StatedOperands):
            nodes[edit.node] = replace(nodes[edit.node], inputs=edit.inputs)
        elif isinstance(edit, StatedEdges):
            graph = replace(graph, control_edges=edit.edges)
        elif isinstance(edit, NoNodes) and edit.where == "beside":
            graph = replace(graph, subgraphs=(*graph.subgraphs, _EMPTY))
        elif isinstance(edit, NoNodes):
            nodes, graph = [], replace(graph, outputs=graph.inputs[:1])
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _copied(graph: Graph, times: int) -> Graph:
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    first, last = graph.inputs[:1], graph.outputs[:1]
    like = bool(first and last) and _bare(tensors[first[0]]) == _bare(tensors[last[0]])
    written = [tensor for node in graph.nodes for tensor in node.outputs]
    now: dict[int, int] = {}
    for _ in range(times - 1):
        before = now.get(last[0], last[0]) if like else -1
        now = {old: len(tensors) + at for at, old in enumerate(written)}
        tensors += (graph.tensors[old] for old in written)
        known = now | ({first[0]: before} if like else {})
        nodes += (
            replace(
                node,
                inputs=tuple(known.get(index, index) for index in node.inputs),
                outputs=tuple(now[index] for index in node.outputs),
            )
            for node in graph.nodes
        )
    outputs = tuple(now.get(index, index) for index in graph.outputs)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes), outputs=outputs)


def _bare(tensor: Tensor) -> Tensor:
    return replace(tensor, signature=())


def _stated(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    data = tensor.data
    if data is not None and 0 <= prod(shape) <= MOST_STATED:
        size = prod(shape) * _ITEM_BYTES[tensor.dtype]
        data = data[:size].ljust(size, b"\0")
    return replace(tensor, shape=shape, data=data)


def custom_operators(edits: Sequence[AnyEdit]) -> dict[int, str]:
    """By node: the name of the custom operator that it is in the file."""
    return {edit.node: edit.name for edit in edits if isinstance(edit, CustomOperator)}


def renumbered(
    edits: Sequence[AnyEdit], tensors: dict[int, int], nodes: dict[int, int]
) -> tuple[AnyEdit, ...]:
    """The edits for a graph of which tensors and nodes are left, by old number; what is gone has none."""
    found: list[AnyEdit] = []
    for edit in edits:
        if isinstance(edit, Copies | NoNodes):
            found.append(edit)
        elif isinstance(edit, StatedEdges):
            # An edge to a node that is gone would be one to a node that there is not: another case.
            left = tuple((nodes[a], nodes[b]) for a, b in edit.edges if a in nodes and b in nodes)
            found += [StatedEdges(left)] if left else []
        elif isinstance(edit, StatedShape):
            found += [replace(edit, tensor=tensors[edit.tensor])] if edit.tensor in tensors else []
        elif edit.node not in nodes:
            continue
        elif isinstance(edit, CustomOperator):
            found.append(replace(edit, node=nodes[edit.node]))
        elif all(index in tensors for index in edit.inputs if index >= 0):
            inputs = tuple(tensors[index] if index >= 0 else index for index in edit.inputs)
            found.append(replace(edit, node=nodes[edit.node], inputs=inputs))
    return tuple(found)


def may_end(edit: AnyEdit) -> bool:
    """Whether kernels, the runtime's own too, may end the process for such an edit."""
    return not isinstance(edit, Copies)


def fewer(edit: AnyEdit) -> tuple[AnyEdit, ...]:
    """What is tried instead of the edit, to make a case smaller."""
    if isinstance(edit, StatedEdges):
        return tuple(StatedEdges((edge,)) for edge in edit.edges if len(edit.edges) > 1)
    return (Copies(edit.times // 2),) if isinstance(edit, Copies) and edit.times > 1 else ()


def mistaken(edit: AnyEdit, graph: Graph) -> str:
    """What is wrong with the edit of this graph, as half a sentence; empty: nothing is."""
    if isinstance(edit, StatedEdges | NoNodes):
        return ""
    if isinstance(edit, Copies):
        return "" if edit.times * len(graph.tensors) <= MOST_COPIED else f"makes {edit.times} copies"
    if isinstance(edit, StatedShape):
        return "" if edit.tensor < len(graph.tensors) else f"states a shape of tensor {edit.tensor}"
    if edit.node >= len(graph.nodes):
        return f"is of node {edit.node}"
    if isinstance(edit, StatedOperands):
        beyond = next((index for index in edit.inputs if index >= len(graph.tensors)), None)
        return "" if beyond is None else f"states the operand {beyond}"
    return _mistaken_name(edit.name, graph.nodes[edit.node])


def _mistaken_name(name: str, node: Node) -> str:
    """The runtimes have some custom operators of their own, which are none of these."""
    if not name.startswith("Unknown") or not name.isascii() or not name.isprintable():
        return f"names a custom operator that a runtime may know: {name!r}"
    return "is of a node that calls subgraphs" if node.subgraphs else ""
