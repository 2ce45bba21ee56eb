"""CTRL: graphs with loops and branches, whose subgraphs are delegated one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    MakeDelegate,
    Open,
    ScriptCase,
    flat,
)
from pytest_qnn.tflite.checks import shapes
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.control import Bytes, Choice
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.strategies.shapes import (
    ONE,
    PROBE,
    TARGET,
    MakeGraph,
    claimed_choices,
    shape_cases,
    shape_steps,
)
from pytest_qnn.tflite.trace import InterpreterSeen, Kernel, ScriptTrace

_ALL = "tflite/core/interpreter.cc, Interpreter::ModifyGraphWithDelegateImpl"


def _control(facts: DelegateFacts, kinds: Sequence[MakeGraph]) -> SearchStrategy[ScriptCase]:
    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(shape_steps(seed) for seed in choice[1:5])
        return (MakeDelegate(TARGET), Open(ONE), Apply(ONE, TARGET), Allocate(ONE), *runs)

    return shape_cases(claimed_choices(facts), kinds, steps, nodes=12)


def controlled(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with WHILE or IF, invoked four times with other data."""
    return _control(facts, (control.looping, control.branching))


@rule(
    "CTRL-01",
    Level.MUST,
    "A delegate is prepared for each subgraph of a model, and keeps its data about each subgraph apart.",
    source=_ALL,
    subject="delegate",
    cases=controlled,
    gate=("nodes in subgraphs",),
)
def keeps_subgraphs_apart(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at graphs of whose subgraphs two or more have a kernel of the target."""
    seen = shapes.applied_interpreter(trace)
    kernels = _target_kernels(seen)
    places = {kernel.subgraph for kernel in kernels}
    if len(places) < 2:
        raise Unsupported("the delegate claims nodes of one subgraph of these models", final=False)
    _need_results(case, trace, seen, "the CPU's values with kernels in several subgraphs")
    return Examined(len(kernels), "kernels in several subgraphs")


def _target_kernels(seen: InterpreterSeen) -> list[Kernel]:
    """The kernels that the target made, of whatever subgraph."""
    return [kernel for kernel in seen.kernels if seen.applied[kernel.application].is_target]


def _need_results(case: ScriptCase, trace: ScriptTrace, seen: InterpreterSeen, expected: str) -> None:
    """Raises Violation where a step failed, or a result is gravely wrong."""
    at, failed = shapes.step_failure(case, trace)
    if failed:
        raise FailedCall(expected, failed, f"step {at}")
    for reading in shapes.readings(case, trace, seen):
        reading.check(expected)


def looping(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Graphs with WHILE that goes round 0 to 4 times, invoked four times with other data."""
    return _control(facts, (control.looping,))


@rule(
    "CTRL-02",
    Level.MUST,
    "Kernels in the body of a loop give the right results for zero, one and several iterations, at each "
    "invoke.",
    source="tflite/kernels/while.cc",
    subject="delegate",
    cases=looping,
    gate=("nodes in subgraphs",),
)
def loops_right(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Counts the invokes of the target's kernels in the body of the loop."""
    seen = shapes.applied_interpreter(trace)
    inside = {kernel.kernel for kernel in _target_kernels(seen) if kernel.subgraph}
    _, failed = shapes.step_failure(case, trace)
    turns = sum(event.kind == "invoke" and event.kernel in inside for event in seen.events)
    if not inside and not failed:
        raise Unsupported("the delegate leaves the nodes of a loop's body to the CPU", final=False)
    _need_results(case, trace, seen, "the CPU's values after the turns of a loop")
    return Examined(turns, "invokes of kernels in a loop")


@rule(
    "CTRL-03",
    Level.MUST,
    "A delegate releases every subgraph context that it has acquired.",
    source="tflite/core/c/common.h, TfLiteContext.ReleaseSubgraphContext",
    subject="delegate",
    cases=controlled,
    gate=("subgraphs",),
    weight=0.3,
)
def releases_what_it_acquires(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the two functions of the context while Prepare runs."""
    seen = shapes.the_interpreter(trace)
    held: Counter[tuple[int, int, int]] = Counter()
    looked_at = 0
    for call in seen.subgraph_calls:
        if call.status or not seen.applied[call.application].is_target:
            continue
        held[call.application, call.subgraph, call.index] += 1 if call.acquire else -1
        looked_at += call.acquire
    for (_, subgraph, index), count in held.items():
        if count:
            raise Violation(
                "each AcquireSubgraphContext met by one ReleaseSubgraphContext",
                f"{count:+} calls of Acquire for subgraph {index}",
                f"Prepare of subgraph {subgraph}, {len(flat(case.steps))} steps",
            )
    if not looked_at and seen.applied:
        raise Unsupported("the delegate acquires no context of a subgraph", final=False)
    return Examined(looked_at, "subgraph contexts acquired")


def _validated(data: Bytes, choices: Sequence[Choice]) -> Graph:
    """A graph that holds one more subgraph, or two, for validation."""
    graph = control.looping(data, choices) if data.header[3] & 4 else control.elastic(data, choices)
    extra = msgspec.structs.replace(control.elastic(data, choices), validation=True)
    count = 1 + (data.header[3] >> 3) % 2
    return msgspec.structs.replace(graph, subgraphs=graph.subgraphs + (extra,) * count)


def validated(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe on a graph that holds subgraphs for validation."""

    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        return (
            MakeDelegate(PROBE, "probe"),
            Open(ONE),
            Apply(ONE, PROBE),
            Allocate(ONE),
            *shape_steps(choice[1]),
        )

    return shape_cases([(dtype, OPS[dtype]) for dtype in ("float32", "int8")], (_validated,), steps, nodes=12)


@rule(
    "CTRL-04",
    Level.MUST,
    "A subgraph whose name begins with VALIDATION: is not delegated.",
    source=_ALL,
    subject="delegate",
    cases=validated,
    self_check=True,
)
def spares_subgraphs_for_validation(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Counts the subgraphs that a probe of the suite's own was asked to prepare; the last ones are spared."""
    seen = shapes.the_interpreter(trace)
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
