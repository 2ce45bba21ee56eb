"""Controls of graphs out of binaries, in contexts that are and are not deferred, with external memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_qnn.qnn.cases.case import (
    Alloc,
    AllocNeeded,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFinalize,
    ContextFromBinary,
    ContextProperty,
    Descriptor,
    Execute,
    GetBinary,
    MemoryCase,
    Prepare,
    Register,
    Retrieve,
)
from pytest_qnn.qnn.cases.memory import ALIGNMENT, CUSTOM, NEEDED, SPILL, SPILL_SIZE, WEIGHTS, WEIGHTS_SIZE
from pytest_qnn.qnn.cases.sizes import io_inputs, nbytes, pages
from pytest_qnn.qnn.controls.handles import Owned

_CONTEXT = ContextCreate("c0")
_ASKED = ContextProperty("c1", (ALIGNMENT, SPILL_SIZE, WEIGHTS_SIZE))
_LOADED = ContextFromBinary("c1", "f0", defer=True)
_DEFERRED = (_LOADED, _ASKED)
_ROLES = ((WEIGHTS,), (SPILL,), (WEIGHTS, SPILL))


def executed(prepare: Prepare, graph: str = "g0", seed: int = 0) -> Execute:
    """The graph executed with raw memory; ``graph``: its name, ``seed``: of its first input's contents."""
    return Execute(graph, (*(Binding(seed=seed + place) for place in range(io_inputs(prepare))), Binding()))


def right_binaries(case: MemoryCase, graphs: Sequence[Prepare], hinted: Sequence[Prepare]) -> Iterator[Owned]:
    """Graphs out of a binary, and memory registered with them.

    Args:
        case: in which an output was wrong, or a call failed.
        graphs: with raw tensors, and with their weights, each of the name ``g0`` in the context ``c0``.
        hinted: with tensors of other memory types.

    """
    loads = [step for step in case.steps if isinstance(step, ContextFromBinary)]
    if not loads:
        return
    several = sum(isinstance(step, Prepare) for step in case.steps) > 1
    registers = any(isinstance(step, Register) and step.context != "c0" for step in case.steps)
    for prepare in graphs:
        if prepare.weights is not None:
            yield (_CONTEXT, prepare, executed(prepare)), ("EXE-21",)
        saved = (_CONTEXT, prepare, GetBinary("c0", "f0"))
        yield (*saved, ContextFromBinary("c1", "f0"), *_retrieved(prepare)), ("OFF-03",)
        for other in _others(prepare) if several else ():
            both = (_CONTEXT, prepare, other, GetBinary("c0", "f0"), ContextFromBinary("c1", "f0"))
            yield (*both, *_retrieved(prepare), *_retrieved(other, "g3")), ("OFF-03",)
        if registers:
            one = Descriptor("b0", prepare.shape, prepare.dtype)
            size = pages(nbytes(prepare.shape, prepare.dtype))
            memory = (Alloc("b0", size), Register("c1", (one,), ("h0",)))
            yield (*saved, ContextFromBinary("c1", "f0"), *memory), ("REG-17",)
    for prepare in hinted:
        saved = (_CONTEXT, prepare, GetBinary("c0", "f0"))
        yield (*saved, ContextFromBinary("c1", "f0"), *_retrieved(prepare)), ("OFF-03", "OFF-05")
    if any(step.defer for step in loads):
        for prepare in graphs:
            yield from _right_deferred(case, prepare)


def _right_deferred(case: MemoryCase, prepare: Prepare) -> Iterator[Owned]:
    """A deferred context of one graph, and of two with weights of their own."""
    saved = (_CONTEXT, prepare, GetBinary("c0", "f0"))
    yield (*saved, _LOADED, Retrieve("g1", "c1", "g0")), ("EXT-01",)
    asked = (option for step in case.steps if isinstance(step, ContextProperty) for option in step.options)
    for option in dict.fromkeys(asked):
        yield (*saved, _LOADED, ContextProperty("c1", (option,))), ("EXT-03",)
    yield (*saved, _LOADED, ContextFinalize("c1")), ("CAP-06",)
    yield (*saved, *_DEFERRED, ContextFinalize("c1"), *_retrieved(prepare)), ("EXT-20",)
    descriptors = (each for step in case.steps if isinstance(step, Register) for each in step.descriptors)
    roles = _ROLES if any(each.htp_type in NEEDED for each in descriptors) else ()
    end = (ContextFinalize("c1"), *_retrieved(prepare))
    for given in roles:
        yield (*saved, *_DEFERRED, *_given(given), *end), ("EXT-12",)
    if prepare.weights is None:
        return
    # Larger weights: that both have room is no matter of the first one's.
    other = msgspec.structs.replace(_larger(prepare), weights=prepare.weights + 1)
    yield _asked_alone_and_together((prepare, other)), ("EXT-06",)
    both = (_CONTEXT, prepare, other, GetBinary("c0", "f0"), *_DEFERRED)
    yield (*both, *end, *_retrieved(other, "g3")), ("EXT-20",)
    yield (*both, *end, *_retrieved(other, "g3"), executed(prepare, "g1")), ("EXT-26",)
    for given in roles:
        yield (*both, *_given(given), *end, *_retrieved(other, "g3")), ("EXT-12",)


def _larger(prepare: Prepare) -> Prepare:
    """The graph ``g2`` of the same context, whose tensors have twice as many elements."""
    shape = (*prepare.shape[:-1], 2 * prepare.shape[-1])
    return msgspec.structs.replace(prepare, graph="g2", shape=shape)


def _others(prepare: Prepare) -> Iterator[Prepare]:
    """Graphs beside this one in its context: a larger one, and one with other weights of the same size."""
    yield _larger(prepare)
    if prepare.weights is not None:
        yield msgspec.structs.replace(prepare, graph="g2", weights=prepare.weights + 1)


def _asked_alone_and_together(graphs: Sequence[Prepare]) -> tuple[AnyStep, ...]:
    """What a deferred context needs for each graph, and for all of them."""
    steps: list[AnyStep] = []
    for at, some in enumerate((*((each,) for each in graphs), graphs)):
        named = (msgspec.structs.replace(each, graph=f"{each.graph}c{at}", context=f"c{at}") for each in some)
        steps += (ContextCreate(f"c{at}"), *named)
        steps += (GetBinary(f"c{at}", f"f{at}"), ContextFromBinary(f"d{at}", f"f{at}", defer=True))
        steps.append(msgspec.structs.replace(_ASKED, context=f"d{at}"))
    return tuple(steps)


def _retrieved(prepare: Prepare, graph: str = "g1") -> tuple[AnyStep, ...]:
    return Retrieve(graph, "c1", prepare.graph), executed(prepare, graph)


def _given(roles: Sequence[int]) -> Iterator[AnyStep]:
    """External memory of these types."""
    for role in roles:
        buffer = f"e{role}"
        yield AllocNeeded(buffer, "c1", NEEDED[role])
        descriptor = Descriptor(buffer, (), mem_type=CUSTOM, htp_type=role)
        yield Register("c1", (descriptor,), (f"x{role}",))
