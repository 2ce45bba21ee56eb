"""Hypothesis strategies for script cases about custom memory that a QNN delegate offers (seed 000).

Each case is one draw of bytes, as in `pytest_qnn.cases.script_strategies`. They have no case for a delegate
that offers no such memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases.graph import Graph, Node, Tensor
from pytest_qnn.cases.graph_kinds import Claims, decode_graph, size_of
from pytest_qnn.cases.kinds import mixed_kinds, need_claims
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PlainStep,
    Poison,
    Read,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.cases.script_custom import (
    AllocCustom,
    AssignCustom,
    FreeCustom,
    InspectCustom,
    ReadCustom,
    ReadLog,
)
from pytest_qnn.core.drawing import decoded
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import DelegateFacts

Steps = tuple[AnyScriptStep, ...]
Cases = SearchStrategy[ScriptCase]
_SIZES = (4, 1, 64, 4096, 4095, 4097, 65536, 1 << 20)
_HUGE = ((1 << 46), (1 << 32) + 4096, (1 << 31), 0)
"""More than there is or than a C int holds, and nothing at all: NULL, or memory of so many bytes."""
_ALIGNMENTS = (64, 1, 2, 4, 8, 16, 32, 128, 256, 512, 1024, 2048, 4096)
_EXTRA = (0, 1, 4, 60, 64, 4096)
_ROUNDS = 16
_CHOICE = 4
_NODES = 5
_RELU = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))


def memories(facts: DelegateFacts) -> Cases:
    """Up to eight buffers, some of sizes that cannot be had, looked at again when all are there."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for at, byte in enumerate(data[1 : 2 + data[0] % 8]):
            size = _HUGE[byte % 4] if byte >= 224 else _SIZES[byte % 8]
            steps.append(AllocCustom(f"c{at}", size, position=position, seed=at + 1))
        steps += [InspectCustom(step.buffer) for step in steps if isinstance(step, AllocCustom)]
        return _alone(steps)

    return decoded(9, decode)


def alignments(facts: DelegateFacts) -> Cases:
    """Up to six buffers of any alignment from 1 to 4096."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        return _alone(
            [
                AllocCustom(f"c{at}", _SIZES[byte >> 5], _ALIGNMENTS[byte % len(_ALIGNMENTS)], position)
                for at, byte in enumerate(data[1 : 2 + data[0] % 6])
            ]
        )

    return decoded(7, decode)


def released(facts: DelegateFacts) -> Cases:
    """Buffers come and go; others stay while delegates go and pointers are freed that are none."""
    position = _offered(facts)

    def decode(data: bytes) -> ScriptCase:
        size, alignment = _SIZES[3:][data[0] % 5], _ALIGNMENTS[data[1] % len(_ALIGNMENTS)]
        once: tuple[PlainStep, ...] = (AllocCustom("c1", size, alignment, position), FreeCustom("c1"))
        odd: Steps = (FreeCustom(what="null", position=position),) if data[2] & 1 else ()
        odd += (FreeCustom(what="unknown", position=position),) if data[2] & 2 else ()
        kept = (AllocCustom("c0", _SIZES[data[3] % 8], 64, position), MakeDelegate("d0", position=position))
        cycles: Steps = (*once, Measure(), Repeat(_ROUNDS, once), Measure()) if data[2] & 4 else once
        return _alone([*kept, *cycles, *odd, DestroyDelegate("d0"), InspectCustom("c0")])

    return decoded(4, decode)


def ordered(facts: DelegateFacts) -> Cases:
    """The steps of the tutorial in any order that it allows."""

    def make(scene: Scene) -> Steps:
        alloc, assign = scene.alloc(), scene.assign()
        first, last = scene.opening()
        opening: Steps = ((*alloc, last, first), (first, *alloc, last), (first, last, *alloc))[
            scene.choice[0] % 3
        ]
        apply = Apply("i0", "d0")
        orders: tuple[Steps, ...] = (
            (*assign, Allocate("i0"), apply, Allocate("i0")),
            (*assign, Allocate("i0"), apply),
            (*assign, apply, Allocate("i0")),
            (apply, *assign, Allocate("i0")),
            (apply, Allocate("i0"), *assign, Allocate("i0")),
            (Allocate("i0"), *assign, Allocate("i0"), apply, Allocate("i0")),
        )
        free, close = scene.free(), Close("i0")
        ending: Steps = (*free, close) if scene.choice[1] & 1 else (close, *free)
        return (
            *opening,
            *orders[scene.choice[2] % len(orders)],
            *scene.use(),
            *ending,
            DestroyDelegate("d0"),
        )

    return _scenes(facts, make)


def logged(facts: DelegateFacts) -> Cases:
    """Some tensors in custom memory, and what the delegate says of them."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), ReadLog("d0"))

    return _scenes(facts, make)


def unregistered(facts: DelegateFacts) -> Cases:
    """The same, where the delegate's QNN backend registers no shared memory."""
    _offered(facts)
    if facts.registers is not False:
        why = "registers shared memory" if facts.registers else "may register memory: it cannot be asked"
        raise NothingToJudge(f"the delegate's QNN backend {why}", unsupported=True)
    return logged(facts)


def twice(facts: DelegateFacts) -> Cases:
    """Two invokes in custom memory, and the same two times each without any."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), *scene.use(1))

    return _scenes(facts, make, plain=(0, 1, 0, 1))


def larger(facts: DelegateFacts) -> Cases:
    """Buffers of the tensors' sizes and larger."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(larger=True), *scene.use())

    return _scenes(facts, make)


