"""Hypothesis strategies for a delegate beside the XNNPACK that runtimes apply by themselves.

A runtime with its default resolver applies XNNPACK at the first allocate_tensors, after the delegates that
were applied until then, unless these have claimed the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies
from pytest_qnn.cases.delegate import Application, DelegateCase
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    Resolver,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts

RESOLVERS: tuple[Resolver, ...] = ("default", "bare", "reference")
Steps = Callable[[DelegateCase], tuple[AnyScriptStep, ...]]


def before_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target is applied, then XNNPACK is, by the runtime."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        return Open("i0", resolver="default"), *_applied(facts, case, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


def sharing_with_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """As `before_xnnpack`; a target that can be told so leaves every second node."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        part = Application(claim=tuple(range(0, len(case.graph.nodes), 2)) if facts.steerable else None)
        shared = msgspec.structs.replace(case, applications=(part,))
        return Open("i0", resolver="default"), *_applied(facts, shared, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


def behind_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """XNNPACK is applied by the runtime, then the target is."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        first = Open("i0", resolver="default"), Allocate("i0")
        return *first, *_applied(facts, case, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


def under_each_resolver(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The same graph, contents and claim with XNNPACK, without it, and with the reference kernels."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        return tuple(
            step
            for number, resolver in enumerate(RESOLVERS)
            for step in (
                Open(f"i{number}", resolver=resolver),
                *_applied(facts, case, f"i{number}"),
                *_run(case, f"i{number}"),
            )
        )

    return _scripts(facts, steps)


def _applied(facts: DelegateFacts, case: DelegateCase, interpreter: str) -> tuple[AnyScriptStep, ...]:
    """Each delegate of the target's chain, in order of precedence."""
    claim = case.applications[0].claim
    return tuple(
        step
        for position in range(max(1, len(facts.delegates)))
        for step in _one(interpreter, f"{interpreter}d{position}", position, claim)
    )


def _one(
    interpreter: str, delegate: str, position: int, claim: tuple[int, ...] | None
) -> tuple[AnyScriptStep, ...]:
    return MakeDelegate(delegate, position=position, claim=claim), Apply(interpreter, delegate)


def _run(case: DelegateCase, interpreter: str) -> tuple[AnyScriptStep, ...]:
    contents = SetInputs(interpreter, case.data_seed, case.fill)
    return Allocate(interpreter), contents, Invoke(interpreter), Read(interpreter)


def _scripts(facts: DelegateFacts, steps: Steps) -> SearchStrategy[ScriptCase]:
    return delegate_strategies.routing(facts).map(lambda case: ScriptCase((case.graph,), steps(case)))
