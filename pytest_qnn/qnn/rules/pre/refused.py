"""PRE: what a call that is refused leaves behind in the graph that is being composed."""

from __future__ import annotations

from typing import get_args

import msgspec

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported
from pytest_qnn.qnn.cases.case import Execute, MemoryCase, MendedMistake, Prepare
from pytest_qnn.qnn.cases.sizes import arity
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.graphs import judge_contents
from pytest_qnn.qnn.rules.judging import demand_code, own_steps, require_contexts, require_operator
from pytest_qnn.qnn.strategies.graphs import Cases, execute
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace, PrepareCounts

_BESIDE = "calls with a mistake were refused while the graph was composed"
_MISTAKES: tuple[MendedMistake, ...] = get_args(MendedMistake)


def _with_mistakes(facts: MemoryFacts) -> Cases:
    """One to three graphs in one or two contexts, each as it is, and then with two to five mistakes.

    Some have weights, or a NATIVE tensor before the output. What is composed with mistakes is executed twice.
    """

    def core(scene: Scene, tape: Tape) -> None:
        at = tape.below(len(_MISTAKES))
        contexts = [scene.context() for _ in range(1 + tape.chance(4))]
        for _ in range(1 + tape.below(3)):
            name = scene.prepare(tape.pick(contexts), tape)
            if not name:
                return
            count = 2 + tape.below(4)
            mistakes = tuple(_MISTAKES[(at + k) % len(_MISTAKES)] for k in range(count))
            at += count
            again = _again(scene, name, mistakes, tape)
            for seed in (0, 1 + tape.below(16)) if facts.executes else ():
                execute(scene, again, None, seed=seed)

    return scenes(facts, core, before=1)


def _again(scene: Scene, name: str, mistakes: tuple[MendedMistake, ...], tape: Tape) -> str:
    """Vary the last graph, and compose another like it with the mistakes: its name."""
    made = scene.graphs[name]
    kind = tape.below(3)
    changed = msgspec.structs.replace(
        made, weights=9 if kind == 1 and arity(made.op) == 2 else None, relay=kind == 2
    )
    scene.steps[scene.steps.index(made)] = changed
    scene.alive.prepare(name, changed)
    again = scene.name("g")
    scene.follow(msgspec.structs.replace(changed, graph=again, mistakes=mistakes))
    return again


@rule(
    "PRE-15",
    Level.SHOULD,
    "A call with a mistake that is refused while a graph is composed leaves nothing behind: the right calls "
    "succeed, and the graph gives the right output.",
    source="QnnGraph.h: QnnGraph_create, QnnGraph_addNode; QnnTensor.h: QnnTensor_createGraphTensor "
    "(an error code says that nothing was created or added)",
    subject="memory",
    cases=_with_mistakes,
)
def pre_15(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Of graphs that are composed without the mistakes, too: a target need not take every shape.

    Whether mistakes are refused is the affair of PRE-01 to PRE-03, PRE-12 and PRE-14.
    """
    require_operator(trace)
    require_contexts(case, trace)
    count, mine, taken = 0, set[str](), set[Prepare]()
    for walked in own_steps(case, trace, lambda w: w.allowed.valid):
        step = walked.step
        if isinstance(step, Prepare):
            alike = msgspec.structs.replace(step, graph="", context="", mistakes=())
            if not step.mistakes and walked.code == 0:
                taken.add(alike)
            refused = walked.seen.counted(PrepareCounts).refused
            if refused and alike in taken:
                mine.add(step.graph)
                demand_code(walked, {0}, f"a call was refused before ({', '.join(step.mistakes)})")
                count += refused
        elif isinstance(step, Execute) and step.graph in mine:
            demand_code(walked, {0}, _BESIDE)
    judge_contents(
        case,
        trace,
        lambda seen: seen.where == "output" and seen.made is not None and seen.made.graph in mine,
        _BESIDE,
    )
    if not count:
        _tell_why(case, trace)
    return Examined(count, "refused calls beside right ones")


def _tell_why(case: MemoryCase, trace: MemoryTrace) -> None:
    """Raise Unsupported where every graph's mistake was taken."""
    for step, seen in zip(case.steps, trace.steps, strict=False):
        if isinstance(step, Prepare) and step.mistakes and seen.skipped:
            raise Unsupported(seen.skipped, final=False)
