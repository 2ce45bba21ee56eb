"""Building blocks of cases with context binaries: written, loaded in this or another process, deferred."""

from __future__ import annotations

from math import prod

import msgspec

from pytest_qnn.qnn.cases.case import (
    AllocNeeded,
    ContextFinalize,
    ContextFree,
    ContextFromBinary,
    ContextProperty,
    Descriptor,
    GetBinary,
    NewProcess,
    Prepare,
    Retrieve,
)
from pytest_qnn.qnn.cases.memory import ALIGNMENT, CUSTOM, NEEDED, SPILL_SIZE, WEIGHTS_SIZE
from pytest_qnn.qnn.cases.sizes import arity
from pytest_qnn.qnn.strategies.graphs import ODD_SHAPES
from pytest_qnn.qnn.strategies.history import MOST_SAVED
from pytest_qnn.qnn.strategies.scene import Scene, Tape


class Saved(msgspec.Struct, frozen=True):
    """A context that was prepared and written to a binary."""

    binary: str
    context: str
    graphs: tuple[str, ...]


def composed(
    scene: Scene,
    tape: Tape,
    context: str,
    *,
    weights: bool | None = None,
    hints: tuple[int, ...] | None = None,
    shape: tuple[int, ...] | None = None,
    relay: bool = False,
) -> str:
    """A graph in ``context``; "" where the target takes no such operator.

    ``weights``: with weights, without, or (None) either; ``hints``: memory types of its IO tensors, or any;
    ``relay``: with a NATIVE tensor, where the target takes Reshape of the same type.
    """
    kind = tape.byte()
    binary = [each for each in scene.operators if arity(each[0]) == 2]
    with_weights = bool(binary) and (kind % 2 == 1 if weights is None else weights)
    options = binary if with_weights else scene.operators
    if not options or (weights and not binary):
        return ""
    op, dtype = tape.pick(options)
    chosen = scene.scale.of_graph(shape or tape.pick(ODD_SHAPES), dtype, MOST_SAVED)
    if with_weights and prod(chosen) == 1:
        # libQnnHtp rounds the halves of a sum with one constant to even, and no document says which is right.
        chosen = ODD_SHAPES[0]
    bits = tape.byte()
    inputs = arity(op) - with_weights
    mem_types = tuple(bits >> at & 1 for at in range(inputs + 1)) if hints is None else hints[: inputs + 1]
    name = scene.name("g")
    made = Prepare(
        name,
        context,
        op,
        dtype,
        chosen,
        mem_types if any(mem_types) else (),
        weights=1 + bits if with_weights else None,
        relay=relay and ("Reshape", dtype) in scene.operators,
    )
    scene.follow(made)
    return name


def updatable(scene: Scene, tape: Tape, context: str, *, finalise: bool = True) -> str:
    """A graph with weights that can be updated; "" where the target takes no such operator."""
    name = composed(scene, tape, context, weights=True, hints=())
    if name:
        made = msgspec.structs.replace(scene.graphs[name], weights_as="updatable", finalise=finalise)
        scene.steps[scene.steps.index(scene.graphs[name])] = made
        scene.alive.prepare(name, made)
    return name


def written(scene: Scene, context: str) -> str:
    """The binary of a context."""
    name = scene.name("f")
    scene.add(GetBinary(context, name))
    return name


def saved(
    scene: Scene,
    tape: Tape,
    *,
    count: int = 1,
    weights: bool | None = None,
    hints: tuple[int, ...] | None = None,
    shape: tuple[int, ...] | None = None,
    relay: bool = False,
) -> Saved | None:
    """``count`` graphs in a context of their own, and their binary; None without such operators."""
    context = scene.context()
    names = [
        composed(scene, tape.cut(4), context, weights=weights, hints=hints, shape=shape, relay=relay)
        for _ in range(count)
    ]
    if not all(names):
        return None
    return Saved(written(scene, context), context, tuple(names))


def loaded(scene: Scene, binary: str, *, defer: bool | None = None) -> str:
    """A context from a binary. It is not among those in which the surroundings prepare graphs."""
    name = scene.name("c")
    scene.add(ContextFromBinary(name, binary, defer=defer))
    return name


def retrieved(scene: Scene, context: str, source: str) -> str:
    """A graph of a context from a binary."""
    name = scene.name("g")
    scene.follow(Retrieve(name, context, source))
    return name


def asked(scene: Scene, context: str) -> None:
    """Ask a deferred context for all three properties."""
    scene.add(ContextProperty(context, (ALIGNMENT, SPILL_SIZE, WEIGHTS_SIZE)))


def deferred(scene: Scene, binary: str) -> str:
    """A context whose initialisation is deferred, and what it says of itself."""
    context = loaded(scene, binary, defer=True)
    asked(scene, context)
    return context


def finalised(scene: Scene, context: str) -> None:
    """ContextFinalize."""
    scene.add(ContextFinalize(context))


def external(scene: Scene, context: str, role: int, *, extra: int = 0, own: bool = False) -> str:
    """A buffer as large as ``context`` needs, or a little larger; ``own``: rpcmem does not make it."""
    name = scene.name("b")
    scene.add(AllocNeeded(name, context, NEEDED[role], extra, own))
    return name


def given(scene: Scene, context: str, role: int, buffer: str, *, offset: int = 0) -> str:
    """Register a buffer as weights or spill-fill memory; gives the handle's name."""
    (handle,) = scene.register(context, memory_of(role, buffer, offset=offset))
    return handle


def memory_of(role: int, buffer: str, *, offset: int = 0) -> Descriptor:
    """The descriptor of weights or spill-fill memory."""
    return Descriptor(buffer, (), mem_type=CUSTOM, htp_type=role, offset=offset)


def freed(scene: Scene, context: str) -> None:
    """ContextFree of a context from a binary."""
    scene.add(ContextFree(context))


def elsewhere(scene: Scene) -> None:
    """The rest happens in another process: only binaries are left."""
    scene.follow(NewProcess())
