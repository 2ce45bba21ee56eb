"""Controls of refused requests: in which call each explains a death, and the case itself, rounds and all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.qnn.cases.case import FailedAllocation, MemoryCase
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.facts import MemoryFacts


def of_refusals(controls: Iterable[Control], case: MemoryCase, *, died: bool) -> Iterator[Control]:
    """The controls of a case, and behind them that of refusals in rounds.

    One in which a single call is refused something explains a death in that call only: a library that dies in
    one of twelve calls would else have all before it tried, each in a process of its own. What a refusal does
    to the calls behind it is seen in the controls that have all of the case.
    """
    whole = (case, _once(case))
    for control in controls:
        match control.case.steps:
            case (FailedAllocation(nth=0) as step,) if not control.owners:
                # Nothing is refused, so it is one control for all resources that may be.
                alike = msgspec.structs.replace(step, what="any", lasting=False)
                yield control._replace(case=MemoryCase((alike,)))
            case (FailedAllocation(calls=(call,)),) if died and control.case not in whole:
                yield control._replace(within=function_name(call))
            case _:
                yield control
    yield from _of_rounds(case, died=died)


def _once(case: MemoryCase) -> MemoryCase:
    """The case without rounds."""
    steps = (
        msgspec.structs.replace(step, rounds=0) if isinstance(step, FailedAllocation) else step
        for step in case.steps
    )
    return MemoryCase(tuple(steps))


def _of_rounds(case: MemoryCase, *, died: bool) -> Iterator[Control]:
    """A process that dies behind a refusal, in whichever round, is the affair of one rule.

    What a round leaves behind (`OOM-06`) is another one's, and says nothing of a process that has not come
    so far.
    """
    refusals = [step for step in case.steps if isinstance(step, FailedAllocation)]
    if died and any(step.rounds for step in refusals):
        owner = "OOM-02" if any(step.what == "new" for step in refusals) else "OOM-01"
        yield Control(case, (owner,), hung="OOM-01")


def around_call(facts: MemoryFacts, case: MemoryCase, call: str) -> MemoryFacts:
    """The facts with ``call`` among the fatal ones, if requests of it are refused in the case.

    Of a control with many such calls it is the one that ended the process; alone it may not do so.

    Args:
        facts: of the target.
        case: the control.
        call: as the headers name it; empty: not known.
    """
    fatal = {
        each
        for step in case.steps
        if isinstance(step, FailedAllocation) and step.nth
        for each in step.calls
        if function_name(each) == call
    }
    if fatal <= set(facts.fatal_calls):
        return facts
    return msgspec.structs.replace(facts, fatal_calls=tuple(sorted({*facts.fatal_calls, *fatal})))


def refuses(case: MemoryCase) -> bool:
    """Whether requests to the system are refused in the case."""
    return any(isinstance(step, FailedAllocation) and step.nth for step in case.steps)
