"""What a runtime's interpreter holds: its plan and nodes.

`private_plan` and the like read C++ members without a header and may be used only where the canary
holds. `public_plan` needs the C interface alone, which answers only while a delegate prepares.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.trace import PlanNode

_IMPL: Final = layouts.Context.impl_.offset
_SIZES: Final = ctypes.sizeof(layouts.Node), ctypes.sizeof(layouts.Registration)

_PAIR: Final = struct.Struct("=QQ48xQ8x40xi4xQ32x")
"""TfLiteNode's inputs, outputs and delegate; TfLiteRegistration's builtin_code and custom_name."""


def context_of(interpreter: Any) -> int:
    """The address of an Interpreter's TfLiteContext (main subgraph)."""
    return peek.pointer(interpreter._native_handle() + layouts.INTERPRETER_CONTEXT)


def subgraph_of(context: int) -> int:
    """The address of the C++ Subgraph of a TfLiteContext."""
    return peek.pointer(context + _IMPL)


def private_plan(context: int, owners: Mapping[int, int]) -> tuple[PlanNode, ...]:
    """The execution plan of a subgraph, read from its private members. Works at any time.

    ``owners`` maps a delegate's address to its position among the applications.
    """
    subgraph = subgraph_of(context)
    nodes = peek.pointer(subgraph + layouts.SUBGRAPH_NODES)
    plan = peek.vector(subgraph + layouts.SUBGRAPH_PLAN, "i")
    unpack = _PAIR.unpack_from
    return _plan_nodes(plan, [unpack(peek.MEMORY, nodes + at * layouts.NODE_STRIDE) for at in plan], owners)


def _plan_nodes(
    plan: tuple[int, ...], pairs: list[tuple[int, ...]], owners: Mapping[int, int]
) -> tuple[PlanNode, ...]:
    """``pairs``: `_PAIR` of each node of the plan."""
    operands = iter(peek.all_integers([array for pair in pairs for array in pair[:2]]))
    found = []
    for index, (_, _, delegate, op, name) in zip(plan, pairs, strict=True):
        inputs, outputs = next(operands), next(operands)
        if op == layouts.BUILTIN_DELEGATE:
            owner = owners.get(delegate, -1)
            found.append(PlanNode(index, op, inputs, outputs, owner, peek.text(name)))
        else:
            found.append(PlanNode(index, op, inputs, outputs, -1))
    return tuple(found)


def delegates_applied(context: int) -> tuple[int, ...]:
    """Addresses of the delegates in force, in order of application (private member)."""
    return peek.vector(subgraph_of(context) + layouts.SUBGRAPH_DELEGATES, "Q")


def public_plan(context: int, owners: Mapping[int, int]) -> tuple[PlanNode, ...]:
    """The execution plan through the C interface; only while a delegate prepares.

    Raises:
        RuntimeError: the runtime answers with an error.
    """
    table = layouts.Context.from_address(context)
    get_node = layouts.GetNodeAndRegistration(table.GetNodeAndRegistration)
    answer = ctypes.c_void_p()
    if layouts.GetExecutionPlan(table.GetExecutionPlan)(context, ctypes.addressof(answer)):
        raise RuntimeError("GetExecutionPlan failed")
    pair = (ctypes.c_void_p * 2)()
    node = ctypes.addressof(pair)
    pairs = []
    plan = peek.integers(answer.value or 0)  # copied: the array dies with the next call of GetExecutionPlan
    for index in plan:
        if get_node(context, index, node, node + 8):
            raise RuntimeError(f"GetNodeAndRegistration failed for node {index}")
        parts = (ctypes.string_at(address, size) for address, size in zip(pair, _SIZES, strict=True))
        pairs.append(_PAIR.unpack(b"".join(parts)))
    return _plan_nodes(plan, pairs, owners)
