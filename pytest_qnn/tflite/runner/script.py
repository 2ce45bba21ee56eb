"""Carry out a ScriptCase on a runtime with a chain of delegates, and write down what was seen.

Steps that hold steps (Repeat, Parallel) are here, and the one that measures the process.
"""

from __future__ import annotations

import functools
import gc
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from pytest_qnn.isolation.observe.process import malloc_in_use, small_blocks_in_reserve, snapshot, threads
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Parallel,
    PassToConstructor,
    Place,
    Read,
    RemoveAll,
    Repeat,
    ScriptCase,
    SetInputs,
    Unallocate,
    Unload,
    flat,
)
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.observe.handles import CallbackTally
from pytest_qnn.tflite.observe.stderr import capture_stderr
from pytest_qnn.tflite.runner import custom_memory, delegate_steps, interpreter_steps, samples, tensor_memory
from pytest_qnn.tflite.runner.delegate_steps import refusing
from pytest_qnn.tflite.runner.delegates import DelegateFactory
from pytest_qnn.tflite.runner.history import Past
from pytest_qnn.tflite.runner.world import Chain, Handlers, OnStep, Skip, World
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.trace import MeasureCounts, ScriptSeen, ScriptTrace

_PATIENCE = 60.0
"""Seconds that a branch waits for the others to begin."""
_TO_END = 1.0
"""Seconds for threads to end, once their delegate has ended them; how often they are looked for meanwhile."""
_PAUSE = 0.002
_PAUSE_TO_WAIT = 0.02
_MOST_VAIN = 2
"""Times that nothing was given back in the end, after which a script does not wait any more."""
# Module-level, so that nothing of them is collected, and destroyed, before exit(3).
_LEFT: list[World] = []
"""What scripts leave alive that end their process, or that an exception of C++ has passed through."""


def run_script_case(
    case: ScriptCase,
    chain: Chain,
    runtime: Runtime,
    remake: Callable[[int, Mapping[str, str]], DelegateFactory],
    on_step: OnStep | None = None,
) -> ScriptTrace:
    """Carry out the steps in order; then destroy what is left, whatever happened.

    Nothing is destroyed for a case that ends the process: the caller ends the process next.

    ``chain`` is the target: its delegates in order of precedence. ``remake`` makes a factory for one of
    them with further options. ``on_step`` is called with the number of the step that begins.

    Raises:
        ValueError: the runtime refuses a model.
        RuntimeError: the spy itself went wrong.
    """
    claims = (step.claim for step in flat(case.steps) if isinstance(step, MakeDelegate))
    past = Past(case.history, case.graphs[0], next(claims, None), chain, runtime)
    if _can_be_repeated(case):
        past.repeat(lambda: _once(World(case, chain, runtime, remake, None)))
    world = World(case, chain, runtime, remake, on_step)
    world.before_invoke = past.turn
    world.before_unload = past.end
    try:
        with capture_stderr(case) as world.stderr:
            for number, step in numbered(case.steps, 0):
                perform(world, number, step)
    finally:
        if case.ends or world.thrown:
            _LEFT.append(world)
        else:
            world.end()
            past.end()
    for error in world.errors:
        if not isinstance(error, Exception):
            raise error  # an interrupt, not a failure
        raise RuntimeError("the spy failed") from error
    return msgspec.structs.replace(world.trace(), past=past.error)


_ONCE: Final = (Repeat, Parallel, Measure, Unload, PassToConstructor)
"""Steps of scripts that are not repeated."""


def _can_be_repeated(case: ScriptCase) -> bool:
    return not case.ends and not any(isinstance(step, _ONCE) for step in case.steps)


def _once(world: World) -> None:
    """Carry out all steps in a world of their own, and destroy what is left."""
    try:
        for number, step in numbered(world.case.steps, 0):
            perform(world, number, step)
    finally:
        world.end()


def perform(world: World, number: int, step: AnyScriptStep) -> None:
    """Carry out one step and record what it gave; nothing of one for which too little was kept."""
    world.begin(number)
    if isinstance(step, Repeat | Measure) and step.where_kept and not world.keeps(step.where_kept):
        return
    if isinstance(step, Repeat):
        seen = _repeat(world, number, step)
    elif isinstance(step, Parallel):
        seen = _parallel(world, number, step)
    else:
        if isinstance(step, Invoke) and world.where.alone is None:
            world.before_invoke()
        if world.pending is None:
            seen = _carried_out(world, step)
        else:
            seen = refusing(world, step, functools.partial(_carried_out, world, step))
    world.record(number, seen)


