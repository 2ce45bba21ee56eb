"""Cases of EXT-30: contextFinalize fails, its context is freed, and its memory serves another context."""

from __future__ import annotations

from pytest_qnn.cases.memory import ContextFinalize, Deregister, Observe, Retrieve
from pytest_qnn.cases.memory_binary_scene import Saved, deferred, external, freed, given, saved
from pytest_qnn.cases.memory_external_scene import LARGE, any_roles, ended
from pytest_qnn.cases.memory_scene import Scene, Tape
from pytest_qnn.cases.memory_strategies import embedded

_FAILURES = 2
"""What the first one opens for good is not counted: resources are looked at after each."""


def _core(scene: Scene, tape: Tape) -> None:
    """IO tensors are RAW, so that finalising needs memory of the backend's own whatever the client gives."""
    shape = tape.pick(LARGE)
    graphs = tape.cut(12)
    made = saved(scene, graphs, count=1 + tape.below(2), weights=True, hints=(), relay=True, shape=shape)
    if made is None:
        return
    roles = any_roles(tape)
    late, back = tape.chance(2), tape.chance(2)
    few = 1 + tape.below(2) if tape.chance(4) else 0
    buffers: dict[int, str] = {}
    for _ in range(_FAILURES):
        context = deferred(scene, made.binary)
        buffers = buffers or {role: external(scene, context, role) for role in roles}
        handles = tuple(given(scene, context, role, buffers[role]) for role in roles)
        scene.add(ContextFinalize(context, descriptors=few))
        if late:
            scene.add(Retrieve(scene.name("e"), context, made.graphs[0]))
        if back and handles:
            scene.add(Deregister(handles))
        freed(scene, context)
        scene.add(Observe())
    _again(scene, made, buffers, tape.below(16))


def _again(scene: Scene, made: Saved, buffers: dict[int, str], seed: int) -> None:
    context = deferred(scene, made.binary)
    for role, buffer in buffers.items():
        given(scene, context, role, buffer)
    ended(scene, made, context, seed)


failed = embedded(_core, before=1)
