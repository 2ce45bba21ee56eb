"""Cases of the rules about external weights and spill-fill memory."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases.memory import (
    Deregister,
    Descriptor,
    FdKind,
    Read,
    Register,
    ReleaseBinary,
)
from pytest_qnn.cases.memory_binary_scene import (
    CUSTOM,
    SPILL,
    WEIGHTS,
    deferred,
    external,
    finalised,
    freed,
    given,
    loaded,
    memory_of,
    retrieved,
)
from pytest_qnn.cases.memory_external_scene import (
    ROLES,
    any_roles,
    begun,
    ended,
    executed,
    filled,
    two_contexts,
    weighted,
)
from pytest_qnn.cases.memory_graph_scene import execute
from pytest_qnn.cases.memory_scene import PAGE, Scene, Tape
from pytest_qnn.cases.memory_strategies import embedded


def _too_small(scene: Scene, tape: Tape) -> None:
    """EXT-07: a byte or more too little, in the buffer or behind the offset; then enough."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    role = tape.pick(ROLES)
    if tape.chance(3):
        buffer = external(scene, context, role)
        scene.add(Register(context, (memory_of(role, buffer, offset=PAGE),), (scene.name("h"),)))
    else:
        buffer = external(scene, context, role, extra=-tape.pick((1, 8, 64, 2048)))
        scene.add(Register(context, (memory_of(role, buffer),), (scene.name("h"),)))
    given(scene, context, role, external(scene, context, role, extra=tape.pick((0, 1, PAGE))))


def _misaligned(scene: Scene, tape: Tape) -> None:
    """EXT-08: offsets that are not aligned; then one that is."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    buffer = external(scene, context, role, extra=2 * PAGE)
    wrong = memory_of(role, buffer, offset=tape.pick((1, PAGE // 2, 64, PAGE + 8)))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    given(scene, context, role, buffer, offset=PAGE * tape.below(3))
    ended(scene, made, context, tape.below(16))


def _no_dma(scene: Scene, tape: Tape) -> None:
    """EXT-09: a descriptor that is no DMA buffer's."""
    found = begun(scene, tape)
    if found is None:
        return
    _, context = found
    role = tape.pick(ROLES)
    kinds: tuple[FdKind, ...] = ("pipe", "file", "socket", "directory", "closed", "minus-one")
    wrong = msgspec.structs.replace(memory_of(role, external(scene, context, role)), fd=tape.pick(kinds))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))


def _any_shape(scene: Scene, tape: Tape) -> None:
    """EXT-11: shapes and data types that mean nothing here."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    for role in (WEIGHTS, SPILL):
        shape: tuple[int, ...] = tape.pick(((), (0,), (1 << 20, 1 << 10), (3, 0), (1,)))
        dtype = tape.pick(("UFIXED_POINT_8", "FLOAT_32"))
        usual = memory_of(role, external(scene, context, role))
        scene.register(context, msgspec.structs.replace(usual, shape=shape, dtype=dtype))
    ended(scene, made, context, tape.below(16))


def _none_one_both(scene: Scene, tape: Tape) -> None:
    """EXT-12: memory of neither kind, of one, or of both, in one call or two, at offsets."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    roles = any_roles(tape)
    offset = PAGE * tape.below(2)
    described = [
        memory_of(role, external(scene, context, role, extra=offset), offset=offset) for role in roles
    ]
    if described and tape.chance(2):
        scene.register(context, *described)
    else:
        for each in described:
            scene.register(context, each)
    ended(scene, made, context, tape.below(16))


def _weights_shared(scene: Scene, tape: Tape) -> None:
    """EXT-13: one buffer as the weights of two contexts, before and after the first is finalised."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    extra = PAGE * tape.below(2)
    buffer = external(scene, first, WEIGHTS, extra=extra)
    given(scene, first, WEIGHTS, buffer)
    late = tape.chance(2)
    if late:
        finalised(scene, first)
    wrong = memory_of(WEIGHTS, buffer, offset=extra if tape.chance(3) else 0)
    scene.add(Register(second, (wrong,), (scene.name("h"),)))
    if not late:
        finalised(scene, first)
    executed(scene, made, first, tape.below(16))


def _second(scene: Scene, tape: Tape) -> None:
    """EXT-14: another buffer of the same kind for one context."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    given(scene, context, role, external(scene, context, role))
    wrong = memory_of(role, external(scene, context, role))
    scene.add(Register(context, (wrong,), (scene.name("h"),)))
    ended(scene, made, context, tape.below(16))


def _spill_shared(scene: Scene, tape: Tape) -> None:
    """EXT-15, EXT-26: one spill-fill buffer for two to four contexts, executed in turns."""
    made = weighted(scene, tape, 1 + tape.below(2))
    if made is None:
        return
    contexts = [deferred(scene, made.binary) for _ in range(2 + tape.below(3))]
    buffer = filled(scene, contexts[0], SPILL)
    for context in contexts:
        given(scene, context, SPILL, buffer)
    graphs = []
    for context in contexts:
        finalised(scene, context)
        graphs += [retrieved(scene, context, source) for source in made.graphs]
    for turn in range(2 + tape.below(2)):
        for at, graph in enumerate(graphs):
            execute(scene, graph, None, seed=16 * turn + at)


