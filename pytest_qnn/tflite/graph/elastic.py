"""Graphs whose inputs may be resized: every shape follows the inputs' leading dimension.

They are made as other graphs are (`pytest_qnn.tflite.graph.decode`), but of shapes of two dimensions or
more, of constants that broadcast from the last dimension, and of operators that keep the leading one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytest_qnn.tflite.graph.constants import constant, integers
from pytest_qnn.tflite.graph.decode import MAX_ELEMENTS, RECORD, Builder, elements
from pytest_qnn.tflite.graph.floors import USUAL, Floor
from pytest_qnn.tflite.graph.graph import Graph, Op
from pytest_qnn.tflite.graph.operators import MAKE, Choices, MakeNode

Shape = tuple[int, ...]

_SHAPES: tuple[Shape, ...] = ((2, 3), (1, 2, 2, 2), (1, 3), (1, 3, 3, 2), (2, 1, 3), (3, 2), (2, 3, 2, 3))
_VARIANTS = 20


class ElasticBuilder(Builder):
    """A graph under construction whose activations all have a leading dimension that follows the inputs'.

    Args:
        quantised: int8 throughout, or float32.
        shape: choice of the inputs' shape.
        params: choice of quantisations.
        tame: results must not grow, however often the graph is run on its own results.
        floor: inputs have so many elements at every length, and each part of the graph so many nodes.
    """

    gives_weights = False

    def __init__(
        self, quantised: bool, shape: int, params: int, *, tame: bool = False, floor: Floor = USUAL
    ) -> None:
        super().__init__(quantised, 0, params)
        *rest, last = _SHAPES[shape % len(_SHAPES)]
        self._base = (
            *rest,
            last * -(-floor.elements // elements((*rest[1:], last))) if floor.elements else last,
        )
        self.least_nodes = floor.nodes
        """Of what each call of `grow` adds."""
        self.least_width = floor.elements
        self.tame = tame
        self.distinct = False
        """No node reads the same tensor twice."""

    @property
    def base(self) -> Shape:
        """The shape of the graph's inputs."""
        return self._base

    def reshape_base(self, shape: Shape) -> None:
        """Let inputs made from now on have this shape."""
        self._base = shape

    def partner(
        self,
        first: int,
        choice: int,
        *,
        same_params: bool,
        growing: bool,
        whole: bool = False,  # noqa: ARG002 - no node of these graphs asks for it
    ) -> int:
        """As of any builder; constants have the last dimension only."""
        shape = self.tensors[first].shape
        if choice < 160 and (self.tame or not growing):
            other = self.peers[shape][-1 - choice % len(self.peers[shape])]
            if same_params and self.params_of(other) != self.params_of(first):
                other = first
            if not (self.distinct and other == first):
                return other
        params = self.params_of(first) if same_params else self.out_params(choice)
        return self.constant(constant(shape[-1:], params, choice % 16))

    def grows_beyond(self, bound: float) -> bool:
        """In a tame float graph any growth is too much."""
        return (self.tame and not self.params) or super().grows_beyond(bound)


def _reshape(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    last = (shape[-1], elements(shape[1:]))[choice.options & 1]
    operands = (operand, build.constant(integers((-1, last))))
    new = (elements(shape) // last, last)
    build.node("RESHAPE", operands, new, build.params_of(operand), build.bound(operand))


def _mean(build: Builder, choice: Choices) -> None:
    operand = build.operand(choice.first)
    shape = build.tensors[operand].shape
    axis = len(shape) - 1 - choice.second % (len(shape) - 1)
    new = (*shape[:axis], 1, *shape[axis + 1 :])
    operands = (operand, build.constant(integers((axis,))))
    build.node("MEAN", operands, new, build.out_params(choice.out), build.bound(operand), keep_dims=True)


def _concatenation(build: Builder, choice: Choices) -> None:
    one = build.operand(choice.first)
    shape = build.tensors[one].shape
    if 2 * elements(shape) > MAX_ELEMENTS:
        one = build.pool[0]
        shape = build.tensors[one].shape
    other = build.partner(one, choice.second % 160, same_params=True, growing=False)
    axis = len(shape) - 1 - (choice.options >> 2) % (len(shape) - 1)
    new = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    bound = max(build.bound(one), build.bound(other))
    build.node("CONCATENATION", (one, other), new, build.params_of(one), bound, axis=axis)


_OWN: dict[Op, MakeNode] = {"RESHAPE": _reshape, "MEAN": _mean, "CONCATENATION": _concatenation}


def grow(build: ElasticBuilder, records: bytes, ops: Sequence[Op], least: int = 1) -> list[int]:
    """Add the nodes that the records stand for, at least ``least``; the numbers of those to be outputs.

    A record that begins with 0 stands for no node, unless it is needed.
    """
    extra = []
    if build.least_nodes > 1 and records:
        least = max(least, build.least_nodes)
        records *= -(-least * RECORD // len(records))
    before, left = len(build.nodes), len(records) // RECORD
    for at in range(0, left * RECORD, RECORD):
        left -= 1
        if not records[at] and len(build.nodes) - before + left >= least:
            continue
        variant, number = divmod(max(records[at] - 1, 0), len(ops))
        op = ops[number]
        if (op == "CONV_2D" and len(build.base) != 4) or (op == "CONCATENATION" and build.distinct):
            op = next((each for each in ops if each not in ("CONV_2D", "CONCATENATION")), "RELU")
        second = records[at + 2]
        if op == "MUL" and build.tame:
            second |= 160  # a constant: squares of squares are soon too large
        choices = Choices(records[at + 1] % 240, second, records[at + 3], variant % _VARIANTS)
        (_OWN.get(op) or MAKE[op])(build, choices)
        if variant % 4 == 3:
            extra.append(len(build.nodes) - 1)
    return extra


def doubled(graph: Graph) -> Graph:
    """The graph twice, side by side: a kernel of both has inputs that may be resized apart.

    The second one's tensors and nodes stand behind those of the first.
    """
    count = len(graph.tensors)
    again = tuple(
        msgspec.structs.replace(
            node,
            inputs=tuple(tensor + count if tensor >= 0 else tensor for tensor in node.inputs),
            outputs=tuple(tensor + count for tensor in node.outputs),
        )
        for node in graph.nodes
    )
    inputs, outputs = (
        (*tensors, *(tensor + count for tensor in tensors)) for tensors in (graph.inputs, graph.outputs)
    )
    return Graph(graph.tensors * 2, (*graph.nodes, *again), inputs, outputs)


def leading(graph: Graph, length: int) -> tuple[Shape, ...]:
    """The shapes of the inputs of an elastic graph with ``length`` for their leading dimension."""
    return tuple((length, *graph.tensors[index].shape[1:]) for index in graph.inputs)
