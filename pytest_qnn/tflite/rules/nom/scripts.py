"""The scripts of NOM: a life during which a request is refused, with one before it and one after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.target import Resource
from pytest_qnn.tflite.cases.delegate import Fault
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Open,
    PlainStep,
    Poison,
    Read,
    Refuse,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import decode_graph, size_of
from pytest_qnn.tflite.strategies import lifetimes
from pytest_qnn.tflite.strategies.claimed import claimed_kinds
from pytest_qnn.tflite.strategies.delegates import plain_case

Strategy = SearchStrategy[ScriptCase]
Plain = tuple[PlainStep, ...]
Place = Literal["invoke", "apply", "allocate", "make", "destroy"]
"""The step during which a request is refused."""
_PLACES: tuple[Place, ...] = (*get_args(Place)[:-1] * 4, "destroy")
_EXTRA = 5
"""Bytes before the graph's: the place, the number of the request, what it is for, whether each one after it
is refused too, the seed of the inputs."""
_NODES = 2
"""Of a graph at most."""
_FEW, _SOME, _MOST = 4, 32, 1000
"""Requests among which the refused one is drawn: half of the time, most often else, and now and then."""
OTHER, REFUSED, NEXT = "i0", "i1", "i2"
"""Interpreters: the one that lives beside, the one in whose life a request is refused, the one after it."""


class Drawn(NamedTuple):
    """What a case is made of."""

    graph: Graph
    place: Place
    refuse: Refuse
    seed: int


Make = Callable[[Drawn], ScriptCase]


def lives(facts: DelegateFacts, resources: Sequence[Resource]) -> Strategy:
    """A life, one with a refusal while it lasts, one step more of the first, and one life more."""

    def make(drawn: Drawn) -> ScriptCase:
        seed = drawn.seed
        again: Plain = (SetInputs(OTHER, seed + 1), Poison(OTHER), Invoke(OTHER), Read(OTHER))
        steps = (*_life(drawn, "0", counted=True), *_refused(drawn), *again, *_life(drawn, "2"))
        return ScriptCase((drawn.graph,), steps)

    return _drawn(facts, resources, _NODES, make)


def rounds(facts: DelegateFacts, resources: Sequence[Resource]) -> Strategy:
    """Many lives with a refusal; where they leave something, as many that fail of a probe, and without one.

    Graphs have one node: the runtime itself keeps kernels of an application whose later kernel fails (RT-02).
    """

    def make(drawn: Drawn) -> ScriptCase:
        place: Place = "make" if drawn.place == "destroy" else drawn.place
        drawn = drawn._replace(place=place)
        target, probe = MakeDelegate("d0"), MakeDelegate("d0", "probe", fault=_LIKE.get(place, ""))
        refused = lifetimes.repetitions(_whole(drawn, target, drawn.refuse), lifetimes.CYCLES)
        others = (
            lifetimes.repetitions(_whole(drawn, one, None), lifetimes.CYCLES) for one in (probe, target)
        )
        compared = (lifetimes.compared(steps) for steps in others)
        counted = _whole(drawn, target, replace(drawn.refuse, nth=0, lasting=False))
        return ScriptCase(
            (drawn.graph,), (*counted, *refused, *(step for steps in compared for step in steps))
        )

    return _drawn(facts, resources, 1, make)


_LIKE: dict[Place, Fault] = {"apply": "init", "allocate": "init", "invoke": "kernel-invoke"}
"""How a probe fails in the same place."""


def _drawn(facts: DelegateFacts, resources: Sequence[Resource], nodes: int, make: Make) -> Strategy:
    kinds = claimed_kinds(facts)

    def decode(data: bytes) -> ScriptCase:
        graph = plain_case(decode_graph(data[_EXTRA:], kinds, 0, 1, nodes)[0])
        size = data[1]
        # From the high bits of bytes, which are spread evenly over the examples of a search.
        number = size * _FEW >> 7 if size < 128 else (size * 257) % (_SOME if size < 240 else _MOST)
        what = resources[data[2] * len(resources) >> 8]
        refuse = Refuse(what, 1 + number, lasting=data[3] % 2 > 0)
        drawn = Drawn(graph, _PLACES[data[0] * len(_PLACES) >> 8], refuse, data[4])
        return make(drawn)

    return decoded(_EXTRA + size_of(nodes, 0), decode)


def _apply(drawn: Drawn, one: str, delegate: str) -> Apply:
    """An exception does not pass what the suite puts between: where one is likely there is nothing."""
    return Apply(one, delegate, spied=drawn.refuse.what != "new")


def _life(drawn: Drawn, name: str, *, counted: bool = False) -> Plain:
    """A delegate and an interpreter, used once; nothing is refused, but requests may be counted."""
    delegate, one = f"d{name}", f"i{name}"
    count = (replace(drawn.refuse, nth=0, lasting=False),) if counted else ()
    at: dict[Place, Plain] = {drawn.place: count}
    again: Plain = ()
    if drawn.place == "allocate":
        again = (*_to_and_fro(one, drawn.graph), *count, Allocate(one))
    ready: Plain = (*at.get("make", ()), MakeDelegate(delegate), Open(one))
    return (
        *(*ready, *at.get("apply", ()), _apply(drawn, one, delegate), Allocate(one), *again),
        *(SetInputs(one, drawn.seed), Poison(one), *at.get("invoke", ()), Invoke(one), Read(one)),
    )


def _refused(drawn: Drawn) -> tuple[AnyScriptStep, ...]:
    """The same, with the refusal; what failed is done again, and all is used twice."""
    delegate, one, refuse = "d1", REFUSED, drawn.refuse
    make, apply = MakeDelegate(delegate), _apply(drawn, one, delegate)
    steps: list[PlainStep] = [*((refuse, make, make) if drawn.place == "make" else (make,)), Open(one)]
    steps += (refuse, apply) if drawn.place == "apply" else (apply,)
    steps.append(Allocate(one))
    if drawn.place == "allocate":
        steps += (*_to_and_fro(one, drawn.graph), refuse, Allocate(one), Allocate(one))
    steps += (SetInputs(one, drawn.seed), Poison(one))
    if drawn.place == "invoke":
        steps += (refuse, Invoke(one), Read(one), Poison(one, 0x99))
    steps += (Invoke(one), Read(one), SetInputs(one, drawn.seed + 2), Poison(one), Invoke(one), Read(one))
    if drawn.place == "destroy":
        steps += (Close(one), refuse, DestroyDelegate(delegate))
    return tuple(steps)


def _whole(drawn: Drawn, made: MakeDelegate, refuse: Refuse | None) -> Plain:
    """From its beginning to its end."""
    refused: Plain = () if refuse is None else (refuse,)
    at: dict[Place, Plain] = {drawn.place: refused}
    again: Plain = ()
    if drawn.place == "allocate":
        again = (*_to_and_fro("i0", drawn.graph), *refused, Allocate("i0"))
    return (
        *(*at.get("make", ()), made, Open("i0"), *at.get("apply", ()), _apply(drawn, "i0", made.delegate)),
        *(Allocate("i0"), *again, SetInputs("i0", drawn.seed), *at.get("invoke", ()), Invoke("i0")),
        *(Close("i0"), DestroyDelegate(made.delegate)),
    )


def _to_and_fro(one: str, graph: Graph) -> Plain:
    """Inputs are resized to another length and back, so that the next allocate prepares all again."""
    shapes = [(at, graph.tensors[tensor].shape) for at, tensor in enumerate(graph.inputs)]
    there: Plain = tuple(Resize(one, at, (shape[0] + 1, *shape[1:])) for at, shape in shapes if shape)
    return (*there, *(Resize(one, at, shape) for at, shape in shapes if shape))
