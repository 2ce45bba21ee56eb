"""Cases of SSR-01: the subsystem restarts, its objects are used and given back, and a new life begins."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import ContextFree, Deregister, MemoryCase, Register
from pytest_qnn.cases.memory_probes import Restart
from pytest_qnn.cases.memory_scene import Scene, Tape, scenes
from pytest_qnn.core.rule import NothingToJudge
from pytest_qnn.facts import MemoryFacts


def restarts(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph that was executed before is executed again; its memory is registered again elsewhere."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return scenes(facts, _core, before=1, after=0)


def _core(scene: Scene, tape: Tape) -> None:
    old = scene.context()
    graph = scene.prepare(old, tape)
    handles = scene.tensor_memory(graph)
    described = [scene.handles[handle].descriptor for handle in handles]
    scene.execute_handles(graph, handles)
    scene.add(Restart())
    for _ in range(1 + tape.below(2)):
        if tape.below(2):
            scene.execute_raw(graph, tape.byte())
        else:
            scene.execute_handles(graph, handles)
    if tape.chance(2):
        scene.add(Register(old, (scene.descriptor(tape),), (scene.name("h"),)))
    scene.add(Deregister(handles))
    scene.add(ContextFree(old))
    new = scene.context()
    again = msgspec.structs.replace(scene.graphs[graph], graph=scene.name("g"), context=new)
    scene.add(again)
    names = [name for each in described for name in scene.register(new, each)]
    scene.execute_handles(again.graph, names)
