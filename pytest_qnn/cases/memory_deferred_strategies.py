"""Cases of the rules about deferred initialisation of contexts."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    Execute,
    Retrieve,
)
from pytest_qnn.cases.memory_binary_scene import (
    ALIGNMENT,
    asked,
    deferred,
    external,
    finalised,
    freed,
    given,
    loaded,
    saved,
    written,
)
from pytest_qnn.cases.memory_external_scene import (
    LARGE,
    OPTIONS,
    any_roles,
    begun,
    ended,
    executed,
    weighted,
)
from pytest_qnn.cases.memory_graph_scene import execute
from pytest_qnn.cases.memory_scene import Scene, Tape
from pytest_qnn.cases.memory_strategies import embedded

_CACHING = 202
"""QNN_PROPERTY_CONTEXT_SUPPORT_CACHING."""
EXCLUDED = (2, 12, 11)
"""QnnHtpContext_ConfigOption_t: contexts in a group, concurrent sharing of resources, extended udma."""


def _flow(scene: Scene, tape: Tape) -> None:
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


def _created(scene: Scene, tape: Tape) -> None:
    """EXT-02: QnnContext_create with deferred initialisation, beside the flow that there is."""
    found = begun(scene, tape) if tape.chance(2) else None
    scene.add(ContextCreate(scene.name("c"), defer=True))
    if found is not None:
        ended(scene, *found, 0)


def _properties(scene: Scene, tape: Tape) -> None:
    """EXT-03, EXT-05: the three properties one by one and together, between the steps of the flow."""
    made = weighted(scene, tape, 1 + tape.below(2))
    if made is None:
        return
    context = loaded(scene, made.binary, defer=True)
    for option in tape.pick((OPTIONS, OPTIONS[::-1], OPTIONS[:1], OPTIONS[1:])):
        scene.add(ContextProperty(context, (option,)))
    asked(scene, context)
    for role in any_roles(tape):
        given(scene, context, role, external(scene, context, role))
        scene.add(ContextProperty(context, (tape.pick(OPTIONS),)))
    if tape.chance(2):
        finalised(scene, context)
        asked(scene, context)


def _asked_wrongly(scene: Scene, tape: Tape) -> None:
    """EXT-04: a NULL list, a context that is none or is gone, an option that there is not; then rightly."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    kind = tape.below(4)
    if kind == 0:
        scene.add(ContextProperty(context, OPTIONS[: 1 + tape.below(3)], null_list=True))
    elif kind == 1:
        scene.add(ContextProperty(tape.pick((NULL, BOGUS)), (tape.pick(OPTIONS),)))
    elif kind == 2:
        unknown = tape.pick((99, 5, 0, 1 << 20))
        scene.add(
            ContextProperty(context, tape.pick(((unknown,), (ALIGNMENT, unknown), (unknown, ALIGNMENT))))
        )
    else:
        freed(scene, context)
        scene.add(ContextProperty(context, (tape.pick(OPTIONS),)))
        return
    asked(scene, context)


def _requirements(scene: Scene, tape: Tape) -> None:
    """EXT-06: two or three graphs, each in a binary of its own, and all in one."""
    whole = scene.context()
    sources: list[str] = []
    for _ in range(2 + tape.below(2)):
        one = saved(scene, tape.cut(8), weights=True, relay=True, shape=tape.pick(LARGE))
        if one is None:
            return
        deferred(scene, one.binary)
        sources += one.graphs
    for source in sources:
        again = msgspec.structs.replace(scene.graphs[source], graph=scene.name("g"), context=whole)
        scene.add(again)
        scene.graphs[again.graph] = again
    deferred(scene, written(scene, whole))


def _again(scene: Scene, tape: Tape) -> None:
    """EXT-25: contextFinalize twice, of an ordinary context, and of one that is none."""
    made = weighted(scene, tape)
    if made is None:
        return
    kind = tape.below(4)
    if kind == 0:
        scene.add(ContextFinalize(made.context))
        execute(scene, made.graphs[0], None)
    elif kind == 1:
        context = loaded(scene, made.binary)
        scene.add(ContextFinalize(context))
        executed(scene, made, context, tape.below(16))
    elif kind == 2:
        context = deferred(scene, made.binary)
        names = ended(scene, made, context, tape.below(16))
        scene.add(ContextFinalize(context))
        execute(scene, names[0], None, seed=3)
    else:
        scene.add(ContextFinalize(tape.pick((NULL, BOGUS))))


def _excluded(scene: Scene, tape: Tape) -> None:
    """EXT-28: an option that excludes deferred initialisation, and the whole way all the same."""
    made = weighted(scene, tape)
    if made is None:
        return
    ended(scene, made, deferred(scene, made.binary), 0)
    context = scene.name("c")
    option = tape.pick((*EXCLUDED, None))
    beside = () if option is None else (option,)
    scene.add(ContextFromBinary(context, made.binary, True, beside, switching=option is None))
    scene.add(ContextFinalize(context))
    scene.add(Retrieve("late", context, made.graphs[0]))
    scene.add(Execute("late", (Binding(seed=1), Binding())))


def _not_deferred(scene: Scene, tape: Tape) -> None:
    """EXT-31: the option given as no, at creation and, where there are binaries, from one."""
    if tape.below(2) or not scene.facts.supports(_CACHING):
        scene.add(ContextCreate(scene.name("c"), defer=False))
        return
    made = weighted(scene, tape)
    if made is not None:
        context = loaded(scene, made.binary, defer=False)
        executed(scene, made, context, tape.below(16))


flow = embedded(_flow)
created = embedded(_created, before=1)
properties = embedded(_properties, before=1)
asked_wrongly = embedded(_asked_wrongly, before=1)
requirements = embedded(_requirements, before=0, after=0)
again = embedded(_again, before=1)
excluded = embedded(_excluded, before=0, after=0)
not_deferred = embedded(_not_deferred, before=0, after=0)
