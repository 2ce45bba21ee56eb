"""Cases of the rules about memory that graphs execute with (ION, SHB, EXE) and of prepare time (PRE).

Each function of `MemoryFacts` is the strategy of one rule: a sequence that is in order, with the rule's own
element in it, among varied surroundings. On a target that takes no operator a graph's case is a context.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    Binding,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Observe,
    Prepare,
    Register,
)
from pytest_qnn.cases.memory_graph_scene import (
    CUSTOM,
    ODD_SHAPES,
    any_memory,
    execute,
    graph,
    load,
    one_buffer,
    output_of,
    own_buffers,
    read,
    register_all,
    rounds,
    shuffled,
    tensors_of,
)
from pytest_qnn.cases.memory_scene import Scene, Tape, arity, nbytes, scenes
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]

RAW, MEMHANDLE = 0, 1
_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""
HUGE_OFFSETS = (1 << 32, (1 << 64) - 4, (1 << 64) - 1, 1 << 63, (1 << 33) + 4, (1 << 48) + 1)


# ION


def ion_tensors(facts: MemoryFacts) -> Cases:
    """ION-03: every IO tensor in an ION buffer of its own."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            rounds(scene, tape, name, own_buffers(scene, tape, name), 1)

    return scenes(facts, core)


def ion_rewritten(facts: MemoryFacts) -> Cases:
    """ION-04: the inputs change between executes."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            rounds(scene, tape, name, own_buffers(scene, tape, name), 2 + tape.below(3))

    return scenes(facts, core)


def ion_read_at_once(facts: MemoryFacts) -> Cases:
    """ION-05: nothing happens between the execute and the client's look at the output."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = own_buffers(scene, tape, name)
        for turn in range(1 + tape.below(3)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])
            scene.add(Fill(output_of(scene, name, memory)))

    return scenes(facts, core)


# SHB


def _shared(scene: Scene, tape: Tape, count: int) -> tuple[str, list[Descriptor]]:
    """A buffer and descriptors of ``count`` tensors that lie in it without overlap, not yet registered."""
    shape, dtype = scene.tensor(tape)
    size = nbytes(shape, dtype)
    gap = 4 * tape.pick((0, 1, 5, 16))
    buffer = scene.alloc(count * (size + gap) + 4 * tape.below(64))
    return buffer, [
        Descriptor(buffer, shape, dtype, CUSTOM, offset=tensor * (size + gap)) for tensor in range(count)
    ]


def shared_sizes(facts: MemoryFacts) -> Cases:
    """SHB-03: a second tensor of a mapped buffer comes with another size, then with the right one."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        buffer, tensors = _shared(scene, tape, 2 + tape.below(3))
        order = shuffled(tape, len(tensors))
        whole, wrong = tensors[order[0]], tensors[order[1]]
        if whole.offset < wrong.offset:
            whole, wrong = wrong, whole
        scene.register(context, whole)
        least = wrong.offset + nbytes(wrong.shape, wrong.dtype)
        size = least + tape.below(scene.buffers[buffer] - least)
        scene.add(Register(context, (msgspec.structs.replace(wrong, size=size),), (scene.name("h"),)))
        scene.register(context, wrong)

    return scenes(facts, core)


def shared_ends(facts: MemoryFacts) -> Cases:
    """SHB-04: a tensor that ends exactly with its buffer, and one that does not fit."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        shape, dtype = scene.tensor(tape)
        grain = 4 if dtype == "FLOAT_32" else 1
        room = grain * tape.pick((0, 1, 64, 1024))
        buffer = scene.alloc(nbytes(shape, dtype) + room)
        fits = Descriptor(buffer, shape, dtype, CUSTOM, offset=room)
        past = msgspec.structs.replace(fits, offset=room + grain * tape.pick((1, 2, 3, 4096, 1 << 20)))
        if tape.chance(2):
            scene.register(context, fits)
            scene.add(Register(context, (past,), (scene.name("h"),)))
        else:
            scene.add(Register(context, (past,), (scene.name("h"),)))
            scene.register(context, fits)

    return scenes(facts, core)


def shared_wraps(facts: MemoryFacts) -> Cases:
    """SHB-06: offsets that only 64-bit arithmetic without wrap-around refuses; then a good one."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        _, (good, *_) = _shared(scene, tape, 2)
        for _ in range(1 + tape.below(3)):
            huge = msgspec.structs.replace(good, offset=tape.pick(HUGE_OFFSETS))
            scene.add(Register(context, (huge,), (scene.name("h"),)))
        scene.register(context, good)

    return scenes(facts, core)


def shared_offsets(facts: MemoryFacts) -> Cases:
    """SHB-07: several tensors in one buffer."""

    def core(scene: Scene, tape: Tape) -> None:
        context = scene.any_context(tape)
        _, tensors = _shared(scene, tape, 2 + tape.below(7))
        register_all(scene, tape, context, tensors)

    return scenes(facts, core)


def shared_layout(facts: MemoryFacts) -> Cases:
    """SHB-08, SHB-09: all IO tensors of a graph, and spare ones, in one buffer in any order."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := graph(scene, tape):
            memory = one_buffer(scene, tape, name, tape.below(3))
            rounds(scene, tape, name, memory, 1 + tape.below(2))

    return scenes(facts, core, core_bytes=48)


