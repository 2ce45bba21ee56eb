"""What rules about leaks share: what is left of equal cycles, repetition by repetition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pytest_qnn.core.verdict import Measured, Unsupported
from pytest_qnn.tflite.cases.script import AnyScriptStep, Measure, Repeat, ScriptCase
from pytest_qnn.tflite.checks import scripts
from pytest_qnn.tflite.strategies.lifetimes import FEW, LEAST, REPETITIONS, Key
from pytest_qnn.tflite.trace import InterpreterSeen, MeasureCounts, ScriptTrace

_MEASURES = 2 * REPETITIONS + 1
_LENGTH = 2 * _MEASURES + 1
"""Repeat and Measure steps of one half: two before the first measurement, one before each other."""
_LEAST_PAGES = 2 * 4096
"""Bytes: one page more may be where an allocator's last block happened to end."""
_LEAST_PAIRS = 2
"""Pairs of repetitions that must leave a page: a small leak does not fill one in each."""
LEAST_TIMES = 12
"""Cycles in a long repetition of which a leak can still be told from what the suite's own blocks vary by."""
_SPREAD: dict[Key, float] = {"malloc": 1 / 2}
"""How far apart the numbers of a small leak may lie, as a part of the smallest; of other keys a sixth.

glibc gives a block away whole rather than leave a rest of less than 32 bytes: one of 32 may take 48.
"""
WORDS: dict[Key, str] = {
    "malloc": "bytes of malloc's",
    "fds": "descriptors",
    "threads": "threads",
    "mappings": "mappings",
    "virtual": "bytes of address space",
}


def nothing_left(case: ScriptCase, trace: ScriptTrace, keys: tuple[Key, ...], per: str) -> int:
    """Judge the measurements: how many cycles they are of; 0 where they are not as the strategies ask for.

    Of a delegate that lives in memory of an allocator of its own, the pages of such memory count beside
    malloc's bytes. Where all of them are present from the beginning, nothing can be measured: 0, too.

    A leak is what many cycles leave more than a few do, in every pair of repetitions about the same, and
    what is still there when all of them are over: a cache that fills, a table that grows, or memory that
    comes and goes, is none. What a probe in the delegate's place leaves behind, the runtime or the suite
    leaves.

    Args:
        case: with repetitions of few and of many cycles of the target, then of the probe.
        trace: of it.
        keys: fields of `MeasureCounts`.
        per: what a cycle is.

    Raises:
        Unsupported: a number cannot be measured here.
        Measured: as much is left in each pair of repetitions as if every cycle left something.
    """
    times = _times(case)
    if not times:
        return 0
    found = scripts.measured(case, trace)
    if not found:
        return 0
    if "malloc" in keys and found[0].arena is not None:
        if found[0].full:
            return 0
        _nothing_left_of_an_arena(found, (times + FEW) * REPETITIONS, per)
    for key in keys:
        values: list[int] = [getattr(counts, key) for counts in found]
        if None in values:
            raise Unsupported("malloc cannot be asked what it has given out (mallinfo2 of glibc 2.33)")
        if len(found) < _MEASURES:  # the first pair of repetitions has left too little for a finding
            continue
        # Without a probe nothing was kept that could be compared with what it keeps (`lifetimes.compared`).
        target, probe = surplus(values[:_MEASURES]), surplus(values[_MEASURES:])
        least = LEAST[key] * (times - FEW)
        left = is_left(values[:_MEASURES])
        if probe and left and regular(key, target, least) and min(target) - max(0, min(probe)) >= least:
            raise Measured(
                f"as many {WORDS[key]} in use after {per} as before it",
                more(key, target, times - FEW),
                f"a probe in its place leaves {', '.join(map(str, probe))}",
            )
    return times * (REPETITIONS if len(found) >= _MEASURES else 1)


def more(key: Key, left: list[int], further: int) -> str:
    """What each pair of repetitions leaves, in words.

    Args:
        key: what was counted.
        left: by the long repetition of each pair more than by the short one before it.
        further: how many cycles the long one has more.
    """
    return f"{', '.join(map(str, left))} more {WORDS[key]}, each after {further} further repetitions"


