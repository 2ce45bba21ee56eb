"""Cases in which memory is registered at each point of a context's life (REG-17)."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnn.cases.memory import Prepare
from pytest_qnn.cases.memory_binary_scene import composed, finalised, loaded, retrieved, saved
from pytest_qnn.cases.memory_graph_scene import any_memory, execute, load
from pytest_qnn.cases.memory_scene import Scene, Tape
from pytest_qnn.cases.memory_strategies import embedded


def _use(scene: Scene, tape: Tape, name: str, later: Callable[[], None] | None = None) -> None:
    """Registered memory for a graph, executed over; with ``later``, the graph comes between the two."""
    made = scene.steps.pop() if later else None
    memory = any_memory(scene, tape.cut(8), name)
    if later and made is not None:
        later()
        scene.add(made)
    load(scene, name, memory, 1)
    execute(scene, name, memory, raw=tape.below(4))


def _composed(scene: Scene, tape: Tape) -> None:
    """Before the graph is prepared, or after."""
    name = composed(scene, tape.cut(4), scene.context())
    if name:
        _use(scene, tape, name, (lambda: None) if tape.below(2) else None)


def _unfinished(scene: Scene, tape: Tape) -> None:
    """While a graph of the context is begun only: one of its tensors was refused."""
    context = scene.context()
    name = composed(scene, tape.cut(4), context, weights=False)
    if name:
        made = scene.graphs[name]
        scene.add(Prepare(scene.name("u"), context, made.op, made.dtype, made.shape, preset=(True,)))
        _use(scene, tape, name)


def _from_binary(scene: Scene, tape: Tape) -> None:
    """In a context from a binary, before or after the graph is retrieved."""
    made = saved(scene, tape.cut(4))
    if made is not None:
        name = retrieved(scene, loaded(scene, made.binary), made.graphs[0])
        _use(scene, tape, name, (lambda: None) if tape.below(2) else None)


def _deferred(scene: Scene, tape: Tape) -> None:
    """In a deferred context, before or after contextFinalize."""
    made = saved(scene, tape.cut(4))
    if made is None:
        return
    context = loaded(scene, made.binary, defer=True)
    early = tape.below(2)
    if not early:
        finalised(scene, context)
    name = retrieved(scene, context, made.graphs[0])
    _use(scene, tape, name, (lambda: finalised(scene, context)) if early else None)


def _any_time(scene: Scene, tape: Tape) -> None:
    tape.pick((_composed, _from_binary, _unfinished, _deferred))(scene, tape)


any_time = embedded(_any_time)
