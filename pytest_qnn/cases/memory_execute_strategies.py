"""Cases of the rules about how the tensors of an execute are given (EXE, QMG-11).

As in `pytest_qnn.cases.memory_graph_strategies`, each function of `MemoryFacts` is the strategy of one rule.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import (
    NULL,
    Binding,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Write,
)
from pytest_qnn.cases.memory_graph_scene import (
    ODD_SHAPES,
    any_memory,
    execute,
    graph,
    load,
    output_of,
    read,
    shuffled,
    tensors_of,
)
from pytest_qnn.cases.memory_scene import Scene, Tape, arity, nbytes, scenes
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]
Bindings = tuple[Binding, ...]
OUTSIDE = (77, 0x7FFFFFFF, 5, 255)
"""No Qnn_TensorMemType_t, or its member UNDEFINED."""
_SIZES = (1, 0xFFFFFFFF, 7, 4096, 0x55555555)


def raw(scene: Scene, name: str, seed: int = 0) -> Bindings:
    """Raw memory for every tensor of a graph."""
    inputs = arity(scene.graphs[name].op)
    return (*(Binding(seed=seed + position) for position in range(inputs)), Binding())


def change(bindings: Bindings, position: int, **fields: object) -> Bindings:
    """The bindings with one of them changed."""
    changed = msgspec.structs.replace(bindings[position], **fields)
    return (*bindings[:position], changed, *bindings[position + 1 :])


def _last(scene: Scene, **fields: object) -> None:
    """Change the step that was added last."""
    scene.steps[-1] = msgspec.structs.replace(scene.steps[-1], **fields)


def _binary(scene: Scene, tape: Tape, **fields: object) -> str:
    """A graph of an operator with two inputs; "" where the target takes none."""
    fitting = tuple(pair for pair in scene.operators if arity(pair[0]) == 2)
    if not fitting:
        return ""
    op, dtype = tape.pick(fitting)
    context, name = scene.context(), scene.name("g")
    made = Prepare(name, context, op, dtype, tape.pick(ODD_SHAPES))
    scene.graphs[name] = msgspec.structs.replace(made, **fields)
    scene.add(scene.graphs[name])
    return name


def sized_handles(facts: MemoryFacts) -> Cases:
    """EXE-06: handles come with any dataSize."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        memory = any_memory(scene, tape, name)
        for turn in range(1 + tape.below(2)):
            load(scene, name, memory, 16 * turn + tape.below(16))
            execute(scene, name, memory)
            step = scene.steps[-1]
            assert isinstance(step, Execute)
            sized = tuple(
                msgspec.structs.replace(each, data_size=tape.pick(_SIZES)) for each in step.bindings
            )
            _last(scene, bindings=sized)
            read(scene, [output_of(scene, name, memory)])

    return scenes(facts, core)


def handle_sizes(facts: MemoryFacts) -> Cases:
    """EXE-07: a handle of fewer bytes than the tensor, and one of more."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        made = scene.graphs[name]
        grain = 4 if made.dtype == "FLOAT_32" else 1
        elements = nbytes(made.shape, made.dtype) // grain
        position = tape.below(tensors_of(scene, name))
        for count in (elements - 1 - tape.below(elements), elements + 1 + tape.below(8)):
            if count < 1:
                continue
            buffer = scene.alloc(max(count, elements) * grain)
            scene.add(Fill(buffer))
            scene.add(Write(buffer, min(count, elements) * grain, seed=3, dtype=made.dtype))
            described = Descriptor(buffer, (count,), made.dtype, tape.pick(scene.types))
            (handle,) = scene.register(made.context, described)
            bindings = change(raw(scene, name, 1), position, kind="handle", handle=handle)
            scene.add(Execute(name, bindings))

    return scenes(facts, core)


def shared_handles(facts: MemoryFacts) -> Cases:
    """EXE-08: two graphs of a context, and handles that serve now this tensor and now that one."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (first := graph(scene, tape)):
            return
        made = scene.graphs[first]
        fitting = [op for op, dtype in scene.operators if dtype == made.dtype]
        second = scene.name("g")
        scene.graphs[second] = msgspec.structs.replace(
            made, graph=second, op=tape.pick(fitting), mem_types=()
        )
        scene.add(scene.graphs[second])
        size = nbytes(made.shape, made.dtype)
        buffers = [scene.alloc(size) for _ in range(3)]
        kind = tape.pick(scene.types)
        handles = scene.register(
            made.context, *(Descriptor(each, made.shape, made.dtype, kind) for each in buffers)
        )
        for turn in range(2 + tape.below(4)):
            name = (first, second)[(turn + tape.below(2)) % 2]
            order = shuffled(tape, 3)
            for buffer in buffers:
                scene.add(Fill(buffer))
            for position, which in enumerate(order[: arity(scene.graphs[name].op)]):
                scene.add(Write(buffers[which], size, seed=8 * turn + position, dtype=made.dtype))
            bound = (Binding("handle", handles[which]) for which in order[: tensors_of(scene, name)])
            scene.add(Execute(name, tuple(bound)))
            read(scene, [buffers[order[tensors_of(scene, name) - 1]]])

    return scenes(facts, core, core_bytes=48)


