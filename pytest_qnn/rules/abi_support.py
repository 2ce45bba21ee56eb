"""What the rules about the plugin interface share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from pytest_qnn.cases.arrays import Array
from pytest_qnn.cases.data import inputs_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.plugin import CREATE, DESTROY, AnyPluginStep, Copy, Create, Cycle, PluginCase
from pytest_qnn.core.verdict import Examined, Unsupported, Violation
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, PluginSeen, PluginTrace

HEADER = "tflite/delegates/external/external_delegate_interface.h"
PYTHON = "tflite/python/interpreter.py, Delegate"

Check = Callable[[PluginCase, PluginTrace], Examined]
StepT = TypeVar("StepT", bound=AnyPluginStep)


def need_interface(trace: PluginTrace) -> None:
    """Raises Unsupported for a delegate without a plugin interface."""
    if trace.missing:
        chain = trace.facts.delegates if trace.facts else ()
        raise Unsupported(trace.missing, settled=len(chain) < 2)


def need_functions(trace: PluginTrace) -> None:
    """Raises Unsupported where the two functions cannot be called: ABI-01 and ABI-12 say why."""
    need_interface(trace)
    if trace.library.load_error:
        raise Unsupported(f"the library cannot be loaded: {trace.library.load_error}")
    for function in (CREATE, DESTROY):
        if function not in trace.library.exports:
            raise Unsupported(f"the library exports no {function}")


def need_options(case: PluginCase, trace: PluginTrace) -> None:
    """Raises Unsupported where the delegate was selected without options: nobody knows which it takes."""
    if not any(step.options for step in case.steps if isinstance(step, Create)):
        chain = trace.facts.delegates if trace.facts else ()
        raise Unsupported(
            "the delegate was selected without options (--tflite-delegate-option)", settled=len(chain) < 2
        )


def pictured(check: Check) -> Check:
    """The check, with a list of the case's steps as the picture of its violations."""

    @functools.wraps(check)
    def checked(case: PluginCase, trace: PluginTrace) -> Examined:
        try:
            return check(case, trace)
        except Violation as violation:
            violation.picture = draw(case)
            raise

    return checked


def draw(case: PluginCase) -> str:
    """The steps of a case in words, options as text."""
    return "\n".join(f"{number}  {_described(step)}" for number, step in enumerate(case.steps))


def _described(step: AnyPluginStep) -> str:
    words = [type(step).__name__.lower()]
    if isinstance(step, Cycle):
        words.append(f"{4 * step.times} delegates")
    else:
        words.append(step.name or "NULL")
    if isinstance(step, Create | Copy | Cycle):
        words += map(shown, step.options)
    if isinstance(step, Create) and step.report == "null":
        words.append("without report_error")
    if isinstance(step, Create) and step.null_arrays:
        words.append("with NULL arrays")
    return " ".join(words)


def shown(option: tuple[bytes, bytes]) -> str:
    """An option as text of few characters."""
    key, value = (part[:40].decode(errors="replace") for part in option)
    return f"{key}={value!r}"


def steps(case: PluginCase, trace: PluginTrace, kind: type[StepT]) -> Iterator[tuple[int, StepT, PluginSeen]]:
    """(position, step, what it gave) of each step of one kind that was carried out."""
    for position, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=True)):
        if isinstance(step, kind) and not seen.skipped:
            yield position, step, seen


def at(position: int, step: AnyPluginStep) -> str:
    """The place of a step, for a violation."""
    name = "" if isinstance(step, Cycle) else f" {step.name or 'NULL'}"
    return f"step {position}, {type(step).__name__.lower()}{name}"


def works(case: PluginCase, trace: PluginTrace, seen: PluginSeen, when: str) -> None:
    """Raises Violation where applying the delegate failed, or gave gravely wrong outputs."""
    if seen.error:
        raise Violation(f"the delegate to work {when}", " ".join(seen.error.split()))
    plain = DelegateCase(case.graph, data_seed=case.data_seed)
    inputs = tuple(map(Array.of, inputs_of(plain)))
    outputs_are_right(
        plain,
        DelegateTrace(inputs=inputs, cpu=trace.cpu, outputs=(seen.outputs,)),
        f"the CPU's values {when}",
    )
