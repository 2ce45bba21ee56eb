"""Scripts about what delegates, interpreters and invokes leave behind, and about the order of their ends.

What a process holds is measured after spells of equal cycles: the target's, then those of a probe of the
suite's own with the same claims, which show what the runtime and the suite leave behind themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase, Fault
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    Lend,
    MakeDelegate,
    Measure,
    Open,
    PlainStep,
    Read,
    Repeat,
    ScriptCase,
    SetInputs,
    Unload,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]
Plain = tuple[PlainStep, ...]
SPELLS = 3
"""Pairs of a short and a long spell of the target's cycles, and of the probe's."""
FEW, CYCLES = 2, 40
"""In a short and in a long spell: what the suite itself keeps of each spell cancels out."""
INVOKES = 100
_BAD_OPTION = (("no-such-option", "1"),)
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")


def cycles(*names: str) -> Callable[[DelegateFacts], Strategy]:
    """A delegate is made, applied to an interpreter of each name, used and destroyed, again and again."""

    def factory(facts: DelegateFacts) -> Strategy:
        def make(case: DelegateCase) -> ScriptCase:
            def cycle(target: MakeDelegate) -> Plain:
                steps: list[PlainStep] = [target]
                for name in names:
                    steps += (Open(name), Apply(name, target.delegate), Allocate(name))
                    steps += (SetInputs(name, case.data_seed), Invoke(name))
                steps += (Close(name) for name in names)
                return (*steps, DestroyDelegate(target.delegate))

            return _measured(facts, case, cycle)

        return cases.routing(facts).map(make)

    return factory


def unapplied(facts: DelegateFacts) -> Strategy:
    """A delegate is made and destroyed, again and again; nothing else."""

    def make(case: DelegateCase) -> ScriptCase:
        return _measured(facts, case, lambda target: (target, DestroyDelegate(target.delegate)))

    return cases.anything(facts).map(make)


def invokes(facts: DelegateFacts) -> Strategy:
    """One interpreter is invoked again and again."""

    def make(case: DelegateCase) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for name, target in (("i0", _target(facts, case)), ("i1", _probe(case))):
            ready = (Open(name), Apply(name, target.delegate), Allocate(name))
            steps += (target, *ready, *spells((SetInputs(name, case.data_seed), Invoke(name)), INVOKES))
        return ScriptCase((case.graph,), tuple(steps))

    return cases.routing(facts).map(make)


def failures(facts: DelegateFacts) -> Strategy:
    """Something fails, again and again.

    A delegate that can be told to; create, because of an option; or a delegate that is applied after the
    target, before it has claimed anything.
    """

    def make(case: DelegateCase) -> ScriptCase:
        kind = case.data_seed % 6

        def cycle(target: MakeDelegate) -> Plain:
            if kind == 0:
                option = _BAD_OPTION if target.who == "target" else ()
                refused = msgspec.structs.replace(target, delegate="d9", options=option)
                return (refused, DestroyDelegate("d9"))
            if facts.steerable:
                fault = _FAULTS[case.data_seed // 6 % 3]
                failing = msgspec.structs.replace(target, claim=None, fault=fault)
                use: Plain = (Open("i0"), Apply("i0", target.delegate), Allocate("i0"), Close("i0"))
                return (failing, *use, DestroyDelegate(target.delegate))
            probe = MakeDelegate("p9", "probe", claim=(), fault="prepare")
            ends: Plain = (Close("i0"), DestroyDelegate("p9"), DestroyDelegate(target.delegate))
            return (target, probe, Open("i0"), Apply("i0", target.delegate), Apply("i0", "p9"), *ends)

        return _measured(facts, case, cycle)

    return cases.routing(facts).map(make)


def interleaved(facts: DelegateFacts) -> Strategy:
    """One delegate on two or three interpreters, which end in another order than they began."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        names = ("i0", "i1", "i2")[: 2 + seed % 2]
        steps: list[AnyScriptStep] = [_target(facts, case)]
        for name in names:
            steps += (Open(name), Apply(name, "d0"), Allocate(name))
        steps += (step for at, name in enumerate(names) for step in _use(name, seed + at))
        order = names if seed & 4 else (*names[1:], names[0])
        for at, name in enumerate(order[:-1]):
            steps.append(Close(name))
            steps += (step for other in order[at + 1 :] for step in _use(other, seed + 8 + at))
        steps.append(Close(order[-1]))
        return ScriptCase((case.graph,), tuple(steps))

    return cases.routing(facts).map(make)


def made_again(facts: DelegateFacts) -> Strategy:
    """A delegate is made, used and destroyed; another one is; and one after its library was unloaded."""

    def make(case: DelegateCase) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for time in range(3):
            target = msgspec.structs.replace(_target(facts, case), delegate=f"d{time}")
            if time == 2 and _is_library(facts, target.position):
                steps.append(Unload(target.position))
            name = f"i{time}"
            ready = (Open(name), Apply(name, target.delegate), Allocate(name))
            ends = (Close(name), DestroyDelegate(target.delegate))
            steps += (target, *ready, *_use(name, case.data_seed + time), *ends)
        return ScriptCase((case.graph,), tuple(steps))

    return cases.routing(facts).map(make)


def _is_library(facts: DelegateFacts, position: int) -> bool:
    return "/" in "".join(facts.delegates[position : position + 1])


def lent(facts: DelegateFacts) -> Strategy:
    """A probe is given to an interpreter's constructor, and kept nowhere else."""

    def make(case: DelegateCase) -> ScriptCase:
        return ScriptCase((case.graph,), (_probe(case), Lend("p0")))

    return cases.anything(facts).map(make)


def _measured(facts: DelegateFacts, case: DelegateCase, cycle: Callable[[MakeDelegate], Plain]) -> ScriptCase:
    """Spells of cycles of the target, then of the probe, with a measurement after each."""
    halves = (spells(cycle(who), CYCLES) for who in (_target(facts, case), _probe(case)))
    return ScriptCase((case.graph,), tuple(step for steps in halves for step in steps))


def spells(cycle: Plain, times: int) -> tuple[AnyScriptStep, ...]:
    """Spells of few and of so many cycles by turns, each measured, as `rules.leak_support` compares them."""
    few, many = Repeat(FEW, cycle), Repeat(times, cycle)
    return (few, many, Measure(), *((few, Measure(), many, Measure()) * SPELLS))


def _target(facts: DelegateFacts, case: DelegateCase) -> MakeDelegate:
    """One delegate of the chain, by turns."""
    position = case.data_seed // 8 % max(1, len(facts.delegates))
    return MakeDelegate("d0", claim=_claim(case), position=position)


def _probe(case: DelegateCase) -> MakeDelegate:
    return MakeDelegate("p0", "probe", claim=_claim(case))


def _claim(case: DelegateCase) -> tuple[int, ...] | None:
    return next((one.claim for one in case.applications if one.who == "target"), None)


def _use(interpreter: str, seed: int) -> Plain:
    return (SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))
