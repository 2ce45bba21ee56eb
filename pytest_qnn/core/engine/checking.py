"""What a rule says of one trace, what every rule says of a process that died, and errors of the suite."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Death, TargetLost, TraceLike
from pytest_qnn.core.verdict import Crashed, Examined, Hung, Unsupported, Violation

ResultT = TypeVar("ResultT")

ANSWER = "an answer"
"""What is expected of a process that hangs."""
_CALL = re.compile(r"in ([^,]+)")
AFTER_ALL = "after the last step"
"""Where a process died of its end."""


class InternalError(Exception):
    """The suite itself failed in a case: a defect of this project, raised from what was raised there.

    Args:
        case: in which it does.

    """

    def __init__(self, case: Any) -> None:
        super().__init__()
        self.case = case


class UnfitAnswerError(InternalError):
    """A rule's check failed itself on what another process answered: its parts do not fit, or the check.

    A target shares that process, and may write what it likes: nobody can tell which of the two it was.
    """


def none_on_internal_error(judge: Callable[[Any], ResultT | None], case: Any) -> ResultT | None:
    """What ``judge`` gives for the case; None when the suite itself fails in it.

    In a later trial or a control an internal error must not lose what was seen: a rule may rely on how its
    own cases are made, and fail in one that a step was removed from. A target that is lost gives None too.
    """
    try:
        return judge(case)
    except Exception:
        return None


@contextlib.contextmanager
def noting_errors(errors: list[Exception]) -> Iterator[None]:
    """Go on behind what fails here: the first such error is kept, and a target that is lost is none."""
    try:
        yield
    except TargetLost:
        return
    except Exception as error:
        if not errors:  # each holds all that was at work, such as a large trace
            errors.append(error)


def breaks(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> bool:
    """Whether the trace shows that the target breaks the rule."""
    return isinstance(checked(rule, case, trace), Violation)


def checked(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> Violation | Unsupported | Examined:
    """What the rule says of the trace; a death is a violation of every rule."""
    if trace.death is not None and trace.death.kind == "large":
        return Unsupported(trace.death.detail, final=False)
    if trace.death is not None:
        return died(trace.death)
    try:
        return examined(rule, case, trace)
    except (Violation, Unsupported) as outcome:
        return outcome.with_traceback(None)


def examined(rule: Rule[Any, Any, Any], case: Any, trace: TraceLike) -> Examined:
    """What the rule's check says. Memory that a target never wrote may hold signalling NaNs.

    Of those numpy warns when it converts them, which ends the check where warnings are errors.
    """
    with np.errstate(invalid="ignore"):
        return rule.check(case, trace)


def call_in(where: str) -> str:
    """The call at work in a death, out of what `died` says of its place; empty: it names none."""
    named = _CALL.match(where)
    return named[1] if named else ""


def died(death: Death) -> Violation:
    """The violation that every rule shares: the process that ran the case did not survive it."""
    left = death.evidence
    during = f"in {left.during}" if left.during else ""
    where = ", ".join(
        filter(None, (during, death.place or (f"step {death.step}" if death.step >= 0 else "")))
    )
    kind = Hung if death.kind == "hang" else Crashed
    expected = ANSWER if kind is Hung else "the call returns, with success or an error"
    if death.late:
        expected, where = "the process ends in good order, whatever is alive", AFTER_ALL
    said = left.said and kind is Crashed and f"; stderr: {left.said}"
    seen = death.detail + (f", {left.fault}" if left.fault else "") + (said or "")
    violation = kind(expected, seen, where)
    violation.evidence = left
    violation.step = death.step
    return violation
