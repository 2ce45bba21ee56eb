"""Scripts on several threads: delegates and interpreters used side by side, or handed over."""

from __future__ import annotations

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Parallel,
    PlainStep,
    Read,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.facts import DelegateFacts

Strategy = SearchStrategy[ScriptCase]
Plain = tuple[PlainStep, ...]
NAMES = ("i0", "i1", "i2")
_TURNS = 3
"""Times that each thread sets inputs of its own, invokes and reads."""
_MOST_THREADS = 4


def apart(facts: DelegateFacts) -> Strategy:
    """Interpreters with a delegate each are invoked side by side."""

    def make(case: DelegateCase) -> ScriptCase:
        opening: list[AnyScriptStep] = []
        for at, name in enumerate(NAMES):
            target = msgspec.structs.replace(_target(facts, case), delegate=f"d{at}")
            opening += (target, *_ready(name, f"d{at}"))
        return _side_by_side(case, opening)

    return cases.routing(facts).map(make)


def together(facts: DelegateFacts) -> Strategy:
    """Interpreters with one delegate are invoked side by side."""

    def make(case: DelegateCase) -> ScriptCase:
        opening: list[AnyScriptStep] = [_target(facts, case)]
        for name in NAMES:
            opening += _ready(name, "d0")
        return _side_by_side(case, opening)

    return cases.routing(facts).map(make)


def churning(facts: DelegateFacts) -> Strategy:
    """Delegates and interpreters come and go on one thread while another one invokes."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        other = msgspec.structs.replace(_target(facts, case), delegate="d1")
        coming = (other, *_ready("i1", "d1"), SetInputs("i1", seed + 9), Invoke("i1"), Read("i1"))
        going = (Close("i1"), DestroyDelegate("d1"))
        churn = Repeat(_TURNS, (*coming, *going))
        steps = (_target(facts, case), *_ready("i0", "d0"))
        return ScriptCase((case.graph,), (*steps, Parallel((_turns("i0", seed), (churn,)))))

    return cases.routing(facts).map(make)


def handed_over(facts: DelegateFacts) -> Strategy:
    """An interpreter is made on one thread, used on another, and then on the first again."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        ready: tuple[AnyScriptStep, ...] = _ready("i0", "d0")
        if seed & 1:
            ready = (Parallel((_ready("i0", "d0"),)),)
        elsewhere = Parallel((_use("i0", seed),))
        steps = (_target(facts, case), *ready, *_use("i0", seed + 1), elsewhere, *_use("i0", seed + 2))
        return ScriptCase((case.graph,), steps)

    return cases.routing(facts).map(make)


def counted(facts: DelegateFacts) -> Strategy:
    """Threads are counted, with an interpreter that may use so many: on the CPU, then with the delegate."""

    def make(case: DelegateCase) -> ScriptCase:
        threads = 1 + case.data_seed % _MOST_THREADS
        plain = (Open("i0", threads=threads), Allocate("i0"), *_use("i0", case.data_seed))
        target = (_target(facts, case), Open("i1", threads=threads), Apply("i1", "d0"), Allocate("i1"))
        use = (*_use("i1", case.data_seed), Invoke("i1"))
        ends = (Close("i1"), DestroyDelegate("d0"), Measure(like=1), Close("i0"))
        steps = (Measure(), *plain, Measure(), *target, *use, Measure(), *ends)
        return ScriptCase((case.graph,), steps)

    return cases.routing(facts).map(make)


def unspied(facts: DelegateFacts) -> Strategy:
    """Delegates are applied, with nothing of the suite's in between, while another thread of Python runs."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        busy = (Open("i1"), Allocate("i1"), SetInputs("i1", seed), Invoke("i1"), Close("i1"))
        ready = (Open("i0"), Apply("i0", "d0", spied=False), Allocate("i0"), *_use("i0", seed))
        branches = Parallel((ready, (Repeat(_TURNS, busy),)))
        return ScriptCase((case.graph,), (_target(facts, case), branches))

    return cases.routing(facts).map(make)


def _side_by_side(case: DelegateCase, opening: list[AnyScriptStep]) -> ScriptCase:
    branches = (_turns(name, case.data_seed + 16 * at) for at, name in enumerate(NAMES))
    return ScriptCase((case.graph,), (*opening, Parallel(tuple(branches))))


def _target(facts: DelegateFacts, case: DelegateCase) -> MakeDelegate:
    claim = next((one.claim for one in case.applications if one.who == "target"), None)
    return MakeDelegate("d0", claim=claim, position=case.data_seed // 8 % max(1, len(facts.delegates)))


def _ready(interpreter: str, delegate: str) -> Plain:
    return (Open(interpreter), Apply(interpreter, delegate), Allocate(interpreter))


def _turns(interpreter: str, seed: int) -> Plain:
    return tuple(step for turn in range(_TURNS) for step in _use(interpreter, seed + turn))


def _use(interpreter: str, seed: int) -> Plain:
    return (SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))
