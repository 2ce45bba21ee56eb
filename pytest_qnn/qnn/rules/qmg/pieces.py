"""QMG-13: IO buffers in one piece or several, by the address space that they take."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.cases.case import ContextFree, Deregister, Execute, Lived, Logged, MemoryCase, Observe
from pytest_qnn.qnn.cases.sizes import nbytes
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.rules.graphs import judge_executes, require_execute
from pytest_qnn.qnn.rules.io_buffers import HINTED, PLAIN, Row, require_htp, rows, size_of, watched
from pytest_qnn.qnn.strategies.graphs import any_memory, execute, load
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace, ProcessCounts

_ENDING = ContextFree | Deregister | Lived | Logged
_SHARE = 2
"""So many times less than a tensor is none of its size."""


def _used(scene: Scene, tape: Tape, mem_types: tuple[int, ...], turns: list[bool]) -> str:
    """A graph, and an execute with handles or a raw one for each turn, with a look around each."""
    if not (name := watched(scene, tape, mem_types)):
        return ""
    look = Observe(size_of(scene, name))
    memory = any_memory(scene, tape, name) if any(turns) else None
    for turn, handles in enumerate(turns):
        seed = 16 * turn
        if handles and memory:
            load(scene, name, memory, seed)
        if scene.steps[-1] != look:
            scene.add(look)
        execute(scene, name, memory if handles else None, seed=seed)
        scene.add(look)
    return name


def in_any_piece(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph with or without the hint, executed in one way or the other or both, and one more without it."""
    offered = facts.supports(1101)

    def core(scene: Scene, tape: Tape) -> None:
        hints = tape.pick((PLAIN, HINTED, HINTED, (1, 0, 1)))
        turns = [bool(offered and tape.below(2)) for _ in range(2 + tape.below(2))]
        first, second = _used(scene, tape, hints, turns), _used(scene, tape, PLAIN, [False])
        if freed := tape.pick((first, second)):
            look = Observe(size_of(scene, freed))
            scene.add(look)
            scene.free_context(scene.graphs[freed].context)
            scene.add(look)

    return scenes(facts, core, before=1, after=0)


def _grown(row: Row) -> tuple[int, tuple[int, ...]]:
    """Bytes that the process took at preparation, and at each execute."""
    size = nbytes(row.made.shape, row.made.dtype)
    each = (inference.unexplained + len(inference.new) * size for inference in row.inferences)
    return row.unexplained + len(row.at_prepare) * size, tuple(each)


@rule(
    "QMG-13",
    Level.MUST,
    "Internal IO buffers, in one piece or several, take memory at preparation for the tensors prepared RAW, "
    "at the first raw inference for the others, and at no other execute; QnnContext_free gives it back.",
    source="seed 001, Mis-matching mem_type during preparation and execution; QnnContext.h: QnnContext_free",
    subject="memory",
    cases=in_any_piece,
    gate=("HTP",),
    weight=0.15,
)
def qmg_13(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Looks at the address space: it grows by the bytes of the tensors in question, give or take half of one.

    Growth beyond what all of a graph's tensors need is something else, of which this rule says nothing.
    """
    require_htp(trace)
    require_execute(case, trace)
    judge_executes(case, trace, lambda _: True, "any memory may be used, whatever the hint was")
    found = rows(case, trace)
    half = {row.step: nbytes(row.made.shape, row.made.dtype) // _SHARE for row in found}
    grown = {row.step: _grown(row) for row in found}
    if found and not any(half[at] <= max(first, *others, 0) for at, (first, others) in grown.items()):
        raise Unsupported("no IO buffer can be seen from outside in this process")
    count = 0
    for row in found:
        at_prepare, at_executes = grown[row.step]
        why = f"{row.raw} of {row.tensors} tensors are RAW"
        # What ended before may be given back by a thread of the backend, at any time later.
        late = any(isinstance(step, _ENDING) for step in case.steps[: row.step])
        count += _judge(row, at_prepare, row.raw, why, row.step, row.tensors if late else 0)
        if _executes(case, row.made.graph) != {inference.step for inference in row.inferences}:
            continue  # what an execute brought that nobody looked at is not known
        lacking = row.tensors - row.raw
        for inference, more in zip(row.inferences, at_executes, strict=True):
            wanted = lacking if inference.kinds == {"raw"} else 0
            why = "the first raw inference" if wanted else "nothing new is needed"
            # The output in the trace may lie in memory that the process had before.
            count += _judge(row, more, wanted, why, inference.step, row.tensors if late else 1)
            lacking -= wanted
        count += _judge_free(case, trace, row, at_prepare + sum(at_executes))
    return Examined(count, "preparations, executes and ends of graphs")


def _executes(case: MemoryCase, graph: str) -> set[int]:
    """The steps that execute a graph."""
    return {at for at, step in enumerate(case.steps) if isinstance(step, Execute) and step.graph == graph}


def _judge(row: Row, grown: int, tensors: int, why: str, step: int, less: int) -> bool:
    """Whether the growth says something; it must be that of so many tensors then, or of ``less`` fewer."""
    size = nbytes(row.made.shape, row.made.dtype)
    slack = size // _SHARE
    if grown > row.tensors * size + slack:
        return False
    least = (tensors - less) * size - slack
    if grown > tensors * size + slack or (tensors and less < row.tensors and grown < least):
        raise Violation(f"{tensors * size} bytes of IO buffers: {why}", f"{grown} bytes", f"step {step}")
    return True


def _judge_free(case: MemoryCase, trace: MemoryTrace, row: Row, taken: int) -> bool:
    """The same for the end of the row's context, if there is a look around it and nothing else ends there."""
    size = nbytes(row.made.shape, row.made.dtype)
    for index in range(row.step, len(trace.steps) - 1):
        around = case.steps[index - 1], case.steps[index + 1]
        if case.steps[index] != ContextFree(row.made.context) or trace.steps[index].code != 0:
            continue
        if not all(isinstance(look, Observe) for look in around) or taken > (row.tensors + 1) * size:
            return False
        before, after = (trace.steps[at].counted(ProcessCounts).vm for at in (index - 1, index + 1))
        if before - after < taken - size // _SHARE:
            raise Violation(f"{taken} bytes of IO buffers given back", f"{before - after}", f"step {index}")
        return True
    return False
