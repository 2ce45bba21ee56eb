"""Controls of scripts in which requests of the target are refused."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.script import AnyScriptStep, Refuse, Repeat, ScriptCase, flat


def of_refusals(case: object, *, died: bool) -> Iterator[Control]:
    """The case with nothing refused; of a death also the case itself, of repetitions one round.

    A process that dies behind a refusal, however long, is the affair of one rule, and one that hangs of
    another. None of them for a case in which nothing is refused.
    """
    if not isinstance(case, ScriptCase):
        return
    refusals = [step for step in flat(case.steps) if isinstance(step, Refuse)]
    if not refusals:
        return
    bare = _without(case)
    if not died:
        yield Control(bare, ("OWN-06",))
        return
    yield Control(bare, ("RUN-01",))
    owner = "NOM-02" if any(step.what == "new" for step in refusals) else "NOM-01"
    yield Control(msgspec.structs.replace(case, steps=tuple(_once(case))), (owner,), hung="NOM-01")


def _once(case: ScriptCase) -> Iterator[AnyScriptStep]:
    """The steps of the case, to the end of the first round of a repetition."""
    for step in case.steps:
        if isinstance(step, Repeat):
            yield from step.steps
            return
        yield step


def _without(case: ScriptCase) -> ScriptCase:
    """The case with nothing refused."""
    steps: list[AnyScriptStep] = []
    for step in case.steps:
        if isinstance(step, Repeat):
            inside = tuple(each for each in step.steps if not isinstance(each, Refuse))
            steps.append(msgspec.structs.replace(step, steps=inside))
        elif not isinstance(step, Refuse):
            steps.append(step)
    return msgspec.structs.replace(case, steps=tuple(steps))
