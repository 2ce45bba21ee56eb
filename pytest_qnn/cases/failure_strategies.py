"""Scripts in which an invoke fails, beside an interpreter that has nothing to do with it."""

from __future__ import annotations

from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.kinds import need_claims
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]


def beside_another(facts: DelegateFacts) -> Strategy:
    """The second invoke of ``i0`` fails, in a probe's kernel or (steerable, every second case) the target's.

    ``i1`` has a delegate of its own, and works before and after it.
    """

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        own = facts.steerable and not seed & 1
        probe = next(one for one in case.applications if one.who == "probe")
        mine = next(one for one in case.applications if one.who == "target")
        position = seed // 8 % max(1, len(facts.delegates))
        made = (
            MakeDelegate("d0", claim=mine.claim, position=position, fault="second-invoke" if own else ""),
            MakeDelegate("d1", claim=mine.claim, position=position),
            MakeDelegate("p0", "probe", claim=probe.claim, fault="" if own else "second-invoke"),
        )
        order = ("d0", "p0") if case.applications[0] is mine else ("p0", "d0")
        applied = (Open("i0"), Apply("i0", order[0]), Apply("i0", order[1]), Allocate("i0"))
        beside = (Open("i1"), Apply("i1", "d1"), Allocate("i1"))
        first = (SetInputs("i0", seed), Invoke("i0"), SetInputs("i1", seed + 1), Invoke("i1"))
        second = (SetInputs("i0", seed + 2), Invoke("i0"), Read("i0", case.graph.inputs))
        after: tuple[AnyScriptStep, ...] = (Poison("i1"), Invoke("i1"), Read("i1"))
        return ScriptCase((case.graph,), (*made, *applied, *beside, *first, *second, *after), watch=True)

    need_claims(facts)
    return cases.between_probes(facts).map(make)