def shared_farewell(facts: MemoryFacts) -> Cases:
    """SHB-13: spare tensors of the buffer go one by one, executes in between, then all the rest.

    Looks stand before the first registration, after the last, and after the last deregistration.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        spares = 1 + tape.below(3)
        looks = tape.chance(2)
        start = len(scene.steps)
        memory = one_buffer(scene, tape, name, spares)
        if looks:
            first = next(i for i, step in enumerate(scene.steps) if i >= start and isinstance(step, Register))
            scene.steps.insert(first, Observe())
            scene.add(Observe())
        used = tensors_of(scene, name)
        for spare in shuffled(tape, spares):
            scene.deregister(memory.handles[used + spare])
            rounds(scene, tape, name, memory, 1)
        for tensor in shuffled(tape, used):
            scene.deregister(memory.handles[tensor])
        if looks:
            scene.add(Observe())

    return scenes(facts, core, core_bytes=48)


# EXE


def executed_both_ways(facts: MemoryFacts) -> Cases:
    """EXE-01: the same inputs in raw memory and in memory handles."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        for turn in range(1 + tape.below(2)):
            seed = 16 * turn + tape.below(16)
            execute(scene, name, None, seed=seed)
            load(scene, name, memory, seed)
            execute(scene, name, memory)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


def executed_mixed(facts: MemoryFacts) -> Cases:
    """EXE-02: some tensors raw, the others with memory handles."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        mixes = (1 << tensors_of(scene, name)) - 2
        for _ in range(1 + tape.below(3)):
            seed = tape.below(16)
            load(scene, name, memory, seed)
            execute(scene, name, memory, 1 + tape.below(mixes), seed)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


def _executed_with(facts: MemoryFacts, *handles: str) -> Cases:
    """An execute with one of ``handles`` for one or more tensors and raw memory for the others.

    In one case of two, handles of the graph's own context are live that would fit each tensor. The context's
    name stands for its value, which is no memory handle.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(3):
            execute(scene, name, None, seed=tape.below(16))
        bad = 1 + tape.below((1 << tensors_of(scene, name)) - 1)
        handle = tape.pick(handles) or scene.graphs[name].context
        if tape.chance(2) and facts.supports(_MEMORY):
            any_memory(scene, tape, name)
        bindings = (
            Binding("handle", handle) if bad >> tensor & 1 else Binding()
            for tensor in range(tensors_of(scene, name))
        )
        scene.add(Execute(name, tuple(bindings)))

    return scenes(facts, core)


def executed_with_null(facts: MemoryFacts) -> Cases:
    """EXE-03: NULL where a memory handle belongs, also while handles are live."""
    return _executed_with(facts, NULL)


def executed_with_bogus(facts: MemoryFacts) -> Cases:
    """EXE-05: a value that was never given out, or is a context's, where a memory handle belongs."""
    return _executed_with(facts, BOGUS, "")


def rewritten_and_reread(facts: MemoryFacts) -> Cases:
    """EXE-19: other inputs in the same memory for each execute, and the output read after each.

    The client reads its memory before some of the executes as well, and overwrites the output.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        output = output_of(scene, name, memory)
        for turn in range(2 + tape.below(4)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            if tape.chance(2):
                read(scene, memory.buffers)
            execute(scene, name, memory)
            read(scene, [output])
            if tape.chance(2) and memory.buffers.count(output) == 1:
                scene.add(Fill(output))

    return scenes(facts, core)


def executed_with_stale(facts: MemoryFacts) -> Cases:
    """EXE-04: handles that were deregistered, after an execute that used them or without one."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        load(scene, name, memory, tape.below(16))
        if tape.chance(2):
            execute(scene, name, memory)
        output = output_of(scene, name, memory)
        scene.add(Fill(output))
        every = (1 << tensors_of(scene, name)) - 1
        stale = 1 + tape.below(every)
        gone = [memory.handles[tensor] for tensor in range(every.bit_length()) if stale >> tensor & 1]
        scene.deregister(*gone)
        execute(scene, name, memory, tape.below(every + 1) & ~stale)
        read(scene, [output])

    return scenes(facts, core)


# PRE


def _preset(facts: MemoryFacts, kind: int) -> Cases:
    """Tensors of memory type ``kind`` that are created with memory, then a graph without."""

    def core(scene: Scene, tape: Tape) -> None:
        operators = scene.operators or (("ElementWiseAdd", "UFIXED_POINT_8"),)
        op, dtype = tape.pick(operators)
        shape = tape.pick(ODD_SHAPES)
        tensors = arity(op) + 1
        chosen = 1 + tape.below((1 << tensors) - 1)
        other = tape.byte()
        types = tuple(kind if chosen >> tensor & 1 else other >> tensor & 1 for tensor in range(tensors))
        preset = tuple(bool(chosen >> tensor & 1) for tensor in range(tensors))
        context = scene.context()
        scene.add(Prepare(scene.name("g"), context, op, dtype, shape, types, preset))
        scene.add(Prepare(scene.name("g"), context, op, dtype, shape, types))

    return scenes(facts, core)


def preset_handles(facts: MemoryFacts) -> Cases:
    """PRE-01: MEMHANDLE tensors created with a handle."""
    return _preset(facts, MEMHANDLE)


def preset_data(facts: MemoryFacts) -> Cases:
    """PRE-02: RAW tensors created with data."""
    return _preset(facts, RAW)
