"""EXT-30: contextFinalize fails, and what is left behind."""

from __future__ import annotations

import itertools

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.cases.case import ContextFinalize, ContextFree, Deregister, MemoryCase, Observe, Retrieve
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked, walk
from pytest_qnn.qnn.rules.binaries import demand_refused, judge_flow, require_external
from pytest_qnn.qnn.rules.judging import demand_code, place
from pytest_qnn.qnn.strategies.binaries import Saved, deferred, external, freed, given, saved
from pytest_qnn.qnn.strategies.external import LARGE, any_roles, ended
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts


def _failures(case: MemoryCase, trace: MemoryTrace) -> list[Walked]:
    """The finalises that failed because descriptors were scarce.

    Raises:
        Unsupported: one succeeded where there was none at all.
    """
    found = []
    for walked in walk(case, trace):
        few = walked.step.descriptors if isinstance(walked.step, ContextFinalize) else None
        if few == 0 and walked.code == 0:
            raise Unsupported("contextFinalize succeeds without a descriptor: nothing here can make it fail")
        if few is not None and walked.code not in (None, 0):
            found.append(walked)
    return found


def _demand_nothing_left(case: MemoryCase, trace: MemoryTrace, failures: list[Walked]) -> None:
    """Between two looks, each without a failed context: what the first failure opens for good is no leak."""
    looks = [w for w in walk(case, trace) if isinstance(w.step, Observe)]
    for before, after in itertools.pairwise(looks):
        if not any(before.index < failure.index < after.index for failure in failures):
            continue
        one, other = before.seen.counted(ProcessCounts), after.seen.counted(ProcessCounts)
        for was, now, called in (
            (one.fds, other.fds, "open descriptors"),
            (one.memfds, other.memfds, "mappings of shared memory"),
        ):
            if now > was:
                wanted = f"{was} {called}, as before a context that could not be finalised was made and freed"
                raise Violation(wanted, f"{now}", place(after))


_FAILURES = 2
"""What the first one opens for good is not counted: resources are looked at after each."""


def _again(scene: Scene, made: Saved, buffers: dict[int, str], seed: int) -> None:
    context = deferred(scene, made.binary)
    for role, buffer in buffers.items():
        given(scene, context, role, buffer)
    ended(scene, made, context, seed)


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
        scene.add(Observe(patient=True))
    _again(scene, made, buffers, tape.below(16))


failed = embedded(_core, before=1)


@rule(
    "EXT-30",
    Level.SHOULD,
    "After a QnnContext_finalize that fails, the context can be freed and its buffers can be used again.",
    source="QnnContext.h: QnnContext_finalize, QNN_CONTEXT_ERROR_MEM_ALLOC; device log",
    subject="memory",
    cases=failed,
    gate=("202", "217", "1101", "1103"),
    weight=0.5,
)
def ext_30(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """It fails because no descriptor, or too few, can be opened meanwhile, with whatever code.

    The context has no graphs then, and is freed with success. Its weights and spill-fill memory serve another
    context of the same binary, which computes what is right. No descriptor and no mapping is left of it.
    """
    require_external(case, trace)
    failures = _failures(case, trace)
    contexts = {walked.step.context for walked in failures if isinstance(walked.step, ContextFinalize)}
    for walked in walk(case, trace):
        step = walked.step
        if isinstance(step, Retrieve) and step.context in contexts and walked.allowed.specified:
            demand_refused(walked, "the context could not be finalised")
        if isinstance(step, ContextFree) and step.context in contexts and walked.allowed.valid:
            demand_code(walked, {0}, f"a context can be freed after {_codes(failures)} of contextFinalize")
    judge_flow(case, trace, "the memory was that of a context that could not be finalised")
    _demand_nothing_left(case, trace, failures)
    return Examined(len(failures), "contexts that could not be finalised")


def _codes(failures: list[Walked]) -> str:
    return named(failures[0].code or 0)
