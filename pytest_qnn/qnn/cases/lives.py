"""What is alive in a sequence of steps: what each kind of step makes, uses and ends, and what it costs.

`EFFECTS` has one entry for each kind of step, and what follows a sequence of steps is built on it: `made_by`,
`used_by` and `ended_by` (names in one step: reduction), `Alive` (the objects that live: generation,
reduction, the oracle and what outputs must be) and `Spent` (memory: the check of case files).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import msgspec

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.case import AnyStep, Prepare


class Known(msgspec.Struct, frozen=True, gc=False):
    """A registration, as the step that made it says."""

    context: str
    descriptor: case.Descriptor


class Alive:
    """The objects that live after the steps so far, by name.

    `follow` takes a step that succeeds as a whole. Who knows better what a step did calls the other methods:
    each changes one object, and what lives and ends with it.
    """

    def __init__(self) -> None:
        self.contexts: dict[str, AnyStep] = {}
        """Each with the step that made it."""
        self.buffers: dict[str, int] = {}
        """Each with its size in bytes."""
        self.freed: dict[str, int] = {}
        """Buffers that were freed."""
        self.handles: dict[str, Known] = {}
        self.dead: dict[str, Known] = {}
        """Handles that were deregistered."""
        self.registered: dict[str, Known] = {}
        """Every handle that was ever made in this process."""
        self.graphs: dict[str, Prepare] = {}
        """Each as it would be prepared under its name and in its context."""
        self.prepared: dict[str, Prepare] = {}
        """Every graph that was ever made, in this process or before, with the weights that it has now."""
        self.binaries: dict[str, dict[str, Prepare]] = {}
        """Each with the graphs that it holds, as they were when it was written."""
        self.sections: dict[str, int | None] = {}
        """Each with the weights that it holds (`Prepare.weights`)."""

    def follow(self, step: AnyStep) -> None:
        """Take over what a step does that succeeds."""
        effect_of(step).follow(self, step)

    def alloc(self, name: str, size: int) -> None:
        """A buffer is there."""
        self.buffers[name] = size
        self.freed.pop(name, None)

    def free(self, name: str) -> None:
        """A buffer ends. What is registered over it does not."""
        if name in self.buffers:
            self.freed[name] = self.buffers.pop(name)

    def register(self, name: str, known: Known) -> None:
        """A handle is there."""
        self.handles[name] = self.registered[name] = known

    def deregister(self, name: str) -> None:
        """A handle ends."""
        if name in self.handles:
            self.dead[name] = self.handles.pop(name)

    def prepare(self, name: str, made: Prepare) -> None:
        """A graph is there."""
        self.graphs[name] = self.prepared[name] = made

    def set_weights(self, name: str, weights: int | None) -> None:
        """A graph has other weights from now on."""
        for graphs in (self.graphs, self.prepared):
            if name in graphs:
                graphs[name] = msgspec.structs.replace(graphs[name], weights=weights)

    def graph_in(self, context: str, name: str) -> Prepare | None:
        """The graph of this name as its context has it: out of a binary, as it was when that was written."""
        return self.out_of_binary(context).get(name) or self.prepared.get(name)

    def out_of_binary(self, context: str) -> dict[str, Prepare]:
        """The graphs of the binary that a context was made from."""
        return self.binaries.get(getattr(self.contexts.get(context), "binary", ""), {})

    def end_context(self, name: str) -> None:
        """A context ends, and its handles and graphs with it."""
        self.contexts.pop(name, None)
        for handle in self.handles_of(name):
            del self.handles[handle]
        for graph in [graph for graph, made in self.graphs.items() if made.context == name]:
            del self.graphs[graph]

    def end_contexts(self) -> None:
        """Every context ends: the device or the backend that they stand on was freed."""
        for name in list(self.contexts):
            self.end_context(name)

    def new_process(self) -> None:
        """The process ends: nothing is left but the binaries and their sections."""
        for objects in (self.contexts, self.buffers, self.freed, self.handles, self.dead, self.graphs):
            objects.clear()

    def size_of(self, buffer: str) -> int | None:
        """Bytes of a buffer that lives or lived."""
        return self.buffers.get(buffer, self.freed.get(buffer))

    def handles_of(self, context: str) -> list[str]:
        """The handles of one context."""
        return [name for name, known in self.handles.items() if known.context == context]


_ADDRESSES = 1 << 57
"""Of a process, with the most levels of pages that Linux knows (x86-64, five of them; arm64 has fewer)."""


class Spent:
    """The most that the steps so far can reserve and touch, in bytes, and the processes they run in."""

    def __init__(self) -> None:
        self.reserved = 0
        """Memory that nobody touches costs nothing but addresses."""
        self.touched = 0
        self.processes = 1
        self.buffers: dict[str, int] = {}
        """The largest size that each name was allocated with."""
        self.graphs: dict[str, int] = {}
        """The most bytes per tensor that each name was prepared with."""

    def spend(self, step: AnyStep) -> None:
        """Add a step."""
        effect_of(step).cost(self, step)

    def reserve(self, buffer: str, size: int) -> None:
        """Add a buffer; one of more bytes than there are addresses cannot be had, and reserves nothing."""
        self.reserved += size if size <= _ADDRESSES else 0
        self.buffers[buffer] = max(self.buffers.get(buffer, 0), size)

    def size_graph(self, graph: str, size: int) -> None:
        """Keep the bytes of each of a graph's tensors."""
        self.graphs[graph] = max(self.graphs.get(graph, 0), size)


