"""Steps of a script that contain steps, and the one that measures the process."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe import small_blocks_in_reserve, snapshot, threads
from pytest_qnn.tflite.cases.script import AnyScriptStep, Measure, Parallel, Repeat, flat
from pytest_qnn.tflite.runner.world import Handlers, Skip, World
from pytest_qnn.tflite.trace import ScriptSeen

_PATIENCE = 60.0
"""Seconds that a branch waits for the others to begin."""
_TO_END = 1.0
"""Seconds for threads to end, once a delegate has told them to; how often they are looked for meanwhile."""
_PAUSE = 0.002


def perform(world: World, handlers: Handlers, number: int, step: AnyScriptStep) -> None:
    """Carry out one step and record what it gave."""
    world.begin(number)
    if isinstance(step, Repeat):
        seen = _repeat(world, handlers, number, step)
    elif isinstance(step, Parallel):
        seen = _parallel(world, handlers, number, step)
    else:
        try:
            seen = handlers[type(step)](world, step)
        except Skip as reason:
            seen = ScriptSeen(ok=False, skipped=str(reason))
    world.record(number, seen)


def numbered(steps: Iterable[AnyScriptStep], first: int) -> list[tuple[int, AnyScriptStep]]:
    """Steps that stand side by side with their numbers; ``first`` is that of the first one."""
    found = []
    for step in steps:
        found.append((first, step))
        first += len(flat((step,)))
    return found


def _repeat(world: World, handlers: Handlers, number: int, step: Repeat) -> ScriptSeen:
    where = world.where
    outer = where.counts
    counts: Counter[str] = Counter()
    where.counts = counts
    for turn in range(step.times):
        where.round = turn
        where.middle = 0 < turn < step.times - 1
        for inner, inside in numbered(step.steps, number + 1):
            perform(world, handlers, inner, inside)
    where.round, where.middle, where.counts = 0, False, outer
    where.number = number
    return ScriptSeen(numbers=dict(counts))


def _parallel(world: World, handlers: Handlers, number: int, step: Parallel) -> ScriptSeen:
    barrier = threading.Barrier(len(step.branches))
    names = [frozenset(getattr(inner, "interpreter", "") for inner in flat(b)) - {""} for b in step.branches]
    totals: Counter[str] = Counter()
    failures: list[BaseException] = []

    def run(branch: int, first: int) -> None:
        where = world.where
        counts: Counter[str] = Counter()
        where.counts = counts
        where.alone = frozenset().union(*(other for at, other in enumerate(names) if at < branch))
        try:
            barrier.wait(_PATIENCE)
            for inner, inside in numbered(step.branches[branch], first):
                perform(world, handlers, inner, inside)
        except BaseException as error:
            failures.append(error)
            barrier.abort()
        totals.update(counts)

    threads = []
    first = number + 1
    for branch, steps in enumerate(step.branches):
        threads.append(threading.Thread(target=run, args=(branch, first)))
        first += len(flat(steps))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return ScriptSeen(numbers=dict(totals))


def _measure(world: World, step: Measure) -> ScriptSeen:
    if world.reserve is None:
        world.reserve = small_blocks_in_reserve()
    gc.collect()
    count = _threads(world, step)
    looked = snapshot()
    numbers = {
        "fds": looked.fds,
        "mappings": len(looked.lines),
        "threads": count,
        "virtual": looked.virtual,
    }
    in_use = libc.malloc_in_use()
    if in_use is not None:
        numbers["malloc"] = in_use
    return ScriptSeen(numbers=numbers)


def _threads(world: World, step: Measure) -> int:
    """How many threads there are, once they have had their time to end."""
    until = time.monotonic() + _TO_END
    if 0 <= step.like < len(world.threads):
        while threads() > world.threads[step.like] and time.monotonic() < until:
            time.sleep(_PAUSE)
    world.threads.append(threads())
    return world.threads[-1]


HANDLERS: Final[Handlers] = {Measure: _measure}
