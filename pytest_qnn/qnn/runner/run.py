"""The runner of memory cases: a `MemoryCase` in, a `MemoryTrace` out.

What a step leaves in its `StepSeen`, beside ``code`` (None where no QNN call was made), is said at its
handler, and for ``counts`` at their type in `pytest_qnn.qnn.trace`.

A handle or a pointer that a call did not write reads 0x5555555555555555 (`qnn_client.UNTOUCHED`).
Names: a name stands for the last object made under it, also after its
end (a stale value is passed on); ``NULL`` and ``BOGUS`` are always passed on; a step that needs an object
that was never made, or memory that the client may no longer touch, is skipped and says why. A step with
NULL or BOGUS in place of its context, graph or handles is carried out even where no session can be opened.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import time
from collections.abc import Callable
from types import ModuleType
from typing import Final

import msgspec

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import checked_heap
from pytest_qnn.isolation.host.checked_heap import CheckedHeap, Heap
from pytest_qnn.isolation.host.refusals import Lacking
from pytest_qnn.isolation.observe.control_words import Watch
from pytest_qnn.isolation.observe.process import large_blocks_visible, written_bytes
from pytest_qnn.qnn.cases.case import (
    AnyStep,
    Binding,
    CheckHeap,
    ContextCreate,
    Execute,
    MemoryCase,
    Observe,
    Parallel,
    Prepare,
    WholeSession,
)
from pytest_qnn.qnn.model.growth import FIRST_KEPT
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.runner import (
    asynchronous,
    binaries,
    buffers,
    graphs,
    pieces,
    plain,
    probes,
    registrations,
    sections,
)
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient
from pytest_qnn.qnn.runner.handlers import HANDLERS, handles
from pytest_qnn.qnn.runner.library import SYMBOL, QnnEntry
from pytest_qnn.qnn.runner.misuses import arguments
from pytest_qnn.qnn.runner.misuses import handles as handles_misused
from pytest_qnn.qnn.runner.probes import GIVEN_BACK, Found, grown
from pytest_qnn.qnn.runner.release import release
from pytest_qnn.qnn.runner.rpcmem import Rpcmem
from pytest_qnn.qnn.runner.series import executes, failed_allocations, histories, lived, logs, threads
from pytest_qnn.qnn.runner.state import Executed, NeverMade, Skip, State
from pytest_qnn.qnn.trace import FirstCounts, GrowthCounts, MemoryTrace, StepSeen

MODULES: Final[tuple[ModuleType, ...]] = (
    *(arguments, asynchronous, binaries, buffers, failed_allocations, graphs, handles_misused, lived, logs),
    *(executes, pieces, probes, registrations, sections, threads),
)
"""The modules whose handlers are entered by their import."""


def run_memory_case(
    case: MemoryCase,
    entry: QnnEntry,
    rpcmem: Rpcmem,
    on_step: Callable[[int], None] | None = None,
    refused: tuple[tuple[str, int], ...] = (),
) -> MemoryTrace:
    """Carry out a case in this process. Whatever the target does that can be survived is in the trace.

    The trace's plain runs are named, and not carried out yet: they need a session that the case has not
    touched.

    ``on_step(i)`` is called before step ``i``, and once more before what is left is given back. ``refused``:
    see `Session.refuse`. Everything the case made is given back at the end, unless the case ends the process:
    whoever carries such a case out ends the process next.
    """
    if any(map(_looks_at_memory, case.steps)):
        with large_blocks_visible():
            return _run_memory_case(case, entry, rpcmem, on_step, refused)
    return _run_memory_case(case, entry, rpcmem, on_step, refused)


def _run_memory_case(
    case: MemoryCase,
    entry: QnnEntry,
    rpcmem: Rpcmem,
    on_step: Callable[[int], None] | None,
    refused: tuple[tuple[str, int], ...],
) -> MemoryTrace:
    watch = Watch(entry.path, entry.system)
    state = State(QnnClient(entry, watch), rpcmem)
    watch.look(SYMBOL)
    if refused:
        state.session.refuse(refused)
    seen: list[StepSeen] = []
    differing: list[list[Executed]] = []
    try:
        for index, step in enumerate(case.steps):
            if on_step is not None:
                on_step(index)
            watch.step = index
            seen.append(carry_out(state, step))
            differing.append(_differing(state))
        if on_step is not None and not (case.ends or case.killed):
            on_step(len(case.steps))  # what the case left is given back: a death in it is of no step
    finally:
        watch.step = len(case.steps)
        with state.checked:
            closing = _leave(state) if case.ends or case.killed else release(state)
    return MemoryTrace(
        session=tuple(state.session.codes),
        steps=tuple(seen),
        closing=tuple(closing),
        plain=plain.wanted(case, seen, differing),
        control_words=watch.changes,
        heap=checked_heap.seen() if any(isinstance(step, CheckHeap) for step in case.steps) else (0, 0),
    )


def _looks_at_memory(step: AnyStep) -> bool:
    return (isinstance(step, Observe) and bool(step.region)) or (isinstance(step, Execute) and step.measured)


def _differing(state: State) -> list[Executed]:
    """The executes of the last step that did not give what the suite's own arithmetic gives."""
    found = [each for each in state.executed if plain.differs(each)]
    for each in found:
        for data in each.inputs:
            state.keep(data)
    state.executed.clear()
    return found