def _carried_out(world: World, step: AnyScriptStep) -> ScriptSeen:
    try:
        if world.thrown:
            raise Skip("an exception of C++ has passed the runtime before")
        return HANDLERS[type(step)](world, step)
    except Skip as reason:
        return ScriptSeen(ok=False, skipped=str(reason))


def numbered(steps: Iterable[AnyScriptStep], first: int) -> list[tuple[int, AnyScriptStep]]:
    """Steps that stand side by side with their numbers; ``first`` is that of the first one."""
    found = []
    for step in steps:
        found.append((first, step))
        first += len(flat((step,)))
    return found


def _repeat(world: World, number: int, step: Repeat) -> ScriptSeen:
    where = world.where
    outer = where.counts
    counts = CallbackTally()
    where.counts = counts
    world.longest = max(world.longest, step.times)
    world.shortest = min(world.shortest or step.times, step.times)
    for turn in range(step.times):
        where.round = turn
        where.middle = 0 < turn < step.times - 1
        for inner, inside in numbered(step.steps, number + 1):
            perform(world, inner, inside)
    where.round, where.middle, where.counts = 0, False, outer
    where.number = number
    return ScriptSeen(counts=counts.seen())


def _parallel(world: World, number: int, step: Parallel) -> ScriptSeen:
    barrier = threading.Barrier(len(step.branches))
    names = [frozenset(named(inner, "interpreter") for inner in flat(b)) - {""} for b in step.branches]
    totals = CallbackTally()
    failures: list[BaseException] = []

    def run(branch: int, first: int) -> None:
        where = world.where
        counts = CallbackTally()
        where.counts = counts
        where.alone = frozenset().union(*(other for at, other in enumerate(names) if at < branch))
        try:
            barrier.wait(_PATIENCE)
            for inner, inside in numbered(step.branches[branch], first):
                perform(world, inner, inside)
        except BaseException as error:
            failures.append(error)
            barrier.abort()
        totals.join(counts)

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
    return ScriptSeen(counts=totals.seen())


def _measure(world: World, step: Measure) -> ScriptSeen:
    if world.reserve is None:
        world.reserve = small_blocks_in_reserve()
    gc.collect()
    counts, until = _counted(world, _threads(world, step)), time.monotonic() + _TO_END
    while step.waits and world.measured and world.vain < _MOST_VAIN:
        if not _has_grown(world.measured[-1], counts):
            break
        if time.monotonic() > until:
            world.vain += 1
            break
        time.sleep(_PAUSE_TO_WAIT)
        counts = _counted(world, threads())
    world.measured.append(counts)
    return ScriptSeen(counts=counts)


def _counted(world: World, count: int) -> MeasureCounts:
    looked = snapshot()
    counts = MeasureCounts(looked.fds, len(looked.lines), count, looked.virtual, malloc_in_use())
    own = world.allocator
    if own is None:
        return counts
    return msgspec.structs.replace(counts, arena=own.resident(looked.lines), full=own.full)


def _has_grown(before: MeasureCounts, now: MeasureCounts) -> bool:
    """Whether there is something to wait for: threads and descriptors, which only a target's own work adds.

    Memory grows a little in most scripts: to wait for it took 45 to 70 s in each leak rule on the reference.
    """
    return now.threads > before.threads or now.fds > before.fds


def _threads(world: World, step: Measure) -> int:
    """How many threads there are, once they have had their time to end."""
    until = time.monotonic() + _TO_END
    if 0 <= step.like < len(world.threads):
        while threads() > world.threads[step.like] and time.monotonic() < until:
            time.sleep(_PAUSE)
    world.threads.append(threads())
    return world.threads[-1]


def warm_up_script(graph: Graph) -> ScriptCase:
    """A script that makes all that later ones find made: symbols looked up, handlers imported and run."""
    steps = (
        MakeDelegate("d", "probe"),
        Open("i"),
        Place("i", graph.inputs[0]),
        Unallocate("i"),
        Apply("i", "d"),
        Allocate("i"),
        SetInputs("i"),
        Invoke("i"),
        Read("i"),
        RemoveAll("i"),
        Close("i"),
        Measure(),
    )
    return ScriptCase((graph,), steps)


GROUPS: Final[tuple[Handlers, ...]] = (
    interpreter_steps.HANDLERS,
    delegate_steps.HANDLERS,
    tensor_memory.HANDLERS,
    custom_memory.HANDLERS,
    samples.HANDLERS,
    {Measure: _measure},
)
HANDLERS: Final[Handlers] = {kind: handler for group in GROUPS for kind, handler in group.items()}
"""By type of step: what carries it out. `tests/tflite/runner/test_handlers.py` names a step without one."""
