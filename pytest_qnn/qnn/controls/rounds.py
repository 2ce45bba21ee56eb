"""The last control of a death behind refused requests: the case itself, rounds and all."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.core.target import Control
from pytest_qnn.qnn.cases.case import FailedAllocation, MemoryCase


def of_rounds(case: MemoryCase, *, died: bool) -> Iterator[Control]:
    """A process that dies behind a refusal, in whichever round, is the affair of one rule.

    What a round leaves behind (`OOM-06`) is another one's, and says nothing of a process that has not come
    so far.
    """
    refusals = [step for step in case.steps if isinstance(step, FailedAllocation)]
    if died and any(step.rounds for step in refusals):
        owner = "OOM-02" if any(step.what == "new" for step in refusals) else "OOM-01"
        yield Control(case, (owner,), hung="OOM-01")
