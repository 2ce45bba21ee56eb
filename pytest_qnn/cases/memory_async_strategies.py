"""Cases of the rule about asynchronous execution (EXE-18)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import BOGUS, NULL, Descriptor, Execute, MemoryCase
from pytest_qnn.cases.memory_execute_strategies import OUTSIDE, change, raw
from pytest_qnn.cases.memory_graph_scene import (
    Memory,
    any_memory,
    execute,
    graph,
    load,
    read,
    tensors_of,
)
from pytest_qnn.cases.memory_scene import Scene, Tape, io_inputs, nbytes, scenes
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]
_MEMORY, _HANDLES = 1101, 502
"""QNN_PROPERTY_GROUP_MEMORY, QNN_PROPERTY_TENSOR_SUPPORT_MEMHANDLE_TYPE."""


def asynchronous(facts: MemoryFacts) -> Cases:
    """Executes of one graph, raw and with handles, most of them asynchronous, some of them wrong."""
    handles = facts.supports(_MEMORY) and facts.supports(_HANDLES)

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name) if handles and tape.chance(2) else None
        for turn in range(1 + tape.below(3)):
            _turn(scene, tape.cut(7), name, memory, 16 * turn)
        if memory is not None and tape.chance(2):
            _with_dead_handle(scene, tape, name, memory)

    return scenes(facts, core, core_bytes=48)


def _later(scene: Scene, calls: int = 1) -> None:
    """Make the execute that was added last an asynchronous one, the last of so many."""
    scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], asynchronous=calls)


def _turn(scene: Scene, tape: Tape, name: str, memory: Memory | None, seed: int) -> None:
    """One execute with new inputs, and a look at every buffer; in one turn of four it is wrong."""
    if tape.chance(4):
        scene.add(_wrong(scene, tape, name, handles=memory is not None))
        _later(scene)
        return
    calls = tape.pick((1, 1, 2, 4))
    mixed = tape.below(8) if tape.chance(3) else 0
    if memory is not None:
        load(scene, name, memory, seed)
    execute(scene, name, memory, raw=mixed, seed=seed + tape.below(16))
    if not tape.chance(4):
        _later(scene, calls)
    if memory is not None:
        read(scene, memory.buffers)


def _wrong(scene: Scene, tape: Tape, name: str, *, handles: bool) -> Execute:
    """An execute that graphExecute would refuse."""
    made = scene.graphs[name]
    good = raw(scene, name)
    position = tape.below(tensors_of(scene, name))
    act = tape.below(6 if handles else 5)
    if act == 0:
        return Execute(name, change(good, position, kind="handle", handle=tape.pick((NULL, BOGUS))))
    if act == 1:
        return Execute(name, change(good, position, mem_type=tape.pick(OUTSIDE)))
    if act == 2:
        return Execute(name, change(good, position, short=nbytes(made.shape, made.dtype)))
    if act == 3:
        return Execute(name, good, inputs=(*range(io_inputs(made)), 0))
    if act == 4:
        other = scene.name("g")
        scene.add(msgspec.structs.replace(made, graph=other, finalise=False))
        return Execute(other, good)
    buffer = scene.alloc(nbytes(made.shape, made.dtype))
    described = Descriptor(buffer, made.shape, made.dtype, tape.pick(scene.types))
    (foreign,) = scene.register(scene.context(), described)
    return Execute(name, change(good, position, kind="handle", handle=foreign))


def _with_dead_handle(scene: Scene, tape: Tape, name: str, memory: Memory) -> None:
    """One handle of the graph's memory is deregistered, and bound all the same."""
    position = tape.below(tensors_of(scene, name))
    handle = memory.handles[position]
    scene.deregister(handle)
    scene.add(Execute(name, change(raw(scene, name), position, kind="handle", handle=handle)))
    _later(scene)
    read(scene, memory.buffers)
