"""What the reference delegate learns of a graph while it prepares: through the public C interface only."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Collection
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.reference.reading import Unknown, called_subgraphs, read_node, read_tensor

_GET_NODE: Final = layouts.Context.GetNodeAndRegistration.offset
_FOUND: Final = (ctypes.c_void_p * 2)()
"""Where an answer goes that nobody reads."""


@dataclasses.dataclass(frozen=True)
class PlanView:
    """The execution plan and what could be read of its nodes."""

    plan: tuple[int, ...]
    nodes: dict[int, Node]
    """The nodes of the plan whose operator, options and tensors the Graph types can express."""
    tensors: dict[int, Tensor]
    """Their tensors, without contents."""
    constants: set[int]
    """Those tensors that the model fixes."""
    called: list[int] = dataclasses.field(default_factory=list)
    """Subgraphs that nodes of the plan call."""


def read_plan(
    context: int,
    wanted: Collection[int] | None = None,
    *,
    custom: bool = False,
    plan: tuple[int, ...] | None = None,
) -> PlanView:
    """Read the plan, and those of its nodes that are wanted (None: all).

    Args:
        context: the runtime's, while a delegate prepares.
        wanted: indices.
        custom: with custom operators of the suite's own.
        plan: taken for the plan, which is not asked for then.

    Raises:
        RuntimeError: the runtime answers with an error.
    """
    table = layouts.Context.from_address(context)
    answer = (ctypes.c_void_p * 2)()
    first = ctypes.addressof(answer)
    if plan is None:
        if layouts.GetExecutionPlan(table.GetExecutionPlan)(context, first):
            raise RuntimeError("GetExecutionPlan failed")
        # Copied at once: the array dies with the next call of GetExecutionPlan.
        plan = peek.integers(peek.pointer(first))
    view = PlanView(plan, {}, {}, set())
    get_node = layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)
    for index in view.plan:
        if wanted is not None and index not in wanted:
            continue
        if get_node(context, index, first, first + 8):
            raise RuntimeError(f"GetNodeAndRegistration failed for node {index}")
        _add(view, index, (peek.pointer(first), peek.pointer(first + 8)), table.tensors, custom=custom)
    return view


def count_nodes(context: int, subgraph: int) -> int:
    """How many nodes another subgraph has; only while a delegate prepares.

    Raises:
        RuntimeError: the runtime answers with an error.
    """
    table = layouts.Context.from_address(context)
    found = ctypes.c_void_p()
    if layouts.AcquireSubgraph(table.AcquireSubgraphContext)(context, subgraph, ctypes.addressof(found)):
        raise RuntimeError(f"AcquireSubgraphContext failed for subgraph {subgraph}")
    try:
        return len(read_plan(found.value or 0, ()).plan)
    finally:
        layouts.ReleaseSubgraph(table.ReleaseSubgraphContext)(context, subgraph)


def has_node(context: int, index: int) -> bool:
    """Whether the runtime gives the node; only while a delegate prepares."""
    found = ctypes.addressof(_FOUND)
    return not _function(peek.pointer(context + _GET_NODE))(context, index, found, found + 8)


@functools.lru_cache(maxsize=16)
def _function(address: int) -> Any:
    return layouts.GetNodeAndRegistration(address)


def _add(view: PlanView, index: int, found_at: tuple[int, int], tensors: int, *, custom: bool) -> None:
    """Enter one node with its tensors, unless something of it cannot be expressed.

    ``found_at``: addresses of the node and of its registration.
    """
    node, registration = found_at
    try:
        found = read_node(node, registration, custom=custom)
        for operand in (*found.inputs, *found.outputs):
            if operand == layouts.OPTIONAL_TENSOR or operand in view.tensors:
                continue
            view.tensors[operand], constant = read_tensor(tensors, operand)
            if constant:
                view.constants.add(operand)
    except Unknown:
        view.called.extend(called_subgraphs(node, registration))
        return
    view.nodes[index] = found
