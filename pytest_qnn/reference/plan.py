"""What the reference delegate learns of a graph while it prepares: through the public C interface only."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Collection

from pytest_qnn.abi import peek, tflite
from pytest_qnn.cases.graph import Node, Tensor
from pytest_qnn.reference.reading import Unknown, read_node, read_tensor


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


def read_plan(context: int, wanted: Collection[int] | None = None) -> PlanView:
    """Read the plan, and those of its nodes that are wanted (None: all).

    Raises:
        RuntimeError: the runtime answers with an error.
    """
    table = tflite.Context.from_address(context)
    answer = (ctypes.c_void_p * 2)()
    first = ctypes.addressof(answer)
    if tflite.GetExecutionPlan(table.GetExecutionPlan)(context, first):
        raise RuntimeError("GetExecutionPlan failed")
    # Copied at once: the array dies with the next call of GetExecutionPlan.
    view = PlanView(peek.integers(peek.pointer(first)), {}, {}, set())
    get_node = tflite.GetNodeAndRegistration(table.GetNodeAndRegistration)
    for index in view.plan:
        if wanted is not None and index not in wanted:
            continue
        if get_node(context, index, first, first + 8):
            raise RuntimeError(f"GetNodeAndRegistration failed for node {index}")
        _add(view, index, peek.pointer(first), peek.pointer(first + 8), table.tensors)
    return view


def _add(view: PlanView, index: int, node: int, registration: int, tensors: int) -> None:
    """Enter one node with its tensors, unless something of it cannot be expressed."""
    try:
        found = read_node(node, registration)
        for operand in (*found.inputs, *found.outputs):
            if operand == tflite.OPTIONAL_TENSOR or operand in view.tensors:
                continue
            view.tensors[operand], constant = read_tensor(tensors, operand)
            if constant:
                view.constants.add(operand)
    except Unknown:
        return
    view.nodes[index] = found
