"""SSR-02: the process after one that was killed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.qnn.cases.case import ContextFree, Deregister, MemoryCase, NewProcess
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.judging import judge_valid, require_memory
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

Acts = list[Callable[[], object]]


def _acts(scene: Scene, tape: Tape) -> Acts:
    """A client's life, call by call: any of them may be its last."""
    context = scene.context()
    graph = scene.prepare(context, tape)
    handles: list[str] = []
    return [
        lambda: handles.extend(scene.tensor_memory(graph)),
        lambda: scene.register(context, scene.descriptor(tape)),
        lambda: scene.execute_handles(graph, handles),
        lambda: scene.execute_raw(graph, tape.byte()),
        lambda: scene.add(Deregister(tuple(handles))),
    ]


def _core(scene: Scene, tape: Tape) -> None:
    """One or two processes that are killed somewhere in their lives; then one that lives to its end."""
    for _ in range(1 + tape.chance(4)):
        acts = _acts(scene, tape)
        done = tape.below(len(acts) + 1) if tape.chance(2) else len(acts) - 1
        for act in acts[:done]:
            act()
        scene.follow(NewProcess(killed=True))
    context = scene.context()
    graph = scene.prepare(context, tape)
    handles = scene.tensor_memory(graph)
    scene.execute_handles(graph, handles)
    scene.execute_raw(graph, tape.byte())
    scene.add(Deregister(tuple(handles)))
    scene.add(ContextFree(context))


def killed(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """Processes that end with contexts, graphs and registrations alive, and one after them."""
    if not facts.operators:
        raise NothingToJudge("no operator of the suite composes on this target", unsupported=True)
    return scenes(facts, _core, before=0, after=0)


@rule(
    "SSR-02",
    Level.SHOULD,
    "After a process was killed with contexts, graphs and registrations alive, the next one works as ever.",
    source="fastrpc#349 (a client that is killed harms the system's driver); inference: a process takes "
    "with it what it had",
    subject="memory",
    cases=killed,
    gate=("1101",),
    weight=0.3,
)
def ssr_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Every call of each process after the first one that was killed succeeds, and its outputs are right.

    On a host this is about what a library leaves in files and shared memory, on a device also about
    its driver.
    """
    require_memory(case, trace)
    deaths = [at for at, step in enumerate(case.steps) if isinstance(step, NewProcess) and step.killed]
    first = min(deaths, default=len(case.steps))
    because = "the process before was killed"
    return judge_valid(
        case, trace, lambda walked: walked.index > first, "calls after a process was killed", because
    )
