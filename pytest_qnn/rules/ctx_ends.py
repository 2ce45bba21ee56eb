"""CTX: handles of contexts that are gone, and the orders in which a session ends."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.cases.memory import ContextFree, Deregister, MemoryCase, Register
from pytest_qnn.cases.memory_probes import FreeParent
from pytest_qnn.cases.memory_strategies import Scene, Tape, embedded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_support import (
    demand_code,
    judge_valid,
    own_steps,
    require_memory,
    require_session,
)
from pytest_qnn.trace import MemoryTrace

_HANDLE = {int(Error.MEM_ERROR_INVALID_HANDLE)}
_UNSUPPORTED = int(Error.MEM_ERROR_NOT_SUPPORTED)
_DEVICE = {0, int(Error.DEVICE_ERROR_ASSOCIATED_TO_CONTEXT)}


def _orphans(scene: Scene, tape: Tape) -> None:
    """A context is freed over its handles; they are deregistered; their memory is registered elsewhere."""
    other, context = scene.context(), scene.context()
    descriptors = [scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))]
    handles = scene.register(context, *descriptors)
    scene.free_context(context)
    for handle in handles[:: -1 if tape.below(2) else 1]:
        scene.add(Deregister((handle,)))
    for descriptor in descriptors:
        scene.register(other, descriptor)


@rule(
    "CTX-02",
    Level.SHOULD,
    "A handle of a freed context is invalid, and its memory can be registered elsewhere.",
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
            if "orphan-handle" in walked.allowed.notes and not walked.allowed.faults and not mine & again:
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
    "Freeing a device or a backend under live contexts is refused, or it takes them along.",
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
        elif answer is not None and isinstance(step, ContextFree) and walked.allowed.settled:
            refused = f"the parent's free answered {named(answer)}"
            demand_code(walked, walked.allowed.codes, refused)
            count += 1
        elif answer is not None and isinstance(step, Register) and walked.code != _UNSUPPORTED:
            because = f"the parent's free answered {named(answer)}"
            if walked.allowed.settled:
                demand_code(walked, walked.allowed.codes, because)
    return Examined(count, "contexts whose parent was freed first")


def _in_order(scene: Scene, tape: Tape) -> None:
    """Registered, used, deregistered, freed: the session's end is then as real clients have it."""
    context = scene.context()
    graph = scene.prepare(context, tape) if tape.below(2) else ""
    if graph:
        handles = scene.tensor_memory(graph)
        scene.execute_handles(graph, handles)
    else:
        handles = scene.register(context, *(scene.descriptor(tape.cut(4)) for _ in range(1 + tape.below(3))))
    buffers = [scene.handles[handle].descriptor.buffer for handle in handles]
    scene.deregister(*handles)
    for buffer in buffers:
        scene.free(buffer)
    scene.free_context(context)


@rule(
    "CTX-08",
    Level.MUST,
    "Deregister, free the memory, contextFree, deviceFree, backendFree, logFree succeed in this order.",
    source="seed 002; ONNX Runtime's calls at the end of a session",
    subject="memory",
    cases=embedded(_in_order, after=0),
)
def ctx_08(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """0 for each; a target without QnnMem is judged on the rest. What still lives is freed in that order."""
    require_session(trace)
    live = own_steps(case, trace, lambda w: w.allowed.valid and isinstance(w.step, Deregister | ContextFree))
    for walked in live:
        if isinstance(walked.step, ContextFree) or _registered(walked.step, case, trace):
            demand_code(walked, {0}, "the order is that of real clients")
    for call, code in trace.closing:
        if code:
            raise Violation("0 at the end of a session in order", f"{call} answers {named(code)}", "closing")
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
