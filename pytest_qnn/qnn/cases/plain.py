"""The plain case of QNN memory, with which slow ones are compared, and how many of it a case is worth."""

from __future__ import annotations

from typing import Final

from pytest_qnn.qnn.cases.case import (
    Alloc,
    Binding,
    Churn,
    ContextCreate,
    Descriptor,
    Execute,
    Executes,
    FailedAllocation,
    Lived,
    MemoryCase,
    Observe,
    Parallel,
    Prepare,
    Register,
)

PLAIN: Final = MemoryCase(
    steps=(
        ContextCreate("c"),
        Alloc("b", 8),
        Register("c", (Descriptor("b", (8,)),), ("h",)),
        Prepare("g", "c", shape=(8,)),
        Execute("g", (Binding("handle", "h"), Binding(), Binding())),
        Observe(1 << 16),
    )
)

_LIVES = 2
"""Of a `FailedAllocation`: its calls as they are, and with the refusal."""
_MET = 10
"""Of a thread of ``histories``, whose rounds have an end by the clock."""


def cycles(case: MemoryCase) -> int:
    """How often, at least once, a case does what `PLAIN` does once; each round is a cycle."""
    rounds = others = 0
    for step in case.steps:
        if isinstance(step, Churn | Lived | Executes):
            rounds += step.rounds
        elif isinstance(step, FailedAllocation):
            rounds += _LIVES + step.rounds
        elif isinstance(step, Parallel) and step.what == "histories":
            rounds += _MET * step.threads
        elif isinstance(step, Parallel):
            rounds += step.rounds * step.threads
        else:
            others += 1
    return max(1, rounds + -(-others // len(PLAIN.steps)))
