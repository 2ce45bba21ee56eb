"""Controls of what refused executes leave behind: as many executes of the same graph that succeed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.core.verdict import Measured
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    Binding,
    ContextCreate,
    Descriptor,
    Executes,
    MemoryCase,
    Prepare,
)
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.controls.binaries import executed
from pytest_qnn.qnn.controls.registrations import registration
from pytest_qnn.qnn.facts import MemoryFacts


def of_executes(controls: Iterable[Control], case: MemoryCase, types: Sequence[int]) -> Iterator[Control]:
    """The controls of a case; before them, of its refused executes, those that succeed.

    First with raw memory, then with a valid handle in the place of each that is not.

    Args:
        controls: those of any other kind.
        case: in which something was wrong.
        types: Qnn_MemType_t of the memory that the target takes, at least one.
    """
    alive = Alive()
    for step in case.steps:
        made = alive.prepared.get(step.graph) if isinstance(step, Executes) and step.refused else None
        if isinstance(step, Executes) and made is not None:
            plain = msgspec.structs.replace(made, graph="g0", context="c0")
            for steps in (_raw(plain, step), *_with_handles(plain, step, alive, types)):
                yield Control(MemoryCase(steps), ("QLEAK-08",), explains=(Measured,))
        alive.follow(step)
    yield from controls


def _raw(plain: Prepare, refused: Executes) -> tuple[AnyStep, ...]:
    execute = executed(plain)
    return ContextCreate("c0"), plain, execute, Executes("g0", execute.bindings, refused.rounds)


def _with_handles(
    plain: Prepare, refused: Executes, alive: Alive, types: Sequence[int]
) -> Iterator[tuple[AnyStep, ...]]:
    plainest = executed(plain)
    for position, binding in enumerate(refused.bindings[: len(plainest.bindings)]):
        if binding.kind != "handle":
            continue
        known = alive.registered.get(binding.handle)
        mem_type = types[0] if known is None else known.descriptor.mem_type
        bindings = list(plainest.bindings)
        bindings[position] = Binding("handle", "h0")
        memory = registration(Descriptor("b0", plain.shape, plain.dtype, mem_type))
        yield (*memory, plain, plainest, Executes("g0", tuple(bindings), refused.rounds))


def around_executes(facts: MemoryFacts, case: MemoryCase) -> MemoryFacts:
    """The facts with what the control has shown, if the case is one: it is so whatever the operator is."""
    if not any(isinstance(step, Executes) and not step.refused for step in case.steps):
        return facts
    return msgspec.structs.replace(facts, executes_grow=True)
