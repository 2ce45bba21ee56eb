"""What a graph with loops, branches, variables and dynamic shapes amounts to for given inputs.

Calls are written out, variables are replaced by what they hold, and every tensor has the shape it gets:
the outcome is a plain graph, for which kernels and bounds are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.valid import result_shape
from pytest_qnn.tflite.numerics.kernels import compute, constant_value

Array = npt.NDArray[Any]
Names = dict[int, int]
"""Tensor of a (sub)graph -> tensor of the flat graph."""
_DECIDING = ("int32", "bool")
_MOST_TURNS = 1000


def flattened(graph: Graph, inputs: Sequence[Array]) -> Graph:
    """The plain graph that ``graph`` amounts to for ``inputs``, in its order, of whatever shapes.

    Results of type int32 and bool become constants. Two outputs may be the same tensor, or an input.

    Raises:
        pytest_qnn.core.bounds.BadCase: shapes do not match.
        ValueError: a loop does not end.
        KeyError: a variable is read before it is assigned.
    """
    flat = _Flat()
    names: Names = {}
    for index, value in zip(graph.inputs, inputs, strict=True):
        names[index] = flat.enter(graph.tensors[index], value.shape)
        flat.values[names[index]] = value
    given = tuple(names[index] for index in graph.inputs)
    flat.run(graph, names, graph)
    return Graph(tuple(flat.tensors), tuple(flat.nodes), given, tuple(names[i] for i in graph.outputs))


class _Flat:
    """The flat graph under construction."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.values: dict[int, Array] = {}
        """Contents of inputs and constants, and of results that decide about shapes and ways."""
        self._held: dict[str, int] = {}
        """Variable -> what it holds."""

    def enter(self, tensor: Tensor, shape: tuple[int, ...]) -> int:
        self.tensors.append(msgspec.structs.replace(tensor, shape=shape, signature=()))
        return len(self.tensors) - 1

    def run(self, part: Graph, names: Names, whole: Graph) -> None:
        """Add what a (sub)graph does, whose inputs have got their names."""
        handles: dict[int, str] = {}
        for index, tensor in enumerate(part.tensors):
            if tensor.data is not None:
                names[index] = self.enter(tensor, tensor.shape)
                self.values[names[index]] = constant_value(tensor.data, tensor.dtype, tensor.shape)
        for node in part.nodes:
            if node.op == "WHILE":
                self._loop(node, names, whole)
            elif node.op == "IF":
                self._branch(node, names, whole)
            elif node.op == "VAR_HANDLE":
                handles[node.outputs[0]] = node.variable
            elif node.op == "ASSIGN_VARIABLE":
                self._held[handles[node.inputs[0]]] = names[node.inputs[1]]
            elif node.op == "READ_VARIABLE":
                names[node.outputs[0]] = self._held[handles[node.inputs[0]]]
            else:
                self._step(node, names, part)

    def _call(self, number: int, arguments: Sequence[int], whole: Graph) -> list[int]:
        part = whole.subgraphs[number - 1]
        names = dict(zip(part.inputs, arguments, strict=True))
        self.run(part, names, whole)
        return [names[index] for index in part.outputs]

    def _loop(self, node: Node, names: Names, whole: Graph) -> None:
        condition, body = node.subgraphs
        state = [names[index] for index in node.inputs]
        for _ in range(_MOST_TURNS):
            (decision,) = self._call(condition, state, whole)
            if not self.values[decision].any():
                names.update(zip(node.outputs, state, strict=True))
                return
            state = self._call(body, state, whole)
        raise ValueError("a loop does not end")

    def _branch(self, node: Node, names: Names, whole: Graph) -> None:
        decision, *arguments = (names[index] for index in node.inputs)
        way = node.subgraphs[not self.values[decision].any()]
        names.update(zip(node.outputs, self._call(way, arguments, whole), strict=True))

    def _step(self, node: Node, names: Names, part: Graph) -> None:
        inputs = tuple(names[index] if index >= 0 else -1 for index in node.inputs)
        shape = result_shape(node, [self._known(index) for index in inputs if index >= 0])
        result = part.tensors[node.outputs[0]]
        output = self.enter(result, shape)
        names[node.outputs[0]] = output
        step = msgspec.structs.replace(node, inputs=inputs, outputs=(output,))
        if result.dtype not in _DECIDING:
            self.nodes.append(step)
            return
        value = np.ascontiguousarray(compute(step, self.tensors, [self.values[index] for index in inputs]))
        self.values[output] = value
        self.tensors[output] = msgspec.structs.replace(self.tensors[output], data=value.tobytes())

    def _known(self, index: int) -> Tensor:
        """A tensor with its contents, where they may decide about a shape."""
        tensor = self.tensors[index]
        if tensor.dtype != "int32" or tensor.data is not None:
            return tensor
        return msgspec.structs.replace(tensor, data=self.values[index].tobytes())
