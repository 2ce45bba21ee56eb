"""CTRL: graphs with loops and branches, whose subgraphs are delegated one by one."""

from __future__ import annotations

from collections import Counter

from pytest_qnn.cases import shape_strategies as cases
from pytest_qnn.cases.script import ScriptCase, flat
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import shape_support as support
from pytest_qnn.trace import InterpreterSeen, Kernel, ScriptTrace

_ALL = "tflite/core/interpreter.cc, Interpreter::ModifyGraphWithDelegateImpl"


@rule(
    "CTRL-01",
    Level.MUST,
    "Of a model's subgraphs the delegate is prepared for each, and keeps what it knows of each apart.",
    source=_ALL,
    subject="delegate",
    cases=cases.controlled,
)
def keeps_subgraphs_apart(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at graphs of whose subgraphs two or more have a kernel of the target."""
    seen = support.applied_interpreter(trace)
    kernels = _target_kernels(seen)
    places = {kernel.subgraph for kernel in kernels}
    if len(places) < 2:
        return Examined(0, "kernels in several subgraphs")
    _need_results(case, trace, seen, "the CPU's values with kernels in several subgraphs")
    return Examined(len(kernels), "kernels in several subgraphs")


def _target_kernels(seen: InterpreterSeen) -> list[Kernel]:
    """The kernels that the target made, of whatever subgraph."""
    return [kernel for kernel in seen.kernels if seen.applied[kernel.application].is_target]


def _need_results(case: ScriptCase, trace: ScriptTrace, seen: InterpreterSeen, expected: str) -> None:
    """Raises Violation where a step failed, or a result is gravely wrong."""
    at, failed = support.step_failure(case, trace)
    if failed:
        raise Violation(expected, failed, f"step {at}")
    for reading in support.readings(case, trace, seen):
        reading.check(expected)


@rule(
    "CTRL-02",
    Level.MUST,
    "Kernels in the body of a loop give the right results for no, one and several turns, at each invoke.",
    source="tflite/kernels/while.cc",
    subject="delegate",
    cases=cases.looping,
)
def loops_right(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Counts the invokes of the target's kernels in the body of the loop."""
    seen = support.applied_interpreter(trace)
    inside = {kernel.kernel for kernel in _target_kernels(seen) if kernel.subgraph}
    _, failed = support.step_failure(case, trace)
    turns = sum(event.kind == "invoke" and event.kernel in inside for event in seen.events)
    if inside or failed:
        _need_results(case, trace, seen, "the CPU's values after the turns of a loop")
    return Examined(turns, "invokes of kernels in a loop")


@rule(
    "CTRL-03",
    Level.MUST,
    "A delegate releases every subgraph context that it has acquired.",
    source="tflite/core/c/common.h, TfLiteContext.ReleaseSubgraphContext",
    subject="delegate",
    cases=cases.controlled,
    gate=("subgraphs",),
    weight=0.3,
)
def releases_what_it_acquires(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the two functions of the context while Prepare runs."""
    seen = support.the_interpreter(trace)
    held: Counter[tuple[int, int, int]] = Counter()
    looked_at = 0
    for borrow in seen.borrowed:
        if borrow.status or not seen.applied[borrow.application].is_target:
            continue
        held[borrow.application, borrow.subgraph, borrow.index] += 1 if borrow.acquire else -1
        looked_at += borrow.acquire
    for (_, subgraph, index), count in held.items():
        if count:
            raise Violation(
                "each AcquireSubgraphContext met by one ReleaseSubgraphContext",
                f"{count:+} calls of Acquire for subgraph {index}",
                f"Prepare of subgraph {subgraph}, {len(flat(case.steps))} steps",
            )
    if not looked_at and seen.applied:
        raise Unsupported("the delegate acquires no context of a subgraph", settled=False)
    return Examined(looked_at, "subgraph contexts acquired")


@rule(
    "CTRL-04",
    Level.MUST,
    "Subgraphs whose names begin with VALIDATION: are not delegated.",
    source=_ALL,
    subject="delegate",
    cases=cases.validated,
    self_check=True,
)
def spares_subgraphs_for_validation(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Counts the subgraphs that a probe of the suite's own was asked to prepare; the last ones are spared."""
    seen = support.the_interpreter(trace)
    graph = case.graphs[0]
    if not seen.applied:
        return Examined(0, "subgraphs for validation")
    spared = sum(part.validation for part in graph.subgraphs)
    expected = 1 + len(graph.subgraphs) - spared
    prepared = {event.subgraph for event in seen.events if event.kind == "Prepare"}
    if len(prepared) != expected:
        raise Violation(
            f"{expected} subgraphs prepared, and {spared} for validation left alone",
            f"{len(prepared)} prepared",
            "application 0",
        )
    return Examined(spared, "subgraphs for validation")
