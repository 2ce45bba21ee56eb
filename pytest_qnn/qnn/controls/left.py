"""Controls of what calls leave behind: rounds of them between two looks at the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Churn,
    ContextCreate,
    ContextFree,
    Deregister,
    Free,
    Lived,
    MemoryCase,
    Observe,
    Register,
    ToFd,
)
from pytest_qnn.qnn.cases.sizes import PAGE
from pytest_qnn.qnn.controls.registrations import PLAIN, WRONG, registration

_CONTEXT = (ContextCreate("c0"),)
_NUMBERS = range(9)
"""Of rounds: the first one warms the target up, and the owners' checks want eight."""
_CONTEXTS = range(21)
"""The same of contexts: a bounded pool of what they leave may stay, and the check of CTX-01 wants twenty."""
_SIZE = 2 * PAGE
"""Of buffers that are registered: a page for the tensor, and one that is left where only that is unmapped."""
_BUFFERS = tuple(f"b{number}" for number in range(10))
"""As many as the check of CTX-10 wants."""


def counted(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Rounds of ordinary calls that leave nothing behind, with their owners; each adds one thing."""
    if not any(isinstance(step, Observe) for step in case.steps):
        return
    yield _between_looks((Alloc(f"b{n}", 4096), Free(f"b{n}")) for n in _NUMBERS), "RPC-11"
    yield (Alloc("b0", 4096), *_between_looks((ToFd("b0"),) for _ in _NUMBERS)), "RPC-06"
    yield _between_looks((Alloc(f"b{n}", 4096), ToFd(f"b{n}"), Free(f"b{n}")) for n in _NUMBERS), "RPC-11"
    if any(isinstance(step, Register | Lived) for step in case.steps):
        yield _registered_and_deregistered()
        yield from _refused()
        yield from _freed_contexts()


def churned(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """The same for a case that is many rounds of them: what a few leave behind is their owner's."""
    for step in case.steps:
        if not isinstance(step, Churn):
            continue
        if step.what != "unread":
            yield _registered_and_deregistered()
        if step.what == "context":
            yield from _freed_contexts()
        if step.what == "refused":
            yield from _refused()


def kept_by_contexts(case: MemoryCase) -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    """Contexts that are freed over their registrations, for a case that frees several so.

    A registration that stays may make a later one of that memory be refused, or mean another context's: with
    one buffer where each context has another address, with a buffer for each where they have one.
    """
    steps = (step for step in case.steps if isinstance(step, Lived | Churn))
    if any(step.what in ("contexts", "context") for step in steps):
        yield from _freed_contexts()


def _registered_and_deregistered() -> tuple[tuple[AnyStep, ...], str]:
    return (*_CONTEXT, *_between_looks(map(_given_back, _NUMBERS))), "DRG-10"


def _refused() -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    batch = Register("c0", (PLAIN, WRONG), ("h0", "h1"))
    buffers = (Alloc("b0", _SIZE), Alloc("b1", _SIZE))
    yield (*_CONTEXT, *buffers, *_between_looks((batch,) for _ in _NUMBERS)), "REG-28"
    again = Register("c0", (PLAIN,), ("h1",))
    yield (*registration(PLAIN), *_between_looks((again,) for _ in _NUMBERS)), "REG-28"


def _freed_contexts() -> Iterator[tuple[tuple[AnyStep, ...], str]]:
    yield (Alloc("b0", _SIZE), *_between_looks(_left(n, "b0") for n in _CONTEXTS)), "CTX-01"
    several = (step for number, buffer in enumerate(_BUFFERS) for step in _left(number, buffer))
    look = Observe(buffers=_BUFFERS)
    last = Observe(buffers=_BUFFERS, patient=True)
    yield (*(Alloc(buffer, _SIZE) for buffer in _BUFFERS), look, *several, last), "CTX-10"


def _between_looks(rounds: Iterable[tuple[AnyStep, ...]]) -> tuple[AnyStep, ...]:
    """The first round, then the others between two looks."""
    first, *others = rounds
    return (*first, Observe(), *(step for each in others for step in each), Observe(patient=True))


def _given_back(number: int) -> tuple[AnyStep, ...]:
    """Memory that is registered, deregistered and freed."""
    buffer, handle = f"b{number}", f"h{number}"
    one = msgspec.structs.replace(PLAIN, buffer=buffer)
    return (Alloc(buffer, _SIZE), Register("c0", (one,), (handle,)), Deregister((handle,)), Free(buffer))


def _left(number: int, buffer: str) -> tuple[AnyStep, ...]:
    """A context that is freed over its registration of the buffer."""
    context, one = f"c{number}", msgspec.structs.replace(PLAIN, buffer=buffer)
    return (ContextCreate(context), Register(context, (one,), (f"h{number}",)), ContextFree(context))