class Effect(msgspec.Struct, frozen=True):
    """What one kind of step does if it succeeds.

    Names are given by the fields that hold them; ``bindings.handle`` is the field ``handle`` of each binding.
    """

    makes: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    follow: Callable[[Alive, Any], None] = lambda _alive, _step: None
    cost: Callable[[Spent, Any], None] = lambda _spent, _step: None


def effect_of(step: AnyStep) -> Effect:
    """The entry of a step's kind."""
    return EFFECTS[type(step)]


def made_by(step: AnyStep) -> tuple[str, ...]:
    """Names of the objects that the step makes."""
    return _names(step, effect_of(step).makes)


def ended_by(step: AnyStep) -> tuple[str, ...]:
    """Names of the objects that the step ends; what ends with them is not among them."""
    return _names(step, effect_of(step).ends)


def used_by(step: AnyStep) -> tuple[str, ...]:
    """Names that the step refers to, reserved and empty ones and those that it ends included."""
    return _names(step, effect_of(step).uses + effect_of(step).ends)


def _names(step: AnyStep, fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for field in fields for name in _named(step, field))


def _named(step: AnyStep, field: str) -> Iterator[str]:
    first, _, second = field.partition(".")
    found = getattr(step, first)
    if isinstance(found, str):
        yield found
    else:
        yield from (getattr(each, second) for each in found) if second else found


# What steps do


Creation = case.ContextCreate | case.ContextFromBinary | case.ContextWithCallback


def _context(alive: Alive, step: Creation) -> None:
    alive.contexts[step.context] = step


def _free(alive: Alive, step: case.Free) -> None:
    if step.pointer == "base":
        alive.free(step.buffer)


def _register(alive: Alive, step: case.Register) -> None:
    for name, descriptor in zip(step.handles, step.descriptors, strict=False):
        alive.register(name, Known(step.context, descriptor))


def _deregister(alive: Alive, step: case.Deregister) -> None:
    for name in step.handles:
        alive.deregister(name)


def _retrieve(alive: Alive, step: case.Retrieve) -> None:
    source = alive.graph_in(step.context, step.source)
    if source is not None:
        alive.prepare(step.graph, msgspec.structs.replace(source, graph=step.graph, context=step.context))


def _carry(alive: Alive, step: case.Carry) -> None:
    graphs = {each.prepared.graph: each.prepared for each in step.graphs}
    alive.binaries[step.binary] = graphs
    alive.prepared |= graphs


def _get_binary(alive: Alive, step: case.GetBinary) -> None:
    graphs = {name: made for name, made in alive.graphs.items() if made.context == step.context}
    alive.binaries[step.binary] = alive.out_of_binary(step.context) | graphs


def _execute(alive: Alive, step: case.Execute) -> None:
    if step.asynchronous and step.freed and step.graph in alive.graphs:
        alive.end_context(alive.graphs[step.graph].context)


def _get_section(alive: Alive, step: case.GetSection) -> None:
    if step.graph in alive.prepared:
        alive.sections[step.section] = alive.prepared[step.graph].weights


# What steps cost


def _spend_alloc(spent: Spent, step: case.Alloc) -> None:
    if 0 < step.size <= case.INT_MAX or step.wide:
        spent.reserve(step.buffer, step.size)


def _spend_whole(spent: Spent, step: case.Fill | case.Read) -> None:
    spent.touched += spent.buffers.get(step.buffer, 0)


def _spend_write(spent: Spent, step: case.Write) -> None:
    spent.touched += step.size


def _spend_prepare(spent: Spent, step: Prepare) -> None:
    size = 4 * prod(step.shape)
    spent.touched += size
    spent.size_graph(step.graph, size)


def _spend_carry(spent: Spent, step: case.Carry) -> None:
    for each in step.graphs:
        _spend_prepare(spent, each.prepared)


def _spend_execute(spent: Spent, step: case.Execute) -> None:
    spent.touched += 3 * spent.graphs.get(step.graph, 0) * max(1, step.asynchronous)


def _spend_process(spent: Spent, step: case.NewProcess) -> None:
    del step
    spent.processes += 1


