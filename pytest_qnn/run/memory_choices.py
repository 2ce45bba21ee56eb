"""Where the QNN documents are silent: each point as a question, and what a target does about it.

None of the answers is right or wrong; clients who know them know what they may not rely on. The points are
those of `pytest_qnn.run.memory_points`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_qnn.abi.qnn_codes import low
from pytest_qnn.cases.memory import AnyStep, ContextCreate, MemoryCase, Read, Register
from pytest_qnn.cases.memory_scene import memory_types
from pytest_qnn.facts import Choice, MemoryFacts
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.run.memory_points import Point, ordinary, points
from pytest_qnn.trace import MemoryTrace, StepSeen


def choices(facts: MemoryFacts, run: Callable[[MemoryCase], MemoryTrace]) -> tuple[Choice, ...]:
    """Put every question to the target, each as a case of its own; none after one that it hangs in.

    Without a session only what needs no context is asked about; where an ordinary buffer cannot be
    registered, nothing that needs a registration.
    """
    if facts.deaths:
        return ()
    kind = memory_types(facts)[0]
    asked = tuple(points(facts, kind))
    found: list[Choice] = []
    if facts.session_failure:
        asked = _without(ContextCreate, asked)
    else:
        first = ordinary(kind)
        registered = _choice(first, run(MemoryCase(first.steps)))
        if registered.code != 0:
            found.append(registered)
            asked = _without(Register, asked)
    for point in asked:
        trace = run(MemoryCase(point.steps))
        found.append(_choice(point, trace))
        if trace.death is not None and trace.death.kind == "hang":
            break
    return tuple(found)


def _without(kind: type[AnyStep], points: tuple[Point, ...]) -> tuple[Point, ...]:
    return tuple(point for point in points if not any(isinstance(step, kind) for step in point.steps))


def _choice(point: Point, trace: MemoryTrace) -> Choice:
    if trace.death is not None:
        return Choice(point.name, point.question, trace.death.detail)
    *before, last = trace.steps
    for step, seen in zip(point.steps, before, strict=False):
        if seen.skipped or seen.code:
            call = step.__struct_config__.tag
            return Choice(point.name, point.question, f"not asked: {call}: {seen.skipped or _said(seen)}")
    if isinstance(point.steps[-1], Read) and last.data:
        return Choice(point.name, point.question, _contents(last.data[0]))
    if last.skipped or last.code is None:
        return Choice(point.name, point.question, f"not asked: {last.skipped or 'no call'}")
    answer = _said(last)
    if isinstance(point.steps[-1], Register) and last.code == 0:
        given = {
            value for step, seen in _registered(point, trace) for value in seen.values[: len(step.handles)]
        }
        answer += ", the same handle" if given.intersection(last.values[:1]) else ", a handle of its own"
    return Choice(point.name, point.question, answer, low(last.code))


def _registered(point: Point, trace: MemoryTrace) -> Iterator[tuple[Register, StepSeen]]:
    """The registrations before the last step, with what they gave."""
    for step, seen in zip(point.steps[:-1], trace.steps, strict=False):
        if isinstance(step, Register):
            yield step, seen


def _contents(data: bytes) -> str:
    """What the client found in memory; the runner itself clears the first and the last byte."""
    return "holds other bytes than zeros" if data.strip(b"\0") else "reads as zeros"


def _said(seen: StepSeen) -> str:
    return "success" if seen.code == 0 else named(seen.code or 0)
