"""Nodes of graphs from files: operands, types, options, shapes; IF and WHILE must end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod

from pytest_qnn.core.bounds import need, shown, within
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor

__tracebackhide__ = True
Shape = tuple[int, ...]
_FUSES = ("ADD", "SUB", "MUL", "FULLY_CONNECTED", "CONV_2D")
_WEIGHTED = ("FULLY_CONNECTED", "CONV_2D")
_INTEGER = ("ADD", "CONCATENATION")
"""They count, and put shapes together: on int32 too."""


def check_node(where: str, node: Node, tensors: Sequence[Tensor]) -> int:
    """Check one node whose indices are in range; give about how many operations it needs.

    Raises:
        pytest_qnn.core.bounds.BadCase: with ``where`` in front.
    """
    least, most, shape_of = _OPS[node.op]
    takes = str(least) if least == most else f"{least} to {most}"
    need(least <= len(node.inputs) <= most, f"{where} has {len(node.inputs)} operands, and takes {takes}")
    need(
        all(index >= 0 for index in node.inputs[:2]) and (-1 not in node.inputs or node.op in _WEIGHTED),
        f"{where} lacks an operand",
    )
    need(node.activation == "NONE" or node.op in _FUSES, f"{where} cannot have an activation")
    operands = [tensors[index] for index in node.inputs if index >= 0]
    result = tensors[node.outputs[0]]
    _check_types(where, node, operands, result)
    shape = _stated(where, operands, result) if is_dynamic(node, tensors) else shape_of(where, node, operands)
    need(result.shape == shape, f"{where} gives {list(shape)}, and its result has {list(result.shape)}")
    return prod(shape) * (prod(operands[1].shape[1:]) if node.op in _WEIGHTED else len(operands))


def is_dynamic(node: Node, tensors: Sequence[Tensor]) -> bool:
    """Whether the shape of the result depends on the contents of a tensor that is no constant."""
    return node.op == "RESHAPE" and tensors[node.inputs[1]].data is None


def result_shape(node: Node, operands: Sequence[Tensor]) -> Shape:
    """The shape of a node's result by those of its operands (with contents, where a shape depends on them).

    Raises:
        pytest_qnn.core.bounds.BadCase: they do not match.
        KeyError: the operator has no rule of its own (it calls subgraphs or touches a resource).
    """
    return _OPS[node.op][2](node.op, node, operands)


def _stated(where: str, operands: Sequence[Tensor], result: Tensor) -> Shape:
    """The shape that the model states for a result of dynamic shape."""
    value, shape = operands
    need(shape.shape == (len(result.shape),), f"{where} has a shape of another rank than its result")
    need(prod(value.shape) == prod(result.shape), f"{where} changes the number of elements")
    return result.shape


def _check_types(where: str, node: Node, operands: Sequence[Tensor], result: Tensor) -> None:
    values = operands
    if node.op in ("RESHAPE", "MEAN"):
        second = operands[1]
        need(
            second.dtype == "int32" and len(second.shape) == 1,
            f"{where} needs an int32 vector as its second operand",
        )
        need(second.data is not None or node.op == "RESHAPE", f"{where} needs constant axes")
        values = operands[:1]
    elif node.op in _WEIGHTED:
        bias_type = "int32" if result.dtype == "int8" else "float32"
        need(all(bias.dtype == bias_type for bias in operands[2:]), f"{where} has a bias of another type")
        values = operands[:2]
    elif node.op == "LESS":
        need({value.dtype for value in values} in ({"float32"}, {"int32"}), f"{where} cannot compare these")
        need(result.dtype == "bool", f"{where} gives bool, not {result.dtype}")
        return
    allowed = ("float32", "int8", "int32") if node.op in _INTEGER else ("float32", "int8")
    need(result.dtype in allowed, f"{where} cannot compute {result.dtype}")
    need(all(value.dtype == result.dtype for value in values), f"{where} has operands of different types")
    per_tensor = (values[0], result) if node.op in _WEIGHTED else (*values, result)
    need(all(len(tensor.scales) <= 1 for tensor in per_tensor), f"{where} has an activation of many scales")


def _same(_where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    return operands[0].shape


def _broadcast(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    rank = max(len(operand.shape) for operand in operands)
    shapes = [(1,) * (rank - len(operand.shape)) + operand.shape for operand in operands]
    lengths = []
    for pair in zip(*shapes, strict=True):
        need(len({length for length in pair if length != 1}) <= 1, f"{where} has operands that do not match")
        lengths.append(next((length for length in pair if length != 1), 1))
    return tuple(lengths)


def _prelu(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    need(_broadcast(where, node, operands) == operands[0].shape, f"{where} has slopes that do not match")
    return operands[0].shape


def _reshape(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = _integers(operands[1])
    need(
        all(length > 0 or length == -1 for length in shape) and shape.count(-1) <= 1,
        f"{where} has no positive shape",
    )
    size = prod(operands[0].shape)
    known = prod(length for length in shape if length > 0)
    shape = tuple(size // known if length < 0 else length for length in shape)
    need(prod(shape) == size, f"{where} changes the number of elements")
    return shape


def _mean(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = operands[0].shape
    rank = len(shape)
    axes = _integers(operands[1])
    need(all(-rank <= axis < rank for axis in axes), f"{where} has an axis out of range")
    reduced = {axis % rank for axis in axes}
    if node.keep_dims:
        return tuple(1 if axis in reduced else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in reduced)


def _concatenation(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    shape = operands[0].shape
    rank = len(shape)
    within(f"{where}: axis", node.axis, -rank, rank - 1)
    axis = node.axis % rank
    for operand in operands:
        need(
            len(operand.shape) == rank
            and operand.shape[:axis] == shape[:axis]
            and operand.shape[axis + 1 :] == shape[axis + 1 :],
            f"{where} has operands that do not match",
        )
    return (*shape[:axis], sum(operand.shape[axis] for operand in operands), *shape[axis + 1 :])


def _fully_connected(where: str, _node: Node, operands: Sequence[Tensor]) -> Shape:
    value, weights, *bias = operands
    need(
        len(weights.shape) == 2 and value.shape[-1] == weights.shape[1],
        f"{where} has weights that do not match (2 dimensions, the last as long as the operand's)",
    )
    _check_weights(where, weights, bias)
    return (prod(value.shape[:-1]), weights.shape[0])


def _conv_2d(where: str, node: Node, operands: Sequence[Tensor]) -> Shape:
    value, weights, *bias = operands
    need(
        len(value.shape) == len(weights.shape) == 4
        and value.shape[3] % weights.shape[3] == 0
        and weights.shape[0] % (value.shape[3] // weights.shape[3]) == 0,
        f"{where} has weights that do not match (they and the operand have 4 dimensions)",
    )
    _check_weights(where, weights, bias)
    need(bias, f"{where} has no bias")  # tflite-runtime 2.14 refuses that
    image = []
    for axis in (0, 1):
        reach = (weights.shape[axis + 1] - 1) * node.dilation[axis] + 1
        positions = value.shape[axis + 1] - (0 if node.same_padding else reach - 1)
        need(positions > 0, f"{where} has a kernel beyond the image")
        image.append(-(-positions // node.stride[axis]))
    return (value.shape[0], *image, weights.shape[0])


def _check_weights(where: str, weights: Tensor, bias: Sequence[Tensor]) -> None:
    units = weights.shape[0]
    need(weights.axis == 0, f"{where} has weights with scales along another axis than their units")
    need(all(each.shape == (units,) for each in bias), f"{where} has a bias that does not match")
    if weights.dtype == "int8":
        # The TensorFlow Lite 8-bit quantisation specification; its kernels refuse anything else.
        need(not any(weights.zero_points), f"{where} has weights with a zero point")


def _integers(tensor: Tensor) -> tuple[int, ...]:
    data = tensor.data or b""
    return struct.unpack(f"<{len(data) // 4}i", data)


_OPS: dict[Op, tuple[int, int, Callable[[str, Node, Sequence[Tensor]], Shape]]] = {
    "RELU": (1, 1, _same),
    "ABS": (1, 1, _same),
    "NEG": (1, 1, _same),
    "ADD": (2, 2, _broadcast),
    "SUB": (2, 2, _broadcast),
    "MUL": (2, 2, _broadcast),
    "MAXIMUM": (2, 2, _broadcast),
    "PRELU": (2, 2, _prelu),
    "RESHAPE": (2, 2, _reshape),
    "MEAN": (2, 2, _mean),
    "CONCATENATION": (1, 16, _concatenation),
    "FULLY_CONNECTED": (2, 3, _fully_connected),
    "CONV_2D": (2, 3, _conv_2d),
    "LESS": (2, 2, _broadcast),
}
"""Fewest and most operands, and the shape of the result."""

SPECIAL = frozenset(("IF", "WHILE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"))
MOST_TURNS = 16
_ONE = (1,)


def check_special(
    where: str, node: Node, graph: Graph, variables: dict[int | str, Tensor | str], *, ends: bool = True
) -> int:
    """Check a node of `SPECIAL` whose indices are in range; how often what it calls may run.

    Args:
        where: begins the texts of errors.
        node: the node.
        graph: the main graph.
        variables: handle -> name of its variable, and name -> what was assigned to it; enters what the
            node does to them.
        ends: a WHILE must be of the one form that is known to end within `MOST_TURNS`.

    Raises:
        pytest_qnn.core.bounds.BadCase: the node must not be given to a runtime.
    """
    _check_control_options(where, node, graph)
    if node.op == "WHILE":
        condition, body = _check_while(where, node, graph)
        if ends:
            _check_ends(where, node, graph, condition, body)
        return MOST_TURNS
    if node.op == "IF":
        _check_if(where, node, graph)
        return 1
    _check_variable(where, node, graph.tensors, variables)
    return 1


def _check_control_options(where: str, node: Node, graph: Graph) -> None:
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


def _check_while(where: str, node: Node, graph: Graph) -> tuple[Graph, Graph]:
    """Its condition and its body, which take and give what they must."""
    need(len(node.inputs) > 1, f"{where} lacks an operand")
    condition, body = (graph.subgraphs[number - 1] for number in node.subgraphs)
    ours = _of(graph, node.inputs)
    for part in (condition, body):
        _alike(where, "operands", ours, _of(part, part.inputs))
    _alike(where, "results", ours, _of(body, body.outputs))
    _alike(where, "results", ours, _of(graph, node.outputs))
    decision = [(each.dtype, each.shape) for each in _of(condition, condition.outputs)]
    need(decision == [("bool", _ONE)], f"{where} needs a condition that gives one bool")
    return condition, body


def _check_ends(where: str, node: Node, graph: Graph, condition: Graph, body: Graph) -> None:
    within(f"{where}: its counter begins", _count(where, graph.tensors[node.inputs[0]]), 0, MOST_TURNS)
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
