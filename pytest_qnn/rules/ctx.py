"""CTX: what becomes of registrations when contexts come and go."""

from __future__ import annotations

from pytest_qnn.cases.memory import (
    BOGUS,
    NULL,
    Binding,
    ContextFree,
    Deregister,
    Execute,
    MemoryCase,
    Observe,
    Register,
)
from pytest_qnn.cases.memory_strategies import Scene, Tape, arity, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.rules.memory_support import (
    judge_faults,
    judge_valid,
    require_memory,
    require_operator,
    require_session,
)
from pytest_qnn.trace import MemoryTrace

_CYCLES = 3


def _leave_registered(scene: Scene, tape: Tape) -> None:
    """The same round again and again: a context, registrations, and the context is freed over them.

    The first round warms the target up; the looks are before and after the others.
    """
    descriptors = [scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))]
    batch = tape.below(2) == 1
    for number in range(1 + _CYCLES):
        if number == 1:
            scene.add(Observe())
        context = scene.context()
        if batch:
            scene.register(context, *descriptors)
        else:
            for descriptor in descriptors:
                scene.register(context, descriptor)
        scene.free_context(context)
    scene.add(Observe())


@rule(
    "CTX-01",
    Level.MUST,
    "QnnContext_free releases every registration of that context.",
    source="seed 002, step 5; H:QnnContext_free",
    subject="memory",
    cases=embedded(_leave_registered),
    gate=("1101",),
)
def ctx_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors and mappings of shared memory do not grow over rounds of register and contextFree."""
    require_memory(case, trace)
    looks = [
        (index, seen.counts)
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Observe)
    ]
    registered = any(
        isinstance(step, Register) and seen.code == 0
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )
    if len(looks) < 2 or not registered:
        return Examined(0, "contexts freed over registrations")
    (_, before), (index, after) = looks
    for kind, words, slack in (
        ("fds", "open descriptors", 0),
        ("memfds", "mappings of shared memory", 0),
        ("mappings", "mappings", _CYCLES - 1),
    ):
        if after.get(kind, 0) > before.get(kind, 0) + slack:
            seen_words = f"{after[kind]} after {_CYCLES} contexts were freed over live registrations"
            raise Violation(f"{before.get(kind, 0)} {words}", seen_words, f"step {index}, observe")
    return Examined(_CYCLES, "contexts freed over registrations")


def _siblings(scene: Scene, tape: Tape) -> None:
    """One memory in two contexts; one context is freed, the other uses the memory."""
    mine, other = scene.context(), scene.context()
    graph = scene.prepare(mine, tape) if tape.below(2) else ""
    kept = scene.tensor_memory(graph) if graph else scene.register(mine, scene.descriptor(tape))
    for handle in kept[: 1 + tape.below(len(kept))]:
        scene.register(other, scene.handles[handle].descriptor)
    if tape.below(2):
        scene.register(other, scene.descriptor(tape))
    scene.free_context(other)
    if graph:
        scene.execute_handles(graph, kept)
    scene.deregister(*kept)


def _survivor(walked: Walked) -> bool:
    used = isinstance(walked.step, Deregister | Execute)
    return used and "survived:sibling-context-freed" in walked.allowed.notes


@rule(
    "CTX-03",
    Level.MUST,
    "Freeing one context leaves another context's registrations of the same memory intact.",
    source="seed 002, shared spill-fill; ONNX Runtime relies on it",
    subject="memory",
    cases=embedded(_siblings),
    gate=("1101",),
)
def ctx_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The surviving handles still execute and are deregistered with success."""
    require_memory(case, trace)
    because = "only another context with the same memory was freed"
    return judge_valid(case, trace, _survivor, "uses of handles whose sibling's context is gone", because)


def _freed_context(scene: Scene, tape: Tape) -> None:
    context = scene.context()
    descriptor = scene.descriptor(tape)
    if tape.below(2):
        scene.register(context, descriptor)
    others = [
        scene.register(scene.any_context(tape), scene.descriptor(tape.cut(4))) for _ in range(tape.below(2))
    ]
    scene.free_context(context)
    for batch in others:
        if set(batch) <= scene.handles.keys() and tape.below(2):
            scene.deregister(*batch)
    scene.add(Register(context, (descriptor,), (scene.name("h"),)))


def _on_freed_context(case: MemoryCase) -> frozenset[str]:
    freed = {step.context for step in case.steps if isinstance(step, ContextFree)}
    return frozenset(freed - {NULL, BOGUS})


@rule(
    "CTX-04",
    Level.MUST,
    "Registering with a freed context is refused.",
    source="H:QnnMem_register",
    subject="memory",
    cases=embedded(_freed_context, after=0),
    gate=("1101",),
)
def ctx_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001, as long as no context was created in between."""
    require_memory(case, trace)
    freed = _on_freed_context(case)
    return judge_faults(
        case,
        trace,
        ("bad-context",),
        "registrations with a freed context",
        "the context was freed",
        own=lambda w: isinstance(w.step, Register) and w.step.context in freed,
    )


def _foreign(scene: Scene, tape: Tape) -> None:
    """A graph of one context, executed with at least one handle of another context."""
    here, there = scene.context(), scene.context()
    graph = scene.prepare(here, tape)
    if not graph:
        return
    right = scene.tensor_memory(graph)
    elsewhere = tape.below(len(right))
    (foreign,) = scene.register(there, scene.handles[right[elsewhere]].descriptor)
    raw = [Binding(seed=position) for position in range(arity(scene.graphs[graph].op) + 1)]
    rest = raw if tape.below(2) else [Binding("handle", handle) for handle in right]
    rest[elsewhere] = Binding("handle", foreign)
    scene.add(Execute(graph, tuple(rest)))


@rule(
    "CTX-05",
    Level.MUST,
    "A handle of one context is refused when a graph of another context executes.",
    source="H:QNN_GRAPH_ERROR_INVALID_TENSOR; LiteRT pull request 8818",
    subject="memory",
    cases=embedded(_foreign),
    gate=("1101",),
)
def ctx_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004. A value that is a live handle in both contexts is not judged."""
    require_memory(case, trace)
    require_operator(trace)
    return judge_faults(case, trace, ("foreign-handle",), "executes with a foreign handle")


def _free_wrongly(scene: Scene, tape: Tape) -> None:
    freed = scene.context()
    scene.any_context(tape)
    kind = tape.below(3)
    if kind == 2:
        scene.free_context(freed)
    scene.add(ContextFree((NULL, BOGUS, freed)[kind]))


@rule(
    "CTX-06",
    Level.MUST,
    "Freeing a context that is NULL, unknown or freed already is refused.",
    source="H:QnnContext_free",
    subject="memory",
    cases=embedded(_free_wrongly, after=0),
)
def ctx_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5002. A value that was given out again is not judged."""
    require_session(trace)
    return judge_faults(
        case,
        trace,
        ("bad-context", "dead-context"),
        "frees of what is no context",
        own=lambda w: isinstance(w.step, ContextFree),
    )
