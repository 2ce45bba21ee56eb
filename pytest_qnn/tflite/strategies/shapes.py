"""Scripts on graphs whose shapes or paths depend on data: parts that several areas use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    PlainStep,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.control import Bytes, Choice, Sized, size_of
from pytest_qnn.tflite.graph.elastic import doubled, leading
from pytest_qnn.tflite.graph.graph import DType, Graph
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.strategies.claimed import need_claims, taken

MakeGraph = Callable[[Bytes, Sequence[Choice]], Graph]
MakeSteps = Callable[[Graph, bytes], Sequence[AnyScriptStep]]

TARGET, PROBE, ONE, OTHER = "d0", "d1", "i0", "i1"
"""Names of delegates and of interpreters."""
_EXTRA = 8
LENGTHS = (3, 1, 5, 2, 8, 4, 7, 16)


def claimed_choices(facts: DelegateFacts) -> tuple[Choice, ...]:
    """For each type the operators that the target claims in some form.

    Raises:
        pytest_qnn.tflite.facts.NothingToJudge: it claims none of them.
    """
    need_claims(facts)
    known = {(kind.dtype, kind.op) for kind in taken(facts)}
    dtypes: tuple[DType, ...] = ("float32", "int8")
    found = tuple(
        Sized(dtype, left, facts.floor)
        for dtype in dtypes
        if (left := [op for op in OPS[dtype] if (dtype, op) in known])
    )
    if not found:
        raise NothingToJudge("the delegate claims no operator that the rule has graphs of", unsupported=True)
    return found


def shape_cases(
    choices: Sequence[Choice], kinds: Sequence[MakeGraph], make: MakeSteps, nodes: int = 8
) -> SearchStrategy[ScriptCase]:
    """A graph of one of the kinds, decoded from bytes, and the steps that ``make`` gives for it."""
    size = _EXTRA + size_of(nodes)

    def decode(data: bytes) -> ScriptCase:
        graph = kinds[data[_EXTRA - 1] % len(kinds)](Bytes.of(data[_EXTRA:]), choices)
        return ScriptCase((graph,), tuple(make(graph, data[:_EXTRA])))

    return decoded(size, decode)


def make_shape_target(facts: DelegateFacts, graph: Graph, choice: int) -> MakeDelegate:
    """The target claims all that it supports, or (steerable, every second choice) all nodes but some."""
    if not (facts.steerable and choice & 1):
        return MakeDelegate(TARGET)
    left_out = choice >> 1
    claim = tuple(node for node in range(len(graph.nodes)) if node % 3 != left_out % 3)
    return MakeDelegate(TARGET, claim=claim)


def shape_steps(seed: int) -> tuple[PlainStep, ...]:
    """Set the inputs, invoke, and read the outputs."""
    return SetInputs(ONE, seed=seed), Invoke(ONE), Read(ONE)


def resize_step(
    graph: Graph, length: int, interpreter: str = ONE, *, among: Collection[int] | None = None
) -> tuple[PlainStep, ...]:
    """Resize the inputs along their leading dimension, and allocate. int32 inputs stay as they are.

    ``among``: positions of the inputs that are resized; None: all.
    """
    shapes = leading(graph, length)
    resized = (
        Resize(interpreter, position, shape)
        for position, (index, shape) in enumerate(zip(graph.inputs, shapes, strict=True))
        if graph.tensors[index].dtype != "int32" and (among is None or position in among)
    )
    return (*resized, Allocate(interpreter))


def _signed(graph: Graph) -> Graph:
    """The graph whose model says that the leading dimensions of its inputs may change."""
    tensors = list(graph.tensors)
    for index in graph.inputs:
        if tensors[index].dtype != "int32":
            signature = (-1, *tensors[index].shape[1:])
            tensors[index] = msgspec.structs.replace(tensors[index], signature=signature)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def elastic(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph to resize; every second one says in its model that it may be."""
    graph = control.elastic(data, choices)
    return _signed(graph) if data.header[3] & 1 else graph


def side_by_side(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """Two graphs to resize in one."""
    return doubled(elastic(data, choices))


def resized(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target's graph is run, resized some times, and run each time.

    Two to four times, one case in eight nine times; every fourth case is two graphs in one of which one is
    resized; and in every second case the last shape is the first again.
    """

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        lengths = [LENGTHS[byte % len(LENGTHS)] for byte in choice[1 : 3 + choice[5] % 3]]
        if choice[6] >= _MANY_TIMES:
            lengths *= 9 // len(lengths)
        if choice[6] & 1:
            lengths.append(graph.tensors[graph.inputs[0]].shape[0])
        half = len(graph.inputs) // 2
        among = range(half, 2 * half) if choice[6] & 2 else range(half)
        again = (
            step
            for n, length in enumerate(lengths)
            for step in (
                *resize_step(graph, length, among=among if choice[7] % 4 == _APART else None),
                *shape_steps(n + 1),
            )
        )
        return (*opened_steps(facts, graph, choice[0]), Allocate(ONE), *shape_steps(0), *again)

    kinds = [elastic] * _KINDS
    kinds[_APART] = side_by_side
    return shape_cases(claimed_choices(facts), kinds, steps)


_MANY_TIMES = 224
_KINDS = 4
_APART = 3
"""Which of so many cases, by the byte that chooses the kind, is of two graphs that are resized apart."""


def opened_steps(facts: DelegateFacts, graph: Graph, choice: int) -> tuple[AnyScriptStep, ...]:
    """One interpreter with the target applied."""
    return (make_shape_target(facts, graph, choice), Open(ONE), Apply(ONE, TARGET))
