"""Cases of EXT-32: contexts whose binary the client provides piece by piece, or fails to."""

from __future__ import annotations

from pytest_qnn.cases.memory import ContextFree
from pytest_qnn.cases.memory_binary_scene import Saved, saved
from pytest_qnn.cases.memory_external_scene import executed
from pytest_qnn.cases.memory_pieces import ContextWithCallback, Pieces
from pytest_qnn.cases.memory_scene import PAGE, Scene, Tape
from pytest_qnn.cases.memory_strategies import embedded

_MOST_REQUESTS = 3
"""The last request that is answered with an error; a target that asks for fewer pieces never meets it."""


def _core(scene: Scene, tape: Tape) -> None:
    """One context, or two at a time; each is looked at while it lives, and when it is gone or not made."""
    made = saved(scene, tape.cut(12), count=1 + tape.below(2))
    if made is None:
        return
    contexts = [_provided(scene, tape, made) for _ in range(1 + tape.below(2))]
    for context in contexts:
        scene.add(ContextFree(context))
        scene.add(Pieces(context))


def _provided(scene: Scene, tape: Tape, made: Saved) -> str:
    name = scene.name("c")
    raw = tape.chance(4)
    fails = 1 + tape.below(_MOST_REQUESTS) if tape.chance(3) else 0
    start = PAGE if tape.chance(4) else 0
    scene.add(ContextWithCallback(name, made.binary, "raw" if raw else "dma", fails, start))
    scene.add(Pieces(name))
    executed(scene, made, name, tape.below(16))
    return name


provided = embedded(_core, before=1)
