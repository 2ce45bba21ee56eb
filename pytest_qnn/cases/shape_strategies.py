"""Hypothesis strategies for scripts that resize inputs, or run graphs whose shapes or ways hang on data.

Each case is one draw of bytes: a few that choose the steps, and those of the graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import control_graphs as graphs
from pytest_qnn.cases.control_graphs import Bytes, Choice, size_of
from pytest_qnn.cases.elastic import leading
from pytest_qnn.cases.graph import DType, Graph, Op
from pytest_qnn.cases.graph_kinds import OPS
from pytest_qnn.cases.kinds import need_claims, taken
from pytest_qnn.cases.lifetime_strategies import spells
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    PlainStep,
    Read,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import DelegateFacts

MakeGraph = Callable[[Bytes, Sequence[Choice]], Graph]
MakeSteps = Callable[[Graph, bytes], Sequence[AnyScriptStep]]

TARGET, PROBE, ONE, OTHER = "d0", "d1", "i0", "i1"
"""Names of delegates and of interpreters."""
_EXTRA = 8
_LENGTHS = (3, 1, 5, 2, 8, 4, 7, 16)
_GREAT = (16, 33, 64, 100)
_ROUNDS = 8
ROUNDS = 80
"""Over several shapes, in a long spell: what a short one leaves more than that is the suite's own."""
_ELEMENTWISE: tuple[Op, ...] = ("RELU", "ABS", "NEG", "ADD", "SUB", "MUL", "MAXIMUM")


def claimed_choices(facts: DelegateFacts) -> tuple[Choice, ...]:
    """For each type the operators that the target claims in some form.

    Raises:
        pytest_qnn.facts.NothingToJudge: it claims none of them.
    """
    need_claims(facts)
    known = {(kind.dtype, kind.op) for kind in taken(facts)}
    dtypes: tuple[DType, ...] = ("float32", "int8")
    found = tuple(
        (dtype, left) for dtype in dtypes if (left := [op for op in OPS[dtype] if (dtype, op) in known])
    )
    if not found:
        raise NothingToJudge("the delegate claims no operator that the rule has graphs of", unsupported=True)
    return found


def _cases(
    choices: Sequence[Choice], kinds: Sequence[MakeGraph], make: MakeSteps, nodes: int = 8
) -> SearchStrategy[ScriptCase]:
    size = _EXTRA + size_of(nodes)

    def decode(data: bytes) -> ScriptCase:
        graph = kinds[data[_EXTRA - 1] % len(kinds)](Bytes.of(data[_EXTRA:]), choices)
        return ScriptCase((graph,), tuple(make(graph, data[:_EXTRA])))

    return decoded(size, decode)


def _target(facts: DelegateFacts, graph: Graph, choice: int) -> MakeDelegate:
    """The target claims all that it supports, or (steerable, every second choice) all nodes but some."""
    if not (facts.steerable and choice & 1):
        return MakeDelegate(TARGET)
    left_out = choice >> 1
    claim = tuple(node for node in range(len(graph.nodes)) if node % 3 != left_out % 3)
    return MakeDelegate(TARGET, claim=claim)


def _run(seed: int) -> tuple[PlainStep, ...]:
    return SetInputs(ONE, seed=seed), Invoke(ONE), Read(ONE)


def _resize(graph: Graph, length: int, interpreter: str = ONE) -> tuple[PlainStep, ...]:
    """Resize the inputs along their leading dimension, and allocate. int32 inputs stay as they are."""
    shapes = leading(graph, length)
    resized = (
        Resize(interpreter, position, shape)
        for position, (index, shape) in enumerate(zip(graph.inputs, shapes, strict=True))
        if graph.tensors[index].dtype != "int32"
    )
    return (*resized, Allocate(interpreter))


def _base(graph: Graph) -> int:
    """The leading dimension that the model states."""
    return graph.tensors[graph.inputs[0]].shape[0]


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
    graph = graphs.elastic(data, choices)
    return _signed(graph) if data.header[3] & 1 else graph


