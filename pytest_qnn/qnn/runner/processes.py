"""Memory cases whose steps run in several processes, one after the other.

A process hands on what a client would keep in files: the bytes of each binary, and what it knows of the
graphs in it. It does so through the trace, so that any two processes can be the first and the second.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from pytest_qnn.core.target import Death
from pytest_qnn.qnn.cases.case import AnyStep, Carried, Carry, GetBinary, MemoryCase, NewProcess, Prepare
from pytest_qnn.qnn.trace import MemoryTrace, PlainRun, StepSeen

Run = Callable[[MemoryCase], MemoryTrace | Death]


def several_processes(case: MemoryCase) -> bool:
    """The case has a step that begins another process."""
    return any(isinstance(step, NewProcess) for step in case.steps)


def is_killed(case: MemoryCase) -> bool:
    """A process of the case is killed: none of them may be this one."""
    return case.killed or any(isinstance(step, NewProcess) and step.killed for step in case.steps)


def run_in_processes(case: MemoryCase, first: Run, later: Run) -> MemoryTrace:
    """Carry out each part of the case in a process of its own: one trace, as if of one.

    A process that is to be killed ends by _exit(2): the kernel, and whoever else holds something of it, see
    the same as of SIGKILL, and the trace is there before.

    ``first`` and ``later`` carry out a case in a process; the later ones must not be the first.
    """
    carried: dict[str, Carry] = {}
    seen: list[StepSeen] = []
    plain: list[PlainRun] = []
    trace = MemoryTrace()
    parts = _parts(case.steps)
    kills = [step.killed for step in case.steps if isinstance(step, NewProcess)]
    for number, part in enumerate(parts):
        carries = tuple(carried.values())
        wanted = tuple(_kept(step) for step in part)
        is_last = number == len(parts) - 1
        given = MemoryCase(
            (*carries, *wanted), ends=case.ends and is_last, killed=case.killed if is_last else kills[number]
        )
        answer = (later if number else first)(given)
        if number:
            seen.append(StepSeen())
        if isinstance(answer, Death):
            at = answer.step - len(carries) + len(seen)
            return MemoryTrace(death=msgspec.structs.replace(answer, step=max(-1, at)))
        own = answer.steps[len(carries) :]
        _collect(carried, wanted, own)
        seen += own
        plain += answer.plain
        trace = msgspec.structs.replace(answer, session=trace.session or answer.session)
    return msgspec.structs.replace(trace, steps=tuple(seen), plain=tuple(plain))


def _parts(steps: tuple[AnyStep, ...]) -> list[tuple[AnyStep, ...]]:
    """The steps of each process."""
    ends = [index for index, step in enumerate(steps) if isinstance(step, NewProcess)]
    bounds = itertools.pairwise([-1, *ends, len(steps)])
    return [steps[start + 1 : end] for start, end in bounds]


def _kept(step: AnyStep) -> AnyStep:
    return msgspec.structs.replace(step, keep=True) if isinstance(step, GetBinary) else step


def _collect(carried: dict[str, Carry], steps: tuple[AnyStep, ...], seen: tuple[StepSeen, ...]) -> None:
    """Add the binaries that a process has made, each with the graphs that its context had then."""
    graphs: dict[str, dict[str, Carried]] = {}
    for step, each in zip(steps, seen, strict=False):
        if each.code or each.skipped:
            continue
        if isinstance(step, Prepare):
            known = Carried(step, tuple(number & 0xFFFFFFFF for number in each.values[1:]))
            graphs.setdefault(step.context, {})[step.graph] = known
        elif isinstance(step, GetBinary) and each.data:
            held = tuple(graphs.get(step.context, {}).values())
            carried[step.binary] = Carry(step.binary, each.data[0], held)
        elif isinstance(step, Carry):
            carried[step.binary] = step
