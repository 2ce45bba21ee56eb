"""The step `Executes`: the same execute many times, measured."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_qnn.qnn.cases.case import Execute, Executes
from pytest_qnn.qnn.runner.graphs import Run
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.probes import Found, measured
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import StepSeen

_EXECUTE = "graphExecute"


@dataclasses.dataclass
class Repeated:
    """An execute that is made again and again, with the memory that is behind its tensors.

    Attributes:
        code: of the last call.
    """

    state: State
    graph: int | None
    given: tuple[Any, ...]
    """The arrays of tensors with their lengths."""
    refused: bool
    """As in `Executes`."""
    code: int = 0

    def once(self) -> Found | None:
        """One call; given back where it does not give what it has to."""
        state = self.state
        self.code = state.client.call(_EXECUTE, self.graph, *self.given, state.session.profile, None)
        return (_EXECUTE, self.code) if (self.code != 0) is not self.refused else None


def bound(state: State, step: Executes) -> tuple[Run, Repeated]:
    """The step's execute; the run holds the memory, until it is released.

    Raises:
        Skip: there is no session, no such graph or no such handle.
    """
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    graph = state.graph_value(step.graph)
    run = Run(state, step.graph)
    try:
        given = run.bind_all(Execute(step.graph, step.bindings))
    except BaseException:
        run.release()
        raise
    return run, Repeated(state, graph, given, step.refused)


@handles(Executes)
def executes(state: State, step: Executes) -> StepSeen:
    """The growth of the process.

    ``code``: of the last call. Where it is not what it has to be, it is in ``calls``, too.
    """
    run, repeated = bound(state, step)
    try:
        found, counts = measured(repeated.once, step.rounds)
    finally:
        run.release()
    return StepSeen(code=repeated.code, calls=() if found is None else (found,), counts=counts)
