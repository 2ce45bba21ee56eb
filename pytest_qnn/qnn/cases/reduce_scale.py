"""Memory cases with less history, and with smaller things in them.

What is changed is changed in every step alike: a graph's tensors and the memory that is registered for them
keep fitting together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import msgspec

from pytest_qnn.qnn.cases.case import Alloc, AnyStep, Descriptor, Lived, Logged, Prepare, Register, Write
from pytest_qnn.qnn.cases.sizes import PAGE

Steps = tuple[AnyStep, ...]
Shape = tuple[int, ...]
_USUAL_RANK = 4
_MANY = 1024
"""Elements: tensors of more have a reason to be as large as they are, or are made small."""
_FEW = 8
_GRAIN = 64
"""Offsets stay what they are modulo so many bytes."""


def without_history(steps: Steps) -> Iterator[Steps]:
    """Without ordinary life at all; without each piece of it; with fewer rounds, by halves and less."""
    lives = [index for index, step in enumerate(steps) if isinstance(step, Lived | Logged)]
    if lives:
        yield tuple(step for step in steps if not isinstance(step, Lived | Logged))
    for index in lives:
        yield (*steps[:index], *steps[index + 1 :])
    for index in lives:
        step = steps[index]
        if isinstance(step, Lived):
            for rounds in _fewer(step.rounds):
                yield (*steps[:index], msgspec.structs.replace(step, rounds=rounds), *steps[index + 1 :])
            if step.kept:
                yield (*steps[:index], msgspec.structs.replace(step, kept=0), *steps[index + 1 :])
        elif isinstance(step, Logged) and step.beside:
            yield (*steps[:index], msgspec.structs.replace(step, beside=False), *steps[index + 1 :])


def _fewer(rounds: int) -> list[int]:
    found = (rounds // 2, rounds - rounds // 4, rounds - rounds // 8, rounds - 1)
    return list(dict.fromkeys(each for each in found if 0 < each < rounds))


def smaller_scale(steps: Steps) -> Iterator[Steps]:
    """Small tensors, tensors of few dimensions, tensors near the beginning of their buffers, version 1.

    Weights like other tensors.
    """
    yield _reshaped(steps, _small)
    yield _reshaped(steps, _of_usual_rank)
    for step in steps:
        if isinstance(step, Alloc):
            yield _moved(steps, step)
    for plain in ({"version": 1}, {"narrow": 0}):
        yield tuple(msgspec.structs.replace(s, **plain) if isinstance(s, Prepare) else s for s in steps)


def _small(shape: Shape) -> Shape:
    return (*(1 for _ in shape[:-1]), min(shape[-1], _FEW)) if prod(shape) > _MANY else shape


def _of_usual_rank(shape: Shape) -> Shape:
    """Without the first dimensions of 1, as far as there are too many."""
    found = list(shape)
    while len(found) > _USUAL_RANK and 1 in found:
        found.remove(1)
    return tuple(found)


def _reshaped(steps: Steps, change: Callable[[Shape], Shape]) -> Steps:
    def changed(step: AnyStep) -> AnyStep:
        if isinstance(step, Prepare):
            return msgspec.structs.replace(step, shape=change(step.shape))
        if isinstance(step, Register):
            return msgspec.structs.replace(step, descriptors=tuple(map(_changed(change), step.descriptors)))
        return step

    return tuple(map(changed, steps))


def _changed(change: Callable[[Shape], Shape]) -> Callable[[Descriptor], Descriptor]:
    return lambda each: msgspec.structs.replace(each, shape=change(each.shape)) if each.shape else each


def _moved(steps: Steps, alloc: Alloc) -> Steps:
    """Without what lies before the first tensor of a buffer."""
    own = [each for step in steps if isinstance(step, Register) for each in step.descriptors]
    offsets = [each.offset for each in own if each.buffer == alloc.buffer]
    writes = [step.offset for step in steps if isinstance(step, Write) and step.buffer == alloc.buffer]
    less = min((*offsets, *writes), default=0) // _GRAIN * _GRAIN
    if less < PAGE or alloc.size <= less:
        return steps
    return tuple(_nearer(step, alloc.buffer, less) for step in steps)


def _nearer(step: AnyStep, buffer: str, less: int) -> AnyStep:
    if isinstance(step, Alloc) and step.buffer == buffer:
        return msgspec.structs.replace(step, size=step.size - less)
    if isinstance(step, Write) and step.buffer == buffer:
        return msgspec.structs.replace(step, offset=step.offset - less)
    if isinstance(step, Register):
        return msgspec.structs.replace(
            step,
            descriptors=tuple(
                _before(each, less) if each.buffer == buffer else each for each in step.descriptors
            ),
        )
    return step


def _before(descriptor: Descriptor, less: int) -> Descriptor:
    size = descriptor.size
    kept = size if size is None or size <= less else size - less
    return msgspec.structs.replace(descriptor, offset=descriptor.offset - less, size=kept)