def _nothing_left_of_an_arena(found: list[MeasureCounts], cycles: int, per: str) -> None:
    """Judge the pages of an allocator of the target's own, whose numbers go up by whole pages now and then.

    Args:
        found: all measurements.
        cycles: of the target, in all repetitions.
        per: what a cycle is.

    Raises:
        Measured: as much is left as if every cycle left something.
    """
    values = [counts.arena or 0 for counts in found]
    target, probe = _growth(values[:_MEASURES]), _growth(values[_MEASURES:])
    left = sum(target) - max(0, sum(probe))
    often = sum(grown > 0 for grown in target) >= _LEAST_PAIRS
    if often and left >= max(_LEAST_PAGES, LEAST["malloc"] * cycles):
        raise Measured(
            f"as many resident bytes of the target's own allocator after {per} as before it",
            f"{', '.join(map(str, target))} more bytes, each after {cycles // REPETITIONS} repetitions",
            f"a probe in its place leaves {', '.join(map(str, probe))}",
        )


def pages_left(grown: Sequence[int], cycles: int, each: int) -> bool:
    """Whether an allocator of the target's own keeps pages of equal parts, most of which have to leave some.

    Args:
        grown: by how many resident bytes it has more after each part than before it.
        cycles: in all parts.
        each: bytes that a cycle leaves at least, if it leaves something.
    """
    often = sum(part > 0 for part in grown) >= _LEAST_PAIRS
    return often and sum(grown) >= max(_LEAST_PAGES, each * cycles)


def _growth(values: list[int]) -> list[int]:
    """What each pair of repetitions leaves, the short one and the long one together."""
    return [after - before for before, after in pairwise(values[::2])]


def _times(case: ScriptCase) -> int:
    """Cycles of each long repetition; 0 where not all repetitions are there and alike: in a reduced case."""
    halves: list[list[AnyScriptStep]] = [[]]
    for step in case.steps:
        if isinstance(step, Measure | Repeat):
            halves[-1].append(step)
        if len(halves[-1]) == _LENGTH:
            halves.append([])
    times = max((step.times for step in case.steps if isinstance(step, Repeat)), default=0)
    whole = len(halves) == 3 and not halves[2] and all(_is_half(half, times) for half in halves[:2])
    return times if whole and times >= LEAST_TIMES else 0


def _is_half(steps: list[AnyScriptStep], times: int) -> bool:
    repeats = [step for step in steps if isinstance(step, Repeat)]
    kinds = [isinstance(step, Repeat) for step in steps]
    return (
        kinds == [True, *([True, False] * (_MEASURES))]
        and [step.times for step in repeats] == [FEW, times] * (REPETITIONS + 1)
        and len({step.steps for step in repeats}) == 1
    )


def surplus(values: list[int]) -> list[int]:
    """What each long repetition leaves more than the short one before it."""
    grown = [after - before for before, after in pairwise(values)]
    return [many - few for few, many in zip(grown[::2], grown[1::2], strict=True)]


def is_left(values: list[int]) -> bool:
    """Whether most of what long repetitions leave is there after the last: short ones did not free it."""
    return values[-1] - values[0] >= sum(surplus(values)) / 2


def regular(key: Key, more: list[int], least: int) -> bool:
    """Whether the numbers are about the same: what Python and malloc's caches keep at a time is not.

    Those caches hold a few thousand bytes, which weigh less the more there is.
    """
    spread, smallest = max(more) - min(more), min(more)
    return spread <= smallest * _SPREAD.get(key, 1 / 6) or (smallest >= 2 * least and spread <= smallest)


def target_worked(trace: ScriptTrace) -> list[InterpreterSeen]:
    """Interpreters in which kernels of the target were made, and nothing was refused."""
    return [
        seen
        for seen in trace.interpreters
        if all(applied.ok for applied in seen.applied)
        and any(seen.applied[kernel.application].is_target for kernel in seen.kernels)
    ]
