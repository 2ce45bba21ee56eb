"""Steps of a script that contain steps, and the one that measures the process."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

from pytest_qnn.abi import libc
from pytest_qnn.cases.script import AnyScriptStep, Measure, Parallel, Repeat, flat
from pytest_qnn.run.observe import small_blocks_in_reserve, snapshot
from pytest_qnn.run.script_world import Handlers, Skip, World
from pytest_qnn.trace import ScriptSeen

_PATIENCE = 60.0
"""Seconds that a branch waits for the others to begin."""


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
    for time in range(step.times):
        where.round = time
        where.middle = 0 < time < step.times - 1
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


def _measure(world: World, step: Measure) -> ScriptSeen:  # noqa: ARG001 - the signature is a handler's
    if world.reserve is None:
        world.reserve = small_blocks_in_reserve()
    gc.collect()
    looked = snapshot()
    numbers = {
        "fds": looked.fds,
        "mappings": len(looked.lines),
        "threads": len(os.listdir("/proc/self/task")),
        "virtual": looked.virtual,
    }
    in_use = libc.malloc_in_use()
    if in_use is not None:
        numbers["malloc"] = in_use
    return ScriptSeen(numbers=numbers)


HANDLERS: Final[Handlers] = {Measure: _measure}
