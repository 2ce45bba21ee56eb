"""Steps that are done several times: what they make gets other names each time, or stays what it was.

Which objects a kind of step makes, uses and ends is in `pytest_qnn.qnn.cases.lives`; so a rule's own steps
are repeated without knowing what they are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from pytest_qnn.qnn.cases.case import (
    MOST_TOUCHED,
    Alloc,
    AllocNeeded,
    AnyStep,
    Capability,
    Carry,
    CheckHeap,
    Churn,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    ContextWithCallback,
    Deregister,
    Environment,
    Execute,
    FailedAllocation,
    Fill,
    Free,
    FreeParent,
    GetBinary,
    GetSection,
    Inspect,
    Interface,
    Message,
    Misuse,
    NewProcess,
    Observe,
    Parallel,
    Pieces,
    Prepare,
    Providers,
    Read,
    Register,
    Restart,
    Retrieve,
    ToFd,
    Version,
    WholeSession,
    Write,
)
from pytest_qnn.qnn.cases.lives import Spent, effect_of, ended_by, made_by, used_by
from pytest_qnn.qnn.cases.sizes import PAGE

Steps = tuple[AnyStep, ...]
Sort = Literal["context", "buffer", "handles", "graph", "binary", "section"]
"""Objects, by the field of the step that makes them."""

EVERYTHING: Final[frozenset[Sort]] = frozenset({"context", "buffer", "handles", "graph", "binary", "section"})
_REPEATED_NEVER: tuple[type[AnyStep], ...] = (
    *(Capability, Carry, CheckHeap, Churn, FreeParent, NewProcess, Observe, Parallel, Restart, WholeSession),
    FailedAllocation,
)
"""Steps that look at, measure or end the whole process or session, or do something many times themselves."""
_MOST_TOUCHED = 1 << 20
"""Bytes that all repetitions together may write and read."""


_NAMES = re.compile(r"[a-z]r\d+")


def like(name: str) -> str:
    """The kind of the names of what is made for a repetition in place of ``name``."""
    return f"{name[0]}r"


def is_repetition(name: str) -> bool:
    """An object was made for a repetition."""
    return _NAMES.fullmatch(name) is not None


def most_repetitions(steps: Steps, most_steps: int) -> int:
    """How often the steps may be done before they are done: 0 where one of them is done once only."""
    if not steps or any(map(is_done_once, steps)):
        return 0
    most, real = Spent(), Spent()
    for step in steps:
        most.spend(step)
        real.spend(step)
        if isinstance(step, AllocNeeded):
            # What contexts of the suite's graphs need is small; a case file must fit where it is not.
            real.buffers[step.buffer] = PAGE
    return min(
        most_steps // len(steps),
        MOST_TOUCHED // 2 // max(1, most.touched),
        _MOST_TOUCHED // max(1, real.touched),
    )


def is_done_once(step: AnyStep) -> bool:
    """It must not be repeated; the context that an execute ends is not named in it."""
    return isinstance(step, _REPEATED_NEVER) or (isinstance(step, Execute) and step.freed)


def repetitions(
    steps: Steps, times: int, kept: frozenset[Sort], fresh: Callable[[str], str], *, gathering: bool = False
) -> Steps:
    """The steps ``times`` times, and then once more as they are.

    Args:
        steps: what is repeated.
        times: how often before, at least once.
        kept: objects of these sorts are made in the first repetition, and end in the last one; each of
            the others is made anew in each.
        fresh: gives a name that is not used yet, like the one that it is given.
        gathering: nothing ends before the last repetition.

    A graph that is made anew in another context has the same name there: graphs of several contexts may. What
    is used after its end is, at last, what ended in the first repetition, while the newest lives.
    """
    makers = {name: sort for step in steps for sort, name in _made(step)}
    staying = {name for name, sort in makers.items() if sort in kept}
    renewed = makers.keys() - staying
    anew = [name for name in makers if name in renewed - _named_alike(steps, renewed)]
    never_before = makers.keys() if gathering else staying
    external = {step.buffer for step in steps if isinstance(step, AllocNeeded)} & staying
    # Memory that a context still has is not the client's to look at.
    gathering = gathering and not external
    first = tuple(step for step in steps if not _any(never_before, ended_by(step)))
    middle = tuple(step for step in first if not _made_or_touched(step, staying, external))
    names = [{name: fresh(name) for name in anew} for _ in range(times)]
    before = [
        _renamed(step, names[number]) for number in range(times) for step in (middle if number else first)
    ]
    last = tuple(step for step in steps if not _made_or_touched(step, staying, external))
    return (*before, *(last if gathering else _stale(last, names[0])))


def in_place(steps: Steps, times: int, valid: frozenset[str], fresh: Callable[[str], str]) -> Steps:
    """Each step ``times`` times before it is done, where it can be, with a refused call of its kind at last.

    What a step makes in these ends at once; buffers are only made again where nothing is registered. In place
    of a registration another one of its context is repeated that comes later, if there is one whose memory is
    there, and the last of these ends after the step itself.

    Args:
        steps: what is repeated.
        times: how often before.
        valid: handles of registrations that are in order.
        fresh: gives a name that is not used yet, like the one that it is given.
    """
    found: list[AnyStep] = []
    alone = not any(isinstance(step, Register) for step in steps)
    for index, step in enumerate(steps):
        if isinstance(step, Alloc | AllocNeeded) and not alone:
            found.append(step)
            continue
        model = _later(step, steps[:index], steps[index + 1 :], valid)
        late: list[AnyStep] = []
        for number in range(times):
            names = {name: fresh(name) for name in made_by(model)}
            if isinstance(model, _Ended):
                found.append(_backwards(_renamed(model, names)))
                late = [_end_of(model, tuple(names.values()))]
                if model is step or number < times - 1:
                    found += late
                    late = []
            elif isinstance(model, _REPEATABLE):
                found.append(_renamed(model, names))
        found += (*_refused(step, fresh), step, *late)
    return tuple(found)


def _later(step: AnyStep, before: Steps, after: Steps, valid: frozenset[str]) -> AnyStep:
    """The last registration in the context of this one, if it is in order and its memory is there."""
    if not isinstance(step, Register):
        return step
    there = {name for each in before for name in made_by(each)}
    for each in reversed(after):
        fits = isinstance(each, Register) and each.context == step.context and valid.issuperset(each.handles)
        if fits and there.issuperset(used_by(each)):
            return each
    return step


def _backwards(step: AnyStep) -> AnyStep:
    """A batch in the opposite order."""
    if not isinstance(step, Register) or step.count is not None:
        return step
    return msgspec.structs.replace(step, descriptors=step.descriptors[::-1], handles=step.handles[::-1])


def _refused(step: AnyStep, fresh: Callable[[str], str]) -> Iterator[AnyStep]:
    """A call of the same kind with one documented answer and no effect, as in `case.Lived`."""
    if isinstance(step, Execute) and not step.asynchronous:
        yield Misuse("graphExecute")
    elif isinstance(step, Register) and len(step.descriptors) == 1:
        (closed,) = (msgspec.structs.replace(each, fd="closed") for each in step.descriptors)
        yield Register(step.context, (closed,), (fresh("h"),))


_Ended = Register | Alloc | AllocNeeded | ContextCreate | ContextFromBinary | ContextWithCallback
_REPEATABLE: Final[tuple[type[AnyStep], ...]] = (
    *(ContextProperty, Environment, Execute, GetBinary, GetSection, Inspect, Interface, Message, Misuse),
    *(Pieces, Providers, Read, Retrieve, ToFd, Version),
)
"""Steps that may be done again and again."""


def _end_of(step: _Ended, names: tuple[str, ...]) -> AnyStep:
    if isinstance(step, Register):
        return Deregister(names)
    return Free(names[0]) if isinstance(step, Alloc | AllocNeeded) else ContextFree(names[0])


def _made_or_touched(step: AnyStep, staying: Set[str], external: Set[str]) -> bool:
    """The step makes what stays, or the client looks at, or changes, memory that a context has."""
    touches = isinstance(step, Fill | Write | Read) and step.buffer in external
    return touches or _any(staying, made_by(step))


def _any(names: Set[str], found: Iterable[str]) -> bool:
    return any(name in names for name in found)


def _stale(steps: Steps, oldest: Mapping[str, str]) -> Iterator[AnyStep]:
    """The steps, in which what ended first stands for what ended and is used; what it stands for lives on.

    Contexts and handles only: the addresses of freed buffers are those of newer ones.
    """
    ended: dict[str, str] = {}
    for index, step in enumerate(steps):
        used = set(chain.from_iterable(map(used_by, steps[index + 1 :])))
        ends = ended_by(step) if isinstance(step, ContextFree | Deregister) else ()
        gone = {name: oldest[name] for name in ends if name in oldest and name in used}
        if not gone or gone.keys() < set(ends):
            yield _renamed(step, ended) if ended else step
        ended |= gone


def _made(step: AnyStep) -> Iterable[tuple[Sort, str]]:
    """What a step makes."""
    for field in effect_of(step).makes:
        made = getattr(step, field)
        for name in (made,) if isinstance(made, str) else made:
            yield field, name  # type: ignore[misc] # every maker's field is a Sort: a test


def _named_alike(steps: Steps, renewed: Set[str]) -> set[str]:
    """Graphs in contexts that are others each time."""
    made = (step for step in steps if isinstance(step, Prepare | Retrieve))
    return {step.graph for step in made if step.context in renewed}


def _renamed(step: AnyStep, names: Mapping[str, str]) -> AnyStep:
    """The step with other names in the fields that hold them."""
    effect = effect_of(step)
    changes: dict[str, Any] = {}
    for field in (*effect.makes, *effect.uses, *effect.ends):
        first, _, second = field.partition(".")
        changes[first] = _with(changes.get(first, getattr(step, first)), second, names)
    return msgspec.structs.replace(step, **changes) if changes else step


def _with(found: Any, field: str, names: Mapping[str, str]) -> Any:
    if isinstance(found, str):
        return names.get(found, found)
    if not field:
        return tuple(names.get(name, name) for name in found)
    return tuple(
        msgspec.structs.replace(each, **{field: names[getattr(each, field)]})
        if getattr(each, field) in names
        else each
        for each in found
    )
