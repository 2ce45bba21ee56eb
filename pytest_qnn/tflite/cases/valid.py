"""Delegate, script and plugin cases from files: what can be carried out, at a sane size.

Bounds of one field are in its type, and checked when the file is decoded. Here is what several fields say
together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Any

from pytest_qnn.core.bounds import BadCase, need, shown, within
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.edits import mistaken
from pytest_qnn.tflite.cases.plugin import Copy, Create, Cycle, PluginCase
from pytest_qnn.tflite.cases.script import (
    IMPOSSIBLE,
    MOST_PERFORMED,
    AllocCustom,
    Invoke,
    Parallel,
    PlainStep,
    Repeat,
    Resize,
    ScriptCase,
    flat,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.valid import SPECIAL, check_node, check_special

__tracebackhide__ = True
MOST_ELEMENTS = 1 << 22
"""Of one tensor."""
MOST_BYTES = 1 << 26
"""Of all tensors. Eight nodes (`pytest_qnn.tflite.graph.floors.LONGER`) of 1 MiB have up to 36 MB."""
MOST_WORK = 1 << 26
"""Multiplications and additions of one inference. Wide layers of a thousand elements need 61 million."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How large a graph may be."""

    elements: int
    """Of one tensor."""
    size: float
    """Bytes of all tensors."""
    work: float
    """Multiplications and additions of one inference."""
    loops_end: bool
    """Each WHILE must be known to end within few turns."""


OF_FILES = Limits(MOST_ELEMENTS, MOST_BYTES, MOST_WORK, loops_end=True)
"""A case file may come from anybody: carrying its case out must cost little."""
OF_AUTHORS = Limits((1 << 31) - 1, math.inf, math.inf, loops_end=False)
"""A graph in a test's own code may be as large as the runtimes' indices (int32) allow."""

SCALES = {"int8": (1e-5, 10.0), "int32": (1e-10, 100.0)}
"""Beyond them the runtimes' fixed-point multipliers overflow; some kernels abort on that."""
ITEM_BYTES = {"float32": 4, "int32": 4, "int8": 1, "bool": 1, "resource": 4}