def resized(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target's graph is run, resized two to four times, and run each time."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        lengths = [_LENGTHS[byte % len(_LENGTHS)] for byte in choice[1 : 3 + choice[5] % 3]]
        again = (step for n, length in enumerate(lengths) for step in (*_resize(graph, length), *_run(n + 1)))
        return (*_opened(facts, graph, choice[0]), Allocate(ONE), *_run(0), *again)

    return _cases(claimed_choices(facts), (elastic,), steps)


def _opened(facts: DelegateFacts, graph: Graph, choice: int) -> tuple[AnyScriptStep, ...]:
    return (_target(facts, graph, choice), Open(ONE), Apply(ONE, TARGET))


def to_the_same(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """An input is resized to the shape that it has, between two invokes."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        length = _LENGTHS[choice[1] % len(_LENGTHS)]
        first = (Allocate(ONE), *_run(0), *_resize(graph, length), *_run(1))
        return (*_opened(facts, graph, choice[0]), *first, *_resize(graph, length), *_run(2))

    return _cases(claimed_choices(facts), (elastic,), steps)


def redone(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target, alone or with a probe; resized to and fro before one allocate, then some times; run."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        mine = _target(facts, graph, choice[0])
        other = MakeDelegate(PROBE, "probe", claim=tuple(range(choice[3] % 2, len(graph.nodes), 2)))
        order = (TARGET, PROBE) if choice[2] & 1 else (PROBE, TARGET)
        applied = (TARGET,) if choice[2] < 128 else order
        there = _LENGTHS[choice[1] % (len(_LENGTHS) - 1)]
        there += there == _base(graph)
        rounds = Repeat(_ROUNDS, (*_resize(graph, there), *_resize(graph, _base(graph))))
        made = (mine, other) if PROBE in applied else (mine,)
        applies = tuple(Apply(ONE, name) for name in applied)
        back = (*_resize(graph, there)[:-1], *_resize(graph, _base(graph)))
        return (*made, Open(ONE), *applies, Allocate(ONE), *back, rounds, *_run(1))

    return _cases(claimed_choices(facts), (elastic,), steps)


def grown(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The inputs grow far; should that fail, allocate_tensors is called once more."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        length = _GREAT[choice[1] % len(_GREAT)]
        great = (*_resize(graph, length), Allocate(ONE), *_run(1))
        small = (*_resize(graph, 1 + choice[2] % 3), Allocate(ONE), *_run(2))
        return (*_opened(facts, graph, choice[0]), Allocate(ONE), *_run(0), *great, *small)

    return _cases(claimed_choices(facts), (elastic,), steps)


def alternating(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Shapes go to and fro, in spells of few and of many rounds; first the target's, then a probe's.

    Memory is counted after each spell. Nothing of the suite's stands between the runtime and a delegate:
    what is made for every callback would move the counts by more than a small block for each round.
    """

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        lengths = tuple(dict.fromkeys((*(_LENGTHS[byte % len(_LENGTHS)] for byte in choice[1:3]), 6)))
        target = _target(facts, graph, choice[0])
        probe = MakeDelegate(PROBE, "probe", claim=target.claim)
        return (*_rounds(target, ONE, graph, lengths), *_rounds(probe, OTHER, graph, lengths))

    return _cases(claimed_choices(facts), (elastic,), steps, nodes=4)


def _rounds(
    made: MakeDelegate, interpreter: str, graph: Graph, lengths: Sequence[int]
) -> tuple[AnyScriptStep, ...]:
    """A delegate on an interpreter of its own, and spells of rounds over these leading dimensions."""
    use = (SetInputs(interpreter, seed=1), Invoke(interpreter))
    inner = tuple(step for length in lengths for step in (*_resize(graph, length, interpreter), *use))
    ready = (Open(interpreter), Apply(interpreter, made.delegate, spied=False), Allocate(interpreter))
    return (made, *ready, *spells(inner, ROUNDS))


def dynamic(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A graph with shapes that hang on data, invoked three times with other data; resized; once more."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(_run(seed) for seed in (choice[1], choice[2], choice[3]))
        more = (*_resize(graph, 24), *_run(choice[4])) if choice[5] & 1 else ()
        return (*_opened(facts, graph, choice[0] & 254), Allocate(ONE), *runs, *more)

    return _cases(claimed_choices(facts), (graphs.dynamic,), steps)


def probed_dynamic(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe that allows no dynamic tensors is applied to a graph that has some."""

    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        made = MakeDelegate(PROBE, "probe", flags=choice[0] & 2)
        return (made, Open(ONE), Apply(ONE, PROBE), Allocate(ONE), *_run(choice[1]), *_run(choice[2]))

    return _cases([(dtype, OPS[dtype]) for dtype in ("float32", "int8")], (graphs.dynamic,), steps)


def made_dynamic(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A static probe, then one whose kernels make their outputs dynamic."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        count = len(graph.nodes)
        first, second = tuple(range(0, count, 2)), tuple(range(1, count, 2))
        if choice[0] & 1:
            first, second = second, first
        static = MakeDelegate(TARGET, "probe", claim=first)
        other = MakeDelegate(PROBE, "probe", claim=second, fault="dynamic", flags=1 + 2 * (choice[1] & 1))
        return (static, other, Open(ONE), Apply(ONE, TARGET), Apply(ONE, PROBE), Allocate(ONE), *_run(1))

    return _cases([("float32", _ELEMENTWISE)], (elastic,), steps)


def propagated(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe that requires propagated shapes, on element-wise nodes; it leaves its outputs' shapes alone."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        made = MakeDelegate(PROBE, "probe", flags=3)
        lengths = [_LENGTHS[byte % len(_LENGTHS)] for byte in choice[1:4]]
        again = (step for n, length in enumerate(lengths) for step in (*_resize(graph, length), *_run(n + 1)))
        return (made, Open(ONE), Apply(ONE, PROBE), Allocate(ONE), *_run(0), *again)

    return _cases([("float32", _ELEMENTWISE)], (elastic,), steps)


def controlled(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with WHILE or IF, invoked four times with other data."""
    return _control(facts, (graphs.looping, graphs.branching))


def looping(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with WHILE that goes round 0 to 4 times, invoked four times with other data."""
    return _control(facts, (graphs.looping,))


def _control(facts: DelegateFacts, kinds: Sequence[MakeGraph]) -> SearchStrategy[ScriptCase]:
    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(_run(seed) for seed in choice[1:5])
        return (MakeDelegate(TARGET), Open(ONE), Apply(ONE, TARGET), Allocate(ONE), *runs)

    return _cases(claimed_choices(facts), kinds, steps, nodes=12)


def _validated(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph that holds one more subgraph, or two, for validation."""
    graph = graphs.looping(data, choices) if data.header[3] & 4 else graphs.elastic(data, choices)
    extra = msgspec.structs.replace(graphs.elastic(data, choices), validation=True)
    count = 1 + (data.header[3] >> 3) % 2
    return msgspec.structs.replace(graph, subgraphs=graph.subgraphs + (extra,) * count)


def validated(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe on a graph that holds subgraphs for validation."""

    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        return (MakeDelegate(PROBE, "probe"), Open(ONE), Apply(ONE, PROBE), Allocate(ONE), *_run(choice[1]))

    return _cases([(dtype, OPS[dtype]) for dtype in ("float32", "int8")], (_validated,), steps, nodes=12)


def _ordered(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph with control edges in its metadata."""
    graph = graphs.elastic(data, choices)
    count, edges = len(graph.nodes), set()
    for at in range(0, len(data.records) - 1, 5):
        first, then = data.records[at] % count, data.records[at + 1] % count
        if first < then:
            edges.add((first, then))
    return msgspec.structs.replace(graph, control_edges=tuple(sorted(edges)))


def stateful(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with variables, with control edges, or with WHILE, for the target; invoked three times."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(_run(seed) for seed in (1, choice[2], choice[3]))
        plain = not graph.subgraphs
        return (*_opened(facts, graph, choice[0] if plain else 0), Allocate(ONE), *runs)

    kinds = (graphs.stateful, _ordered, graphs.looping)
    return _cases(claimed_choices(facts), kinds, steps, nodes=10)
