"""Cases of the rules about seed 001's table: prepared raw or memhandle, executed raw or memhandle.

Where the table speaks of allocation, a tensor has a size that is found again among the mappings of the
process: above 128 KiB, from where glibc maps each block on its own. `Observe` steps stand directly before
and after each prepare and each execute, so that buffers of the client are never between two of them.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import MemoryCase, Observe
from pytest_qnn.cases.memory_graph_scene import (
    any_memory,
    execute,
    graph,
    hint,
    load,
    output_of,
    prepared,
    read,
    tensors_of,
)
from pytest_qnn.cases.memory_scene import Scene, Tape, nbytes, scenes
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]

PLAIN: tuple[int, ...] = ()
HINTED = (1, 1, 1)
"""Every IO tensor is created with memory type MEMHANDLE."""


def _watched(scene: Scene, tape: Tape, mem_types: tuple[int, ...]) -> str:
    """A graph of large tensors with a look before and after its preparation; "" without operators."""
    shape = (1, 3, 251, 201 + 2 * tape.below(64))
    name = prepared(scene, tape, mem_types, shape)
    if name:
        made = scene.steps.pop()
        look = Observe(_region(scene, name))
        scene.steps += [look, made, look]
    return name


def _region(scene: Scene, name: str) -> int:
    made = scene.graphs[name]
    return nbytes(made.shape, made.dtype)


def _executed(scene: Scene, tape: Tape, name: str, *, handles: bool, turns: int = 1) -> None:
    """Executes, raw or with handles for every tensor, each with a look before and after it."""
    memory = any_memory(scene, tape, name) if handles else None
    look = Observe(_region(scene, name))
    for turn in range(turns):
        seed = 16 * turn + tape.below(16)
        if memory is not None:
            load(scene, name, memory, seed)
        if scene.steps[-1] != look:
            scene.add(look)
        execute(scene, name, memory, seed=seed)
        scene.add(look)


def _row(facts: MemoryFacts, mem_types: tuple[int, ...], *, handles: bool, control: tuple[int, ...]) -> Cases:
    """One row of the table, then as control a raw execute of a graph prepared with ``control``."""

    def core(scene: Scene, tape: Tape) -> None:
        name = _watched(scene, tape, mem_types)
        if not name:
            return
        turns = 1 + tape.below(2)
        _executed(scene, tape, name, handles=handles, turns=turns)
        _executed(scene, tape, _watched(scene, tape, control), handles=False)

    return scenes(facts, core, before=2, after=0)


def raw_raw(facts: MemoryFacts) -> Cases:
    """QMG-01."""
    return _row(facts, PLAIN, handles=False, control=HINTED)


def raw_memhandle(facts: MemoryFacts) -> Cases:
    """QMG-02."""
    return _row(facts, PLAIN, handles=True, control=PLAIN)


def memhandle_raw(facts: MemoryFacts) -> Cases:
    """QMG-03."""
    return _row(facts, HINTED, handles=False, control=PLAIN)


def memhandle_memhandle(facts: MemoryFacts) -> Cases:
    """QMG-04."""
    return _row(facts, HINTED, handles=True, control=PLAIN)


def four_rows(facts: MemoryFacts) -> Cases:
    """QMG-05: one operator, prepared both ways, each graph executed both ways with the same inputs."""

    def core(scene: Scene, tape: Tape) -> None:
        plain = graph(scene, tape, PLAIN)
        if not plain:
            return
        made = scene.graphs[plain]
        hinted = scene.name("g")
        scene.graphs[hinted] = msgspec.structs.replace(made, graph=hinted)
        scene.add(scene.graphs[hinted])
        hint(scene, hinted, HINTED)
        seed = tape.below(16)
        for name in (plain, hinted):
            execute(scene, name, None, seed=seed)
        memory = any_memory(scene, tape, plain)
        load(scene, plain, memory, seed)
        for name in (plain, hinted):
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


def raw_again(facts: MemoryFacts) -> Cases:
    """QMG-06: a graph prepared memhandle, executed raw several times; a graph prepared raw as control."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := _watched(scene, tape, HINTED):
            _executed(scene, tape, name, handles=False, turns=2 + tape.below(3))
            _executed(scene, tape, _watched(scene, tape, PLAIN), handles=False)

    return scenes(facts, core, before=2, after=0)


def alternating(facts: MemoryFacts) -> Cases:
    """QMG-07: raw and memhandle executes in any order on one graph, prepared in any way."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        first = tape.below(2)
        for turn in range(2 + tape.below(5)):
            seed = 16 * turn + tape.below(16)
            handles = (turn + first + tape.chance(4)) % 2
            if handles:
                load(scene, name, memory, seed)
            execute(scene, name, memory if handles else None, seed=seed)
            if handles:
                read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


def mixed_hints(facts: MemoryFacts) -> Cases:
    """QMG-08: some IO tensors prepared memhandle, the others raw, and a raw execute."""

    def core(scene: Scene, tape: Tape) -> None:
        name = _watched(scene, tape, PLAIN)
        if not name:
            return
        tensors = tensors_of(scene, name)
        hints = 1 + tape.below((1 << tensors) - 2)
        mem_types = tuple(hints >> tensor & 1 for tensor in range(tensors))
        hint(scene, name, mem_types)
        _executed(scene, tape, name, handles=False)

    return scenes(facts, core, before=2, after=0)


def hinted(facts: MemoryFacts) -> Cases:
    """PRE-04: graphs created with the hint; every other time with a look at what the hint changes."""

    def core(scene: Scene, tape: Tape) -> None:
        if not tape.chance(2):
            hints = 7 - tape.below(7)
            graph(scene, tape, tuple(hints >> tensor & 1 for tensor in range(3)))
        elif _watched(scene, tape, HINTED):
            _watched(scene, tape, PLAIN)

    return scenes(facts, core)


def freed(facts: MemoryFacts) -> Cases:
    """QMG-09: a graph with IO buffers, from before its preparation to after its context is freed."""

    def core(scene: Scene, tape: Tape) -> None:
        name = _watched(scene, tape, tape.pick((PLAIN, HINTED)))
        if not name:
            return
        _executed(scene, tape, name, handles=False)
        region = _region(scene, name)
        scene.free_context(scene.graphs[name].context)
        scene.add(Observe(region))

    return scenes(facts, core, before=2, after=0)