def reassigned(facts: DelegateFacts) -> Cases:
    """Between two invokes tensors get other buffers: new ones, those of one another, or none other.

    The old ones are given back before the new ones are requested, or after it, or not at all. In the end
    tensors may get their first buffers again.
    """

    def make(scene: Scene) -> Steps:
        how = scene.choice[0] % 4
        alloc, assign = scene.alloc("n"), scene.assign("n")
        again: Steps = ((*scene.free(), *alloc), (*alloc, *assign, *scene.free()), alloc, alloc)[how]
        back: Steps = (*scene.assign(), Allocate("i0"), *scene.use(2)) if how == 3 else ()
        return (*scene.placed(), *scene.use(), *again, *assign, Allocate("i0"), *scene.use(1), *back)

    return _scenes(facts, make)


def mixed(facts: DelegateFacts) -> Cases:
    """Some of the tensors in custom memory, of a delegate that is to take part of the nodes."""

    def make(scene: Scene) -> Steps:
        return (*scene.placed(), *scene.use(), *scene.use(1))

    return _scenes(facts, make, some=True)


class Scene:
    """One graph, one delegate ``d0``, one interpreter ``i0``, and a buffer for each of some tensors."""

    def __init__(
        self, facts: DelegateFacts, graph: Graph, claims: Claims, data: bytes, *, some: bool
    ) -> None:
        self.graph = graph
        self.choice = data
        self.position = facts.custom_memory
        self._claim = claims[0] if facts.steerable and (some or data[3] & 128) else None
        border = sorted({*graph.inputs, *graph.outputs})
        border = [tensor for tensor in border if graph.tensors[tensor].data is None]
        picked = [tensor for at, tensor in enumerate(border) if data[3] >> at % 7 & 1]
        self.tensors = picked or (border[:1] if some else border)

    def opening(self) -> tuple[MakeDelegate, Open]:
        """The delegate and the interpreter."""
        return MakeDelegate("d0", position=self.position, claim=self._claim), Open("i0")

    def alloc(self, kind: str = "c", *, larger: bool = False) -> Steps:
        """A buffer for each of the tensors; ``larger``: than the tensor."""
        return tuple(
            AllocCustom(
                f"{kind}{tensor}",
                self._size(tensor) + (_EXTRA[(self.choice[0] + at) % len(_EXTRA)] if larger else 0),
                position=self.position,
                seed=tensor,
            )
            for at, tensor in enumerate(self.tensors)
        )

    def assign(self, kind: str = "c") -> Steps:
        """Each tensor to its buffer."""
        return tuple(AssignCustom("i0", tensor, f"{kind}{tensor}") for tensor in self.tensors)

    def free(self) -> Steps:
        """Give the buffers back."""
        return tuple(FreeCustom(f"c{tensor}") for tensor in self.tensors)

    def placed(self, *, larger: bool = False) -> Steps:
        """All of the tutorial up to the invoke."""
        ready = (Allocate("i0"), Apply("i0", "d0"), Allocate("i0"))
        return (*self.opening(), *self.alloc(larger=larger), *self.assign(), *ready)

    def plain(self, seeds: Sequence[int]) -> Steps:
        """The same graph on another interpreter, ``i1``, without custom memory, invoked with each seed."""
        delegate = MakeDelegate("d1", position=self.position, claim=self._claim)
        steps: list[AnyScriptStep] = [delegate, Open("i1"), Apply("i1", "d1"), Allocate("i1")]
        for seed in seeds:
            steps += [SetInputs("i1", seed), Invoke("i1"), Read("i1")]
        return tuple(steps)

    def use(self, seed: int = 0) -> Steps:
        """Invoke, and read through the interpreter and through the client's own pointers."""
        own = tuple(ReadCustom("i0", tensor) for tensor in self.tensors if tensor in self.graph.outputs)
        return (SetInputs("i0", seed), Poison("i0"), Invoke("i0"), Read("i0"), *own)

    def _size(self, tensor: int) -> int:
        described = self.graph.tensors[tensor]
        return prod(described.shape) * np.dtype(described.dtype).itemsize


def _offered(facts: DelegateFacts) -> int:
    """Position of the delegate that offers custom memory.

    Raises:
        NothingToJudge: there is none.
    """
    if facts.custom_memory < 0:
        raise NothingToJudge(
            "the delegate offers no custom memory: it is no library that exports "
            "TfLiteQnnDelegateAllocCustomMem and TfLiteQnnDelegateFreeCustomMem",
            unsupported=True,
        )
    return facts.custom_memory


def _alone(steps: Sequence[AnyScriptStep]) -> ScriptCase:
    """Steps that need no interpreter; a case has a graph all the same."""
    return ScriptCase((_RELU,), tuple(steps))


def _scenes(
    facts: DelegateFacts,
    make: Callable[[Scene], Steps],
    *,
    some: bool = False,
    plain: Sequence[int] = (0,),
) -> Cases:
    """``plain``: seeds of the inputs without custom memory."""
    _offered(facts)
    need_claims(facts)
    kinds = mixed_kinds(facts)

    def decode(data: bytes) -> ScriptCase:
        graph, claims = decode_graph(data[_CHOICE:], kinds, 1, 1, _NODES)
        scene = Scene(facts, graph, claims, data[:_CHOICE], some=some)
        return ScriptCase((graph,), (*make(scene), *scene.plain(plain)))

    size = _CHOICE + size_of(_NODES, 1)
    return decoded(size, decode)
