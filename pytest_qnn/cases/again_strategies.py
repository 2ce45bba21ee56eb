"""Scripts in which a delegate is undone, removed, applied again, or applied to several interpreters."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase, Fault
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    PlainStep,
    Read,
    RemoveAll,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]
FEW, MANY = 2, 14
"""Interpreters between two measurements, by turns: what the suite itself keeps of each spell cancels out."""
PAIRS = 3
"""Of such spells."""
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")


def removed(facts: DelegateFacts) -> Strategy:
    """RemoveAllDelegates right after the application, before the first invoke, or after it; then a run."""

    def make(case: DelegateCase) -> ScriptCase:
        opening = (_target(case), Open("i0"), Apply("i0", "d0"))
        before: tuple[AnyScriptStep, ...] = ()
        if case.data_seed % 3:
            before = (Allocate("i0"), SetInputs("i0", case.data_seed))
        if case.data_seed % 3 == 2:
            before += (Invoke("i0"),)
        return ScriptCase((case.graph,), (*opening, *before, RemoveAll("i0"), *_run("i0", case.data_seed)))

    return cases.routing(facts).map(make)


def undone(facts: DelegateFacts) -> Strategy:
    """A delegate is undone because another one fails; then it is applied to a fresh interpreter."""

    def make(case: DelegateCase) -> ScriptCase:
        claims = range(len(case.graph.nodes))
        probe = MakeDelegate("p0", "probe", claim=tuple(claims), fault=_FAULTS[case.data_seed % 3])
        first = (_target(case), Open("i0"), Apply("i0", "d0"), probe, Apply("i0", "p0"), Close("i0"))
        second = (Open("i1"), Apply("i1", "d0"), *_run("i1", case.data_seed))
        return ScriptCase((case.graph,), (*first, *second))

    return cases.before_a_failure(facts).map(make)


def shared(facts: DelegateFacts) -> Strategy:
    """One delegate applied to interpreters of two graphs, which are invoked by turns.

    In every second case it is applied to one of them a second time, before or after the first invoke.
    """

    def make(pair: tuple[DelegateCase, DelegateCase]) -> ScriptCase:
        first, second = pair
        opening = (
            _target(first, everything=True),
            *(Open("i0"), Apply("i0", "d0"), Open("i1", 1), Apply("i1", "d0")),
            *(Allocate("i0"), Allocate("i1"), SetInputs("i0", first.data_seed), SetInputs("i1")),
        )
        turn = (Invoke("i0"), Invoke("i1"), Read("i0"), Read("i1"))
        other = (SetInputs("i1", second.data_seed + 1), Invoke("i1"), Read("i1"), Invoke("i0"), Read("i0"))
        twice: tuple[PlainStep, ...] = ()
        if second.data_seed & 1:
            twice = (Apply("i0", "d0"), Allocate("i0"), SetInputs("i0", first.data_seed + 1), Invoke("i0"))
            twice = (*twice, Read("i0"))
        late = first.data_seed & 1
        steps = (*opening, *turn, *twice, *other) if late else (*opening, *twice, *turn, *other)
        return ScriptCase((first.graph, second.graph), steps)

    return st.tuples(cases.routing(facts), cases.routing(facts)).map(make)


def cycles(facts: DelegateFacts) -> Strategy:
    """Interpreters come and go while the delegate stays; what malloc has given out is measured in between."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        one: tuple[PlainStep, ...] = (
            *(Open("i0"), Apply("i0", "d0"), Allocate("i0")),
            *(SetInputs("i0", seed), Invoke("i0"), Invoke("i0"), Close("i0")),
        )
        few, many = Repeat(FEW, one), Repeat(MANY, one)
        spells = (few, Measure(), many, Measure()) * PAIRS
        return ScriptCase((case.graph,), (_target(case), few, Measure(), *spells))

    return cases.routing(facts).map(make)


def _target(case: DelegateCase, *, everything: bool = False) -> MakeDelegate:
    claims = [application.claim for application in case.applications if application.who == "target"]
    return MakeDelegate("d0", claim=None if everything or not claims else claims[0])


def _run(interpreter: str, seed: int) -> tuple[PlainStep, ...]:
    return (Allocate(interpreter), SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))
