"""QLEAK-06: what is left of the first session of a process."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured
from pytest_qnn.qnn.cases.case import MemoryCase, WholeSession
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.growth import FIRST_KEPT
from pytest_qnn.qnn.rules.qleak.sessions import carried_out, whole_sessions
from pytest_qnn.qnn.trace import FirstCounts, MemoryTrace

_SHAPE = (1, 2, 2, 2)


def _first(case: MemoryCase) -> MemoryCase:
    steps = tuple(
        msgspec.structs.replace(step, shape=_SHAPE, first=True)
        for step in case.steps
        if isinstance(step, WholeSession)
    )
    return MemoryCase(steps)


def first_sessions(facts: MemoryFacts) -> st.SearchStrategy[MemoryCase]:
    """One case: the session of QLEAK-05 with a small graph, and nothing in its process before it."""
    return whole_sessions(facts).map(_first)


@rule(
    "QLEAK-06",
    Level.MAY,
    "Once the first session of a process is over, its backend freed last, at most 4 MiB of the memory that "
    "it took are still in use.",
    source="QnnBackend.h: QnnBackend_free; onnxruntime#22511 (700 MB that come with the first model stay); "
    "no document says that a pool must not be kept",
    subject="memory",
    cases=first_sessions,
    weight=0.03,
)
def qleak_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Private memory that was written to, a second after the end at the latest.

    What a library reads of its own files does not count, and what only malloc has free is given back before
    each look. What a large graph took is QLEAK-05's, what grows with each session that of QLEAK-02.
    """
    count = 0
    for where, step, seen in carried_out(case, trace):
        if not step.first:
            continue
        counts = seen.counted(FirstCounts)
        if counts.left > FIRST_KEPT:
            wanted = f"at most {FIRST_KEPT} bytes more than before the first session of the process"
            kept = f"{counts.left} more, of {counts.taken} that there were when its graph was executed"
            raise Measured(wanted, kept, where)
        count += 1
    return Examined(count, "first sessions of a process that were over")
