"""Building blocks of cases with deferred contexts and their external weights and spill-fill memory."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_qnn.qnn.cases.case import Fill, Retrieve
from pytest_qnn.qnn.cases.memory import ALIGNMENT, SPILL, SPILL_SIZE, WEIGHTS, WEIGHTS_SIZE
from pytest_qnn.qnn.strategies.binaries import (
    Saved,
    deferred,
    external,
    finalised,
    given,
    retrieved,
    saved,
)
from pytest_qnn.qnn.strategies.graphs import execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape

OPTIONS = (ALIGNMENT, SPILL_SIZE, WEIGHTS_SIZE)
ROLES = (WEIGHTS, SPILL)
Shape = tuple[int, ...]
LARGE = ((1, 8, 8, 4), (1, 16, 24, 16), (1, 2, 2, 2), (1, 32, 16, 24))
"""Shapes whose weights take less than a page, and more."""


def weighted(scene: Scene, tape: Tape, count: int = 1, shape: Shape | None = None) -> Saved | None:
    """A binary of graphs with weights, and with NATIVE tensors where the target takes Reshape."""
    drawn = tape.cut(12)
    return saved(
        scene,
        drawn,
        count=count,
        weights=True,
        relay=True,
        shape=tape.pick(LARGE) if shape is None else shape,
    )


def begun(scene: Scene, tape: Tape, count: int = 1, shape: Shape | None = None) -> tuple[Saved, str] | None:
    """A deferred context that has said what it needs; its graphs have a shape of `LARGE` or the given one."""
    made = weighted(scene, tape, count, shape)
    return None if made is None else (made, deferred(scene, made.binary))


def ended(scene: Scene, made: Saved, context: str, seed: int) -> list[str]:
    """Finalise a deferred context, and execute its graphs; gives their names."""
    finalised(scene, context)
    return executed(scene, made, context, seed)


def executed(scene: Scene, made: Saved, context: str, seed: int) -> list[str]:
    """Retrieve and execute every graph of a binary; gives their names."""
    names = [retrieved(scene, context, source) for source in made.graphs]
    for name in names:
        execute(scene, name, None, seed=seed)
    return names


def filled(scene: Scene, context: str, role: int, byte: int = 0, extra: int = 0) -> str:
    """`external`, every byte the same."""
    buffer = external(scene, context, role, extra=extra)
    scene.add(Fill(buffer, byte))
    return buffer


def any_roles(tape: Tape) -> Sequence[int]:
    """Neither kind of external memory, one, or both; the first is the simplest."""
    options: tuple[tuple[int, ...], ...] = ((), (WEIGHTS,), (SPILL,), (WEIGHTS, SPILL), (SPILL, WEIGHTS))
    return tape.pick(options)


def two_contexts(scene: Scene, tape: Tape) -> tuple[Saved, str, str] | None:
    """Two deferred contexts from one binary."""
    found = begun(scene, tape)
    if found is None:
        return None
    made, first = found
    return made, first, deferred(scene, made.binary)


def deferred_flow(scene: Scene, tape: Tape) -> None:
    """EXT-01, EXT-20, CAP-06: an early retrieve, the five steps, and executes as on the ordinary way."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    seed = tape.below(16)
    for source in made.graphs:
        execute(scene, source, None, seed=seed)
    if tape.below(4) < 3:
        scene.add(Retrieve(scene.name("e"), context, made.graphs[0]))
    for role in any_roles(tape):
        given(scene, context, role, external(scene, context, role))
    ended(scene, made, context, seed)
