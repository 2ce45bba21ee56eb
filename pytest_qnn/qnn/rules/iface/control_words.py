"""IF-16: the floating-point unit of the thread that calls a backend."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.facts import MemoryFacts, memory_types
from pytest_qnn.qnn.rules.judging import call_name, require_session
from pytest_qnn.qnn.strategies.binaries import loaded, written
from pytest_qnn.qnn.strategies.graphs import any_memory, execute, graph
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import MemoryTrace


def whole_lives(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """A graph that is executed, on raw and on registered buffers, saved and loaded, where there is that."""
    saves = facts.supports(Property.CONTEXT_SUPPORT_CACHING)

    def core(scene: Scene, tape: Tape) -> None:
        if not (name := graph(scene, tape)):
            return
        scene.execute_raw(name, tape.byte())
        if memory_types(facts):
            execute(scene, name, any_memory(scene, tape, name))
        if saves:
            loaded(scene, written(scene, scene.graphs[name].context))

    return scenes(facts, core)


@rule(
    "IF-16",
    Level.MUST,
    "Neither loading the library nor a call of it changes the control bits of MXCSR, or the x87 control "
    "word, of the calling thread (flush-to-zero, denormals-are-zero, rounding, precision, masks of "
    "exceptions).",
    source="System V ABI, AMD64 supplement, 3.2.1: the control bits of MXCSR and the x87 control word are "
    "callee-saved",
    subject="memory",
    cases=whole_lives,
)
def if_16(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Compares them after each call, those that open and close the session among them.

    What was changed is put back, so that each call is judged for itself.
    """
    for change in trace.control_words or ():
        where = change.where
        if 0 <= change.step < len(case.steps):
            where = f"step {change.step}, {call_name(case.steps[change.step])}: {where}"
        elif change.step == len(case.steps):
            where += ", giving back what the case has left"
        raise Violation(f"{change.before.text}, as before", change.after.text, where)
    require_session(trace)
    if trace.control_words is None:
        raise Unsupported("control words are watched on Linux for x86-64 only")
    carried_out = sum(seen.code is not None for seen in trace.steps)
    return Examined(len(trace.session) + carried_out + len(trace.closing), "calls")
