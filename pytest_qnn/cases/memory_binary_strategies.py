"""Cases of the rules about context binaries."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    ContextFromBinary,
    Damage,
    GetBinary,
    Inspect,
    Observe,
    Prepare,
    ReleaseBinary,
)
from pytest_qnn.cases.memory_binary_scene import (
    composed,
    elsewhere,
    loaded,
    retrieved,
    saved,
    written,
)
from pytest_qnn.cases.memory_graph_scene import any_memory, execute, load, output_of, read
from pytest_qnn.cases.memory_probes import Misuse
from pytest_qnn.cases.memory_scene import Scene, Tape, io_inputs, nbytes
from pytest_qnn.cases.memory_strategies import embedded

_HINTED = (1, 1, 1)
_MEMORY = 1101
"""QNN_PROPERTY_GROUP_MEMORY."""
_DAMAGES: tuple[Damage, ...] = (
    "truncated",
    "garbage",
    "zeros",
    "trailing",
    "empty",
    "flipped",
    "flipped-end",
)


def _metadata(scene: Scene, tape: Tape) -> None:
    """OFF-01, OFF-06: one to three graphs with any memory types, written and looked into."""
    made = saved(scene, tape, count=1 + tape.below(3))
    if made is not None:
        scene.add(Inspect(made.binary))


def _large(scene: Scene, tape: Tape) -> tuple[int, ...]:
    """A shape whose tensors are found among the mappings of the process."""
    del scene
    return (1, 3, 251, 201 + 2 * tape.below(64))


def _watched(scene: Scene, tape: Tape, hints: tuple[int, ...], *, handles: bool, away: bool) -> None:
    """A graph of large tensors, written, and loaded between two looks; then executed, each between two looks.

    ``handles``: with registered memory for every tensor; ``away``: in another process than it was written in.
    """
    made = saved(scene, tape.cut(8), weights=False, hints=hints, shape=_large(scene, tape))
    if made is None:
        return
    if away:
        elsewhere(scene)
    source = scene.graphs[made.graphs[0]]
    look = Observe(nbytes(source.shape, source.dtype))
    scene.add(look)
    context = loaded(scene, made.binary)
    scene.add(look)
    name = retrieved(scene, context, source.graph)
    memory = any_memory(scene, tape.cut(8), name) if handles else None
    for turn in range(1 + tape.below(2)):
        seed = 16 * turn + tape.below(16)
        if memory is not None:
            load(scene, name, memory, seed)
        scene.add(look)
        execute(scene, name, memory, seed=seed)
        scene.add(look)


def _load_hinted(scene: Scene, tape: Tape) -> None:
    """OFF-02: a binary with the hint on every tensor (or on some, or none); as control one without any.

    Executed raw or with memory handles; loaded here or in another process.
    """
    bits = 7 - tape.below(8)
    handles = tape.chance(2) and scene.facts.supports(_MEMORY)
    hints = tuple(bits >> at & 1 for at in range(3))
    _watched(scene, tape, hints, handles=handles, away=tape.chance(2))
    _watched(scene, tape, (), handles=False, away=False)


def _same_numbers(scene: Scene, tape: Tape) -> None:
    """OFF-03: a graph executed as composed, then out of its binary, here or in another process."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    seed = tape.below(16)
    for name in made.graphs:
        execute(scene, name, None, seed=seed)
    away = tape.chance(3)
    if away:
        elsewhere(scene)
    context = loaded(scene, made.binary)
    for source in made.graphs:
        name = retrieved(scene, context, source)
        for _ in range(1 + tape.below(2)):
            if tape.chance(2):
                memory = any_memory(scene, tape.cut(8), name)
                load(scene, name, memory, seed)
                execute(scene, name, memory, raw=tape.below(8), seed=seed)
                read(scene, [output_of(scene, name, memory)])
            else:
                execute(scene, name, None, seed=seed)


