"""IF, WHILE and resource variables of graphs from files: they must end, and read what was written.

A loop is one that counts: an int32 counter begins at a constant, each turn adds a constant to it, and the
condition is that it is less than a limit. The limit is a constant, or an int32 input of the graph that
is handed through (inputs of this type have small contents, see `pytest_qnn.cases.data`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.core.bounds import need, shown, within

SPECIAL = frozenset(("IF", "WHILE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"))
MOST_SUBGRAPHS = 16
MOST_TURNS = 16
_ONE = (1,)


def check_special(where: str, node: Node, graph: Graph, variables: dict[int | str, Tensor | str]) -> int:
    """Check a node of `SPECIAL` whose indices are in range; how often what it calls may run.

    Args:
        where: begins the texts of errors.
        node: the node.
        graph: the main graph.
        variables: handle -> name of its variable, and name -> what was assigned to it; enters what the
            node does to them.

    Raises:
        pytest_qnn.core.bounds.BadCase: the node must not be given to a runtime.
    """
    _check_options(where, node, graph)
    if node.op == "WHILE":
        _check_while(where, node, graph)
        return MOST_TURNS
    if node.op == "IF":
        _check_if(where, node, graph)
        return 1
    _check_variable(where, node, graph.tensors, variables)
    return 1


def _check_options(where: str, node: Node, graph: Graph) -> None:
    calls = 2 if node.op in ("IF", "WHILE") else 0
    need(len(node.subgraphs) == calls, f"{where} names {len(node.subgraphs)} subgraphs, not {calls}")
    for number in node.subgraphs:
        need(
            0 < number <= len(graph.subgraphs), f"{where} calls subgraph {shown(number)}, which there is not"
        )
    need(bool(node.variable) == (node.op == "VAR_HANDLE"), f"{where} names a variable, or lacks its name")
    need(node.activation == "NONE", f"{where} cannot have an activation")
    need(all(index >= 0 for index in node.inputs), f"{where} lacks an operand")


def _alike(where: str, what: str, ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """The tensors on both sides of a call agree, but for contents."""
    need(len(ours) == len(theirs), f"{where} has {len(ours)} {what} for {len(theirs)} of the subgraph")
    for one, other in zip(ours, theirs, strict=True):
        need(_kind(one) == _kind(other), f"{where} has {what} that do not match those of the subgraph")


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.scales, tensor.zero_points


def _of(graph: Graph, indices: Sequence[int]) -> list[Tensor]:
    return [graph.tensors[index] for index in indices]


def _check_if(where: str, node: Node, graph: Graph) -> None:
    need(len(node.inputs) > 1 and node.outputs, f"{where} lacks an operand or a result")
    decision = graph.tensors[node.inputs[0]]
    need((decision.dtype, decision.shape) == ("bool", _ONE), f"{where} needs one bool to decide by")
    for number in node.subgraphs:
        branch = graph.subgraphs[number - 1]
        _alike(where, "operands", _of(graph, node.inputs[1:]), _of(branch, branch.inputs))
        _alike(where, "results", _of(graph, node.outputs), _of(branch, branch.outputs))


def _check_while(where: str, node: Node, graph: Graph) -> None:
    need(len(node.inputs) > 1, f"{where} lacks an operand")
    condition, body = (graph.subgraphs[number - 1] for number in node.subgraphs)
    ours = _of(graph, node.inputs)
    for part in (condition, body):
        _alike(where, "operands", ours, _of(part, part.inputs))
    _alike(where, "results", ours, _of(body, body.outputs))
    _alike(where, "results", ours, _of(graph, node.outputs))
    within(f"{where}: its counter begins", _count(where, ours[0]), 0, MOST_TURNS)
    _check_counting(where, body)
    _check_limit(where, node, graph, condition, body)


def _check_counting(where: str, body: Graph) -> None:
    """Each turn adds something to the first loop variable."""
    counting = [node for node in body.nodes if body.outputs[0] in node.outputs and node.op == "ADD"]
    steps = [index for node in counting for index in node.inputs if index != body.inputs[0]]
    need(len(steps) == 1 and counting[0].activation == "NONE", f"{where} does not count its turns")
    within(f"{where}: a turn counts", _count(where, body.tensors[steps[0]]), 1, MOST_TURNS)


def _check_limit(where: str, node: Node, graph: Graph, condition: Graph, body: Graph) -> None:
    need(
        [each.op for each in condition.nodes] == ["LESS"] and condition.outputs == condition.nodes[0].outputs,
        f"{where} has a condition other than one LESS",
    )
    counter, limit = condition.nodes[0].inputs
    need(counter == condition.inputs[0], f"{where} does not compare its counter")
    if limit == condition.inputs[1]:
        need(body.outputs[1] == body.inputs[1], f"{where} changes its limit")
        need(node.inputs[1] in graph.inputs, f"{where} has a limit that is no input")
        need(_kind(condition.tensors[limit])[:2] == (_ONE, "int32"), f"{where} has no int32 for a limit")
    else:
        within(f"{where}: its limit", _count(where, condition.tensors[limit]), 0, MOST_TURNS)


def _count(where: str, tensor: Tensor) -> int:
    need(
        tensor.dtype == "int32" and tensor.shape == _ONE and tensor.data is not None,
        f"{where} does not count with int32 constants",
    )
    number: int = struct.unpack("<i", tensor.data or bytes(4))[0]
    return number


def _check_variable(
    where: str, node: Node, tensors: Sequence[Tensor], variables: dict[int | str, Tensor | str]
) -> None:
    """A variable is read as what it was assigned, after that."""
    reads, writes = {"VAR_HANDLE": (0, 1), "READ_VARIABLE": (1, 1), "ASSIGN_VARIABLE": (2, 0)}[node.op]
    need(
        (len(node.inputs), len(node.outputs)) == (reads, writes),
        f"{where} has {len(node.inputs)} operands and {len(node.outputs)} results",
    )
    if node.op == "VAR_HANDLE":
        handle = tensors[node.outputs[0]]
        need((handle.dtype, handle.shape) == ("resource", _ONE), f"{where} gives no resource")
        variables[node.outputs[0]] = node.variable
        return
    name = variables.get(node.inputs[0])
    need(isinstance(name, str), f"{where} has no handle of a variable")
    value = tensors[node.inputs[1] if node.op == "ASSIGN_VARIABLE" else node.outputs[0]]
    need(value.dtype in ("float32", "int8", "int32"), f"{where} cannot hold {value.dtype}")
    if node.op == "ASSIGN_VARIABLE":
        variables.setdefault(str(name), value)
    known = variables.get(str(name))
    need(isinstance(known, Tensor), f"{where} reads a variable before it is assigned")
    if isinstance(known, Tensor):
        need(_kind(known) == _kind(value), f"{where} has a value of another type than was assigned before")