def chained(facts: MemoryFacts) -> Cases:
    """EXE-09: the output of one graph is the first input of the next, through the same handle."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (first := graph(scene, tape)):
            return
        made = scene.graphs[first]
        memory = any_memory(scene, tape, first)
        load(scene, first, memory, tape.below(16))
        execute(scene, first, memory)
        through = memory.handles[tensors_of(scene, first) - 1]
        fitting = [op for op, dtype in scene.operators if dtype == made.dtype]
        for _ in range(1 + tape.below(2)):
            name = scene.name("g")
            scene.graphs[name] = msgspec.structs.replace(made, graph=name, op=tape.pick(fitting))
            scene.add(scene.graphs[name])
            buffer = scene.alloc(nbytes(made.shape, made.dtype))
            scene.add(Fill(buffer))
            kind = tape.pick(scene.types)
            (handle,) = scene.register(made.context, Descriptor(buffer, made.shape, made.dtype, kind))
            bindings = change(raw(scene, name, 5), 0, kind="handle", handle=through, seed=0)
            bindings = change(bindings, len(bindings) - 1, kind="handle", handle=handle)
            scene.add(Execute(name, bindings))
            read(scene, [buffer])
            through = handle

    return scenes(facts, core)


def inputs_kept(facts: MemoryFacts) -> Cases:
    """EXE-10: executes raw and with handles, and a look at every byte of every buffer."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.below(2):
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, tape.below(16))
            execute(scene, name, memory)
            read(scene, memory.buffers)
        execute(scene, name, None, seed=tape.below(16))

    return scenes(facts, core)


def watched_tensors(facts: MemoryFacts) -> Cases:
    """EXE-11: executes that succeed and executes that do not, with a look at their structs."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        act = tape.below(3)
        if act == 1:
            memory = any_memory(scene, tape, name)
            load(scene, name, memory, 1)
            execute(scene, name, memory)
            _last(scene, watch=True)
        elif act == 2:
            scene.add(Execute(name, change(raw(scene, name), 0, kind="handle", handle=NULL), watch=True))
        execute(scene, name, None, seed=tape.below(16))
        _last(scene, watch=True)

    return scenes(facts, core)


def refused_executes(facts: MemoryFacts) -> Cases:
    """EXE-12: executes that are wrong in one of several ways, with a raw output."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        for _ in range(1 + tape.below(2)):
            _mistake(scene, tape, name)

    return scenes(facts, core)


def _mistake(scene: Scene, tape: Tape, name: str) -> None:
    """An execute with a NULL handle for an input, or with an input too few or twice."""
    inputs = arity(scene.graphs[name].op)
    act = tape.below(3)
    if act == 0:
        null = change(raw(scene, name), tape.below(inputs), kind="handle", handle=NULL)
        scene.add(Execute(name, null))
    else:
        given = tuple(range(inputs - 1)) if act == 1 and inputs > 1 else (*range(inputs), 0)
        scene.add(Execute(name, raw(scene, name), inputs=given))


