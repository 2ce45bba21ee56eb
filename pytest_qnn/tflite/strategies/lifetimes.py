"""Scripts that measure what is left of delegates and interpreters: parts that several areas use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import changed
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PlainStep,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.strategies import delegates

Strategy = SearchStrategy[ScriptCase]
Plain = tuple[PlainStep, ...]
REPETITIONS = 3
"""Pairs of a short and a long repetition of the target's cycles, and of the probe's."""
FEW, CYCLES = 2, 24
"""In a short and in a long repetition: what the suite itself keeps of each repetition cancels out."""


def cycles(*names: str, scaled: Sequence[str] = ()) -> Callable[[DelegateFacts], Strategy]:
    """A delegate is made, applied to an interpreter of each name, used and destroyed, again and again.

    ``scaled``: classes of `pytest_qnn.tflite.graph.scales` that graphs may be in.
    """

    def factory(facts: DelegateFacts) -> Strategy:
        def make(case: DelegateCase) -> ScriptCase:
            def cycle(target: MakeDelegate) -> Plain:
                steps: list[PlainStep] = [target]
                for name in names:
                    steps += (Open(name), Apply(name, target.delegate), Allocate(name))
                    steps += (SetInputs(name, case.data_seed), Invoke(name))
                steps += (Close(name) for name in names)
                return (*steps, DestroyDelegate(target.delegate))

            return measured_script(facts, case, cycle)

        return changed(delegates.routing(facts, scaled=scaled), make)

    return factory


def measured_script(
    facts: DelegateFacts, case: DelegateCase, cycle: Callable[[MakeDelegate], Plain]
) -> ScriptCase:
    """Repetitions of cycles of the target, then of the probe, with a measurement after each."""
    halves = (repetitions(cycle(who), CYCLES) for who in (make_target(facts, case), make_probe(case)))
    return ScriptCase((case.graph,), tuple(step for steps in halves for step in steps))


def repetitions(cycle: Plain, times: int) -> tuple[AnyScriptStep, ...]:
    """Repetitions of few and of so many cycles by turns, each measured, as `rules.leaks` compares them."""
    few, many = Repeat(FEW, cycle), Repeat(times, cycle)
    looked = Measure(waits=True)
    return (few, many, looked, *((few, looked, many, looked) * REPETITIONS))


def make_target(facts: DelegateFacts, case: DelegateCase) -> MakeDelegate:
    """One delegate of the chain, by turns."""
    position = case.data_seed // 8 % max(1, len(facts.delegates))
    return MakeDelegate("d0", claim=_claim(case), position=position)


def make_probe(case: DelegateCase) -> MakeDelegate:
    """The suite's own delegate, with the claim of the case's target."""
    return MakeDelegate("p0", "probe", claim=_claim(case))


def _claim(case: DelegateCase) -> tuple[int, ...] | None:
    return next((one.claim for one in case.applications if one.who == "target"), None)
