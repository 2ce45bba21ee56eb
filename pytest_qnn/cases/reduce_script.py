"""Smaller script cases: fewer steps, rounds and branches, fewer nodes of the graphs, plainer numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_qnn.cases.graph import Graph
from pytest_qnn.cases.reduce_graph import is_plain, kept_nodes, restricted
from pytest_qnn.cases.script import (
    AnyScriptStep,
    Apply,
    MakeDelegate,
    Open,
    Parallel,
    Place,
    Read,
    Repeat,
    Resize,
    ScriptCase,
    flat,
)
from pytest_qnn.cases.script_custom import AllocCustom, AssignCustom, ReadCustom

Steps = tuple[AnyScriptStep, ...]
_PLAIN: tuple[dict[str, Any], ...] = (
    {"seed": 0},
    {"fill": "mixed"},
    {"extra": 0},
    {"threads": 1},
    {"readonly": False},
)


def smaller_script(case: ScriptCase) -> Iterator[ScriptCase]:
    """Cases with fewer steps, then with fewer nodes, then plainer in everything else; boldest first."""
    for steps in _fewer(case.steps):
        yield msgspec.structs.replace(case, steps=steps)
    for steps in _flatter(case.steps):
        yield msgspec.structs.replace(case, steps=steps)
    yield from _smaller_graphs(case)
    yield from _plainer(case)


def _fewer(steps: Steps) -> Iterator[Steps]:
    """Chunks of halves, quarters, ... left out, with what stands on the objects that they make."""
    size = max(1, len(steps) // 2)
    while size:
        for end in range(len(steps), 0, -size):
            left = _without(steps, range(max(0, end - size), end))
            if left:
                yield left
        size //= 2


def _without(steps: Steps, gone: range) -> Steps:
    """The steps but for a few; what they make is not used by others either."""
    names = {name for index in gone for name in _made(steps[index])}
    return tuple(
        step for index, step in enumerate(steps) if index not in gone and names.isdisjoint(_used(step))
    )


def _made(step: AnyScriptStep) -> tuple[str, ...]:
    if isinstance(step, MakeDelegate):
        return (step.delegate,)
    if isinstance(step, AllocCustom):
        return (step.buffer,)
    return (step.interpreter,) if isinstance(step, Open) else ()


def _used(step: AnyScriptStep) -> tuple[str, ...]:
    if isinstance(step, Repeat | Parallel):
        return ()  # it may do without; its own steps are looked at when it is opened up
    fields = ("delegate", "interpreter", "buffer")
    return tuple(getattr(step, field) for field in fields if hasattr(step, field))


def _flatter(steps: Steps) -> Iterator[Steps]:
    """Fewer rounds, branches and steps inside; or the steps inside in the place of what holds them."""
    for index, step in enumerate(steps):
        inside: list[Steps] = []
        if isinstance(step, Repeat):
            inside = [step.steps, *((fewer,) for fewer in _fewer_rounds(step))]
        elif isinstance(step, Parallel):
            inside = [*step.branches, *((fewer,) for fewer in _fewer_branches(step))]
        for instead in inside:
            yield (*steps[:index], *instead, *steps[index + 1 :])


def _fewer_rounds(step: Repeat) -> Iterator[Repeat]:
    for times in sorted({2, step.times // 2} - {0, step.times}):
        if times < step.times:
            yield msgspec.structs.replace(step, times=times)
    for inner in _fewer(step.steps):
        yield msgspec.structs.replace(step, steps=inner)


def _fewer_branches(step: Parallel) -> Iterator[Parallel]:
    branches = step.branches
    for index in reversed(range(len(branches))):
        if len(branches) > 1:
            yield Parallel((*branches[:index], *branches[index + 1 :]))
        for inner in (*_fewer(branches[index]), *_flatter(branches[index])):
            changed: Any = (*branches[:index], inner, *branches[index + 1 :])
            yield Parallel(changed)


def _smaller_graphs(case: ScriptCase) -> Iterator[ScriptCase]:
    """Each graph with fewer nodes; what steps say of its tensors and nodes is renumbered."""
    resizes = any(isinstance(step, Resize) for step in flat(case.steps))
    for number, graph in enumerate(case.graphs):
        # Tensors of their own: so it can be told which of them are left.
        whole = msgspec.structs.replace(graph, tensors=tuple(map(msgspec.structs.replace, graph.tensors)))
        for kept in kept_nodes(len(graph.nodes) if is_plain(graph) else 0):
            for join in (True, False):
                left = restricted(whole, frozenset(kept), join=join)
                renumbered = _Renumbered(case, number, whole, left, kept)
                if resizes and len(renumbered.inputs) < len(left.inputs):
                    continue  # a new input, which no step resizes with the others: shapes would not match
                steps = renumbered.all(case.steps)
                graphs = (*case.graphs[:number], left, *case.graphs[number + 1 :])
                yield msgspec.structs.replace(case, graphs=graphs, steps=steps)


class _Renumbered:
    """Steps for a graph of which tensors and nodes are left."""

    def __init__(self, case: ScriptCase, number: int, whole: Graph, left: Graph, kept: list[int]) -> None:
        new = {id(tensor): index for index, tensor in enumerate(left.tensors)}
        self.tensors = {old: new[id(tensor)] for old, tensor in enumerate(whole.tensors) if id(tensor) in new}
        self.nodes = {old: index for index, old in enumerate(kept)}
        self.inputs = {
            old: left.inputs.index(self.tensors[tensor])
            for old, tensor in enumerate(whole.inputs)
            if self.tensors.get(tensor) in left.inputs
        }
        everything = flat(case.steps)
        self.interpreters = {
            step.interpreter for step in everything if isinstance(step, Open) and step.graph == number
        }
        others = {step.interpreter for step in everything if isinstance(step, Open)} - self.interpreters
        self.foreign = {
            step.delegate for step in everything if isinstance(step, Apply) and step.interpreter in others
        }
        """Delegates whose claims are of other graphs too."""

    def all(self, steps: Steps) -> Any:
        """The steps as they are for the graph that is left."""
        return tuple(new for step in steps if (new := self._one(step)) is not None)

    def _one(self, step: Any) -> Any:
        """One step; None for one that has nothing to work on any more."""
        if isinstance(step, Repeat):
            return msgspec.structs.replace(step, steps=self.all(step.steps))
        if isinstance(step, Parallel):
            return msgspec.structs.replace(step, branches=tuple(map(self.all, step.branches)))
        if isinstance(step, MakeDelegate) and step.claim is not None and step.delegate not in self.foreign:
            claim = tuple(self.nodes[node] for node in step.claim if node in self.nodes)
            return msgspec.structs.replace(step, claim=claim)
        return self._about_tensors(step) if getattr(step, "interpreter", "") in self.interpreters else step

    def _about_tensors(self, step: Any) -> Any:
        change: dict[str, Any] = {}
        if isinstance(step, Place | AssignCustom | ReadCustom):
            change = {"tensor": self.tensors.get(step.tensor)}
        elif isinstance(step, Resize):
            change = {"input": self.inputs.get(step.input)}
        elif isinstance(step, Read) and step.tensors:
            left = tuple(self.tensors[tensor] for tensor in step.tensors if tensor in self.tensors)
            change = {"tensors": left or None}
        return None if None in change.values() else msgspec.structs.replace(step, **change)


def _plainer(case: ScriptCase) -> Iterator[ScriptCase]:
    """Nothing watched; the simplest numbers, one step at a time."""
    if case.watch:
        yield msgspec.structs.replace(case, watch=False)
    for index, step in enumerate(case.steps):
        for change in _PLAIN:
            ((field, value),) = change.items()
            if getattr(step, field, value) != value:
                plain: Any = msgspec.structs.replace(step, **change)
                steps = (*case.steps[:index], plain, *case.steps[index + 1 :])
                yield msgspec.structs.replace(case, steps=steps)
