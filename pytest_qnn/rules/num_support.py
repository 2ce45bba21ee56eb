"""Judging numbers: every output that the target wrote against its bounds, and where an error began."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Graph, Node
from pytest_qnn.core.verdict import Divergence, Unsupported
from pytest_qnn.oracle.numerics import Expected, Mismatch, expected_outputs, mismatch
from pytest_qnn.oracle.numerics_real import InUnits, real_outputs
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.trace import DelegateTrace

Array = npt.NDArray[Any]
Wanted = Callable[[Graph, Node], bool]


class Judged(NamedTuple):
    """One graph output with all that is known of what it must be."""

    tensor: int
    node: int
    """Index of the node that writes it."""
    expected: Expected
    real: InUnits | None
    """int8: what it is in real numbers."""
    cpu: Array


def need_claim(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raise Unsupported where the target has no kernel: another case may show some."""
    support.need_work(trace)
    if not support.live_target_kernels(trace):
        dtype = case.graph.tensors[case.graph.outputs[0]].dtype
        raise Unsupported(f"the delegate left every {dtype} node of these cases to the CPU", settled=False)


def within_bounds(case: DelegateCase, trace: DelegateTrace, wanted: Wanted | None = None) -> int:
    """The number of elements that the target wrote, all of them within the bounds of their operators.

    Quantised results are judged three ways: against the chain of results rounded once each, against real
    numbers, and beside the runtime's own int8 kernels. Outputs that the CPU itself gets wrong are left out:
    that is the runtime's defect.

    Args:
        case: with the graph.
        trace: of it.
        wanted: counts only results of such nodes; None: of all.

    Raises:
        Divergence: an element is out of its bounds; it names the first such output in order of execution.
        Unsupported: the target has no kernel in it.
    """
    need_claim(case, trace)
    if support.failure(trace):
        return 0
    written = {tensor for kernel in support.live_target_kernels(trace) for tensor in kernel.outputs}
    outputs = _judged(case, trace)
    looked_at = 0
    for number, seen in enumerate(trace.outputs):
        right = {i for i, tensor in enumerate(case.graph.tensors) if tensor.data} | set(case.graph.inputs)
        for judged in outputs:
            values = seen[case.graph.outputs.index(judged.tensor)].numpy()
            wrong = _mismatch(judged, values)
            if wrong is None:
                right.add(judged.tensor)
            elif judged.tensor in written and _mismatch(judged, judged.cpu) is None:
                raise _divergence(case, trace, judged, wrong, right, number, values)
            node = case.graph.nodes[judged.node]
            if judged.tensor in written and (wanted is None or wanted(case.graph, node)):
                looked_at += values.size
    return looked_at


def _judged(case: DelegateCase, trace: DelegateTrace) -> list[Judged]:
    """The outputs that nodes write, in the order of the nodes."""
    graph = case.graph
    inputs = [array.numpy() for array in trace.inputs]
    makers = {tensor: index for index, node in enumerate(graph.nodes) for tensor in node.outputs}
    real: dict[int, InUnits] = {}
    if graph.tensors[graph.nodes[0].outputs[0]].dtype == "int8":
        real = real_outputs(graph, inputs)
    found = [
        Judged(expected.tensor, makers[expected.tensor], expected, real.get(expected.tensor), cpu.numpy())
        for expected, cpu in zip(expected_outputs(graph, inputs), trace.cpu, strict=True)
        if expected.tensor in makers
    ]
    return sorted(found, key=lambda judged: judged.node)


def _mismatch(judged: Judged, seen: Array) -> Mismatch | None:
    wrong = mismatch(judged.expected, seen)
    if wrong is not None or judged.real is None:
        return wrong
    off = np.abs(seen.astype(np.float64) - judged.real.value) > judged.real.off
    if not off.any():
        return None
    index = tuple(int(place) for place in np.unravel_index(int(off.argmax()), seen.shape))
    why = "against real numbers: 3/2 LSB for each operator, propagated"
    value, bound = float(judged.real.value[index]), float(judged.real.off[index])
    return Mismatch(index, value, float(seen[index]), bound, int(off.sum()), why)


def origin(graph: Graph, tensor: int, right: Collection[int] | None = None) -> tuple[int, bool, str]:
    """(index of the node that writes ``tensor``, whether an error in it began there, the same in words).

    ``right``: the tensors whose contents were seen to be right; None: inputs, constants and outputs.
    """
    index, node = next((i, node) for i, node in enumerate(graph.nodes) if tensor in node.outputs)
    if right is None:
        constants = {number for number, one in enumerate(graph.tensors) if one.data is not None}
        right = constants.union(graph.inputs, graph.outputs)
    unseen = sorted({operand for operand in node.inputs if operand >= 0}.difference(right))
    if not unseen:
        return index, True, f"node {index} ({node.op}) writes it: the first node that diverges"
    named = " and ".join(f"t{operand}" for operand in unseen)
    return index, False, f"node {index} ({node.op}) writes it, and what it reads, {named}, was not seen right"


def _divergence(
    case: DelegateCase,
    trace: DelegateTrace,
    judged: Judged,
    wrong: Mismatch,
    right: Collection[int],
    invoke: int,
    seen: Array,
) -> Divergence:
    bound = f" +- {wrong.tolerance:.3g}" if wrong.tolerance else " exactly"
    expected = f"{wrong.expected!r}{bound} ({wrong.derivation})"
    if judged.real is not None and wrong.index:
        real = float(judged.real.value[wrong.index])
        expected += f"; it is {real:.2f} in real numbers, and {int(judged.cpu[wrong.index])} on the CPU"
    where = f"element {list(wrong.index)} of graph output t{judged.tensor}, invoke {invoke}"
    _, is_first, begun = origin(case.graph, judged.tensor, right)
    return Divergence(
        expected,
        f"{wrong.seen!r}, {wrong.count} of {seen.size} elements off",
        f"{where}; {begun}",
        support.draw(case, trace, judged.node),
        node=judged.node,
        is_first=is_first,
    )
