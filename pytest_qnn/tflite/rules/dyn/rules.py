"""DYN: tensors whose shapes are known only while the graph runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    MakeDelegate,
    Open,
    Resize,
    ScriptCase,
    flat,
)
from pytest_qnn.tflite.checks import shapes
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph import control
from pytest_qnn.tflite.graph.graph import Graph, Op
from pytest_qnn.tflite.graph.kinds import OPS
from pytest_qnn.tflite.graph.valid import is_dynamic
from pytest_qnn.tflite.strategies import shapes as cases
from pytest_qnn.tflite.strategies.shapes import (
    LENGTHS,
    ONE,
    PROBE,
    TARGET,
    claimed_choices,
    elastic,
    opened_steps,
    resize_step,
    shape_cases,
    shape_steps,
)
from pytest_qnn.tflite.trace import ScriptTrace

_FLAGS = "tflite/core/c/common.h, TfLiteDelegateFlags"
_MODIFY = "tflite/core/subgraph.cc, Subgraph::ModifyGraphWithDelegateImpl"


def probed_dynamic(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe that allows no dynamic tensors is applied to a graph that has some."""

    def steps(_: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        made = MakeDelegate(PROBE, "probe", flags=choice[0] & 2)
        return (
            made,
            Open(ONE),
            Apply(ONE, PROBE),
            Allocate(ONE),
            *shape_steps(choice[1]),
            *shape_steps(choice[2]),
        )

    return shape_cases([(dtype, OPS[dtype]) for dtype in ("float32", "int8")], (control.dynamic,), steps)


@rule(
    "DYN-01",
    Level.MUST,
    "A delegate that does not allow dynamic tensors is not prepared on a graph that has some, and the "
    "interpreter still runs.",
    source=_MODIFY,
    subject="delegate",
    cases=probed_dynamic,
    self_check=True,
)
def is_kept_from_dynamic_graphs(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at a probe of the suite's own."""
    seen = shapes.the_interpreter(trace)
    static = [not how.flags & shapes.ALLOW_DYNAMIC for how in shapes.made(case, seen)]
    if static != [True] or not _moving(case.graphs[0]):
        return Examined(0, "refusals")
    (applied,) = seen.applied
    if applied.prepared or applied.ok:
        what = "prepared" if applied.prepared else "accepted"
        raise Violation("the static delegate not prepared, and refused", f"it was {what}", "application 0")
    _runs(case, trace, "the graph to run on the CPU after a static delegate was refused")
    return Examined(1, "refusals")


def _runs(case: ScriptCase, trace: ScriptTrace, expected: str) -> None:
    _, failed = shapes.step_failure(case, trace)
    if failed:
        raise FailedCall(expected, failed)
    for reading in shapes.readings(case, trace, trace.interpreters[0]):
        reading.check(expected)


@rule(
    "DYN-02",
    Level.MUST,
    "A delegate that allows dynamic tensors and does not require propagated shapes gives its outputs the "
    "right shapes in kernel prepare.",
    source=_FLAGS,
    subject="delegate",
    cases=cases.resized,
    gate=("dynamic tensors", "no propagated shapes"),
)
def gives_outputs_their_shapes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results after a resize that the target's kernels have lived through."""
    seen = shapes.applied_interpreter(trace)
    flags = shapes.flags_of(seen)
    if not flags & shapes.ALLOW_DYNAMIC:
        raise Unsupported(f"the delegate does not allow dynamic tensors (its flags are {flags})")
    if flags & shapes.REQUIRE_PROPAGATED:
        raise Unsupported(f"the delegate requires propagated shapes (its flags are {flags})")
    steps = flat(case.steps)
    first = next((n for n, step in enumerate(steps) if isinstance(step, Resize)), len(steps))
    at, failed = shapes.step_failure(case, trace, first)
    refused = (
        event.kind == "prepare" and event.status and step == at and seen.applied[event.application].is_target
        for event, step in zip(seen.events, seen.event_steps, strict=True)
    )
    if failed and any(refused):
        # What may be refused is RSZ-04's.
        raise Unsupported(f"a kernel refuses the new shapes: {failed}", final=False)
    return _live_readings(case, trace, first, "kernels prepared again after a resize")


def _live_readings(case: ScriptCase, trace: ScriptTrace, first: int, what: str) -> Examined:
    """Checks shapes and values behind step ``first`` while the target has a kernel in the plan."""
    seen = trace.interpreters[0]
    at, failed = shapes.step_failure(case, trace, first)
    mine = shapes.target_nodes(seen, shapes.plan_at(seen, len(flat(case.steps))))
    if failed and mine:
        raise FailedCall("the kernels to follow the new shapes", failed, f"step {at}")
    looked_at = 0
    for reading in shapes.readings(case, trace, seen):
        mine = shapes.target_nodes(seen, shapes.plan_at(seen, reading.step))
        if reading.step > first and mine:
            looked_at += len(mine) * reading.check("the shapes and values of a fresh interpreter")
    return Examined(looked_at, what)


def dynamic(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A graph with shapes that depend on data, invoked three times with other data; resized; once more."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        runs = itertools.chain.from_iterable(shape_steps(seed) for seed in (choice[1], choice[2], choice[3]))
        more = (*resize_step(graph, 24), *shape_steps(choice[4])) if choice[5] & 1 else ()
        return (*opened_steps(facts, graph, choice[0] & 254), Allocate(ONE), *runs, *more)

    return shape_cases(claimed_choices(facts), (control.dynamic,), steps)


@rule(
    "DYN-03",
    Level.MUST,
    "A kernel with outputs whose shapes depend on data sets their shapes at each invoke.",
    source=_FLAGS,
    subject="delegate",
    cases=dynamic,
    gate=("dynamic tensors",),
)
def follows_the_data(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at graphs in which the target has a kernel with such an output, invoked with several data."""
    seen = shapes.applied_interpreter(trace)
    moving = _moving(case.graphs[0])
    plan = shapes.plan_at(seen, len(flat(case.steps)))
    mine = [node for node in shapes.target_nodes(seen, plan) if moving.intersection(node.outputs)]
    if not mine:
        return Examined(0, "kernels with outputs of dynamic shape")
    read = _live_readings(case, trace, -1, "")
    return Examined(len(mine) if read.count else 0, "kernels with outputs of dynamic shape")


def _moving(graph: Graph) -> set[int]:
    """Tensors whose shape depends on data."""
    moving: set[int] = set()
    for node in graph.nodes:
        dynamic = len(node.inputs) > 1 and is_dynamic(node, graph.tensors)
        if dynamic or not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
    return moving


_ELEMENTWISE: tuple[Op, ...] = ("RELU", "ABS", "NEG", "ADD", "SUB", "MUL", "MAXIMUM")


def made_dynamic(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A static probe, then one whose kernels make their outputs dynamic."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        count = len(graph.nodes)
        first, second = tuple(range(0, count, 2)), tuple(range(1, count, 2))
        if choice[0] & 1:
            first, second = second, first
        static = MakeDelegate(TARGET, "probe", claim=first)
        other = MakeDelegate(PROBE, "probe", claim=second, fault="dynamic", flags=1 + 2 * (choice[1] & 1))
        return (
            static,
            other,
            Open(ONE),
            Apply(ONE, TARGET),
            Apply(ONE, PROBE),
            Allocate(ONE),
            *shape_steps(1),
        )

    return shape_cases([("float32", _ELEMENTWISE)], (elastic,), steps)


@rule(
    "DYN-04",
    Level.MUST,
    "Once a static delegate is applied, no later delegate may make a tensor dynamic: the runtime refuses it.",
    source="tflite/delegates/delegate_test.cc, DynamicTensorAfterStaticDelegate",
    subject="delegate",
    cases=made_dynamic,
    self_check=True,
)
def no_dynamic_tensor_after_a_static_delegate(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at two probes of the suite's own; nothing is said of a second one that claimed nothing."""
    seen = shapes.the_interpreter(trace)
    faults = [how.fault for how in shapes.made(case, seen)]
    claimed = [any(replace.nodes for replace in applied.replaces) for applied in seen.applied]
    if faults != ["", "dynamic"] or not all(claimed) or not seen.applied[0].ok:
        return Examined(0, "delegates refused")
    second = seen.applied[1]
    if second.ok:
        raise Violation("the delegate that makes tensors dynamic refused", "it was accepted", "application 1")
    _runs(case, trace, "the graph to run on the CPU after a delegate was refused")
    return Examined(1, "delegates refused")


def propagated(_: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """A probe that requires propagated shapes, on element-wise nodes; it leaves its outputs' shapes alone."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        made = MakeDelegate(PROBE, "probe", flags=3)
        lengths = [LENGTHS[byte % len(LENGTHS)] for byte in choice[1:4]]
        again = (
            step
            for n, length in enumerate(lengths)
            for step in (*resize_step(graph, length), *shape_steps(n + 1))
        )
        return (made, Open(ONE), Apply(ONE, PROBE), Allocate(ONE), *shape_steps(0), *again)

    return shape_cases([("float32", _ELEMENTWISE)], (elastic,), steps)


@rule(
    "DYN-05",
    Level.MUST,
    "A delegate that requires propagated shapes finds the new shapes in kernel prepare.",
    source=_FLAGS,
    subject="delegate",
    cases=propagated,
    self_check=True,
)
def shapes_are_propagated(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at a probe whose kernels leave the shapes of their outputs alone: the runtime has set them."""
    seen = shapes.the_interpreter(trace)
    if [how.flags & shapes.REQUIRE_PROPAGATED for how in shapes.made(case, seen)] != [2]:
        return Examined(0, "kernels with propagated shapes")
    _runs(case, trace, "outputs of propagated shapes")
    kernels = [node for node in shapes.plan_at(seen, len(flat(case.steps))) if node.owner == 0]
    return Examined(len(kernels), "kernels with propagated shapes")


@rule(
    "DYN-06",
    Level.MUST,
    "The flags of a delegate do not change after its creation.",
    source="tflite/delegates/external/external_delegate.cc copies them once; Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=cases.resized,
    weight=0.3,
)
def keeps_its_flags(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the flags before and after each Prepare, also those after a resize."""
    seen = shapes.the_interpreter(trace)
    looked_at = 0
    for applied, flags in zip(seen.applied, seen.flags, strict=True):
        if not applied.is_target or not flags:
            continue
        if len(flags) > 1:
            raise Violation(
                f"flags {flags[0]}, as before the first Prepare",
                f"{', then '.join(map(str, flags[1:]))}",
                f"{applied.name}, applied in step {applied.step} of {len(case.steps)}",
            )
        looked_at += 1
    return Examined(looked_at, "delegates")