def carry_out(state: State, step: AnyStep) -> StepSeen:
    """Carry out one step of a case under way."""
    try:
        return HANDLERS[type(step)](state, step)
    except Skip as reason:
        return StepSeen(skipped=str(reason), lacking=isinstance(reason, NeverMade))
    except NullFunction as reason:
        return StepSeen(skipped=str(reason), absent=reason.function)


@handles(Parallel)
def _parallel(state: State, step: Parallel) -> StepSeen:
    if step.what == "histories":
        return histories.histories(state, step)
    return logs.logs(state, step) if step.what == "logs" else threads.parallel(state, step)


@handles(CheckHeap)
def _check_heap(state: State, _: CheckHeap) -> StepSeen:
    """What was requested is counted when the case is over (`MemoryTrace.heap`)."""
    try:
        state.checked.enter_context(_heap_of(state.client.entry.owner).during())
    except Lacking as lacking:
        raise Skip(str(lacking)) from None
    return StepSeen()


def _heap_of(owner: object) -> Heap:
    """What a target requests. Raises Lacking where nobody can check it."""
    if isinstance(owner, ReferenceBackend):
        return owner.heap
    if not isinstance(owner, ctypes.CDLL):
        raise Lacking("nothing here can check what this target requests")
    if call_log.active() is None:
        raise Lacking(
            "a heap is checked in a process of its own only (not so: --qnn-sandbox=off, --qnn-debug)"
        )
    return CheckedHeap(owner, owner._name)


@handles(Execute)
def _execute(state: State, step: Execute) -> StepSeen:
    return asynchronous.execute(state, step) if step.asynchronous else graphs.execute(state, step)


@handles(WholeSession)
def _whole_session(state: State, step: WholeSession) -> StepSeen:
    """``calls``: the first call of a session that failed, which is ``code`` as well; else that is 0."""
    if state.session.opened:
        raise Skip("the session is open already")
    if step.first:
        return _first_session(state, step)
    small = functools.partial(_once, state, msgspec.structs.replace(step, shape=(1,)))
    large = functools.partial(_once, state, step)
    found, first, second = small(), GrowthCounts(), GrowthCounts()
    if found is None:
        found, first = grown(large, 1)
    # An allocator keeps pages of the first large session for the next one, and a library may make something
    # once for graphs of this size: it is compared again when it has had one, and what was kept of that is
    # replaced by what is kept of a small one.
    found = found or small()
    if found is None:
        found, second = grown(large, 1)
    if found is not None:
        return StepSeen(code=found[1], calls=(found,))
    heap = min(first.heap, second.heap)
    return StepSeen(code=0, counts=msgspec.structs.replace(first, rss=second.rss, heap=heap))


def _once(state: State, step: WholeSession) -> Found | None:
    """`_session`, and what the client itself has freed is given back to the system."""
    found = _session(state, step)
    libc.trim()
    return found


def _first_session(state: State, step: WholeSession) -> StepSeen:
    """What the process has written to before, in and behind its first session.

    The interface is taken before: what the client itself needs for that is not the backend's.
    """
    assert state.client.interface is not None
    before = _written()
    if before is None:
        raise Skip("the system does not say what memory was written to")
    executed = []
    found = _session(state, step, lambda: executed.append(_written()))
    if found is not None:
        return StepSeen(code=found[1], calls=(found,))
    taken = (executed[0] or 0) - before
    end = time.monotonic() + GIVEN_BACK
    while (left := (_written() or 0) - before) > FIRST_KEPT and time.monotonic() < end:
        time.sleep(_PAUSE)
    return StepSeen(code=0, counts=FirstCounts(taken=taken, left=left))


_PAUSE = 0.02
"""Seconds between two looks."""


def _written() -> int | None:
    """Bytes that this process has written to, without what is free in malloc and in Python."""
    gc.collect()
    libc.trim()
    return written_bytes()


def _session(state: State, step: WholeSession, executed: Callable[[], None] = lambda: None) -> Found | None:
    """A session of its own; the first call that fails in it. ``executed``: is called behind the execute."""
    own = State(state.client, state.rpcmem)
    steps = (
        ContextCreate("c"),
        Prepare("g", "c", step.op, step.dtype, step.shape, weights=1),
        Execute("g", (Binding(), Binding())),
    )
    found: Found | None = None
    try:
        for each in steps:
            seen = carry_out(own, each)
            if seen.skipped:
                raise Skip(seen.skipped)
            if seen.code:
                found = seen.calls[-1] if seen.calls else (_ONE_CALL[type(each)], seen.code)
                break
        else:
            executed()
    finally:
        closing = release(own)
    return found or next((each for each in closing if each[1]), None)


_ONE_CALL: Final = {ContextCreate: "contextCreate", Execute: "graphExecute"}


_LEFT: list[State] = []
"""What cases that end their process leave alive."""


def _leave(state: State) -> list[tuple[str, int]]:
    _LEFT.append(state)
    return []
