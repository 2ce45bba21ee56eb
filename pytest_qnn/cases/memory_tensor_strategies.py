"""Cases of the rules about how tensors are created (PRE): weights, NATIVE tensors, versions, memory types.

As in `pytest_qnn.cases.memory_graph_strategies`, each function of `MemoryFacts` is the strategy of one rule.
Each prepares the same graph without the rule's own element as well, as a control.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.cases.memory import Binding, Execute, GetBinary, Inspect, MemoryCase, Prepare
from pytest_qnn.cases.memory_execute_strategies import OUTSIDE
from pytest_qnn.cases.memory_graph_scene import ODD_SHAPES
from pytest_qnn.cases.memory_scene import Scene, Tape, arity, scenes
from pytest_qnn.facts import MemoryFacts

Cases = st.SearchStrategy[MemoryCase]


def _made(scene: Scene, tape: Tape, *, binary: bool = False) -> Prepare | None:
    """A graph in a context of its own, not yet among the steps; None where no operator fits."""
    fitting = tuple(pair for pair in scene.operators if arity(pair[0]) == 2 or not binary)
    if not fitting:
        return None
    op, dtype = tape.pick(fitting)
    return Prepare(scene.name("g"), scene.context(), op, dtype, tape.pick(ODD_SHAPES))


def _again(scene: Scene, made: Prepare, **fields: object) -> Prepare:
    """Prepare the same graph under another name, with some things changed."""
    other = msgspec.structs.replace(made, graph=scene.name("g"), **fields)
    scene.add(other)
    return other


def _execute(scene: Scene, made: Prepare, seed: int) -> None:
    """Execute with raw memory."""
    inputs = arity(made.op) - (made.weights is not None)
    scene.add(
        Execute(made.graph, (*(Binding(seed=seed + position) for position in range(inputs)), Binding()))
    )


def weights(facts: MemoryFacts) -> Cases:
    """PRE-03: STATIC tensors whose memory is used for something else at once, or that have none."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape, binary=True)
        if made is None:
            return
        seed, inputs = tape.below(16), tape.below(16)
        _execute(scene, _again(scene, made, weights=seed), inputs)
        if tape.below(2):
            _again(scene, made, weights=seed, weights_as="null")
        else:
            _execute(scene, _again(scene, made, weights=seed, weights_as="scribbled"), inputs)

    return scenes(facts, core)


def native_hints(facts: MemoryFacts) -> Cases:
    """PRE-05: a NATIVE tensor without and with memory type MEMHANDLE."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        _again(scene, made, relay=True)
        _again(scene, made, mem_types=(1,) * (arity(made.op) + 1))
        hinted = _again(scene, made, relay=True, relay_mem_type=1)
        if tape.below(2):
            _execute(scene, hinted, tape.below(16))

    return scenes(facts, core)


def unknown_types(facts: MemoryFacts) -> Cases:
    """PRE-06: IO tensors of a memory type that there is not."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        scene.add(made)
        position = tape.below(arity(made.op) + 1)
        types = tuple(tape.pick(OUTSIDE) if at == position else 0 for at in range(arity(made.op) + 1))
        _again(scene, made, mem_types=types)

    return scenes(facts, core)


def watched_creations(facts: MemoryFacts) -> Cases:
    """PRE-07: graphs in one context, with a look at the structs of their tensors."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        for _ in range(1 + tape.below(3)):
            hints = tape.byte()
            types = tuple(hints >> tensor & 1 for tensor in range(arity(made.op) + 1))
            _again(scene, made, mem_types=types, watch=True, version=1 + tape.below(2))

    return scenes(facts, core)


def versions(facts: MemoryFacts) -> Cases:
    """PRE-08: the same preparation with tensors of version 1 and of version 2."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        count = arity(made.op) + 1
        hints, chosen = tape.byte(), tape.below(1 << count)
        types = tuple(hints >> tensor & 1 for tensor in range(count))
        preset = tuple(bool(chosen >> tensor & 1) for tensor in range(count)) if tape.below(2) else ()
        for version in (1, 2):
            other = _again(scene, made, mem_types=types, preset=preset, version=version)
            if not any(preset):
                _execute(scene, other, 5)

    return scenes(facts, core)


def node_types(facts: MemoryFacts) -> Cases:
    """PRE-09: memory types at creation, and others in the structs that the node is given."""

    def core(scene: Scene, tape: Tape) -> None:
        made = _made(scene, tape)
        if made is None:
            return
        count = arity(made.op) + 1
        hints = tape.below(1 << count)
        types = tuple(hints >> tensor & 1 for tensor in range(count))
        others = tuple(1 - kind for kind in types)
        scene.add(msgspec.structs.replace(made, mem_types=types, node_mem_types=others))
        scene.add(GetBinary(made.context, "bin0"))
        scene.add(Inspect("bin0"))

    return scenes(facts, core)
