"""Graphs with shapes that depend on data, loops, branches and variables, each decoded from bytes.

Inputs of type int32 hold numbers from 1 to 4 (`pytest_qnn.tflite.cases.inputs`): how often a loop goes
round, which way a branch takes, how a RESHAPE cuts its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_qnn.tflite.graph.constants import constant, integers
from pytest_qnn.tflite.graph.decode import RECORD
from pytest_qnn.tflite.graph.elastic import ElasticBuilder, grow
from pytest_qnn.tflite.graph.floors import USUAL, Floor
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Op, Tensor

HEADER = 4
"""Bytes in front of the records: dtype, shape, quantisation, kind."""

_ONE = Tensor((1,), "int32")
_DECISION = Tensor((1,), "bool")
_RESOURCE = Tensor((1,), "resource")
_WIDTHS = (3, 1, 4, 2, 5)
_MORE_BRANCHES = 96
_BOUND = 2.0**30
"""Of what a tame body makes of an input in a few turns."""


class Bytes(NamedTuple):
    """What a graph is decoded from."""

    header: bytes
    records: bytes

    @classmethod
    def of(cls, data: bytes) -> Bytes:
        """The header and the records, in whole ones."""
        return cls(data[:HEADER], data[HEADER:])

    def part(self, number: int, count: int) -> bytes:
        """The records of one of ``count`` parts of equal size."""
        size = len(self.records) // RECORD // count * RECORD
        return self.records[number * size : (number + 1) * size]


class Sized(NamedTuple):
    """Graphs of a type and of these operators, no smaller than the floor."""

    dtype: DType
    ops: Sequence[Op]
    floor: Floor = USUAL


Choice = Sized | tuple[DType, Sequence[Op]]


def size_of(nodes: int) -> int:
    """Bytes for graphs of about this many nodes."""
    return HEADER + nodes * RECORD


def _builder(data: Bytes, choices: Sequence[Choice], *, tame: bool) -> tuple[ElasticBuilder, Sequence[Op]]:
    dtype, ops, floor = Sized(*choices[data.header[0] % len(choices)])
    build = ElasticBuilder(dtype == "int8", data.header[1], data.header[2], tame=tame, floor=floor)
    return build, ops


def elastic(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph whose inputs may be resized along their leading dimension."""
    build, ops = _builder(data, choices, tame=False)
    return build.finish(grow(build, data.records, ops), input_too=False)


