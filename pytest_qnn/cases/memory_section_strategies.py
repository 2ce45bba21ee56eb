"""Cases of the rule about sections of context binaries (MSC-01)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import Descriptor, MemoryCase
from pytest_qnn.cases.memory_binary_scene import composed, loaded, retrieved, written
from pytest_qnn.cases.memory_graph_scene import execute
from pytest_qnn.cases.memory_scene import Scene, Tape, scenes
from pytest_qnn.cases.memory_sections import ApplySection, GetSection, SectionMemory, UpdateWeights
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]
_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""
_MUCH = 4096
"""Bytes of memory that is registered and has nothing to do with sections."""
_NONE: tuple[SectionMemory, ...] = ("unknown", "null")
_WITH: tuple[SectionMemory, ...] = ("handle", "unknown", "null", "dead", "short", "handle")
"""The choices where no memory can be registered, and where it can."""


def sections(facts: MemoryFacts) -> Cases:
    """A graph with updatable weights is written, and updated; its section is applied to what was written."""
    handles = facts.supports(_MEMORY)

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.context()
        name = composed(scene, tape.cut(4), context, weights=True, hints=())
        if not name:
            return
        made = msgspec.structs.replace(scene.graphs[name], weights_as="updatable")
        scene.steps[scene.steps.index(scene.graphs[name])] = scene.graphs[name] = made
        before = written(scene, context)
        seed = tape.below(16)
        scene.add(UpdateWeights(name, 300 + tape.below(8)))
        execute(scene, name, None, seed=seed)
        other = loaded(scene, before)
        if handles and tape.chance(2):
            scene.register(context, Descriptor(scene.alloc(_MUCH), (_MUCH,), mem_type=scene.types[0]))
        taken = _taken(scene, tape.cut(6), context, name)
        again = retrieved(scene, other, name)
        for _ in range(1 + tape.below(2)):
            part = tape.cut(4)
            if part.chance(3):
                execute(scene, again, None, seed=seed)
            scene.add(ApplySection(other, again, taken, _memory(scene, part), part.pick(scene.types)))
            execute(scene, again, None, seed=seed)

    return scenes(facts, core, core_bytes=40, before=2, after=0)


def _memory(scene: Scene, tape: Tape) -> SectionMemory:
    return tape.pick(_WITH if scene.facts.supports(_MEMORY) else _NONE)


def _taken(scene: Scene, tape: Tape, context: str, graph: str) -> str:
    """The section in raw memory, then in memory of other kinds; gives the name of the first."""
    first = scene.name("s")
    scene.add(GetSection(context, graph, first))
    for _ in range(1 + tape.below(2)):
        step = GetSection(context, graph, scene.name("s"), _memory(scene, tape), tape.pick(scene.types))
        scene.add(step)
    return first
