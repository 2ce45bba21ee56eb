"""Carries out a case on the suite's own reference, and has its calls written down."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final

from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality
from pytest_qnn.qnn.reproduce.arguments import arguments_of
from pytest_qnn.qnn.reproduce.client_steps import BEHIND, NOT_WRITTEN, executes, repeated, whole_session
from pytest_qnn.qnn.reproduce.recorder import Recorder
from pytest_qnn.qnn.reproduce.refused.life import refused
from pytest_qnn.qnn.reproduce.spy import SpyInterface, SpyRpcmem
from pytest_qnn.qnn.reproduce.text import NotWritten
from pytest_qnn.qnn.runner.client import QnnClient
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.processes import run_in_processes, several_processes
from pytest_qnn.qnn.runner.release import release
from pytest_qnn.qnn.runner.run import carry_out
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

MOST_SECONDS: Final = 2.0
"""Of processor time, after which a case is not carried out any further: that is no small program."""
Seen = Callable[[int, StepSeen], None]


def recorded(
    given: case.MemoryCase,
    recorder: Recorder,
    on_seen: Seen | None = None,
    personality: Personality = DEFAULT,
) -> MemoryTrace:
    """Carry out the case; ``on_seen(i, seen)`` is called behind the statements of step ``i``.

    Raises:
        NotWritten: a step is none that is written, or takes too long.
    """
    for step in given.steps:
        if type(step) in NOT_WRITTEN:
            raise NotWritten(NOT_WRITTEN[type(step)])
    run = _Run(given, recorder, on_seen, personality)
    if several_processes(given):
        recorder.processes.several = True
        return run_in_processes(given, run.part, run.part)
    return run.part(given)


class _Run:
    """A case that is carried out on a reference, each part of it on one of its own, as in its own process."""

    def __init__(
        self, given: case.MemoryCase, recorder: Recorder, on_seen: Seen | None, personality: Personality
    ) -> None:
        self._given, self._recorder, self._on_seen = given, recorder, on_seen
        self._personality = personality
        self._next = 0
        """The number of the case's next step."""
        self._ends = time.process_time() + MOST_SECONDS

    def part(self, own: case.MemoryCase) -> MemoryTrace:
        """The steps of one process; those of a later one begin with what it takes over."""
        backend = ReferenceBackend(self._personality)
        rpcmem = SpyRpcmem(self._recorder)
        self._recorder.quiet = False
        with closing(backend), closing(rpcmem):
            spy = SpyInterface(backend, self._recorder)
            try:
                return self._carried_out(own, State(_client(spy, backend), rpcmem), spy)
            finally:
                self._recorder.quiet = True

    def _carried_out(self, own: case.MemoryCase, state: State, spy: SpyInterface) -> MemoryTrace:
        recorder = self._recorder
        recorder.state, recorder.write = state, arguments_of
        state.round_begins, state.recorded = recorder.threads.begins, True
        later = bool(recorder.processes.starts)
        own_ones = (at for at, step in enumerate(own.steps) if not isinstance(step, case.Carry))
        carried = next(own_ones, len(own.steps)) if later else 0
        steps = [self._step(step, state, spy) for step in own.steps[:carried]]
        if later:
            recorder.processes.ready()
            self._tell(StepSeen())
        for step in own.steps[carried:]:
            recorder.begin(self._next, step)
            steps.append(self._step(step, state, spy))
            self._tell(steps[-1])
        return self._ended(own, state, spy, steps)

    def _step(self, step: case.AnyStep, state: State, spy: SpyInterface) -> StepSeen:
        recorder = self._recorder
        if isinstance(step, case.Churn):
            seen = repeated(recorder, step, state)
        elif isinstance(step, case.Executes):
            seen = executes(recorder, step, state)
        elif isinstance(step, case.WholeSession):
            seen = whole_session(recorder, step, state)
        elif isinstance(step, case.FailedAllocation):
            seen = refused(recorder, step, state, _behind)
        else:
            seen = carry_out(state, step)
        if spy.failure is not None:
            raise spy.failure
        if not seen.skipped:
            _behind(recorder, step, state, seen)
        if time.process_time() > self._ends:
            raise NotWritten(f"the case takes more than {MOST_SECONDS:g} s")
        return seen

    def _tell(self, seen: StepSeen) -> None:
        if self._on_seen is not None:
            self._on_seen(self._next, seen)
        self._next += 1

    def _ended(
        self, own: case.MemoryCase, state: State, spy: SpyInterface, steps: list[StepSeen]
    ) -> MemoryTrace:
        closed: list[tuple[str, int]] = []

        def close() -> None:
            if not own.ends and not own.killed:
                closed.extend(release(state))

        given = self._given.steps
        if self._next < len(given):
            self._recorder.processes.next(self._next, given[self._next], close)
        else:
            self._recorder.begin(len(given), None)
            close()
        if spy.failure is not None:
            raise spy.failure
        return MemoryTrace(session=tuple(state.session.codes), steps=tuple(steps), closing=tuple(closed))


def _behind(recorder: Recorder, step: case.AnyStep, state: State, seen: StepSeen) -> None:
    if type(step) in BEHIND:
        BEHIND[type(step)](recorder, step, state, seen)


def _client(spy: SpyInterface, backend: ReferenceBackend) -> QnnClient:
    return QnnClient(QnnEntry(spy.get_providers, backend, "reference"))


def answers(keys: Collection[int], personality: Personality = DEFAULT) -> dict[int, int]:
    """What a reference says to property keys: the low 16 bits of each answer."""
    return dict(_answers(tuple(keys), personality))


@functools.lru_cache(maxsize=128)
def _answers(keys: tuple[int, ...], personality: Personality) -> dict[int, int]:
    """Of all personalities, for each finding: they are asked once in a process."""
    with closing(ReferenceBackend(personality)) as backend:
        client = QnnClient(QnnEntry(backend.get_providers, backend, "reference"))
        return {key: client.call("propertyHasCapability", key) & 0xFFFF for key in keys}
