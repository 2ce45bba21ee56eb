"""Cases after which the process ends in good order, whatever is still alive then."""

from __future__ import annotations

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.memory_scene import Scene, Tape, scenes
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Open,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts, MemoryFacts

_LEFT = ("everything", "the delegate", "nothing")
"""What is alive at the end."""


def memory(facts: MemoryFacts) -> SearchStrategy[MemoryCase]:
    """QLEAK-04: contexts with registrations, some of them ended, and perhaps a graph that was executed."""

    def core(scene: Scene, tape: Tape) -> None:
        for _ in range(1 + tape.below(2)):
            context = scene.context()
            for _ in range(1 + tape.below(2)):
                scene.register(context, scene.descriptor(tape))
            graph = scene.prepare(context, tape) if tape.chance(2) else ""
            if graph:
                scene.execute_raw(graph, tape.byte())
        if tape.chance(3):
            scene.deregister(tape.pick(list(scene.handles)))
        if tape.chance(4):
            scene.free_context(tape.pick(scene.contexts))

    return scenes(facts, core, before=1, after=0).map(_ended)


def delegate(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """LIFE-14: a delegate in use, one that was in use, or none any more."""

    def make(case: DelegateCase) -> ScriptCase:
        own = next((one.claim for one in case.applications if one.who == "target"), None)
        position = case.data_seed // 3 % max(1, len(facts.delegates))
        steps: list[AnyScriptStep] = [MakeDelegate("d0", claim=own, position=position), Open("i0")]
        steps += [Apply("i0", "d0"), Allocate("i0"), SetInputs("i0", case.data_seed), Invoke("i0")]
        left = _LEFT[case.data_seed % 3]
        if left != "everything":
            steps.append(Close("i0"))
        if left == "nothing":
            steps.append(DestroyDelegate("d0"))
        return ScriptCase((case.graph,), tuple(steps), ends=True)

    return delegate_strategies.routing(facts).map(make)


def _ended(case: MemoryCase) -> MemoryCase:
    return msgspec.structs.replace(case, ends=True)
