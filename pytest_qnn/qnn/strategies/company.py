"""What stands beside a rule's own objects in a large batch: other handles in a call, graphs in a context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from pytest_qnn.qnn.cases.case import (
    BOGUS,
    MOST_PARTS,
    NULL,
    Alloc,
    AnyStep,
    Deregister,
    Descriptor,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.lives import Known

T = TypeVar("T")
Steps = tuple[AnyStep, ...]
Fresh = Callable[[str], str]
"""Gives a name of a kind that was not used."""

SPREAD: Final = 9
"""From so many entries on, others stand between the rule's own."""
_LITTLE = 64
"""Bytes of a tensor of no concern."""
_MOST_GRAPHS = 6
_INVALID_COPIES = 3


def mixed(own: Sequence[T], others: Sequence[T], position: int) -> tuple[T, ...]:
    """The own entries among others, the first at ``position`` modulo what there is.

    In a small batch they stand together. In one of `SPREAD` and more the others stand behind the first, or
    mostly before it where it is alone.
    """
    if others and len(own) + len(others) >= SPREAD and (len(own) > 1 or position % 4):
        first = own[: len(own) - 1]
        return (*first[:1], *others, *first[1:], *own[-1:])
    before = position % (len(others) + 1)
    return (*others[:before], *own, *others[before:])


def with_graphs(steps: Steps, count: int, fresh: Fresh) -> Steps:
    """Small graphs like the first of each context, which are prepared before it."""
    seen: set[str] = set()
    found: list[AnyStep] = []
    for step in steps:
        if isinstance(step, Prepare) and step.context not in seen:
            seen.add(step.context)
            others = min(count, _MOST_GRAPHS)
            found += (
                Prepare(
                    *(fresh("g"), step.context, step.op, step.dtype),
                    weights=None if step.weights is None else others,
                    relay=step.relay,
                )
                for _ in range(others)
            )
        found.append(step)
    return tuple(found)


def with_descriptors(
    steps: Steps, batch: int, position: int, known: Mapping[str, Known], kind: int, fresh: Fresh
) -> Steps:
    """The first memRegister that is wrong has ``batch`` descriptors.

    Args:
        steps: a rule's own.
        batch: descriptors, at least.
        position: of the rule's own descriptors among them, modulo what there is.
        known: every registration that was made: those that are in order.
        kind: Qnn_MemType_t of the others.
        fresh: as above.
    """
    for index, step in enumerate(steps):
        if not isinstance(step, Register) or not step.handles or step.count is not None:
            continue
        if step.handles[0] in known:
            continue
        missing = min(batch, MOST_PARTS) - len(step.handles)
        buffers = [fresh("b") for _ in range(missing)]
        others = [Descriptor(buffer, (_LITTLE,), mem_type=kind) for buffer in buffers]
        longer = msgspec.structs.replace(
            step,
            descriptors=mixed(step.descriptors, others, position),
            handles=mixed(step.handles, [fresh("h") for _ in buffers], position),
        )
        return (*steps[:index], *(Alloc(buffer, _LITTLE) for buffer in buffers), longer, *steps[index + 1 :])
    return steps


def with_handles(
    steps: Steps, batch: int, position: int, known: Mapping[str, Known], kind: int, fresh: Fresh
) -> Steps:
    """The first memDeRegister of a live handle has ``batch`` handles; what is invalid there is so thrice.

    Of the others the last is registered again.

    Args:
        steps: a rule's own.
        batch: handles, at least.
        position: of the rule's own handles among them, modulo what there is.
        known: every registration that was made.
        kind: Qnn_MemType_t of the others.
        fresh: as above.
    """
    for index, step in enumerate(steps):
        if not isinstance(step, Deregister) or step.null_handles or step.count is not None:
            continue
        contexts = [known[name].context for name in step.handles if name in known]
        if not contexts:
            continue
        own = [
            name
            for name in step.handles
            for _ in range(_INVALID_COPIES if name in (NULL, BOGUS) and len(step.handles) > 1 else 1)
        ]
        others = [fresh("h") for _ in range(min(batch, MOST_PARTS) - len(own))]
        buffers = [fresh("b") for _ in others]
        more = Register(
            contexts[0],
            tuple(Descriptor(buffer, (_LITTLE,), mem_type=kind) for buffer in buffers),
            tuple(others),
        )
        longer = msgspec.structs.replace(step, handles=mixed(own, others, position))
        if not others:
            return (*steps[:index], longer, *steps[index + 1 :])
        made: Steps = (*(Alloc(buffer, _LITTLE) for buffer in buffers), more)
        ended = Register(contexts[0], more.descriptors[-1:], (fresh("h"),))
        return (*steps[:index], *made, longer, ended, *steps[index + 1 :])
    return steps
