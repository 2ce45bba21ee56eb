"""CTX: registrations when contexts come and go, freed contexts, and the orders in which a session ends."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Retained
from pytest_qnn.qnn.abi.codes import ERROR_MASK, Error, Property
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Binding,
    ContextCreate,
    ContextFree,
    ContextFromBinary,
    Deregister,
    Execute,
    FreeParent,
    Lived,
    MemoryCase,
    Observe,
    Prepare,
    Register,
)
from pytest_qnn.qnn.cases.sizes import arity
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Event, Fault, Note
from pytest_qnn.qnn.rules.graphs import require_execution
from pytest_qnn.qnn.rules.judging import (
    LET_GO,
    demand_code,
    demand_life,
    judge_faults,
    judge_let_go,
    judge_valid,
    own_steps,
    require_composition,
    require_memory,
    require_operator,
    require_session,
)
from pytest_qnn.qnn.strategies.binaries import saved
from pytest_qnn.qnn.strategies.scene import Scene, Tape
from pytest_qnn.qnn.strategies.sequences import embedded
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts

_CYCLES = 2 * LET_GO
"""Enough that one thing left by every second context is more than what a bounded pool keeps."""


def _leave_registered(scene: Scene, tape: Tape) -> None:
    """The same round again and again: a context, registrations, and the context is freed over them.

    The first round warms the target up; the looks are before and after the others. In every second case each
    context has a graph before it has registrations.
    """
    descriptors = [scene.descriptor(tape) for _ in range(1 + tape.below(3))]
    batch = tape.below(2) == 1
    graphs = [tape.pick(scene.operators)] if scene.operators and tape.chance(2) else []
    for number in range(1 + _CYCLES):
        if number == 1:
            scene.add(Observe())
        context = scene.context()
        for op, dtype in graphs:
            scene.follow(Prepare(scene.name("g"), context, op, dtype))
        if batch:
            scene.register(context, *descriptors)
        else:
            for descriptor in descriptors:
                scene.register(context, descriptor)
        scene.free_context(context)
    scene.add(Observe(patient=True))


@rule(
    "CTX-01",
    Level.MUST,
    "QnnContext_free releases every memory registration of its context.",
    source="seed 002, step 5; QnnContext.h: QnnContext_free",
    subject="memory",
    cases=embedded(_leave_registered),
    gate=("1101",),
)
def ctx_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Descriptors and mappings do not grow with rounds of register and contextFree; a small pool may stay."""
    require_memory(case, trace)
    looks = [
        (index, seen.counted(ProcessCounts))
        for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False))
        if isinstance(step, Observe)
    ]
    registered = any(
        isinstance(step, Register) and seen.code == 0
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )
    if len(looks) < 2 or not registered:
        return Examined(0, "contexts freed over registrations")
    (first, before), (index, after) = looks
    freed = sum(isinstance(step, ContextFree) for step in case.steps[first:index])
    for was, now, words in (
        (before.fds, after.fds, "open descriptors"),
        (before.memfds, after.memfds, "mappings of shared memory"),
        (before.mappings, after.mappings, "mappings"),
    ):
        if now >= was + LET_GO:
            seen_words = f"{now} after {freed} contexts were freed over live registrations"
            raise Retained(
                f"{was} {words}, and fewer than {LET_GO} more", seen_words, f"step {index}, observe"
            )
    return Examined(freed, "contexts freed over registrations")


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
    return used and Event.SIBLING_CONTEXT_FREED in walked.allowed.notes


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
    others = [scene.register(scene.any_context(tape), scene.descriptor(tape)) for _ in range(tape.below(2))]
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
    "QnnMem_register refuses a freed context: QNN_MEM_ERROR_INVALID_HANDLE (8001).",
    source="QnnMem.h: QnnMem_register",
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
        (Fault.BAD_CONTEXT,),
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
    "QnnGraph_execute refuses a memory handle of another context: QNN_GRAPH_ERROR_INVALID_TENSOR (6004).",
    source="QnnGraph.h: QNN_GRAPH_ERROR_INVALID_TENSOR; LiteRT pull request 8818",
    subject="memory",
    cases=embedded(_foreign),
    gate=("1101",),
)
def ctx_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """6004. A value that is a live handle in both contexts is not judged."""
    require_memory(case, trace)
    require_operator(trace)
    require_execution(trace)
    return judge_faults(case, trace, (Fault.FOREIGN_HANDLE,), "executes with a foreign handle")


def _free_wrongly(scene: Scene, tape: Tape) -> None:
    freed = scene.context()
    scene.any_context(tape)
    kind = tape.below(3)
    for _ in range(tape.pick((0, 0, 3, 8))):
        scene.context()
    if kind == 2:
        scene.free_context(freed)
    scene.add(ContextFree((NULL, BOGUS, freed)[kind]))


