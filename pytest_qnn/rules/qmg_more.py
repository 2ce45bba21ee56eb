"""QMG: the end of internal IO buffers, and what the hint must not change."""

from __future__ import annotations

from pytest_qnn.cases import memory_execute_strategies, memory_matrix_strategies
from pytest_qnn.cases.memory import AnyStep, ContextFree, Execute, MemoryCase, Observe, Prepare
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.memory import Walked, walk
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_graph_support import require_execute, require_prepared
from pytest_qnn.rules.memory_support import place
from pytest_qnn.rules.qmg_rows import Row, require_htp, require_visible, rows
from pytest_qnn.trace import MemoryTrace

_TABLE = "seed 001, Mis-matching mem_type during preparation and execution"


@rule(
    "QMG-09",
    Level.MUST,
    "The internal IO buffers of a graph are given back when its context is freed.",
    source=f"{_TABLE}; QnnContext.h: QnnContext_free",
    subject="memory",
    cases=memory_matrix_strategies.freed,
    gate=("HTP", "separate IO buffers"),
    weight=0.15,
)
def qmg_09(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """No mapping that appeared at preparation or execution is there after contextFree."""
    require_htp(trace)
    require_execute(case, trace)
    found = rows(case, trace)
    require_visible(found)
    count = 0
    for row in found:
        after = _after_free(case, trace, row)
        if after is None:
            continue
        made = {*row.at_prepare, *(address for each in row.inferences for address in each.new)}
        left = [address for address, _ in trace.steps[after].regions if address in made]
        if left:
            raise Violation("no IO buffer is left", f"{len(left)} of {len(made)}", f"step {after}, observe")
        count += bool(made)
    return Examined(count, "contexts freed whose graphs had IO buffers")


def _after_free(case: MemoryCase, trace: MemoryTrace, row: Row) -> int | None:
    """The index of the look right behind the end of the row's context."""
    for index in range(row.step, len(trace.steps) - 1):
        step, look = case.steps[index], case.steps[index + 1]
        ended = isinstance(step, ContextFree) and step.context == row.made.context
        if ended and trace.steps[index].code == 0 and isinstance(look, Observe):
            return index + 1
    return None


@rule(
    "QMG-11",
    Level.MUST,
    "The hint changes no error: the same mistake is answered alike whether a graph carries it or not.",
    source=f"{_TABLE} (the memory type at preparation is a hint only)",
    subject="memory",
    cases=memory_execute_strategies.same_mistakes,
)
def qmg_11(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Equal codes for equal executes of a graph prepared raw and of one prepared memhandle."""
    require_prepared(case, trace)
    require_execute(case, trace)
    hinted = {step.graph for step in case.steps if isinstance(step, Prepare) and any(step.mem_types)}
    count = 0
    before: Walked | None = None
    for walked in walk(case, trace):
        step = walked.step
        if not isinstance(step, Execute) or walked.code is None or not walked.allowed.faults:
            before = None
        elif step.graph not in hinted:
            before = walked
        elif before is not None and _same(before.step, step):
            if before.code != walked.code:
                wanted = f"{named(before.code or 0)}, as without the hint"
                raise Violation(wanted, named(walked.code), place(walked))
            count += 1
    return Examined(count, "mistakes made with and without the hint")


def _same(one: AnyStep, other: Execute) -> bool:
    """The same execute, of another graph."""
    alike = isinstance(one, Execute) and (one.bindings, one.inputs) == (other.bindings, other.inputs)
    return alike and one != other
