"""Hypothesis strategies for script cases about the memory of tensors.

Each case is one draw of bytes, as in `pytest_qnn.cases.delegate_strategies`. They follow the workflow of the
vendor's tutorial on shared memory (seed 000): request memory, wrap and assign it, allocate tensors, modify
the graph with the delegate, invoke, free the memory, delete the delegate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.graph import Graph, Node, Op, Tensor
from pytest_qnn.cases.graph_kinds import Claims, Kind, decode_graph, size_of
from pytest_qnn.cases.kinds import claimed_kinds, mixed_kinds, need_claims, taken
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    FreeBuffer,
    Guard,
    Hollow,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Poison,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import DelegateFacts

Steps = tuple[AnyScriptStep, ...]
Make = Callable[[Graph, Claims, bytes], ScriptCase]
"""(graph, claims, four bytes of choice) -> case."""

_EXTRA = 6
"""Bytes before the graph's: four of choice, two of seed."""
_GUARDS: tuple[Guard, ...] = ("after", "flush", "before", "flush")
_MISALIGNED = (4, 16, 32, 8, 60, 48)
_BIASED: tuple[Op, ...] = ("FULLY_CONNECTED",)
_UNARY: tuple[Op, ...] = ("RELU", "ABS", "NEG")
_BINARY: tuple[Op, ...] = ("ADD", "MUL", "SUB", "MAXIMUM")