def _spend_executes(spent: Spent, step: case.Executes) -> None:
    """The memory is written once, whatever the number of rounds; what is refused touches none of it."""
    touched = 3 * spent.graphs.get(step.graph, 0)
    spent.touched += touched if step.refused else touched * step.rounds


_NOTHING = Effect()
_OF_CONTEXT = Effect(uses=("context",))
_OF_BUFFER = Effect(uses=("buffer",))

EFFECTS: dict[type[AnyStep], Effect] = {
    # Contexts
    case.ContextCreate: Effect(makes=("context",), follow=_context),
    case.ContextFromBinary: Effect(makes=("context",), uses=("binary",), follow=_context),
    case.ContextWithCallback: Effect(makes=("context",), uses=("binary",), follow=_context),
    case.ContextFree: Effect(ends=("context",), follow=lambda alive, step: alive.end_context(step.context)),
    case.ContextFinalize: _OF_CONTEXT,
    case.ContextProperty: _OF_CONTEXT,
    case.ReleaseBinary: _OF_CONTEXT,
    case.Pieces: _OF_CONTEXT,
    # Buffers
    case.Alloc: Effect(
        makes=("buffer",),
        follow=lambda alive, step: alive.alloc(step.buffer, step.size),
        cost=_spend_alloc,
    ),
    case.AllocNeeded: Effect(
        makes=("buffer",),
        uses=("context",),
        follow=lambda alive, step: alive.alloc(step.buffer, case.MOST_NEEDED),
        cost=lambda spent, step: spent.reserve(step.buffer, case.MOST_NEEDED),
    ),
    case.Free: Effect(ends=("buffer",), follow=_free),
    case.ToFd: _OF_BUFFER,
    case.Write: Effect(uses=("buffer",), cost=_spend_write),
    case.Fill: Effect(uses=("buffer",), cost=_spend_whole),
    case.Read: Effect(uses=("buffer",), cost=_spend_whole),
    # Registrations
    case.Register: Effect(makes=("handles",), uses=("context", "descriptors.buffer"), follow=_register),
    case.Deregister: Effect(ends=("handles",), follow=_deregister),
    # Graphs
    Prepare: Effect(
        makes=("graph",),
        uses=("context",),
        follow=lambda alive, step: alive.prepare(step.graph, step),
        cost=_spend_prepare,
    ),
    case.Retrieve: Effect(
        makes=("graph",),
        uses=("context", "source"),
        follow=_retrieve,
        cost=lambda spent, step: spent.size_graph(step.graph, spent.graphs.get(step.source, 0)),
    ),
    case.Execute: Effect(
        uses=("graph", "bindings.handle", "bindings.of"), follow=_execute, cost=_spend_execute
    ),
    case.Executes: Effect(uses=("graph", "bindings.handle", "bindings.of"), cost=_spend_executes),
    case.Miscompose: _OF_CONTEXT,
    case.Environment: Effect(uses=("graph",)),
    case.UpdateWeights: Effect(
        uses=("graph",), follow=lambda alive, step: alive.set_weights(step.graph, step.weights)
    ),
    # Binaries and their sections
    case.GetBinary: Effect(makes=("binary",), uses=("context",), follow=_get_binary),
    case.Carry: Effect(makes=("binary",), follow=_carry, cost=_spend_carry),
    case.Inspect: Effect(uses=("binary",)),
    case.GetSection: Effect(makes=("section",), uses=("context", "graph", "size_of"), follow=_get_section),
    case.ApplySection: Effect(
        uses=("context", "graph", "section"),
        follow=lambda alive, step: alive.set_weights(step.graph, alive.sections.get(step.section)),
    ),
    # The process and the session
    case.NewProcess: Effect(follow=lambda alive, _: alive.new_process(), cost=_spend_process),
    case.FreeParent: Effect(follow=lambda alive, _: alive.end_contexts()),
    case.Restart: _NOTHING,
    # Calls that leave everything as it was; the bounds of their numbers bound their work
    case.Misuse: Effect(uses=("handle",)),
    case.BadArgument: Effect(uses=("context", "graph")),
    case.Churn: Effect(uses=("context", "buffer")),
    case.Lived: _OF_CONTEXT,
    case.Logged: _NOTHING,
    case.WholeSession: _NOTHING,
    case.CheckHeap: _NOTHING,
    case.FailedAllocation: _NOTHING,
    case.Parallel: _NOTHING,
    case.Observe: Effect(uses=("buffers",)),
    case.Providers: _NOTHING,
    case.Capability: _NOTHING,
    case.Interface: _NOTHING,
    case.Version: _NOTHING,
    case.Message: _NOTHING,
}
"""By kind of step. `tests/qnn/model/test_steps.py` names a kind that has none."""
