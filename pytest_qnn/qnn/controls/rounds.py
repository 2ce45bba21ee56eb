"""The control of what refused executes leave behind: as many executes of the same graph that succeed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.core.verdict import Measured
from pytest_qnn.qnn.cases.case import ContextCreate, Executes, MemoryCase
from pytest_qnn.qnn.cases.lives import Alive
from pytest_qnn.qnn.controls.binaries import executed
from pytest_qnn.qnn.facts import MemoryFacts


def of_executes(controls: Iterable[Control], case: MemoryCase) -> Iterator[Control]:
    """The controls of a case; before them, of its refused executes, those that succeed."""
    alive = Alive()
    for step in case.steps:
        made = alive.prepared.get(step.graph) if isinstance(step, Executes) and step.refused else None
        if isinstance(step, Executes) and made is not None:
            plain = msgspec.structs.replace(made, graph="g0", context="c0")
            many = Executes("g0", executed(plain).bindings, step.rounds)
            steps = (ContextCreate("c0"), plain, executed(plain), many)
            yield Control(MemoryCase(steps), ("QLEAK-08",), explains=(Measured,))
        alive.follow(step)
    yield from controls


def around_executes(facts: MemoryFacts, case: MemoryCase) -> MemoryFacts:
    """The facts with what the control has shown, if the case is one: it is so whatever the operator is."""
    if not any(isinstance(step, Executes) and not step.refused for step in case.steps):
        return facts
    return msgspec.structs.replace(facts, executes_grow=True)
