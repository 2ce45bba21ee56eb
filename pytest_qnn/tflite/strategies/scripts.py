"""Steps of scripts that several areas use."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    PlainStep,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts

ScriptStrategy = SearchStrategy[ScriptCase]
FEW, MANY = 2, 14
"""Interpreters between two measurements, by turns: what the suite keeps of each repetition cancels out."""


def make_first_target(case: DelegateCase, *, everything: bool = False) -> MakeDelegate:
    """The first delegate of the target, with its claim in the case, or with everything."""
    claims = [application.claim for application in case.applications if application.who == "target"]
    return MakeDelegate("d0", claim=None if everything or not claims else claims[0])


def run_steps(interpreter: str, seed: int) -> tuple[PlainStep, ...]:
    """Allocate, set the inputs, invoke, and read the outputs."""
    return (Allocate(interpreter), SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))


def applied_steps(
    facts: DelegateFacts, case: DelegateCase, opened: tuple[AnyScriptStep, ...]
) -> tuple[AnyScriptStep, ...]:
    """A probe first, so that the target's kernels are several; then the target."""
    claims = {one.who: one.claim for one in case.applications}
    position = case.data_seed // 8 % max(1, len(facts.delegates))
    made = (
        MakeDelegate("p0", "probe", claim=claims.get("probe")),
        MakeDelegate("d0", claim=claims.get("target"), position=position),
    )
    return (*made, Open("i0"), *opened, Apply("i0", "p0"), Apply("i0", "d0"))