def guarded(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Inputs, outputs and constants, or else all tensors, against pages that must not be touched."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        guard = _GUARDS[choice[0] % len(_GUARDS)]
        inner = range(len(graph.tensors)) if choice[0] & 64 else _border(graph)
        chosen = sorted({*inner, *_constants(graph)})
        places = tuple(
            Place("i0", tensor, guard=guard, skip_alignment_check=guard == "flush", seed=tensor)
            for tensor in chosen
        )
        return _script(graph, (_target(facts, claims[0], choice[1]), Open("i0"), *places, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=6)


def placed(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Some tensors in the client's memory, assigned at any time that the runtime allows.

    Every second case first assigns a misaligned buffer, which is refused, or allocates with one that is too
    small, which fails; a good one then takes its place.
    """

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        everything = [t for t, tensor in enumerate(graph.tensors) if tensor.data is None]
        chosen = [t for at, t in enumerate(everything) if choice[2] >> at % 8 & 1] or everything
        places: Steps = tuple(
            Place("i0", tensor, extra=(0, 64, 0, 4096)[choice[3] & 3], guard="none") for tensor in chosen
        )
        wrong: Steps = ()
        if choice[0] & 16:
            wrong = (Place("i0", chosen[0], misalign=4, guard="none"),)
        elif choice[0] & 32 and chosen[0] in _border(graph):
            wrong = (Place("i0", chosen[0], extra=-1, guard="none"), Allocate("i0"))
        opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"))
        using = (SetInputs("i0"), Poison("i0"), Invoke("i0"), Read("i0"))
        orders: tuple[Steps, ...] = (
            (*wrong, *places, Allocate("i0"), Apply("i0", "d0"), Allocate("i0")),
            (*wrong, *places, Apply("i0", "d0"), Allocate("i0")),
            (Apply("i0", "d0"), *wrong, *places, Allocate("i0")),
            (Apply("i0", "d0"), Allocate("i0"), *wrong, *places, Allocate("i0")),
        )
        alone = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1"), Invoke("i1"))
        return _script(graph, (*opening, *orders[choice[0] % 4], *using, *alone))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=8)


def replaced(*, allocate: bool) -> Callable[[DelegateFacts], SearchStrategy[ScriptCase]]:
    """Inputs and outputs get other buffers between two invokes, with or without allocate_tensors after it."""

    def cases(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
        def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
            first = tuple(Place("i0", tensor, guard="none", seed=1) for tensor in _border(graph))
            others = tuple(
                Place("i0", tensor, guard="none", seed=2)
                for at, tensor in enumerate(_border(graph))
                if choice[2] >> at % 8 & 1 or choice[2] == 0
            )
            again: Steps = (Allocate("i0"),) if allocate else ()
            second: Steps = (SetInputs("i0", 1), Poison("i0", 0x99), Invoke("i0"), Read("i0"))
            opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"), *first)
            return _script(graph, (*opening, *_run(choice), *others, *again, *second))

        need_claims(facts)
        return _scripts(mixed_kinds(facts), make, max_nodes=6)

    return cases


def misaligned(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Inputs and outputs in buffers that are not aligned as the runtime would have them."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        misalign = _MISALIGNED[choice[0] % len(_MISALIGNED)]
        places = tuple(
            Place("i0", tensor, guard="none", misalign=misalign, skip_alignment_check=True)
            for tensor in _border(graph)
        )
        return _script(graph, (_target(facts, claims[0], choice[1]), Open("i0"), *places, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


def without_bias(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """FULLY_CONNECTED without its optional bias."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        nodes = tuple(
            msgspec.structs.replace(node, inputs=(*node.inputs[:2], -1))
            if node.op == "FULLY_CONNECTED"
            else node
            for node in graph.nodes
        )
        bare = msgspec.structs.replace(graph, nodes=nodes)
        return _script(bare, (_target(facts, claims[0], choice[1]), Open("i0"), *_run(choice)))

    return _scripts(claimed_kinds(facts, ops=_BIASED), make, max_nodes=2)


def empty(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A chain of element-wise operators whose input is resized to none, before or after the delegate."""
    ops = {kind.op for kind in taken(facts) if kind.dtype == "float32"}
    chosen = [op for op in (*_UNARY, *_BINARY) if op in ops]
    need_claims(facts)
    if not chosen:
        raise NothingToJudge("the delegate claims no float32 element-wise operator", unsupported=True)

    def decode(data: bytes) -> ScriptCase:
        shape = ((2, 3), (1, 5), (4,))[data[0] % 3]
        graph = _chain([chosen[byte % len(chosen)] for byte in data[2 : 3 + data[1] % 4]], shape)
        resize = Resize("i0", 0, (*shape[:-1], 0) if data[0] & 64 else (0, *shape[1:]))
        opening = (_target(facts, (), data[0] & 62), Open("i0"))
        order: Steps = (Apply("i0", "d0"), resize) if data[0] & 128 else (resize, Apply("i0", "d0"))
        places: Steps = tuple(Place("i0", tensor) for tensor in _border(graph))
        using: Steps = (Allocate("i0"), SetInputs("i0"), Invoke("i0"), Read("i0"))
        return _script(graph, (*opening, *order, *places, *using))

    return decoded(6, decode)


def hollow(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Tensors inside partitions point to pages that must not be touched."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        opening = (_target(facts, claims[0], choice[1]), Open("i0"), Hollow("i0"))
        return _script(graph, (*opening, *_run(choice)))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, min_nodes=2, max_nodes=6)


def shared(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Each graph twice: as it is, and with an input and an output of one size in one buffer."""

    def make(graph: Graph, _: Claims, choice: bytes) -> ScriptCase:
        first = graph.inputs[0]
        like = graph.tensors[first]
        fitting = [t for t in graph.outputs if t != first and graph.tensors[t].shape == like.shape]
        places: Steps = ()
        if fitting:
            output = fitting[choice[2] % len(fitting)]
            places = tuple(Place("i1", tensor, "b0", guard="none") for tensor in (first, output))
        use = (SetInputs("i1"), Invoke("i1"), Read("i1"))
        alone = (_target(facts, (), choice[1] & ~1), Open("i0"), *_run(choice))
        return _script(graph, (*alone, Open("i1"), *places, Apply("i1", "d0"), Allocate("i1"), *use))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


def too_small(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """An input or output in a buffer that is too small, on the CPU or behind a static probe."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        border = _border(graph)
        tensor = border[choice[2] % len(border)]
        place = Place("i0", tensor, extra=-1 - choice[3] % 4, guard="after")
        probe: Steps = (MakeDelegate("d0", "probe", claim=claims[0]),)
        apply: Steps = (Apply("i0", "d0"),) if choice[0] & 1 else ()
        return _script(graph, (*probe, Open("i0"), *apply, place, Allocate("i0")))

    return _scripts((Kind("float32", ("ADD", "RELU", "MUL", "MAXIMUM")),), make, max_nodes=4)


def outlived(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The interpreter ends, the memory of its tensors is freed, and the delegate goes on."""

    def make(graph: Graph, claims: Claims, choice: bytes) -> ScriptCase:
        border = _border(graph)
        places = tuple(Place("i0", tensor, f"b{tensor}", guard="none") for tensor in border)
        frees = tuple(FreeBuffer(f"b{tensor}") for tensor in border)
        opening: Steps = (_target(facts, claims[0], choice[1]), Open("i0"), *places)
        another = (Open("i1"), Apply("i1", "d0"), Allocate("i1"), SetInputs("i1", 1))
        use = (Invoke("i1"), Read("i1"), Close("i1"))
        rest: Steps = (*another, *use) if choice[0] & 1 else ()
        return _script(graph, (*opening, *_run(choice), Close("i0"), *frees, *rest))

    need_claims(facts)
    return _scripts(mixed_kinds(facts), make, max_nodes=4)


def _script(graph: Graph, steps: Sequence[AnyScriptStep]) -> ScriptCase:
    return ScriptCase((graph,), tuple(steps))


def _run(choice: bytes) -> Steps:
    """Apply the delegate, allocate (or the other way round), use the interpreter ``i0`` once."""
    apply: Steps = (Apply("i0", "d0"), Allocate("i0"))
    if choice[3] & 128:
        apply = (Allocate("i0"), *apply)
    return (*apply, SetInputs("i0"), Poison("i0"), Invoke("i0"), Read("i0"))


def _target(facts: DelegateFacts, claim: tuple[int, ...], choice: int) -> MakeDelegate:
    """One delegate of the target. It takes what it supports or, if steerable, every second time the claim."""
    position = (choice >> 1) % max(1, len(facts.delegates))
    return MakeDelegate("d0", claim=claim if facts.steerable and choice & 1 else None, position=position)


def _border(graph: Graph) -> list[int]:
    return sorted({*graph.inputs, *graph.outputs})


def _constants(graph: Graph) -> list[int]:
    read = {tensor for node in graph.nodes for tensor in node.inputs if tensor >= 0}
    return [tensor for tensor in sorted(read) if graph.tensors[tensor].data is not None]


def _chain(ops: Sequence[Op], shape: tuple[int, ...]) -> Graph:
    tensors = (Tensor(shape),) * (len(ops) + 1)
    nodes = tuple(Node(op, (at, at) if op in _BINARY else (at,), (at + 1,)) for at, op in enumerate(ops))
    return Graph(tensors, nodes, (0,), (len(ops),))


def _scripts(
    kinds: Sequence[Kind], make: Make, *, min_nodes: int = 1, max_nodes: int
) -> SearchStrategy[ScriptCase]:
    """Cases decoded from one draw of bytes; every SetInputs gets a seed of its own."""
    size = _EXTRA + size_of(max_nodes, 1)

    def decode(data: bytes) -> ScriptCase:
        seed = int.from_bytes(data[4:6], "big")
        graph, claims = decode_graph(data[_EXTRA:], kinds, 1, min_nodes, max_nodes)
        case = make(graph, claims, data[:4])
        steps = (
            msgspec.structs.replace(step, seed=seed + step.seed) if isinstance(step, SetInputs) else step
            for step in case.steps
        )
        return msgspec.structs.replace(case, steps=tuple(steps))

    return decoded(size, decode)
