"""Scripts that measure what is left of delegates and interpreters: parts that several areas use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec
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
    Kept,
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
Key = Literal["malloc", "fds", "threads", "mappings", "virtual"]
"""A field of `MeasureCounts`."""
KEYS: tuple[Key, ...] = get_args(Key)
LEAST: dict[Key, int] = {"malloc": 16, "fds": 1, "threads": 1, "mappings": 1, "virtual": 4096}
"""The least that one thing leaves behind, which of malloc's is half a block.

glibc gives out no block of less than 32 bytes, header included. What the suite's own blocks take more or less
moves the numbers of 38 cycles by up to 80 bytes: 1,216 of the smallest leak may be seen as 1,200.
"""


def cycles(
    *names: str, scaled: Sequence[str] = (), keys: Sequence[Key] = KEYS
) -> Callable[[DelegateFacts], Strategy]:
    """A delegate is made, applied to an interpreter of each name, used and destroyed, again and again.

    ``scaled``: classes of `pytest_qnn.tflite.graph.scales` that graphs may be in. ``keys``: what the rule
    looks at.
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

            return measured_script(facts, case, cycle, keys)

        return changed(delegates.routing(facts, scaled=scaled), make)

    return factory


def measured_script(
    facts: DelegateFacts,
    case: DelegateCase,
    cycle: Callable[[MakeDelegate], Plain],
    keys: Sequence[Key] = KEYS,
) -> ScriptCase:
    """Repetitions of cycles of the target, then of the probe, with a measurement after each."""
    target = repetitions(cycle(make_target(facts, case)), CYCLES, keys)
    probe = compared(repetitions(cycle(make_probe(case)), CYCLES), keys)
    return ScriptCase((case.graph,), (*target, *probe))


def repetitions(cycle: Plain, times: int, keys: Sequence[Key] = KEYS) -> tuple[AnyScriptStep, ...]:
    """Repetitions of few and of so many cycles by turns, each measured, as `rules.leaks` compares them.

    The first pair decides whether there are more: for a finding about ``keys`` each must leave so much. Of an
    allocator of the target's own only some must, so that there all are carried out.
    """
    looked = Measure(waits=True)
    few, many = Repeat(FEW, cycle), Repeat(times, cycle)
    pair: tuple[Repeat | Measure, ...] = (few, looked, many, looked)
    kept = msgspec.structs.replace(_least(keys), pair=True)
    further = tuple(msgspec.structs.replace(step, where_kept=kept) for step in pair)
    return (few, many, looked, *pair, *(further * (REPETITIONS - 1)))


def compared(steps: Sequence[AnyScriptStep], keys: Sequence[Key] = KEYS) -> tuple[AnyScriptStep, ...]:
    """Repetitions of the probe's, carried out only where a rule about ``keys`` has something to compare.

    For a finding each of three pairs of repetitions leaves the least of a cycle, times - FEW times, and half
    of the sum is there in the end (`checks.leaks`): more than the least, times times, from 6 cycles on. Where
    a target has not grown by as much, no probe matters.
    """
    arena = LEAST["malloc"] if "malloc" in keys else 0
    kept = msgspec.structs.replace(_least(keys), arena=arena)
    return tuple(
        msgspec.structs.replace(step, where_kept=kept) if isinstance(step, Measure | Repeat) else step
        for step in steps
    )


def _least(keys: Sequence[Key]) -> Kept:
    numbers: dict[str, Any] = {key: LEAST[key] for key in keys}
    return Kept(**numbers)


def make_target(facts: DelegateFacts, case: DelegateCase) -> MakeDelegate:
    """One delegate of the chain, by turns."""
    position = case.data_seed // 8 % max(1, len(facts.delegates))
    return MakeDelegate("d0", claim=_claim(case), position=position)


def make_probe(case: DelegateCase) -> MakeDelegate:
    """The suite's own delegate, with the claim of the case's target."""
    return MakeDelegate("p0", "probe", claim=_claim(case))


def _claim(case: DelegateCase) -> tuple[int, ...] | None:
    return next((one.claim for one in case.applications if one.who == "target"), None)
