"""Steps of scripts that several areas use."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Invoke,
    MakeDelegate,
    PlainStep,
    Read,
    ScriptCase,
    SetInputs,
)

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