def dynamic(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """RESHAPE by a shape [s, -1, width] whose first length is an input, with nodes before and behind it."""
    build, ops = _builder(data, choices, tame=False)
    width = max(_WIDTHS[data.header[1] % len(_WIDTHS)], build.least_width)
    build.reshape_base((12, width))
    build.graph_input(build.base, 0)
    extra = grow(build, data.part(0, 2), ops, 0)
    rows = next(t for t in reversed(build.pool) if build.tensors[t].shape == build.base)
    cut = _input(build)
    rest, shape = build.constant(integers((-1, width))), build.constant(Tensor((3,), "int32"))
    build.nodes.append(Node("CONCATENATION", (cut, rest), (shape,)))
    build.node("RESHAPE", (rows, shape), (2, 6, width), build.params_of(rows), build.bound(rows))
    # ai-edge-litert 2.3 notices the new shape at a second invoke only where this result is an output: else
    # it shares the operand's memory, and later nodes keep the old shape, without any delegate (measured).
    extra.append(len(build.nodes) - 1)
    return build.finish(extra + grow(build, data.part(1, 2), ops), input_too=False)


def _input(build: ElasticBuilder) -> int:
    """Another input of the graph: one int32."""
    index = build.constant(_ONE)
    build.inputs.append(index)
    return index


def looping(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """WHILE that goes round 0 to 4 times, with nodes before and behind it."""
    build, ops = _builder(data, choices, tame=False)
    extra = grow(build, data.part(0, 3), ops)
    body = _body(data, choices, data.part(1, 3))
    value = _matching(build, body.tensors[body.inputs[0]])
    limit, start = _input(build), build.constant(integers((data.header[3] % 3,)))
    result = build.activation(body.tensors[body.inputs[0]].shape, build.params_of(value), _BOUND)
    counters = build.constant(_ONE), build.constant(_ONE)
    build.nodes.append(Node("WHILE", (start, limit, value), (*counters, result), subgraphs=(1, 2)))
    build.readers[value] = build.readers.get(value, 0) + 1
    graph = build.finish(extra + grow(build, data.part(2, 3), ops, 0), input_too=False)
    return Graph(
        graph.tensors,
        graph.nodes,
        graph.inputs,
        graph.outputs,
        (_condition(body.tensors[body.inputs[0]]), _counting(body)),
    )


def loop_around(body: Graph) -> Graph:
    """WHILE that goes round as often as its first input says, and nothing else."""
    value = body.tensors[body.inputs[0]]
    tensors = (integers((0,)), _ONE, value, _ONE, _ONE, value)
    node = Node("WHILE", (0, 1, 2), (3, 4, 5), subgraphs=(1, 2))
    return Graph(tensors, (node,), (1, 2), (5,), (_condition(value), _counting(body)))


def branching(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """IF between two subgraphs, with nodes before and behind it; up to three of them, one after another."""
    build, ops = _builder(data, choices, tame=False)
    extra = grow(build, data.part(0, 4), ops)
    ways = tuple(_body(data, choices, data.part(number, 4)) for number in (1, 2))
    like = ways[0].tensors[ways[0].inputs[0]]
    value = _matching(build, like)
    chosen, limit = _input(build), build.constant(integers((3,)))
    decision = build.constant(_DECISION)
    build.nodes.append(Node("LESS", (chosen, limit), (decision,)))
    times = 1 + data.header[3] // _MORE_BRANCHES
    for number in range(0, 2 * times, 2):
        result = build.activation(like.shape, build.params_of(value), _BOUND)
        build.nodes.append(Node("IF", (decision, value), (result,), subgraphs=(number + 1, number + 2)))
        build.readers[value] = build.readers.get(value, 0) + 1
        value = result
    graph = build.finish(extra + grow(build, data.part(3, 4), ops, 0), input_too=False)
    return Graph(graph.tensors, graph.nodes, graph.inputs, graph.outputs, ways * times)


def _body(data: Bytes, choices: Sequence[Choice], records: bytes) -> Graph:
    """A subgraph from one tensor to another of its kind, all of it tame."""
    build, ops = _builder(data, choices, tame=True)
    first = build.graph_input(build.base, 0)
    grow(build, records, ops)
    kind = build.tensors[first]
    last = next((t for t in reversed(build.pool) if t != first and build.tensors[t] == kind), None)
    if last is None:
        # No node gives such a tensor: one more does.
        step = build.constant(constant(kind.shape[-1:], build.params_of(first), 1))
        build.node("ADD", (first, step), kind.shape, build.params_of(first), _BOUND)
        last = build.pool[-1]
    return Graph(tuple(build.tensors), tuple(build.nodes), tuple(build.inputs), (last,))


def _matching(build: ElasticBuilder, like: Tensor) -> int:
    """The latest tensor of this kind, or a new input."""
    found = next((t for t in reversed(build.pool) if build.tensors[t] == like), None)
    return build.graph_input(like.shape, 0) if found is None else found


def _condition(value: Tensor) -> Graph:
    """Whether the counter is below the limit."""
    return Graph((_ONE, _ONE, value, _DECISION), (Node("LESS", (0, 1), (3,)),), (0, 1, 2), (3,))


def _counting(body: Graph) -> Graph:
    """The body of a loop: the counter goes up, the limit stays, the value goes through ``body``."""
    count = len(body.tensors)
    counter, step, limit, after = range(count, count + 4)
    return Graph(
        (*body.tensors, _ONE, integers((1,)), _ONE, _ONE),
        (Node("ADD", (counter, step), (after,)), *body.nodes),
        (counter, limit, *body.inputs),
        (after, limit, *body.outputs),
    )


def stateful(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """Two variables, each assigned once and read later, with other nodes in between.

    The second is assigned after the first was read, or, in three cases of four, before.
    """
    build, ops = _builder(data, choices, tame=False)
    # XNNPACK on ai-edge-litert 2.3 crashes where one node reads what was read from a variable twice.
    build.distinct = True
    value = build.graph_input(build.base, 0)
    extra: list[int] = []
    unread: list[tuple[int, int]] = []
    for number in range(2):
        handle = build.constant(_RESOURCE)
        build.nodes.append(Node("VAR_HANDLE", (), (handle,), variable=f"v{number}"))
        build.nodes.append(Node("ASSIGN_VARIABLE", (handle, value), ()))
        build.readers[value] = build.readers.get(value, 0) + 1
        extra += grow(build, data.part(2 * number, 4), ops, 0)
        unread.append((handle, value))
        value = build.pool[-1]
        if not number and data.header[3] % 4:
            continue
        for variable, held in unread:
            read = build.activation(build.tensors[held].shape, build.params_of(held), build.bound(held))
            build.nodes.append(Node("READ_VARIABLE", (variable,), (read,)))
        unread.clear()
        extra += grow(build, data.part(2 * number + 1, 4), ops, 0)
        value = build.pool[-1]
    return build.finish(extra, input_too=False)
