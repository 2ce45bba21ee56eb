"""Scripts with a profiler, or with a function that cancels an invoke."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.kinds import need_claims
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Cancel,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Profile,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]


def profiled(facts: DelegateFacts) -> Strategy:
    """A profiler from the start; two invokes."""

    def make(case: DelegateCase) -> ScriptCase:
        use = (Allocate("i0"), SetInputs("i0", case.data_seed), Invoke("i0"), Invoke("i0"))
        return ScriptCase((case.graph,), (*_applied(facts, case, (Profile("i0"),)), *use))

    need_claims(facts)
    return cases.behind_a_probe(facts).map(make)


def cancelled(facts: DelegateFacts) -> Strategy:
    """The first invoke is cancelled before one of the first four nodes of the plan; the second is not."""

    def make(case: DelegateCase) -> ScriptCase:
        first = (
            Allocate("i0"),
            SetInputs("i0", case.data_seed),
            Cancel("i0", case.data_seed % 4),
            Invoke("i0"),
        )
        second = (Cancel("i0"), SetInputs("i0", case.data_seed + 1), Poison("i0"), Invoke("i0"), Read("i0"))
        return ScriptCase((case.graph,), (*_applied(facts, case, ()), *first, *second))

    need_claims(facts)
    return cases.behind_a_probe(facts).map(make)


def _applied(
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