def _option_or_not(scene: Scene, tape: Tape) -> None:
    """OFF-05: the same graph written with and without the hint, both loaded, executed with equal inputs."""
    first = saved(scene, tape.cut(8), hints=())
    if first is None:
        return
    other = scene.context()
    plain = scene.graphs[first.graphs[0]]
    hinted = msgspec.structs.replace(
        plain, graph=scene.name("g"), context=other, mem_types=_HINTED[: io_inputs(plain) + 1]
    )
    scene.add(hinted)
    scene.graphs[hinted.graph] = hinted
    seed = tape.below(16)
    for binary, source in ((first.binary, plain.graph), (written(scene, other), hinted.graph)):
        execute(scene, retrieved(scene, loaded(scene, binary), source), None, seed=seed)


def _asked_wrongly(scene: Scene, tape: Tape) -> None:
    """OFF-07: a binary asked for rightly, twice; then with each argument NULL, too little room, too early."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    scene.add(GetBinary(made.context, scene.name("f")))
    for _ in range(1 + tape.below(4)):
        wrong = tape.cut(4)
        kind = wrong.below(8)
        name = scene.name("x")
        if kind < 3:
            scene.add(GetBinary(made.context, name, missing=wrong.pick((1, 2, 64, 1000))))
        elif kind < 6:
            scene.add(GetBinary(made.context, name, null=wrong.pick(("size", "buffer", "written"))))
        elif kind == 6:
            scene.add(GetBinary(loaded(scene, made.binary), name))
        else:
            _unfinished(scene, wrong, name)


def _unfinished(scene: Scene, tape: Tape, name: str) -> None:
    """The binary of a context with a graph that was begun only: one of its tensors is refused."""
    context = scene.context()
    source = composed(scene, tape, context, weights=False, hints=())
    if not source:
        return
    made = scene.graphs[source]
    scene.add(Prepare(scene.name("g"), context, made.op, made.dtype, made.shape, preset=(True,)))
    scene.add(GetBinary(context, name))


def _damaged(scene: Scene, tape: Tape) -> None:
    """OFF-08: binaries with one damage each, and the whole one afterwards."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    for _ in range(1 + tape.below(3)):
        scene.add(ContextFromBinary(scene.name("c"), made.binary, damage=tape.pick(_DAMAGES)))
    execute(scene, retrieved(scene, loaded(scene, made.binary), made.graphs[0]), None)


def _altered(scene: Scene, tape: Tape) -> None:
    """OFF-09: a new graph in a context from a binary, a new tensor in a graph of it; what it had goes on."""
    made = saved(scene, tape.cut(8))
    if made is None:
        return
    context = loaded(scene, made.binary)
    name = retrieved(scene, context, made.graphs[0])
    source = scene.graphs[made.graphs[0]]
    new = source.graph if tape.chance(4) else scene.name("n")
    if tape.chance(2):
        scene.add(Misuse("tensorCreateGraphTensor", name))
    else:
        scene.add(Prepare(new, context, source.op, source.dtype, source.shape))
    execute(scene, name, None, seed=tape.below(16))


def _scribbled(scene: Scene, tape: Tape) -> None:
    """OFF-10: the client's bytes are gone before the graphs are retrieved, and between executes."""
    made = saved(scene, tape.cut(8), count=1 + tape.below(2))
    if made is None:
        return
    context = loaded(scene, made.binary)
    late = tape.chance(2)
    if not late:
        scene.add(ReleaseBinary(context))
    for source in made.graphs:
        name = retrieved(scene, context, source)
        execute(scene, name, None, seed=tape.below(16))
        if late:
            scene.add(ReleaseBinary(context))
            execute(scene, name, None, seed=tape.below(16))


def _nobody(scene: Scene, tape: Tape) -> None:
    """OFF-07: the binary of a context that is none, beside one that is."""
    saved(scene, tape.cut(8))
    scene.add(GetBinary(tape.pick((NULL, BOGUS)), scene.name("x")))


def _asked(scene: Scene, tape: Tape) -> None:
    (_nobody if tape.chance(8) else _asked_wrongly)(scene, tape)


metadata = embedded(_metadata)
load_hinted = embedded(_load_hinted, core_bytes=48, before=2, after=0)
same_numbers = embedded(_same_numbers, core_bytes=64)
option_or_not = embedded(_option_or_not)
get_binary = embedded(_asked, core_bytes=40)
damaged = embedded(_damaged, before=2)
altered = embedded(_altered)
scribbled = embedded(_scribbled)
