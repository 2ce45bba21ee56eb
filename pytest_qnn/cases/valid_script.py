"""Script cases from files: numbers that the C types hold, and no more memory or work than a machine has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from pytest_qnn.cases.graph import Graph
from pytest_qnn.cases.script import (
    IMPOSSIBLE,
    Cancel,
    CopyFrom,
    Invoke,
    Lend,
    MakeDelegate,
    Open,
    Parallel,
    Place,
    PlainStep,
    Poison,
    Read,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    Unload,
    flat,
)
from pytest_qnn.cases.script_custom import AllocCustom, AssignCustom, FreeCustom, ReadCustom
from pytest_qnn.cases.valid_delegate import MOST_NODES, check_graph
from pytest_qnn.core.bounds import need, within

MOST_GRAPHS = 8
MOST_STEPS = 400
MOST_PERFORMED = 20_000
"""Steps carried out, repeats counted."""
MOST_INVOKES = 4000
MOST_BRANCHES = 16
MOST_LENGTH = 1024
"""Of a dimension that an input is resized to."""
MOST_BROADCAST = 1 << 20
"""Elements of a result of operands with the longest dimensions that a graph's tensors have or are given."""
MOST_RESIZED = 1 << 26
"""Elements of all tensors of a graph of element-wise operators and one input, were all as large as that."""
MOST_LARGE_INVOKES = 16
"""Of a script whose tensors may be that large."""
MOST_EXTRA = 1 << 20
MOST_ALIGNMENT = 1 << 20
ELEMENTWISE = frozenset(("ADD", "SUB", "MUL", "MAXIMUM", "RELU", "ABS", "NEG", "PRELU"))
"""Operators whose inputs may be resized to any shape, empty ones included."""


def check_script(case: ScriptCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    within("the number of graphs", len(case.graphs), 1, MOST_GRAPHS)
    for graph in case.graphs:
        check_graph(graph)
    steps = flat(case.steps)
    need(len(steps) <= MOST_STEPS, f"{len(steps)} steps are more than {MOST_STEPS}")
    for step in case.steps:
        if isinstance(step, Parallel):
            within("the number of branches", len(step.branches), 1, MOST_BRANCHES)
    for step in steps:
        if isinstance(step, Repeat):
            within("times", step.times, 1, MOST_PERFORMED)
    performed = list(_performed(case.steps))
    need(sum(times for times, _ in performed) <= MOST_PERFORMED, f"more than {MOST_PERFORMED} steps in all")
    invokes = sum(times for times, step in performed if isinstance(step, Invoke))
    need(invokes <= MOST_INVOKES, f"{invokes} invokes are more than {MOST_INVOKES}")
    for number, step in enumerate(steps):
        _numbers(f"step {number}", step, case.graphs)
        _custom(f"step {number}", step)
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


def _numbers(where: str, step: Any, graphs: Sequence[Graph]) -> None:
    """Numbers that the C types hold; names and indices may be of things that there are not."""
    if isinstance(step, MakeDelegate):
        within(f"{where}: position", step.position, 0, 100)
        within(f"{where}: flags", step.flags, 0, 7)
        need(len(step.options) <= 16, f"{where}: more than 16 options")
        need(len(step.claim or ()) <= MOST_NODES, f"{where}: more than {MOST_NODES} claimed nodes")
        for index in step.claim or ():
            within(f"{where}: a claimed node", index, 0, MOST_NODES)
    elif isinstance(step, Open):
        within(f"{where}: graph", step.graph, 0, MOST_GRAPHS)
        within(f"{where}: threads", step.threads, 1, 8)
    elif isinstance(step, Place):
        within(f"{where}: tensor", step.tensor, 0, 1 << 16)
        within(f"{where}: extra", step.extra, -MOST_EXTRA, MOST_EXTRA)
        within(f"{where}: misalign", step.misalign, 0, 63)
        within(f"{where}: seed", step.seed, 0, (1 << 32) - 1)
    elif isinstance(step, Resize):
        _resize(where, step, graphs)
    elif isinstance(step, SetInputs):
        within(f"{where}: seed", step.seed, 0, (1 << 32) - 1)
    elif isinstance(step, CopyFrom):
        within(f"{where}: output", step.output, 0, 1000)
    elif isinstance(step, Cancel):
        within(f"{where}: at", step.at, -1, 1 << 16)
    elif isinstance(step, Lend):
        within(f"{where}: graph", step.graph, 0, MOST_GRAPHS)
    elif isinstance(step, Poison):
        within(f"{where}: byte", step.byte, 0, 255)
    elif isinstance(step, Read):
        need(len(step.tensors) <= 64, f"{where}: more than 64 tensors")
        for tensor in step.tensors:
            within(f"{where}: a tensor", tensor, 0, 1 << 16)


def _custom(where: str, step: Any) -> None:
    if isinstance(step, AllocCustom):
        within(f"{where}: bytes", step.bytes, 0, (1 << 64) - 1)
        within(f"{where}: alignment", step.alignment, 1, MOST_ALIGNMENT)
        need(step.alignment.bit_count() == 1, f"{where}: an alignment that is no power of two")
        within(f"{where}: seed", step.seed, 0, (1 << 32) - 1)
    if isinstance(step, AllocCustom | FreeCustom | Unload):
        within(f"{where}: position", step.position, 0, 100)
    elif isinstance(step, AssignCustom | ReadCustom):
        within(f"{where}: tensor", step.tensor, 0, 1 << 16)


def _resize(where: str, step: Resize, graphs: Sequence[Graph]) -> None:
    """Shapes that no kernel of the runtimes stumbles over, whichever graph the interpreter is of.

    Runtimes do not check everywhere that a convolution or a sum has something to work on.
    """
    within(f"{where}: input", step.input, 0, 100)
    within(f"{where}: the number of dimensions", len(step.shape), 1, 4)
    most = (1 << 31) - 1 if all(map(_is_elementwise, graphs)) else MOST_LENGTH
    for length in step.shape:
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
        max((shape[-axis] for shape in every if axis <= len(shape)), default=1) for axis in (1, 2, 3, 4)
    ]
    count = prod(longest)
    if count > MOST_BROADCAST and len(graph.inputs) == 1 and _is_elementwise(graph):
        within("the number of invokes on large tensors", invokes, 0, MOST_LARGE_INVOKES)
        count = count * len(graph.tensors) * MOST_BROADCAST // MOST_RESIZED
    need(count <= MOST_BROADCAST, f"with the new shapes a tensor may have {prod(longest)} elements")
