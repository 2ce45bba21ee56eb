"""REG: when a context takes registrations."""

from __future__ import annotations

from pytest_qnn.cases.memory import Execute, MemoryCase, Register
from pytest_qnn.cases.memory_time_strategies import any_time
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.rules.memory_graph_support import kinds, require_execute
from pytest_qnn.rules.memory_support import judge_valid, require_memory
from pytest_qnn.trace import MemoryTrace


@rule(
    "REG-17",
    Level.MUST,
    "Memory can be registered at any time of a context's life: before its graphs, after them, and in "
    "contexts from binaries.",
    source="seed 002 (context obtained online or offline); QnnMem.h: QnnMem_register",
    subject="memory",
    cases=any_time,
    gate=("1101",),
)
def reg_17(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Each registration answers 0, and a graph that comes before or after it executes with the handles."""
    require_memory(case, trace)
    require_execute(case, trace)

    def own(walked: Walked) -> bool:
        step = walked.step
        return isinstance(step, Register) or (isinstance(step, Execute) and "handle" in kinds(step))

    return judge_valid(case, trace, own, "registrations and executes", "memory registers at any time")