@rule(
    "CTX-06",
    Level.MUST,
    "QnnContext_free refuses a context that is NULL, unknown or freed already: "
    "QNN_CONTEXT_ERROR_INVALID_HANDLE (5002).",
    source="QnnContext.h: QnnContext_free",
    subject="memory",
    cases=embedded(_free_wrongly, after=0),
)
def ctx_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """5002. A value that was given out again is not judged."""
    require_session(trace)
    return judge_faults(
        case,
        trace,
        (Fault.BAD_CONTEXT, Fault.DEAD_CONTEXT),
        "frees of what is no context",
        own=lambda w: isinstance(w.step, ContextFree),
    )


_HANDLE = {int(Error.MEM_ERROR_INVALID_HANDLE)}
_UNSUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)
_DEVICE = {0, int(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)}


def _orphans(scene: Scene, tape: Tape) -> None:
    """A context is freed over its handles; they are deregistered; their memory is registered elsewhere."""
    other, context = scene.context(), scene.context()
    descriptors = [scene.descriptor(tape) for _ in range(1 + tape.below(3))]
    handles = scene.register(context, *descriptors)
    scene.free_context(context)
    for handle in handles[:: -1 if tape.below(2) else 1]:
        scene.add(Deregister((handle,)))
    for descriptor in descriptors:
        scene.register(other, descriptor)


@rule(
    "CTX-02",
    Level.SHOULD,
    "A memory handle is invalid once its context is freed: QnnMem_deRegister answers "
    "QNN_MEM_ERROR_INVALID_HANDLE (8001), and another context can register the memory.",
    source="inference from seed 002, step 5: freeing the context deregisters",
    subject="memory",
    cases=embedded(_orphans, after=0),
    gate=("1101",),
)
def ctx_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """8001; then success in another context. A value that was given out again is not judged."""
    require_memory(case, trace)
    values: dict[str, int] = {}
    live: set[str] = set()
    count = 0
    for walked in own_steps(case, trace, lambda w: isinstance(w.step, Register | Deregister | ContextFree)):
        step = walked.step
        if isinstance(step, Register) and walked.code == 0:
            values.update(zip(step.handles, walked.seen.values, strict=False))
            live.update(step.handles)
        elif isinstance(step, Deregister):
            live.difference_update(step.handles)
            again = {values[name] for name in live if name in values}
            mine = {values.get(name, 0) for name in step.handles}
            if Note.ORPHAN_HANDLE in walked.allowed.notes and not walked.allowed.faults and not mine & again:
                demand_code(walked, _HANDLE, "the handle's context was freed")
                count += 1
        elif isinstance(step, ContextFree) and walked.code == 0:
            live -= {
                name
                for made in case.steps
                if isinstance(made, Register) and made.context == step.context
                for name in made.handles
            }
    because = "the memory's other context is gone"
    judge_valid(case, trace, lambda w: isinstance(w.step, Register), "", because)
    return Examined(count, "handles of freed contexts")


def _parent_first(scene: Scene, tape: Tape) -> None:
    """The device or the backend is freed under a context with a registration; then both are used."""
    context = scene.any_context(tape)
    scene.register(context, scene.descriptor(tape))
    scene.add(FreeParent("device" if tape.below(2) else "backend"))
    scene.add(Register(context, (scene.descriptor(tape),), (scene.name("h"),)))
    scene.add(ContextFree(context))


