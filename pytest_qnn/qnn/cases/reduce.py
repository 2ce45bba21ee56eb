"""Smaller memory cases: fewer steps, smaller batches, plainer bindings.

A step goes together with everything that stands on the names it makes. What is left is in order where the
whole was; candidates of which that cannot be said are left out:

* No buffer is freed under a registration that the whole had ended before: to execute with it would be the
  client's fault.
* No buffer is used by an execute before its first Fill, as an input before it is written, or as an output
  again before another Fill, if the whole saw to that. What fresh memory holds nobody knows, the bytes of a
  Fill are no number that every backend can compute with, and where an earlier result lies it cannot be
  seen that an output is left alone.
* Where resources are counted (`Observe`), the counts stay, what was made between them is still ended, and
  what was ended before the first of them stays: it may be there to warm the target up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from pytest_qnn.qnn.cases.case import (
    AnyStep,
    BadArgument,
    Binding,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    Free,
    MemoryCase,
    Observe,
    Parallel,
    Prepare,
    Register,
    Retrieve,
    Write,
)
from pytest_qnn.qnn.cases.lives import Alive, effect_of, made_by, used_by
from pytest_qnn.qnn.cases.reduce_scale import smaller_scale, without_history
from pytest_qnn.qnn.cases.repeat import is_repetition

Steps = tuple[AnyStep, ...]
_RAW = 0
_LARGE_BATCH = 4
"""Entries that are left out of a batch before single steps are: most of a batch of 64 goes in five runs."""


def smaller_memory(case: MemoryCase, *, deadly: bool = False) -> Iterator[MemoryCase]:
    """Cases without history, with fewer steps, smaller batches and tensors, and plainer; boldest first.

    ``deadly``: the case ends the process, so counts do not matter.
    """
    steps = case.steps
    counted = not deadly and any(isinstance(step, Observe) for step in steps)
    known = _hazards(steps, deadly=deadly)
    candidates = _counted(steps) if counted else _uncounted(steps)
    bold = chain(
        without_history(steps),
        _without_repetitions(steps),
        () if counted else _smaller_batches(steps, _LARGE_BATCH),
    )
    for candidate in chain(bold, candidates, smaller_scale(steps), _plainer(steps)):
        if candidate and candidate != steps and _hazards(candidate, deadly=deadly) <= known:
            yield msgspec.structs.replace(case, steps=candidate)


def one_call(case: MemoryCase, step: int) -> MemoryCase | None:
    """A call with an argument that leads nowhere, and what makes what it uses; None: the step is another.

    Such a call says itself what is wrong in it, whatever was there before it.
    """
    if not 0 <= step < len(case.steps) or not isinstance(case.steps[step], BadArgument):
        return None
    return msgspec.structs.replace(case, steps=_only(case.steps, {step}))


def _without_repetitions(steps: Steps) -> Iterator[Steps]:
    """Without what was made for repetitions alone: all of it, half, ...; repeated steps once."""
    names = [name for step in steps for name in made_by(step) if is_repetition(name)]
    for start, end in ((0, len(names)), *_bites(len(names), _LARGE_BATCH)) if names else ():
        yield _unmade(steps, set(names[start:end]))
    yield tuple(step for index, step in enumerate(steps) if not index or step != steps[index - 1])


def _unmade(steps: Steps, gone: set[str]) -> Steps:
    """The steps but for those that make only objects of ``gone``, and for what stands on these."""
    kept = (step for step in steps if not made_by(step) or not gone.issuperset(made_by(step)))
    return tuple(_missing(kept, gone))


_FEW_STEPS = 16
"""So many are first tried one by one; of more, halves lead to the few in fewer runs."""


def _uncounted(steps: Steps) -> Iterator[Steps]:
    """One step with its makers; chunks left out, but for the makers of what stays; each step left out.

    Of many steps, one alone comes last: a budget is soon spent on them where several are needed.
    """
    everything = range(len(steps))
    alone = (_only(steps, {kept}) for kept in everything if len(steps) > 1)
    if len(steps) <= _FEW_STEPS:
        yield from alone
    size = len(steps) // 2
    while size > 1:
        for end in range(len(steps), 0, -size):
            yield _only(steps, set(everything) - set(range(max(0, end - size), end)))
        size //= 2
    for index in reversed(everything):
        yield _without(steps, index)
    yield from alone
    yield from _smaller_batches(steps)


def _counted(steps: Steps) -> Iterator[Steps]:
    """Each step left out, as far as what is counted still comes out even."""
    looks = [index for index, step in enumerate(steps) if isinstance(step, Observe)]
    warming = steps[: looks[0]]
    for index in reversed(range(len(steps))):
        step = steps[index]
        if isinstance(step, Observe) or (effect_of(step).ends and index < looks[-1]):
            continue
        if index < looks[0] and _ends(_without(warming, index)) < _ends(warming):
            continue
        yield _without(steps, index)


def _ends(steps: Steps) -> int:
    return sum(bool(effect_of(step).ends) for step in steps)


def _only(steps: Steps, kept: set[int]) -> Steps:
    """The steps with the indices ``kept``, and those that make what they use."""
    wanted: set[str] = set()
    chosen: list[AnyStep] = []
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if index in kept or not wanted.isdisjoint(made_by(step)):
            wanted.update(used_by(step))
            chosen.append(step)
    return tuple(reversed(chosen))


def _without(steps: Steps, index: int) -> Steps:
    """The steps but for one, and for what stands on the objects that it makes."""
    return (*steps[:index], *_missing(steps[index + 1 :], set(made_by(steps[index]))))


def _missing(steps: Iterable[AnyStep], gone: set[str]) -> Iterator[AnyStep]:
    """What is left of ``steps`` when the objects called ``gone`` are not made."""
    for step in steps:
        if gone.isdisjoint(used_by(step)):
            yield step
            continue
        left = _rest(step, gone)
        gone.update(set(made_by(step)) - set(made_by(left) if left else ()))
        if left:
            yield left


def _rest(step: AnyStep, gone: set[str]) -> AnyStep | None:
    """A batch or a look without what concerns ``gone``; None for another step, or where nothing is left."""
    if isinstance(step, Observe):
        buffers = tuple(name for name in step.buffers if name not in gone)
        return msgspec.structs.replace(step, buffers=buffers) if buffers else None
    entries: list[int] = []
    if isinstance(step, Register) and step.context not in gone:
        entries = [i for i, descriptor in enumerate(step.descriptors) if descriptor.buffer not in gone]
    elif isinstance(step, Deregister):
        entries = [i for i, handle in enumerate(step.handles) if handle not in gone]
    return _batch(step, entries)


def _batch(step: AnyStep, entries: list[int]) -> AnyStep | None:
    """The batch with these entries only; None if it cannot be had."""
    if not entries or not isinstance(step, Register | Deregister) or step.count is not None:
        return None
    handles = tuple(step.handles[i] for i in entries)
    if isinstance(step, Deregister):
        return msgspec.structs.replace(step, handles=handles)
    descriptors = tuple(step.descriptors[i] for i in entries)
    return msgspec.structs.replace(step, descriptors=descriptors, handles=handles)


def _smaller_batches(steps: Steps, least: int = 1) -> Iterator[Steps]:
    """Half of each batch left out, a quarter, ..., ``least`` entries, with what stands on their handles."""
    for index, step in enumerate(steps):
        if not isinstance(step, Register | Deregister):
            continue
        count = len(step.handles)
        for start, end in _bites(count, least):
            left = _batch(step, [i for i in range(count) if not start <= i < end])
            if left:
                gone = set(made_by(step)) - set(made_by(left))
                yield (*steps[:index], left, *_missing(steps[index + 1 :], gone))


def _bites(count: int, least: int) -> Iterator[tuple[int, int]]:
    """Ranges within ``range(count)``, by halves, quarters, ... of at least ``least``, from the end."""
    size = (count + 1) // 2
    while size >= least:
        for end in range(count, 0, -size):
            yield max(0, end - size), end
        size //= 2


def _plainer(steps: Steps) -> Iterator[Steps]:
    """Raw memory with seed 0 for a tensor, in every execute of a graph and in its preparation.

    Plain logs, less in threads, and one mistake in the place of several.
    """
    for index, step in enumerate(steps):
        if isinstance(step, Parallel) and step.what == "logs":
            for change in ({"lowered": 0}, {"mem_type": 0}):
                yield (*steps[:index], msgspec.structs.replace(step, **change), *steps[index + 1 :])
        elif isinstance(step, Parallel) and step.what == "histories":
            for less in _shorter_histories(step):
                yield (*steps[:index], less, *steps[index + 1 :])
        elif isinstance(step, Prepare) and len(step.mistakes) > 1:
            for mistake in step.mistakes:
                alone = msgspec.structs.replace(step, mistakes=(mistake,))
                yield (*steps[:index], alone, *steps[index + 1 :])
    for made in steps:
        if not isinstance(made, Prepare):
            continue
        again = {step.graph for step in steps if isinstance(step, Retrieve) and step.source == made.graph}
        names = {made.graph} | again
        executes = [step for step in steps if isinstance(step, Execute) and step.graph in names]
        for tensor in range(max((len(step.bindings) for step in executes), default=0)):
            yield tuple(_with_raw(step, names, tensor) for step in steps)


def _shorter_histories(step: Parallel) -> Iterator[Parallel]:
    """One thread less, but two; one call less in a thread; nothing shared; a backend for all; raw memory."""
    changed, calls = msgspec.structs.replace, step.calls
    for at, own in enumerate(calls):
        if len(calls) > 2:
            fewer = {"calls": (*calls[:at], *calls[at + 1 :]), "ops": (*step.ops[:at], *step.ops[at + 1 :])}
            yield changed(step, threads=len(calls) - 1, **fewer)
        for gone in range(len(own) if len(own) > 1 else 0):
            rest = (*own[:gone], *own[gone + 1 :])
            yield changed(step, calls=(*calls[:at], rest, *calls[at + 1 :]))
    if step.ops:
        yield changed(step, ops=())
    if step.shared:
        yield changed(step, shared=False)
    if step.own:
        yield changed(step, own=False)
    if step.mem_type:
        yield changed(step, mem_type=0)


def _with_raw(step: AnyStep, graphs: set[str], tensor: int) -> AnyStep:
    if isinstance(step, Prepare) and step.graph in graphs:
        kinds = tuple(_RAW if at == tensor else kind for at, kind in enumerate(step.mem_types))
        return msgspec.structs.replace(step, mem_types=kinds)
    if isinstance(step, Execute) and step.graph in graphs and tensor < len(step.bindings):
        bindings = (*step.bindings[:tensor], Binding(), *step.bindings[tensor + 1 :])
        return msgspec.structs.replace(step, bindings=bindings)
    return step


def _hazards(steps: Steps, *, deadly: bool) -> set[tuple[str, str]]:
    """(what, handle): what the client does wrong, or leaves to chance, with the memory behind a handle."""
    story = _Story()
    for step in steps:
        story.follow(step)
    return story.freed if deadly else story.freed | story.unspecified


class _Story:
    """What becomes of the memory behind handles in steps that all succeed."""

    def __init__(self) -> None:
        self.freed: set[tuple[str, str]] = set()
        """A buffer was freed under a registration."""
        self.unspecified: set[tuple[str, str]] = set()
        """It cannot be said what an execute finds there. No matter in a case that ends the process."""
        self._alive = Alive()
        self._filled: set[str] = set()
        self._results: set[str] = set()
        """Buffers that hold an output since their last Fill."""
        self._written: list[tuple[str, int, int]] = []
        """(buffer, first byte, end)."""

    def follow(self, step: AnyStep) -> None:
        if isinstance(step, Free) and step.pointer == "base":
            handles = self._alive.handles.items()
            under = [name for name, known in handles if known.descriptor.buffer == step.buffer]
            self.freed.update(("freed", handle) for handle in under)
        elif isinstance(step, Fill):
            self._filled.add(step.buffer)
            self._results.discard(step.buffer)
        elif isinstance(step, Write):
            self._written.append((step.buffer, step.offset, step.offset + step.size))
        elif isinstance(step, Execute):
            self._execute(step)
        self._alive.follow(step)

    def _behind(self, binding: Binding) -> Descriptor | None:
        """The memory of a handle, even of a dead one: a refused execute must leave it alone."""
        known = self._alive.registered.get(binding.handle)
        return known.descriptor if known else None

    def _execute(self, step: Execute) -> None:
        for position, binding in enumerate(step.bindings):
            descriptor = self._behind(binding)
            if descriptor is None:
                continue
            buffer, start = descriptor.buffer, descriptor.offset
            if buffer not in self._filled:
                self.unspecified.add(("unfilled", binding.handle))
            if position < len(step.bindings) - 1:
                if not any(of == buffer and first <= start < end for of, first, end in self._written):
                    self.unspecified.add(("unwritten", binding.handle))
                continue
            if buffer in self._results:
                self.unspecified.add(("used", binding.handle))
            self._results.add(buffer)
            self._written.append((buffer, start, start + 1))
        if step.asynchronous:
            self._write_over(step)

    def _write_over(self, step: Execute) -> None:
        """Once it is notified, the client fills the memory of every tensor."""
        spots = {
            (found.buffer, found.offset)
            for binding in step.bindings
            if (found := self._behind(binding)) is not None
        }
        self._results -= {buffer for buffer, _ in spots}
        self._written = [
            (buffer, first, end)
            for buffer, first, end in self._written
            if not any(of == buffer and first <= start < end for of, start in spots)
        ]
