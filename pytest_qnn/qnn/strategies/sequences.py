"""Strategies of memory cases: general sequences, and the frame in which a rule puts its own steps.

Building blocks are in `pytest_qnn.qnn.strategies.scene` (Tape, Scene, scenes) and are importable from here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Binding,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    FdKind,
    MemoryCase,
    Register,
)
from pytest_qnn.qnn.cases.sizes import arity, nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.strategies.history import Kind
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes

_RECORD = 8
"""Bytes of one step of a general sequence."""
_UNMAPPABLE: tuple[FdKind, ...] = ("minus-one", "pipe", "closed", "socket", "directory")
_LIMITS = {"contexts": 4, "buffers": 12, "graphs": 4}

Act = Callable[[Scene, Tape], None]


def embedded(
    core: Act,
    *,
    core_bytes: int = 32,
    before: int = 3,
    after: int = 1,
    around: Act = Scene.around,
    without: frozenset[Kind] = frozenset(),
) -> Callable[[MemoryFacts], st.SearchStrategy[MemoryCase]]:
    """`scenes` with the facts still to come: what a rule gives as its ``cases``."""
    return lambda facts: scenes(
        facts, core, core_bytes=core_bytes, before=before, after=after, around=around, without=without
    )


def memory_sequences(
    facts: MemoryFacts, max_steps: int = 20, *, invalid: bool = True
) -> st.SearchStrategy[MemoryCase]:
    """Any order of alloc, free, register, deregister, prepare, execute, context create and free.

    Every record of the drawn bytes gives one step or none, so a case has at most ``max_steps`` steps.
    With ``invalid`` about one step in five is deliberately wrong (a stale or unknown handle or context, a
    repeated registration, a descriptor that cannot be mapped, a NULL array).
    """

    def decode(data: bytes) -> MemoryCase:
        scene = Scene(facts)
        for start in range(0, len(data), _RECORD):
            tape = Tape(data[start : start + _RECORD])
            _one_step(scene, tape, invalid=invalid)
        return scene.case()

    length = max_steps * _RECORD
    return decoded(length, decode)


def _one_step(scene: Scene, tape: Tape, *, invalid: bool) -> None:
    act = tape.byte()
    if act == 0:
        return
    if not scene.contexts:
        scene.context()
    elif invalid and act >= 204:
        tape.pick(_WRONG)(scene, tape)
    else:
        _RIGHT[act % len(_RIGHT)](scene, tape)


def _register(scene: Scene, tape: Tape) -> None:
    """One new registration over a buffer that has none of its identity in the chosen context."""
    context = tape.pick(scene.contexts)
    if not scene.buffers:
        _alloc(scene, tape)
        return
    buffer = tape.pick(list(scene.buffers))
    shape, dtype = scene.tensor(tape)
    taken = [
        known
        for known in scene.handles.values()
        if (known.context, known.descriptor.buffer) == (context, buffer)
    ]
    if taken or nbytes(shape, dtype) > scene.buffers[buffer]:
        _alloc(scene, tape)
        return
    scene.register(context, Descriptor(buffer, shape, dtype, tape.pick(scene.types)))


def _alloc(scene: Scene, tape: Tape) -> None:
    if len(scene.buffers) < _LIMITS["buffers"]:
        scene.alloc(1024 + tape.below(8192))
    else:
        _free(scene, tape)


def _free(scene: Scene, tape: Tape) -> None:
    used = {known.descriptor.buffer for known in scene.handles.values()}
    unused = [buffer for buffer in scene.buffers if buffer not in used]
    if unused:
        scene.free(tape.pick(unused))
    else:
        _deregister(scene, tape)


def _deregister(scene: Scene, tape: Tape) -> None:
    if not scene.handles:
        _register(scene, tape)
        return
    names = list(scene.handles)
    first = tape.below(len(names))
    scene.deregister(*names[first : first + 1 + tape.below(2)])


def _context(scene: Scene, tape: Tape) -> None:
    if len(scene.contexts) < _LIMITS["contexts"]:
        scene.context()
    else:
        scene.free_context(tape.pick(scene.contexts))


def _free_context(scene: Scene, tape: Tape) -> None:
    if len(scene.contexts) > 1:
        scene.free_context(tape.pick(scene.contexts))
    else:
        _register(scene, tape)


def _prepare(scene: Scene, tape: Tape) -> None:
    if not scene.operators or len(scene.graphs) >= _LIMITS["graphs"]:
        _register(scene, tape)
        return
    context = tape.pick(scene.contexts)
    mem_types = tuple(tape.below(2) for _ in range(3))
    op, _ = scene.operators[0]
    scene.prepare(context, tape, mem_types[: arity(op) + 1])


def _execute(scene: Scene, tape: Tape) -> None:
    """Each tensor raw, or over a live handle of the context that is large enough and used once."""
    if not scene.graphs:
        _prepare(scene, tape)
        return
    graph = scene.graphs[tape.pick(list(scene.graphs))]
    needed = nbytes(graph.shape, graph.dtype)
    fit = {
        known.descriptor.buffer: name
        for name, known in scene.handles.items()
        if known.context == graph.context and nbytes(known.descriptor.shape, known.descriptor.dtype) >= needed
    }
    bindings = []
    for position in range(arity(graph.op) + 1):
        use = bool(fit) and tape.below(2) == 1
        buffer = tape.pick(list(fit)) if use else ""
        bindings.append(Binding("handle", fit.pop(buffer)) if use else Binding(seed=position))
    scene.add(Execute(graph.graph, tuple(bindings)))


_RIGHT: tuple[Act, ...] = (
    _register,
    _register,
    _alloc,
    _deregister,
    _execute,
    _context,
    _prepare,
    _free,
    _free_context,
    _register,
)


# Deliberately wrong steps


def stale_handle(scene: Scene, tape: Tape) -> str:
    """A handle name that must not work: dead if there is one, else ``BOGUS``."""
    return tape.pick([*scene.dead, BOGUS])


def _again(scene: Scene, tape: Tape) -> None:
    if not scene.handles:
        _register(scene, tape)
        return
    known = scene.handles[tape.pick(list(scene.handles))]
    scene.add(Register(known.context, (known.descriptor,), (scene.name("h"),)))


def _unmappable(scene: Scene, tape: Tape) -> None:
    if not scene.buffers:
        _alloc(scene, tape)
        return
    wrong = Descriptor(
        tape.pick(list(scene.buffers)), (1,), mem_type=scene.types[0], fd=tape.pick(_UNMAPPABLE)
    )
    scene.add(Register(tape.pick(scene.contexts), (wrong,), (scene.name("h"),)))


def _stale_context(scene: Scene, tape: Tape) -> None:
    if not scene.buffers:
        _alloc(scene, tape)
        return
    context = tape.pick([NULL, BOGUS])
    right = Descriptor(tape.pick(list(scene.buffers)), (1,), mem_type=scene.types[0])
    scene.add(Register(context, (right,), (scene.name("h"),)))


def _stale_deregister(scene: Scene, tape: Tape) -> None:
    scene.add(Deregister((tape.pick([NULL, stale_handle(scene, tape)]),)))


def _mixed_deregister(scene: Scene, tape: Tape) -> None:
    if not scene.handles:
        _register(scene, tape)
        return
    live = tape.pick(list(scene.handles))
    other = tape.pick([live, NULL, stale_handle(scene, tape)])
    scene.follow(Deregister((live, other)))


def _stale_execute(scene: Scene, tape: Tape) -> None:
    if not scene.graphs:
        _prepare(scene, tape)
        return
    graph = scene.graphs[tape.pick(list(scene.graphs))]
    inputs = [Binding(seed=position) for position in range(arity(graph.op))]
    handle = tape.pick([NULL, stale_handle(scene, tape)])
    scene.add(Execute(graph.graph, (*inputs, Binding("handle", handle))))


def _null_arrays(scene: Scene, tape: Tape) -> None:
    if tape.below(2) or not scene.buffers:
        scene.add(Deregister((), null_handles=True, count=1))
        return
    right = Descriptor(tape.pick(list(scene.buffers)), (1,), mem_type=scene.types[0])
    step = Register(tape.pick(scene.contexts), (right,), (scene.name("h"),))
    flag = tape.pick(("null_descriptors", "null_handles"))
    scene.add(msgspec.structs.replace(step, **{flag: True}))


def _free_unknown_context(scene: Scene, tape: Tape) -> None:
    scene.add(ContextFree(tape.pick([NULL, BOGUS])))


_WRONG: tuple[Act, ...] = (
    _again,
    _unmappable,
    _stale_context,
    _stale_deregister,
    _mixed_deregister,
    _stale_execute,
    _null_arrays,
    _free_unknown_context,
)
