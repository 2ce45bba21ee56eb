"""The table of step handlers: each type of step has the one function that carries it out.

A handler is entered where it is written, by ``@handles(Register)`` above ``def register(state, step)``: mypy
holds its signature against the type of step. `tests/qnn/runner/test_handlers.py` names a step that has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pytest_qnn.qnn.cases.case import Step
from pytest_qnn.qnn.runner.state import State
from pytest_qnn.qnn.trace import StepSeen

StepT = TypeVar("StepT", bound=Step)
HANDLERS: dict[type[Step], Callable[[State, Any], StepSeen]] = {}
"""By type of step; complete once `pytest_qnn.qnn.runner.run` is imported."""


def handles(
    kind: type[StepT],
) -> Callable[[Callable[[State, StepT], StepSeen]], Callable[[State, StepT], StepSeen]]:
    """Enter the function below as the handler of a type of step.

    Raises:
        ValueError: it has a handler already.
    """

    def enter(handler: Callable[[State, StepT], StepSeen]) -> Callable[[State, StepT], StepSeen]:
        if kind in HANDLERS:
            raise ValueError(f"{kind.__name__} is handled by {HANDLERS[kind].__qualname__} already")
        HANDLERS[kind] = handler
        return handler

    return enter
