"""SSR: objects after the subsystem behind a backend has restarted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.cases.case import (
    ContextCreate,
    ContextFree,
    Deregister,
    Execute,
    MemoryCase,
    Register,
    Restart,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.expected import Walked
from pytest_qnn.qnn.model.notes import Fault
from pytest_qnn.qnn.rules.judging import judge_valid, own_steps, place, require_memory
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_GONE = int(Error.COMMON_ERROR_SYSTEM_COMMUNICATION)


def _core(scene: Scene, tape: Tape) -> None:
    old = scene.context()
    graph = scene.prepare(old, tape)
    handles = scene.tensor_memory(graph)
    described = [scene.handles[handle].descriptor for handle in handles]
    scene.execute_handles(graph, handles)
    scene.add(Restart())
    for _ in range(1 + tape.below(2)):
        if tape.below(2):
            scene.execute_raw(graph, tape.byte())
        else:
            scene.execute_handles(graph, handles)
    if tape.chance(2):
        scene.add(Register(old, (scene.descriptor(tape),), (scene.name("h"),)))
    scene.add(Deregister(handles))
    if tape.chance(2):
        scene.add(Deregister(handles))
    scene.add(ContextFree(old))
    new = scene.context()
    again = msgspec.structs.replace(scene.graphs[graph], graph=scene.name("g"), context=new)
    scene.add(again)
    names = [name for each in described for name in scene.register(new, each)]
    scene.execute_handles(again.graph, names)


def restarts(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph that was executed before is executed again; its memory is registered again elsewhere."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return scenes(facts, _core, before=1, after=0)


@rule(
    "SSR-01",
    Level.SHOULD,
    "After a subsystem restart, reported as QNN_COMMON_ERROR_SYSTEM_COMMUNICATION (1007), earlier contexts, "
    "graphs and memory handles are invalid; deregistering, and registering with a new context, recovers.",
    source="documentation of the SDK, version 2.13, subsystem restart",
    subject="memory",
    cases=restarts,
    gate=("1101",),
    weight=0.5,
)
def ssr_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The restart is injected, which the reference alone can do: a device does it when its DSP crashes."""
    require_memory(case, trace)
    restart = next((at for at, step in enumerate(case.steps) if isinstance(step, Restart)), len(case.steps))
    if restart >= len(trace.steps):
        return Examined(0, "calls after a restart")
    if trace.steps[restart].skipped:
        raise Unsupported(trace.steps[restart].skipped)
    after = [at for at, step in enumerate(case.steps) if at > restart and isinstance(step, ContextCreate)]
    anew = after[0] if after else len(case.steps)
    count = _refused(case, trace, lambda walked: restart < walked.index < anew)
    given_back = judge_valid(
        case, trace, lambda walked: restart < walked.index < anew and isinstance(walked.step, Deregister), ""
    )
    count += _given_back_once(case, trace, lambda walked: restart < walked.index < anew)
    recovered = judge_valid(case, trace, lambda walked: walked.index >= anew, "")
    return Examined(count + given_back.count + recovered.count, "calls after a restart")


def _given_back_once(case: MemoryCase, trace: MemoryTrace, between: Callable[[Walked], bool]) -> int:
    """What was deregistered after the restart is not deregistered again."""
    count = 0
    for walked in own_steps(case, trace, between):
        if isinstance(walked.step, Deregister) and walked.allowed.only(Fault.DEAD_HANDLE):
            if walked.code == 0:
                wanted = "no success for handles that were deregistered after the restart"
                raise Violation(wanted, "success", place(walked))
            count += 1
    return count


def _refused(case: MemoryCase, trace: MemoryTrace, between: Callable[[Walked], bool]) -> int:
    """Calls on objects of before: the first execute answers 1007, and none of them succeeds."""
    count = 0
    told = False
    for walked in own_steps(case, trace, between):
        if not isinstance(walked.step, Execute | Register):
            continue
        code = walked.seen.code or 0
        first = isinstance(walked.step, Execute) and not told
        if (first and low(code) != _GONE) or not code:
            wanted = named(_GONE) if first else "no success on objects from before the restart"
            raise Violation(wanted, named(code) if code else "success", place(walked))
        told |= first
        count += 1
    return count
