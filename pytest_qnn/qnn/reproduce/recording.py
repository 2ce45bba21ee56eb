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
from pytest_qnn.qnn.reproduce.client_steps import BEHIND, NOT_WRITTEN, repeated
from pytest_qnn.qnn.reproduce.recorder import Recorder
from pytest_qnn.qnn.reproduce.spy import SpyInterface, SpyRpcmem
from pytest_qnn.qnn.reproduce.text import NotWritten
from pytest_qnn.qnn.runner.client import QnnClient
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.run import carry_out, release
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
    backend = ReferenceBackend(personality)
    rpcmem = SpyRpcmem(recorder)
    with closing(backend), closing(rpcmem):
        spy = SpyInterface(backend, recorder)
        try:
            return _carried_out(given, recorder, State(_client(spy, backend), rpcmem), spy, on_seen)
        finally:
            recorder.quiet = True


def _client(spy: SpyInterface, backend: ReferenceBackend) -> QnnClient:
    return QnnClient(QnnEntry(spy.get_providers, backend, "reference"))


def _carried_out(
    given: case.MemoryCase, recorder: Recorder, state: State, spy: SpyInterface, on_seen: Seen | None
) -> MemoryTrace:
    recorder.state, recorder.write = state, arguments_of
    ends = time.process_time() + MOST_SECONDS
    steps: list[StepSeen] = []
    for index, step in enumerate(given.steps):
        recorder.begin(index, step)
        seen = repeated(recorder, step, state) if isinstance(step, case.Churn) else carry_out(state, step)
        if spy.failure is not None:
            raise spy.failure
        if not seen.skipped and type(step) in BEHIND:
            BEHIND[type(step)](recorder, step, state, seen)
        if time.process_time() > ends:
            raise NotWritten(f"the case takes more than {MOST_SECONDS:g} s")
        steps.append(seen)
        if on_seen is not None:
            on_seen(index, seen)
    recorder.begin(len(given.steps), None)
    closed = [] if given.ends else release(state)
    if spy.failure is not None:
        raise spy.failure
    return MemoryTrace(session=tuple(state.session.codes), steps=tuple(steps), closing=tuple(closed))


def answers(keys: Collection[int], personality: Personality = DEFAULT) -> dict[int, int]:
    """What a reference says to property keys: the low 16 bits of each answer."""
    return dict(_answers(tuple(keys), personality))


@functools.lru_cache(maxsize=128)
def _answers(keys: tuple[int, ...], personality: Personality) -> dict[int, int]:
    """Of all personalities, for each finding: they are asked once in a process."""
    with closing(ReferenceBackend(personality)) as backend:
        client = QnnClient(QnnEntry(backend.get_providers, backend, "reference"))
        return {key: client.call("propertyHasCapability", key) & 0xFFFF for key in keys}
