"""The memory state model: what a QNN backend may answer to the next step, given what it did so far.

    model = Model(trace.facts)
    for step, seen in zip(case.steps, trace.steps):
        allowed = model.expect(step)     # codes, and what is wrong or special about the step
        model.follow(step, seen, allowed)

`walk(case, trace)` is that loop. The model follows what was *seen*, so that one surprise is not blamed
again on every later step; where an answer hides the state, the objects concerned become ``unknown`` and
later steps that use them are unsettled. It is pure and linear in the number of steps.

Faults (`Allowed.faults`) name what is wrong with a step, with the codes of the catalogue
(facts/qnn-memory.md, section 8); several faults in one call allow the union of their codes, since no
document gives an order of checks. Notes (`Allowed.notes`) name what is special about a step that is in
order: rules use them to pick the steps that are theirs.

Register
    faults: ``null-descriptors``, ``null-handles``, ``count-zero``, ``bad-context`` and those of
    `pytest_qnn.oracle.memory_register`.
    notes: ``fresh``, ``larger`` (the buffer is larger than the tensor), ``other-context`` (its memory is
    live in another context), ``after:EVENT`` (the last thing that happened to this identity).
Deregister
    faults: ``null-handles``, ``count-zero``, ``bad-handle`` (NULL, never made, of another kind),
    ``dead-handle``, ``repeated-handle``; unsettled: ``orphan-handle`` (its context was freed),
    ``unknown-handle``.
    notes: ``survived:EVENT``, from `Registration.witnessed` of its handles.
ContextFree
    faults: ``bad-context`` (NULL, never made), ``dead-context``.
Prepare
    faults: ``bad-context``, ``preset``, ``read-only`` (a context from a binary).
Execute
    faults: ``bad-graph``, ``null-handle``, ``bad-handle``, ``dead-handle``, ``foreign-handle``,
    ``short-handle``, ``arity``; unsettled: ``orphan-handle``, ``unknown-handle``, ``in-place``,
    ``freed-buffer``.
    notes: ``survived:EVENT``, ``handles`` (at least one memory handle is bound), ``raw``.

Context binaries and what is made of them: `pytest_qnn.oracle.memory_binaries`; weights and spill-fill
memory: `pytest_qnn.oracle.memory_external`.

EVENTs: ``deregistered``, ``deregistered-mixed`` (in a call with invalid handles), ``deregistered-twice``
(in one call), ``failed:FAULT`` (a refused registration), ``other-deregistered``,
``sibling-deregistered`` (the same memory in another context), ``duplicate-refused``,
``sibling-context-freed``, ``context-freed``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytest_qnn.abi.qnn_codes import low
from pytest_qnn.cases.memory import (
    Alloc,
    AnyStep,
    ContextCreate,
    ContextFree,
    Deregister,
    Free,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.facts import MemoryFacts
from pytest_qnn.oracle.memory_binaries import FOLLOW
from pytest_qnn.oracle.memory_expect import expect
from pytest_qnn.oracle.memory_state import (
    Allowed,
    Buffer,
    Context,
    Graph,
    Identity,
    Registration,
    identity,
    tensor_bytes,
)
from pytest_qnn.trace import MemoryTrace, StepSeen

__all__ = ["Allowed", "Model", "Walked", "walk"]


class Walked(msgspec.Struct, frozen=True):
    """One step that was carried out, with what the model allowed."""

    index: int
    step: AnyStep
    seen: StepSeen
    allowed: Allowed

    @property
    def code(self) -> int | None:
        """Low 16 bits of the answer; 0 is success; None: no QNN call was made."""
        return None if self.seen.code is None else low(self.seen.code)


class Model:
    """Buffers, contexts, registrations and graphs as they must be after the steps seen so far."""

    def __init__(self, facts: MemoryFacts | None = None) -> None:
        self.facts = facts or MemoryFacts()
        self.buffers: dict[str, Buffer] = {}
        self.contexts: dict[str, Context] = {}
        self.registrations: dict[str, Registration] = {}
        self.graphs: dict[str, Graph] = {}
        self.binaries: dict[str, dict[str, Prepare]] = {}
        """By name: the graphs of each, by the name they were prepared with."""
        self.history: dict[Identity, str] = {}
        """The last EVENT of an identity that is not live."""
        self.unsure: dict[str, Registration] = {}
        """Registrations whose life is ``unknown``, by handle name."""
        self._alive: dict[str, Registration] = {}

    def expect(self, step: AnyStep) -> Allowed:
        """The codes that ``step`` may be answered with now."""
        return expect(self, step)

    def live(self, context: str | None = None) -> dict[str, Registration]:
        """Registrations that live, of one context or of all, by handle name."""
        if context is None:
            return self._alive
        return {name: found for name, found in self._alive.items() if found.context == context}

    def context_lives(self, name: str) -> bool:
        """The context was made and not freed."""
        context = self.contexts.get(name)
        return context is not None and context.live

    def context_alias(self, name: str) -> bool:
        """A context that is gone has the value of a live one: the target gave the value out again."""
        mine = self.contexts.get(name)
        return mine is not None and any(
            found.live and found.value == mine.value for found in self.contexts.values() if found is not mine
        )

    def handle_alias(self, name: str) -> bool:
        """Another handle that may be live has the same value."""
        mine = self.registrations[name]
        return any(
            found.life != "dead" and found.value == mine.value
            for found in self.registrations.values()
            if found is not mine
        )

    def context_as_handle(self, name: str) -> bool:
        """The context ``name`` has the value of a live memory handle, which is legal (IF-09)."""
        context = self.contexts.get(name)
        return context is not None and any(context.value == found.value for found in self._alive.values())

    def follow(self, step: AnyStep, seen: StepSeen, allowed: Allowed | None = None) -> None:
        """Take over what the target did. ``allowed`` saves asking `expect` again."""
        if seen.skipped:
            return
        if isinstance(step, Alloc):
            if seen.values and seen.values[0]:
                self.buffers[step.buffer] = Buffer(step.size)
        elif isinstance(step, Free):
            if step.pointer == "base" and step.buffer in self.buffers:
                self.buffers[step.buffer].live = False
        elif isinstance(step, ContextCreate):
            if seen.code == 0:
                self.contexts[step.context] = Context(seen.values[0] if seen.values else 0)
        elif isinstance(step, ContextFree):
            self._follow_context_free(step, seen)
        elif isinstance(step, Register):
            self._follow_register(step, seen, allowed or self.expect(step))
        elif isinstance(step, Deregister):
            self._follow_deregister(step, seen, allowed or self.expect(step))
        elif isinstance(step, Prepare):
            self._follow_prepare(step, seen)
        elif type(step) in FOLLOW:
            FOLLOW[type(step)](self, step, seen)

    def end_contexts(self) -> None:
        """Every context went with the device or the backend that it stood on."""
        for name in [name for name, context in self.contexts.items() if context.live]:
            self._end_context(name)

    def forget_objects(self) -> None:
        """The process has ended: nothing is left but the binaries."""
        for known in (self.buffers, self.contexts, self.registrations, self.graphs):
            known.clear()
        for also in (self.history, self.unsure, self._alive):
            also.clear()

    def _follow_prepare(self, step: Prepare, seen: StepSeen) -> None:
        context = self.contexts.get(step.context)
        if seen.code == 0:
            # A context that is gone, and yet a graph: its value belongs to another context by now.
            live = self.context_lives(step.context)
            self.graphs[step.graph] = Graph.of(step, step.context, live=live)
            if context is not None:
                context.graphs[step.graph] = step
        elif context is not None and seen.calls and seen.calls[0][1] == 0:
            context.unfinished = True

    def _follow_context_free(self, step: ContextFree, seen: StepSeen) -> None:
        if seen.code != 0 or step.context not in self.contexts:
            return
        value = self.contexts[step.context].value
        for name, context in self.contexts.items():
            # A stale name ends the live context to which its value was given.
            if context.live and (name == step.context or context.value == value):
                self._end_context(name)

    def _end_context(self, name: str) -> None:
        self.contexts[name].live = False
        for graph in self.graphs.values():
            graph.live = graph.live and graph.context != name
        freed = self.live(name)
        for handle, registration in freed.items():
            registration.life = "dead" if registration.fixed else "orphan"
            self.history[registration.identity] = "context-freed"
            del self._alive[handle]
        memory = {registration.descriptor.buffer for registration in freed.values()}
        for other in self._alive.values():
            same = other.descriptor.buffer in memory
            other.witnessed.add("sibling-context-freed" if same else "other-context-freed")

    def _follow_register(self, step: Register, seen: StepSeen, allowed: Allowed) -> None:
        count = len(step.descriptors) if step.count is None else step.count
        wanted = step.descriptors[:count]
        if seen.code == 0:
            if not (step.null_handles or step.null_descriptors):
                self._made(step, seen.values[:count])
            return
        if not allowed.faults:
            return
        live = {found.identity for found in self._alive.values()}
        for descriptor in wanted:
            this = identity(step.context, descriptor)
            if this not in live:
                self.history[this] = "failed:" + "+".join(sorted(allowed.faults))
        if "duplicate" in allowed.faults:
            again = {identity(step.context, descriptor) for descriptor in wanted}
            for found in self.live(step.context).values():
                if found.identity in again:
                    found.witnessed.add("duplicate-refused")

    def _made(self, step: Register, values: tuple[int, ...]) -> None:
        lives = self.context_lives(step.context)
        for name, descriptor, value in zip(step.handles, step.descriptors, values, strict=False):
            size = tensor_bytes(descriptor.shape, descriptor.dtype)
            made = Registration(step.context, descriptor, value, size)
            self.registrations[name] = made
            self.history.pop(made.identity, None)
            if lives:
                self._alive[name] = made
            else:
                made.life = "unknown"
                self.unsure[name] = made

    def _follow_deregister(self, step: Deregister, seen: StepSeen, allowed: Allowed) -> None:
        if step.null_handles or seen.code is None:
            return
        count = len(step.handles) if step.count is None else step.count
        expected = low(seen.code) in allowed.codes or (seen.code == 0 and not allowed.settled)
        gone: list[Registration] = []
        for name in dict.fromkeys(step.handles[:count]):
            found = self.registrations.get(name)
            if found is None or found.life != "live":
                self._hit_by_alias(name)
            if found is None or found.life == "dead" or (found.fixed and seen.code != 0):
                continue
            if found.life == "live":
                gone.append(self._alive.pop(name))
                self.history[found.identity] = _farewell(allowed)
            found.life = "dead" if expected else "unknown"
            if not expected:
                self.unsure[name] = found
        for other in self._alive.values():
            for found in gone:
                same = other.descriptor.buffer == found.descriptor.buffer
                sibling = same and other.context != found.context
                other.witnessed.add("sibling-deregistered" if sibling else "other-deregistered")

    def _hit_by_alias(self, name: str) -> None:
        """What is no live handle was deregistered: a live handle that has its value is in doubt."""
        stale = self.registrations.get(name) or self.contexts.get(name)
        if stale is None:
            return
        for other, found in list(self._alive.items()):
            if found.value == stale.value:
                found.life = "unknown"
                self.unsure[other] = self._alive.pop(other)


def _farewell(allowed: Allowed) -> str:
    if "repeated-handle" in allowed.faults:
        return "deregistered-twice"
    return "deregistered-mixed" if allowed.faults else "deregistered"


def walk(case: MemoryCase, trace: MemoryTrace) -> Iterator[Walked]:
    """Each step that was carried out, in order, with what the model allowed before it."""
    model = Model(trace.facts)
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if seen.skipped:
            continue
        allowed = model.expect(step)
        yield Walked(index, step, seen, allowed)
        model.follow(step, seen, allowed)