def _other_use(scene: Scene, tape: Tape) -> None:
    """EXT-16: one buffer for two uses, in either order, in one context or two."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    role = tape.pick(ROLES)
    buffer = external(scene, first, role)
    kinds = tuple(kind for kind in scene.types if kind != 3) or (CUSTOM,)
    io = Descriptor(buffer, (1, 2, 2, 2), mem_type=tape.pick(kinds))
    others = (io, memory_of(WEIGHTS + SPILL - role, buffer))
    pair = (memory_of(role, buffer), tape.pick(others))
    if tape.chance(2):
        pair = (pair[1], pair[0])
    owner = first if tape.below(2) else second
    scene.register(first, pair[0])
    scene.add(Register(owner, (pair[1],), (scene.name("h"),)))
    ended(scene, made, first, tape.below(16))


def _weights_stored(scene: Scene, tape: Tape) -> None:
    """EXT-17: the weights' buffer, zero before finalising, read after it and after executes."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    buffer = filled(scene, context, WEIGHTS, extra=PAGE * tape.below(2))
    given(scene, context, WEIGHTS, buffer)
    scene.add(Read(buffer))
    finalised(scene, context)
    scene.add(Read(buffer))
    executed(scene, made, context, tape.below(16))
    scene.add(Read(buffer))


def _released(scene: Scene, tape: Tape) -> None:
    """EXT-19: the binary is gone once contextFinalize has returned."""
    found = begun(scene, tape, 1 + tape.below(2))
    if found is None:
        return
    made, context = found
    for role in any_roles(tape):
        given(scene, context, role, external(scene, context, role))
    finalised(scene, context)
    scene.add(ReleaseBinary(context))
    executed(scene, made, context, tape.below(16))


def _kept(scene: Scene, tape: Tape) -> None:
    """EXT-21: deregistering external memory after finalising; executes before and after."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    handles = [
        given(scene, context, role, external(scene, context, role))
        for role in tape.pick(((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL)))
    ]
    names = ended(scene, made, context, tape.below(16))
    for handle in handles:
        scene.add(Deregister((handle,)))
    for name in names:
        execute(scene, name, None, seed=tape.below(16))


def _given_back(scene: Scene, tape: Tape) -> None:
    """EXT-22: contextFree ends the registrations: their memory serves another context, handles are dead."""
    found = two_contexts(scene, tape)
    if found is None:
        return
    made, first, second = found
    roles = tape.pick(((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL)))
    buffers = {role: external(scene, first, role) for role in roles}
    handles = [given(scene, first, role, buffers[role]) for role in roles]
    ended(scene, made, first, tape.below(16))
    freed(scene, first)
    for handle in handles:
        scene.add(Deregister((handle,)))
    for role in roles:
        given(scene, second, role, buffers[role])
    ended(scene, made, second, tape.below(16))


def _taken_back(scene: Scene, tape: Tape) -> None:
    """EXT-23: deregistered before finalising: the buffer is left alone, the context works."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    buffer = filled(scene, context, role, byte=0xEE)
    handle = given(scene, context, role, buffer)
    scene.add(Deregister((handle,)))
    if tape.chance(3):
        given(scene, context, role, external(scene, context, role))
    scene.add(Read(buffer))
    ended(scene, made, context, tape.below(16))
    scene.add(Read(buffer))


def _too_late(scene: Scene, tape: Tape) -> None:
    """EXT-24: external memory for a context that is finalised, or was never deferred."""
    found = begun(scene, tape)
    if found is None:
        return
    made, context = found
    role = tape.pick(ROLES)
    buffer = external(scene, context, role)
    kind = tape.below(3)
    if kind == 0:
        finalised(scene, context)
    late = (context, made.context, "")[kind] or loaded(scene, made.binary)
    scene.add(Register(late, (memory_of(role, buffer),), (scene.name("h"),)))
    if kind:
        finalised(scene, context)
    executed(scene, made, context, tape.below(16))


too_small = embedded(_too_small, before=1)
misaligned = embedded(_misaligned, before=1)
no_dma = embedded(_no_dma, before=1)
any_shape = embedded(_any_shape, before=1)
none_one_both = embedded(_none_one_both, before=1)
weights_shared = embedded(_weights_shared, before=1)
second = embedded(_second, before=1)
spill_shared = embedded(_spill_shared, before=1)
other_use = embedded(_other_use, before=1)
weights_stored = embedded(_weights_stored, before=1)
released = embedded(_released, before=1)
kept = embedded(_kept, before=1)
given_back = embedded(_given_back, before=1)
taken_back = embedded(_taken_back, before=1)
too_late = embedded(_too_late, before=1)