def check_delegate(case: DelegateCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    need(len(case.poison) <= case.invokes, f"{len(case.poison)} poisons for {case.invokes} invokes")
    need(len(case.reseed) <= case.invokes, f"{len(case.reseed)} new seeds for {case.invokes} invokes")
    check_graph(case.graph)
    for application in case.applications:
        for text in chain.from_iterable(application.options):
            need("\0" not in text, "an option has a null byte")
        claim = application.claim or ()
        need(len(set(claim)) == len(claim), "a claim names a node twice")
        for index in claim:
            within("a claimed node", index, 0, len(case.graph.nodes) - 1)


def check_graph(graph: Graph, limits: Limits = OF_FILES) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a graph that must not be given to a runtime."""
    need(not graph.validation, "the main graph is for validation")
    work = 0
    for number, part in enumerate(graph.subgraphs, 1):
        need(not part.subgraphs, f"subgraph {number} holds subgraphs")
        need(part.control_edges is None, f"subgraph {number} has control edges of its own")
        need(
            all(node.op not in SPECIAL for node in part.nodes),
            f"subgraph {number} calls another, or keeps state",
        )
        work += check_part(part, 0, limits)
    check_part(graph, work, limits)
    if graph.control_edges is not None:
        for first, then in graph.control_edges:
            within("a node of a control edge", then, 0, len(graph.nodes) - 1)
            need(0 <= first < then, "a control edge runs backwards")


def check_part(graph: Graph, called: int, limits: Limits) -> int:
    """Check one graph, of whose nodes each call costs at most ``called`` operations; what it costs itself."""
    tensors = graph.tensors
    for index, tensor in enumerate(tensors):
        _check_tensor(index, tensor, limits.elements)
    size = sum(math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in tensors)
    need(size <= limits.size, f"the tensors have {size} bytes, more than {limits.size}")
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
    return _check_nodes(graph, constants, called, limits)


def _check_nodes(graph: Graph, constants: set[int], called: int, limits: Limits) -> int:
    """Every tensor is written once, before it is read; so there is no cycle."""
    known = constants.union(graph.inputs)
    variables: dict[int | str, Tensor | str] = {}
    work = 0
    for position, node in enumerate(graph.nodes):
        where = f"node {position} ({node.op})"
        _check_operands(where, node, graph, known)
        try:
            if node.op in SPECIAL:
                work += 1 + called * check_special(where, node, graph, variables, ends=limits.loops_end)
            else:
                work += _check_plain(where, node, graph)
        except BadCase as error:
            raise BadCase(f"{error}: {_signature(node, graph)}") from None
        need(work <= limits.work, f"the graph needs more than {limits.work} operations")
    missing = set(range(len(graph.tensors))) - known
    need(not missing, f"nothing writes to tensor {min(missing, default=0)}")
    return work


def _check_plain(where: str, node: Node, graph: Graph) -> int:
    need(len(node.outputs) == 1, f"{where} has {len(node.outputs)} results, not one")
    need(node.inputs, f"{where} has no operand")
    need(not node.subgraphs and not node.variable, f"{where} has options of another operator")
    return check_node(where, node, graph.tensors)


def _signature(node: Node, graph: Graph) -> str:
    """The types and shapes that a node takes and gives."""

    def told(indices: Sequence[int]) -> str:
        tensors = (graph.tensors[index] for index in indices if index >= 0)
        return ", ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in tensors) or "nothing"

    return f"{told(node.inputs)} -> {told(node.outputs)}"


def _check_operands(where: str, node: Node, graph: Graph, known: set[int]) -> None:
    """Operands are known; results are new, and known from now on."""
    for index in node.inputs:
        need(-1 <= index < len(graph.tensors), f"{where} reads tensor {shown(index)}, which there is not")
        need(index < 0 or index in known, f"{where} reads tensor {index} before it is written")
    for result in node.outputs:
        need(
            0 <= result < len(graph.tensors), f"{where} writes to tensor {shown(result)}, which there is not"
        )
        need(result not in known, f"{where} writes to tensor {result}, which has its contents already")
        known.add(result)


def _check_tensor(index: int, tensor: Tensor, most: int) -> None:
    where = f"tensor {index}"
    within(f"{where}: the number of dimensions", len(tensor.shape), 1, 5)
    for length in tensor.shape:
        within(f"{where}: a dimension", length, 1, most)
    count = math.prod(tensor.shape)
    need(count <= most, f"{where} has {count} elements, more than {most}")
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
        need(tensor.dtype == "int8" or not zero_point, f"{where} is int32 with a zero point")


MOST_STEPS = 800
"""64 interpreters with a delegate each, and all that is done with them (OWN-06), are 583."""
MOST_INVOKES = 4000
MOST_LENGTH = 1024
"""By which the first dimension of an input that is resized may be longer than that of any in the models."""
MOST_BROADCAST = 1 << 20
"""Elements of a result of operands with the longest dimensions that a graph's tensors have or are given."""
MOST_RESIZED = 1 << 26
"""Elements of all tensors of a graph, were all as large as that, where one may have more: in a graph of
element-wise operators and one input any number, in another one `MOST_ELEMENTS`."""
MOST_LARGE_INVOKES = 16
"""Of a script whose tensors may be that large."""
ELEMENTWISE = frozenset(("ADD", "SUB", "MUL", "MAXIMUM", "RELU", "ABS", "NEG", "PRELU"))
"""Operators whose inputs may be resized to any shape, empty ones included."""


def check_script(case: ScriptCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    for graph in case.graphs:
        check_graph(graph)
    for number, edit in enumerate(case.edits):
        wrong = mistaken(edit, case.graphs[0])
        need(not wrong, f"edit {number} {wrong}")
    steps = flat(case.steps)
    need(len(steps) <= MOST_STEPS, f"{len(steps)} steps are more than {MOST_STEPS}")
    performed = list(_performed(case.steps))
    need(sum(times for times, _ in performed) <= MOST_PERFORMED, f"more than {MOST_PERFORMED} steps in all")
    invokes = sum(times for times, step in performed if isinstance(step, Invoke))
    need(invokes <= MOST_INVOKES, f"{invokes} invokes are more than {MOST_INVOKES}")
    for number, step in enumerate(steps):
        if isinstance(step, Resize):
            _resize(f"step {number}", step, case.graphs)
        elif isinstance(step, AllocCustom):
            within(f"step {number}: bytes", step.bytes, 0, (1 << 64) - 1)  # beyond what msgspec.Meta takes
            need(step.alignment.bit_count() == 1, f"step {number}: an alignment that is no power of two")
    shapes = [step.shape for step in steps if isinstance(step, Resize)]
    shapes = [shape for shape in shapes if prod(shape) < IMPOSSIBLE]
    for graph in case.graphs if shapes else ():
        _broadcast(graph, shapes, invokes)


def _performed(steps: Sequence[Any]) -> list[tuple[int, PlainStep]]:
    """Each plain step with how often it is carried out."""
    found: list[tuple[int, PlainStep]] = []
    for step in steps:
        if isinstance(step, Repeat):
            found += ((step.times * times, inner) for times, inner in _performed(step.steps))
        elif isinstance(step, Parallel):
            for branch in step.branches:
                found += _performed(branch)
        else:
            found.append((1, step))
    return found


def _resize(where: str, step: Resize, graphs: Sequence[Graph]) -> None:
    """Shapes that no kernel of the runtimes fails on, whichever graph the interpreter is of.

    Runtimes do not check everywhere that a convolution or a sum has something to work on.
    """
    if all(map(_is_elementwise, graphs)):
        limits = [(1 << 31) - 1] * len(step.shape)
    else:
        shapes = (graph.tensors[index].shape for graph in graphs for index in graph.inputs)
        first = max((shape[0] for shape in shapes), default=0) + MOST_LENGTH
        limits = [first, *[MOST_ELEMENTS] * len(step.shape)]  # the others are those of the model
    for length, most in zip(step.shape, limits, strict=False):
        within(f"{where}: a dimension", length, 0, most)
    for graph in graphs:
        if _is_elementwise(graph):
            continue
        need(prod(step.shape), f"{where}: an empty shape, and not all operators are element-wise")
        shape = graph.tensors[graph.inputs[step.input]].shape if step.input < len(graph.inputs) else ()
        need(
            not shape or (len(shape) == len(step.shape) and shape[1:] == step.shape[1:]),
            f"{where}: more than the first dimension changes, and not all operators are element-wise",
        )


def _is_elementwise(graph: Graph) -> bool:
    return {node.op for part in (graph, *graph.subgraphs) for node in part.nodes} <= ELEMENTWISE


def _broadcast(graph: Graph, shapes: Sequence[tuple[int, ...]], invokes: int) -> None:
    """No result has more elements than all the longest dimensions together have."""
    parts = (graph, *graph.subgraphs)
    every = [*shapes, *(tensor.shape for part in parts for tensor in part.tensors)]
    longest = [
        max((shape[-axis] for shape in every if axis <= len(shape)), default=1) for axis in (1, 2, 3, 4, 5)
    ]
    count = prod(longest)
    is_bounded = count <= MOST_ELEMENTS or (len(graph.inputs) == 1 and _is_elementwise(graph))
    if count > MOST_BROADCAST and is_bounded:
        within("the number of invokes on large tensors", invokes, 0, MOST_LARGE_INVOKES)
        count = count * len(graph.tensors) * MOST_BROADCAST // MOST_RESIZED
    need(count <= MOST_BROADCAST, f"with the new shapes a tensor may have {prod(longest)} elements")


def check_plugin(case: PluginCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    check_graph(case.graph)
    for number, step in enumerate(case.steps):
        for part in chain.from_iterable(step.options if isinstance(step, Create | Copy | Cycle) else ()):
            need(b"\0" not in part, f"step {number}: an option has a NUL in it")