@rule(
    "CTX-07",
    Level.SHOULD,
    "QnnDevice_free and QnnBackend_free, called while contexts are alive, are refused or free these contexts "
    "too.",
    source="QnnDevice.h: QNN_DEVICE_ERROR_ASSOCIATED_TO_CONTEXT; observed on libQnnHtp",
    subject="memory",
    cases=embedded(_parent_first, before=1, after=0),
    weight=0.5,
)
def ctx_07(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A device answers 14003 or 0. After 0 contexts answer as freed ones do, after a refusal they work.

    With which code a backend refuses, no document says.
    """
    require_session(trace)
    answer: int | None = None
    count = 0
    for walked in own_steps(case, trace, lambda _: True):
        step = walked.step
        if isinstance(step, FreeParent):
            if step.what == "device":
                demand_code(walked, _DEVICE, "contexts stand on the device")
            answer = walked.code
        elif answer is not None and isinstance(step, ContextFree) and walked.allowed.specified:
            refused = f"the parent's free answered {named(answer)}"
            demand_code(walked, walked.allowed.codes, refused)
            count += 1
        elif answer is not None and isinstance(step, Register) and walked.code != _UNSUPPORTED:
            because = f"the parent's free answered {named(answer)}"
            if walked.allowed.specified:
                demand_code(walked, walked.allowed.codes, because)
    return Examined(count, "contexts whose parent was freed first")


def _in_order(scene: Scene, tape: Tape) -> None:
    """Registered, used, deregistered, freed: the session's end is then as real clients have it.

    In one case of three a context could not be made of half a binary before.
    """
    if scene.facts.supports(Property.CONTEXT_SUPPORT_CACHING) and tape.chance(3):
        made = saved(scene, tape.cut(4))
        if made is not None:
            scene.add(ContextFromBinary(scene.name("c"), made.binary, damage="truncated"))
            scene.free_context(made.context)
    context = scene.context()
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    if graph:
        handles = scene.tensor_memory(graph)
        scene.execute_handles(graph, handles)
    else:
        handles = scene.register(context, *(scene.descriptor(tape) for _ in range(1 + tape.below(3))))
    buffers = [scene.handles[handle].descriptor.buffer for handle in handles]
    scene.deregister(*handles)
    for buffer in buffers:
        scene.free(buffer)
    scene.free_context(context)


@rule(
    "CTX-08",
    Level.MUST,
    "Deregistering, freeing the memory, QnnContext_free, QnnDevice_free, QnnBackend_free and QnnLog_free "
    "succeed in this order.",
    source="seed 002; ONNX Runtime's calls at the end of a session",
    subject="memory",
    cases=embedded(_in_order, core_bytes=36, after=0),
)
def ctx_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 for each; a target without QnnMem is judged on the rest. What still lives is freed in that order."""
    require_session(trace)
    demand_life(case, trace, "contextCreate", "contextFree")
    live = own_steps(case, trace, lambda w: w.allowed.valid and isinstance(w.step, Deregister | ContextFree))
    for walked in live:
        if isinstance(walked.step, ContextFree) or _registered(walked.step, case, trace):
            demand_code(walked, {0}, "the order is that of real clients")
    # Ordinary life that a failed call has ended leaves objects behind, which are not freed in that order.
    ended = any(
        isinstance(step, Lived) and (seen.calls or seen.skipped)
        for step, seen in zip(case.steps, trace.steps, strict=False)
    )
    for call, code in trace.closing:
        if code and not ended:
            raise FailedCall("0 at the end of a session in order", f"{call} answers {named(code)}", "closing")
    return Examined(len(trace.closing), "calls at the end of sessions")


def _registered(step: object, case: MemoryCase, trace: MemoryTrace) -> bool:
    """All handles of the call were given out."""
    made = {
        name
        for each, seen in zip(case.steps, trace.steps, strict=False)
        if isinstance(each, Register) and seen.code == 0
        for name in each.handles
    }
    return isinstance(step, Deregister) and made.issuperset(step.handles)


def _several(scene: Scene, tape: Tape) -> None:
    """One to four contexts, some of them freed before the next one is made."""
    for _ in range(1 + tape.below(4)):
        context = scene.context()
        if tape.below(3) == 1:
            scene.free_context(context)


@rule(
    "CTX-09",
    Level.MUST,
    "QnnContext_create with a live backend and without configurations succeeds on a backend that supports "
    "composition.",
    source="QnnContext.h: QnnContext_create; QnnProperty.h: QNN_PROPERTY_BACKEND_SUPPORT_COMPOSITION",
    subject="memory",
    cases=embedded(_several),
    weight=0.2,
)
def ctx_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Up to some hundred contexts, one after another and together."""
    require_composition(trace)
    demand_life(case, trace, "contextCreate")
    count = 0
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, ContextCreate) or step.defer is not None or seen.code is None:
            continue
        if seen.code & ERROR_MASK:  # what has other bits only is no code at all (IF-06)
            raise FailedCall(
                named(0),
                f"contextCreate answers {named(seen.code)}",
                f"step {index}, context-create",
                call="context-create",
            )
        count += 1
    return Examined(count, "contexts created")


def _one_after_another(scene: Scene, tape: Tape) -> None:
    """Each context has a buffer of its own, and is freed over its registration; the buffers stay."""
    descriptors = [scene.descriptor(tape) for _ in range(LET_GO)]
    buffers = tuple(each.buffer for each in descriptors)
    scene.add(Observe(buffers=buffers))
    for descriptor in descriptors:
        context = scene.context()
        scene.register(context, descriptor)
        scene.free_context(context)
    scene.add(Observe(buffers=buffers, patient=True))


@rule(
    "CTX-10",
    Level.MUST,
    "QnnContext_free lets go of the memory that was registered with its context: the backend does not keep "
    "every client's buffer mapped.",
    source="seed 002, step 5; QnnContext.h: QnnContext_free",
    subject="memory",
    cases=embedded(_one_after_another, core_bytes=4 * LET_GO, before=1, after=0),
    gate=("1101",),
    weight=0.2,
)
def ctx_10(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each context has a buffer of its own: what is kept mapped for the next context shows so, too.

    Which mappings are kept, and whether, is the backend's choice as long as their number is bounded.
    """
    require_memory(case, trace)
    return Examined(judge_let_go(case, trace), "buffers of contexts that were freed")
