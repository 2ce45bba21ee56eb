"""IF-17: memory that a backend requests from the system."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.qnn.cases.case import CheckHeap, MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.strategies.binaries import composed, loaded, written
from pytest_qnn.qnn.strategies.graphs import any_memory, execute, graph
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace


def two_lives(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph, memory and a binary, where there are such; then the same again, with a checked heap.

    In one of two cases the graph's context then has others whose nodes pass results on, and those are
    executed once the last is there.
    """
    saves = facts.supports(Property.CONTEXT_SUPPORT_CACHING)

    def life(scene: Scene, tape: Tape, *, checked: bool) -> None:
        name = graph(scene, tape)
        if not name:
            scene.free_context(scene.context())
            return
        scene.execute_raw(name, tape.byte())
        if checked and tape.chance(2):
            context = scene.graphs[name].context
            parts = [tape.cut(4) for _ in range(2)]
            made = [composed(scene, part, context, weights=False, hints=(), relay=True) for part in parts]
            for each in filter(None, made):
                scene.execute_raw(each, tape.byte())
        if memory_types(facts):
            memory = any_memory(scene, tape, name)
            execute(scene, name, memory)
            if tape.below(2):
                scene.deregister(*memory.handles)
        if saves:
            scene.free_context(loaded(scene, written(scene, scene.graphs[name].context)))
        if tape.below(2):
            scene.free_context(scene.graphs[name].context)

    def core(scene: Scene, tape: Tape) -> None:
        life(scene, tape.cut(_LIFE), checked=False)
        scene.add(CheckHeap())
        life(scene, tape.cut(_LIFE), checked=True)

    return scenes(facts, core, core_bytes=2 * _LIFE, before=1)


_LIFE = 44


@rule(
    "IF-17",
    Level.MUST,
    "Of memory that a backend requests it uses what it requested, for as long as it has it: it reads and "
    "writes nothing beside a block, nor a block that it has freed, and frees or unmaps nothing twice.",
    source="ISO C11 7.22.3 (the lifetime of an allocated object), 7.22.3.3 (free), 6.5.6 (addresses behind "
    "an object); POSIX munmap: other mappings may be there since",
    subject="memory",
    cases=two_lives,
    weight=0.5,
)
def if_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Whoever comes to the end has: each block ends where a page begins that nobody may use.

    The process dies in the function that reads or writes there (`pytest_qnn.isolation.host.checked_heap`),
    or where a block is freed that was written beside. On the system's own heap most of that goes unnoticed.
    What the session requested before is not checked.
    """
    require_session(trace)
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, CheckHeap) and seen.skipped:
            raise Unsupported(seen.skipped)
    if not any(trace.heap):
        raise Unsupported("the backend requests nothing where it can be seen", final=False)
    return Examined(sum(trace.heap), "blocks and mappings")