def _one_tensor(facts: MemoryFacts, fields: Callable[[Scene, Tape, str], dict[str, object]]) -> Cases:
    """A good execute in one case of three, then one with a tensor that is changed."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(3):
            execute(scene, name, None, seed=tape.below(16))
        position = tape.below(tensors_of(scene, name))
        scene.add(Execute(name, change(raw(scene, name), position, **fields(scene, tape, name))))

    return scenes(facts, core)


def unknown_memory_types(facts: MemoryFacts) -> Cases:
    """EXE-13: a memory type that there is not."""

    def fields(scene: Scene, tape: Tape, name: str) -> dict[str, object]:
        del scene, name
        return {"mem_type": tape.pick(OUTSIDE)}

    return _one_tensor(facts, fields)


def undersized(facts: MemoryFacts) -> Cases:
    """EXE-14: raw memory with too few bytes."""

    def fields(scene: Scene, tape: Tape, name: str) -> dict[str, object]:
        made = scene.graphs[name]
        size = nbytes(made.shape, made.dtype)
        return {"short": tape.pick((1, min(4, size), 1 + size // 2, size))}

    return _one_tensor(facts, fields)


def permuted(facts: MemoryFacts) -> Cases:
    """EXE-15: the inputs in another order."""

    def core(scene: Scene, tape: Tape) -> None:
        if name := _binary(scene, tape):
            for _ in range(1 + tape.below(2)):
                order = ((1, 0), (0, 1))[tape.chance(4)]
                scene.add(Execute(name, raw(scene, name, tape.below(16)), inputs=order))

    return scenes(facts, core)


def wrong_arrays(facts: MemoryFacts) -> Cases:
    """EXE-16: a tensor that is missing, there twice, foreign, in the wrong array or too much.

    In one case of two the graph has been executed in order before.
    """

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(2):
            execute(scene, name, None, seed=tape.below(16))
        made = scene.graphs[name]
        count = arity(made.op)
        every = tuple(range(count))
        act = tape.below(6)
        step = Execute(name, raw(scene, name))
        if act == 5:
            other = scene.name("g")
            scene.add(msgspec.structs.replace(made, graph=other))
            position = tape.below(count + 1)
            step = msgspec.structs.replace(step, bindings=change(step.bindings, position, of=other))
        else:
            arrays = (
                {"inputs": every[:-1]},
                {"inputs": (*every, 0)},
                {"inputs": (0,) * count if count > 1 else (count,)},
                {"outputs": ()},
                {"outputs": (count, count)},
            )
            step = msgspec.structs.replace(step, **arrays[act])
        scene.add(step)

    return scenes(facts, core)


def unfinished(facts: MemoryFacts) -> Cases:
    """EXE-17: a graph that was not finalised."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        if tape.chance(2):
            execute(scene, name, None)
        other = scene.name("g")
        made = msgspec.structs.replace(scene.graphs[name], graph=other, finalise=False)
        scene.graphs[other] = made
        scene.add(made)
        execute(scene, other, None, seed=tape.below(16))

    return scenes(facts, core)


def same_mistakes(facts: MemoryFacts) -> Cases:
    """QMG-11: one operator prepared raw and with the hint, and the same mistakes with both."""

    def core(scene: Scene, tape: Tape) -> None:
        if not (plain := graph(scene, tape, ())):
            return
        hinted = scene.name("g")
        types = (1,) * tensors_of(scene, plain)
        scene.graphs[hinted] = msgspec.structs.replace(scene.graphs[plain], graph=hinted, mem_types=types)
        scene.add(scene.graphs[hinted])
        stale = ""
        if scene.facts.supports(1101) and tape.below(2):
            stale = _stale(scene, tape, plain)
        for _ in range(1 + tape.below(3)):
            _mistake(scene, tape, plain)
            step = scene.steps[-1]
            assert isinstance(step, Execute)
            if stale and tape.below(2):
                bound = change(raw(scene, plain), 0, kind="handle", handle=stale)
                step = scene.steps[-1] = Execute(plain, bound)
            scene.add(msgspec.structs.replace(step, graph=hinted))

    return scenes(facts, core)


def _stale(scene: Scene, tape: Tape, name: str) -> str:
    """A handle that was deregistered."""
    made = scene.graphs[name]
    buffer = scene.alloc(nbytes(made.shape, made.dtype))
    described = Descriptor(buffer, made.shape, made.dtype, tape.pick(scene.types))
    (handle,) = scene.register(made.context, described)
    scene.deregister(handle)
    return handle
