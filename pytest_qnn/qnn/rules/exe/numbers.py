"""EXE-21: what graphs compute, where no memory API takes part. It owns the arithmetic of every graph."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.contents import compare
from pytest_qnn.qnn.model.operators import beyond, operands
from pytest_qnn.qnn.rules.graphs import kinds, require_execute, require_execution
from pytest_qnn.qnn.rules.judging import place
from pytest_qnn.qnn.strategies.binaries import composed
from pytest_qnn.qnn.strategies.graphs import broadcasting, execute, of_many, terms_of
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace

_GRAPHS = 4


def plain_graphs(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """EXE-21: graphs prepared and executed raw, with and without weights.

    Among them one of weights that are broadcast, in every rank and along every dimension, and one of many
    inputs and results between nodes. Each has a context of its own, or all of them have one. They are
    executed once the last is there.
    """

    def core(scene: Scene, tape: Tape) -> None:
        count, place, number = 1 + tape.below(_GRAPHS), tape.byte(), tape.byte()
        context = scene.context() if number % 2 else ""
        names = [
            broadcasting(scene, tape.cut(4), place, context),
            of_many(scene, tape.cut(4), terms_of(number), context),
        ]
        for _ in range(count):
            part = tape.cut(6)
            relay = part.chance(2 if context else 4)
            names.append(composed(scene, part, context or scene.context(), hints=(), relay=relay))
        made = list(filter(None, names))
        for name in (*made, *(made[:1] if context else ())):
            execute(scene, name, None, seed=tape.below(64))

    return scenes(facts, core, core_bytes=44, before=0, after=0)


@rule(
    "EXE-21",
    Level.MUST,
    "The output of a graph is what its operator computes from its inputs, to within one step of the output's "
    "encoding (UFIXED_POINT_8) or one unit in the last place of a float16 (FLOAT_32).",
    source="operator definitions of package qti.aisw; QnnTypes.h: Qnn_ScaleOffset_t",
    subject="memory",
    cases=plain_graphs,
)
def exe_21(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Outputs of raw executes, element by element (bounds: `pytest_qnn.qnn.model.operators.beyond`).

    Rules about memory compare with what the target computes itself, and so do not report its arithmetic.
    A graph that the target refuses, such as one that broadcasts, says nothing of the others. QNN Saver writes
    an execute down, answers success and computes nothing: its key for executing graphs says so.
    """
    require_execution(trace)
    count = 0
    for seen in compare(case, trace):
        made = seen.made
        if made is None or seen.execute is None or kinds(seen.execute) != {"raw"}:
            continue
        wrong = beyond(made.op, made.dtype, seen.data, *operands(made, seen.inputs))
        if wrong:
            wanted = f"{made.op} of {made.dtype} {list(made.shape)} within its bounds"
            raise Violation(wanted, wrong, place(seen.walked))
        count += 1
    if not count:
        require_execute(case, trace)
    return Examined(count, "outputs of raw executes")
