"""Delegate cases from files: graphs that a runtime can be given.

Runtimes trust a model's structure here and there, and abort or read out of bounds where it is wrong. So a
graph is checked as a whole: indices, order, contents, quantisation, and the shape of every result.
"""

from __future__ import annotations

import math
from itertools import chain

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.valid_control import MOST_SUBGRAPHS, SPECIAL, check_special
from pytest_qnn.cases.valid_nodes import check_node
from pytest_qnn.core.bounds import need, shown, within

MOST_TENSORS = 1000
MOST_NODES = 500
MOST_ELEMENTS = 1 << 16
"""Of one tensor."""
MOST_BYTES = 1 << 24
"""Of all tensors."""
MOST_WORK = 1 << 24
"""Multiplications and additions of one inference."""
MOST_OPTIONS = 8
LONGEST_TEXT = 200
"""Characters of an option's key, or of its value."""
SCALES = {"int8": (1e-5, 10.0), "int32": (1e-10, 100.0)}
"""Beyond them the runtimes' fixed-point multipliers overflow; some kernels abort on that."""
ITEM_BYTES = {"float32": 4, "int32": 4, "int8": 1, "bool": 1, "resource": 4}


def check_delegate(case: DelegateCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    within("invokes", case.invokes, 0, 16)
    within("data_seed", case.data_seed, 0, (1 << 32) - 1)
    need(len(case.poison) <= case.invokes, f"{len(case.poison)} poisons for {case.invokes} invokes")
    for byte in case.poison:
        within("a poison byte", byte, 0, 255)
    need(len(case.reseed) <= case.invokes, f"{len(case.reseed)} new seeds for {case.invokes} invokes")
    for seed in case.reseed:
        within("a new seed", seed, 0, (1 << 32) - 1)
    within("the number of redos", case.redo, 0, 16)
    check_graph(case.graph)
    within("the number of applications", len(case.applications), 0, 8)
    for application in case.applications:
        within("flags", application.flags, 0, 7)
        within("the number of a refused call", application.refused_call, 0, MOST_NODES)
        within("the number of options", len(application.options), 0, MOST_OPTIONS)
        for text in chain.from_iterable(application.options):
            need(len(text) <= LONGEST_TEXT and "\0" not in text, "an option is too long, or has a null byte")
        claim = application.claim or ()
        need(len(set(claim)) == len(claim), "a claim names a node twice")
        for index in claim:
            within("a claimed node", index, 0, len(case.graph.nodes) - 1)


def check_graph(graph: Graph) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a graph that must not be given to a runtime."""
    need(not graph.validation, "the main graph is for validation")
    within("the number of subgraphs", len(graph.subgraphs), 0, MOST_SUBGRAPHS)
    work = 0
    for number, part in enumerate(graph.subgraphs, 1):
        need(not part.subgraphs, f"subgraph {number} holds subgraphs")
        need(part.control_edges is None, f"subgraph {number} has control edges of its own")
        need(
            all(node.op not in SPECIAL for node in part.nodes),
            f"subgraph {number} calls another, or keeps state",
        )
        work += _check_graph(part, 0)
    _check_graph(graph, work)
    if graph.control_edges is not None:
        within("the number of control edges", len(graph.control_edges), 0, MOST_NODES)
        for first, then in graph.control_edges:
            within("a node of a control edge", then, 0, len(graph.nodes) - 1)
            need(0 <= first < then, "a control edge runs backwards")


def _check_graph(graph: Graph, called: int) -> int:
    """Check one graph, of whose nodes each call costs at most ``called`` operations; what it costs itself."""
    tensors, nodes = graph.tensors, graph.nodes
    within("the number of tensors", len(tensors), 1, MOST_TENSORS)
    within("the number of nodes", len(nodes), 0, MOST_NODES)
    for index, tensor in enumerate(tensors):
        _check_tensor(index, tensor)
    size = sum(math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in tensors)
    need(size <= MOST_BYTES, f"the tensors have {size} bytes, more than {MOST_BYTES}")
    within("the number of inputs", len(graph.inputs), 0, len(tensors))
    within("the number of outputs", len(graph.outputs), 1, len(tensors))
    for index in chain(graph.inputs, graph.outputs):
        within("an input or output of the graph", index, 0, len(tensors) - 1)
    need(len(set(graph.inputs)) == len(graph.inputs), "an input of the graph is named twice")
    need(len(set(graph.outputs)) == len(graph.outputs), "an output of the graph is named twice")
    constants = {index for index, tensor in enumerate(tensors) if tensor.data is not None}
    need(not constants.intersection(graph.inputs), "an input of the graph is a constant")
    resources = {index for index, tensor in enumerate(tensors) if tensor.dtype == "resource"}
    need(not resources.intersection(constants), "a resource is a constant")
    need(not resources.intersection((*graph.inputs, *graph.outputs)), "a resource crosses the graph's border")
    return _check_nodes(graph, constants, called)


def _check_nodes(graph: Graph, constants: set[int], called: int) -> int:
    """Every tensor is written once, before it is read; so there is no cycle."""
    known = constants.union(graph.inputs)
    variables: dict[int | str, Tensor | str] = {}
    work = 0
    for position, node in enumerate(graph.nodes):
        where = f"node {position} ({node.op})"
        _check_operands(where, node, graph, known)
        if node.op in SPECIAL:
            work += 1 + called * check_special(where, node, graph, variables)
        else:
            need(len(node.outputs) == 1, f"{where} has {len(node.outputs)} results, not one")
            need(node.inputs, f"{where} has no operand")
            need(not node.subgraphs and not node.variable, f"{where} has options of another operator")
            work += check_node(where, node, graph.tensors)
        need(work <= MOST_WORK, f"the graph needs more than {MOST_WORK} operations")
    missing = set(range(len(graph.tensors))) - known
    need(not missing, f"nothing writes to tensor {min(missing, default=0)}")
    return work


def _check_operands(where: str, node: Node, graph: Graph, known: set[int]) -> None:
    """Operands are known; results are new, and known from now on."""
    need(len(node.inputs) <= 16, f"{where} has {len(node.inputs)} operands")
    need(len(node.outputs) <= 16, f"{where} has {len(node.outputs)} results")
    for index in node.inputs:
        need(-1 <= index < len(graph.tensors), f"{where} reads tensor {shown(index)}, which there is not")
        need(index < 0 or index in known, f"{where} reads tensor {index} before it is written")
    for result in node.outputs:
        need(
            0 <= result < len(graph.tensors), f"{where} writes to tensor {shown(result)}, which there is not"
        )
        need(result not in known, f"{where} writes to tensor {result}, which has its contents already")
        known.add(result)


def _check_tensor(index: int, tensor: Tensor) -> None:
    where = f"tensor {index}"
    within(f"{where}: the number of dimensions", len(tensor.shape), 1, 4)
    for length in tensor.shape:
        within(f"{where}: a dimension", length, 1, MOST_ELEMENTS)
    count = math.prod(tensor.shape)
    need(count <= MOST_ELEMENTS, f"{where} has {count} elements, more than {MOST_ELEMENTS}")
    if tensor.data is not None:
        size = count * ITEM_BYTES[tensor.dtype]
        need(len(tensor.data) == size, f"{where} has {len(tensor.data)} bytes of contents, and needs {size}")
    if tensor.signature:
        matching = zip(tensor.signature, tensor.shape, strict=False)
        need(
            len(tensor.signature) == len(tensor.shape) and all(one in (-1, other) for one, other in matching),
            f"{where} has a shape signature that does not match its shape",
        )
    _check_quantisation(where, tensor)


def _check_quantisation(where: str, tensor: Tensor) -> None:
    scales = tensor.scales
    need(len(tensor.zero_points) == len(scales), f"{where} has scales and zero points of different number")
    within(f"{where}: the axis of its scales", tensor.axis, 0, len(tensor.shape) - 1)
    if not scales:
        need(tensor.dtype != "int8", f"{where} is int8 without a scale")
        return
    need(tensor.dtype in SCALES, f"{where} is {tensor.dtype} with a scale")
    counts = (1, tensor.shape[tensor.axis])
    need(len(scales) in counts, f"{where} has {len(scales)} scales for {counts[1]} slices")
    for scale in scales:
        within(f"{where}: a scale", scale, *SCALES[tensor.dtype])
    for zero_point in tensor.zero_points:
        within(f"{where}: a zero point", zero_point, -128, 127)
        need(tensor.dtype == "int8" or not zero_point, f"{where} is int32 with a zero point")
