"""RSZ: the inputs of a delegated graph are resized."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks import leaks
from pytest_qnn.tflite.checks import shapes as support
from pytest_qnn.tflite.checks.judging import line
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.strategies import shapes as cases
from pytest_qnn.tflite.strategies.lifetimes import compared, repetitions
from pytest_qnn.tflite.strategies.shapes import (
    LENGTHS,
    ONE,
    OTHER,
    PROBE,
    TARGET,
    claimed_choices,
    elastic,
    make_shape_target,
    opened_steps,
    resize_step,
    shape_cases,
    shape_steps,
)
from pytest_qnn.tflite.trace import DELEGATE, CallbackCounts, InterpreterSeen, ScriptSeen, ScriptTrace

_RESIZE = "tflite/core/subgraph.cc, Subgraph::ResizeInputTensor"


@rule(
    "RSZ-01",
    Level.MUST,
    "After resize_tensor_input and allocate_tensors the results are those of a new interpreter of that "
    "shape.",
    source=_RESIZE,
    subject="delegate",
    cases=cases.resized,
)
def follows_a_resize(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results after a resize of graphs that the target still has a kernel in."""
    seen = support.applied_interpreter(trace)
    first = _first(case, Resize)
    looked_at = 0
    for reading in support.readings(case, trace, seen):
        mine = support.target_nodes(seen, support.plan_at(seen, reading.step))
        if reading.step > first and mine:
            looked_at += len(mine) * reading.check("the values of a fresh interpreter of that shape")
    return Examined(looked_at, "kernels run after a resize")


def to_the_same(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """An input is resized to the shape that it has, between two invokes."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        length = LENGTHS[choice[1] % len(LENGTHS)]
        first = (Allocate(ONE), *shape_steps(0), *resize_step(graph, length), *shape_steps(1))
        return (*opened_steps(facts, graph, choice[0]), *first, *resize_step(graph, length), *shape_steps(2))

    return shape_cases(claimed_choices(facts), (elastic,), steps)


@rule(
    "RSZ-02",
    Level.MUST,
    "Resizing an input to its current shape causes no callback.",
    source=_RESIZE,
    subject="delegate",
    cases=to_the_same,
    self_check=True,
)
def same_shape_is_no_change(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the callbacks during such a resize, and an allocate_tensors to which nothing has changed."""
    seen = support.applied_interpreter(trace)
    idle = _idle_steps(case, trace)
    for event, step in zip(seen.events, seen.event_steps, strict=True):
        if step in idle:
            raise Violation("no callback", f"{event.kind} of kernel {event.kernel}", f"step {step}")
    kernels = support.target_nodes(seen, support.plan_at(seen, max(idle))) if idle else []
    return Examined(len(kernels), "kernels left in peace")


def _idle_steps(case: ScriptCase, trace: ScriptTrace) -> set[int]:
    """Steps that leave all shapes as they were at the last successful allocate_tensors."""
    graph = case.graphs[0]
    shapes = [graph.tensors[index].shape for index in graph.inputs]
    settled = False
    idle: set[int] = set()
    for number, step in enumerate(flat(case.steps)):
        if isinstance(step, Apply) or not trace.steps[number].ok:
            settled = False
        elif isinstance(step, Resize):
            if settled and shapes[step.input] == step.shape:
                idle.add(number)
            settled = settled and shapes[step.input] == step.shape
            shapes[step.input] = step.shape
        elif isinstance(step, Allocate):
            if settled and number - 1 in idle:
                idle.add(number)
            settled = True
    return idle


def _first(case: ScriptCase, kind: type) -> int:
    return next((n for n, step in enumerate(flat(case.steps)) if isinstance(step, kind)), -1)


_ROUNDS = 8


def _base(graph: Graph) -> int:
    """The leading dimension that the model states."""
    return graph.tensors[graph.inputs[0]].shape[0]


def redone(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target, alone or with a probe; resized to and fro before one allocate, then some times; run."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        mine = make_shape_target(facts, graph, choice[0])
        other = MakeDelegate(PROBE, "probe", claim=tuple(range(choice[3] % 2, len(graph.nodes), 2)))
        order = (TARGET, PROBE) if choice[2] & 1 else (PROBE, TARGET)
        applied = (TARGET,) if choice[2] < 128 else order
        there = LENGTHS[choice[1] % (len(LENGTHS) - 1)]
        there += there == _base(graph)
        rounds = Repeat(_ROUNDS, (*resize_step(graph, there), *resize_step(graph, _base(graph))))
        made = (mine, other) if PROBE in applied else (mine,)
        applies = tuple(Apply(ONE, name) for name in applied)
        back = (*resize_step(graph, there)[:-1], *resize_step(graph, _base(graph)))
        return (*made, Open(ONE), *applies, Allocate(ONE), *back, rounds, *shape_steps(1))

    return shape_cases(claimed_choices(facts), (elastic,), steps)


@rule(
    "RSZ-03",
    Level.MUST,
    "A static delegate is undone by a resize and applied again by allocate_tensors, in the order of "
    "application; as many kernels are freed as are made.",
    source="tflite/core/subgraph.cc, Subgraph::UndoAllDelegates and RedoAllDelegates",
    subject="delegate",
    cases=redone,
)
def is_undone_and_redone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at shapes that go to and fro, the last being one that the target has prepared for before."""
    seen = support.applied_interpreter(trace)
    number = _first(case, Repeat)
    if number < 0:
        return Examined(0, "kernels made anew")
    counted = trace.steps[number].counted(CallbackCounts)
    _need_success(case, trace, seen, _first(case, Resize))
    if counted.failed and not any(seen.applied[each].is_target for each in counted.failed):
        # The runtime keeps kernels of an application that fails (RT-02), and does not apply anybody again.
        raise Unsupported("in a round another delegate could not be applied again", final=False)
    rounds = counted.by_kind
    last = number + len(flat((flat(case.steps)[number],))) - 1
    before, after = (_kernels_in(support.plan_at(seen, step)) for step in (number, last))
    init, free = rounds.get("init", 0), rounds.get("free", 0)
    if before + init - free != after:
        raise Violation(
            f"{before - after:+} more kernels freed than made in {_times(case, number)} rounds",
            f"{init} made and {free} freed",
            f"step {number}",
        )
    _in_order(case, seen, number)
    expected = f"the CPU's values after {_times(case, number)} rounds of resizing"
    compared = [reading.check(expected) for reading in support.readings(case, trace, seen)]
    live = support.target_nodes(seen, support.plan_at(seen, len(flat(case.steps))))
    return Examined(_times(case, number) * len(live) if any(compared) else 0, "kernels made anew")


def _kernels_in(plan: support.Plan) -> int:
    return sum(node.op == DELEGATE for node in plan)


def _times(case: ScriptCase, number: int) -> int:
    step = flat(case.steps)[number]
    return step.times if isinstance(step, Repeat) else 0


def _need_success(case: ScriptCase, trace: ScriptTrace, seen: InterpreterSeen, first: int) -> None:
    """A shape that the target was applied with is one that it can be applied with again.

    Raises:
        Violation: it was not.
        Unsupported: another shape was refused, which RSZ-04 judges, or somebody else failed.
    """
    at, failed = support.step_failure(case, trace, first)
    if not failed:
        return
    refused = [
        event
        for event, step in zip(seen.events, seen.event_steps, strict=True)
        if step == at and event.status and seen.applied[event.application].is_target
    ]
    if refused and _is_back(case, at):
        raise FailedCall(
            "the delegate to be redone for a shape that it had before",
            f"{refused[0].kind} returned {refused[0].status}; {failed}",
            f"step {at}",
        )
    raise Unsupported(failed, final=False)


def _is_back(case: ScriptCase, step: int) -> bool:
    """The inputs had the model's shapes when ``step`` came."""
    graph = case.graphs[0]
    shapes = [graph.tensors[index].shape for index in graph.inputs]
    for number, each in enumerate(flat(case.steps)):
        if number < step and isinstance(each, Resize):
            shapes[each.input] = each.shape
    return all(shape == graph.tensors[i].shape for shape, i in zip(shapes, graph.inputs, strict=True))


def _in_order(case: ScriptCase, seen: InterpreterSeen, number: int) -> None:
    """Raises Violation where Prepare is not called in the order of application."""
    last = max((n for n, step in enumerate(flat(case.steps)) if isinstance(step, Allocate)), default=-1)
    order = [
        event.application
        for event, step, turn in zip(seen.events, seen.event_steps, seen.event_rounds, strict=True)
        if step == last and turn == 0 and event.kind == "Prepare"
    ]
    if order != sorted(order):
        raise Violation(
            "Prepare in the order of application", f"of the applications {order}", f"step {last} in {number}"
        )


_GREAT = (16, 33, 64, 100)


def grown(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The inputs grow far; should that fail, allocate_tensors is called once more."""

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        length = _GREAT[choice[1] % len(_GREAT)]
        great = (*resize_step(graph, length), Allocate(ONE), *shape_steps(1))
        small = (*resize_step(graph, 1 + choice[2] % 3), Allocate(ONE), *shape_steps(2))
        return (*opened_steps(facts, graph, choice[0]), Allocate(ONE), *shape_steps(0), *great, *small)

    return shape_cases(claimed_choices(facts), (elastic,), steps)


@rule(
    "RSZ-04",
    Level.SHOULD,
    "For a shape that it cannot handle, a delegate claims less, or allocate_tensors fails; then the second "
    "allocate_tensors succeeds on the CPU (unless dynamic tensors are allowed).",
    source=f"{_RESIZE}; Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=grown,
)
def grows_or_declines(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at results after the inputs have grown far, whoever computed them."""
    seen = support.applied_interpreter(trace)
    first = _first(case, Resize)
    if first < 0 or not support.target_nodes(seen, support.plan_at(seen, first - 1)):
        return Examined(0, "results of grown inputs")
    if any(isinstance(step, Invoke) and not seen.ok for step, seen in _steps(case, trace)[:first]):
        raise Unsupported("an invoke failed before any resize", final=False)
    for number, (step, given) in enumerate(_steps(case, trace)):
        if number < first or given.ok or given.skipped:
            continue
        if isinstance(step, Invoke):
            # At such a shape a plain run fails too, and it is this rule that says what is to be done there.
            raise Violation(
                "to claim less, or to fail in allocate_tensors, where the inputs are too large",
                f"invoke failed: {line(given.message)}",
                f"step {number}, {_shapes(case, number)}",
            )
        again = isinstance(flat(case.steps)[number - 1], Allocate) and not trace.steps[number - 1].ok
        if again and not support.flags_of(seen) & support.ALLOW_DYNAMIC:
            raise FailedCall(
                "the second allocate_tensors to succeed on the CPU",
                line(given.message),
                f"step {number}, {_shapes(case, number)}",
            )
    grown = [reading for reading in support.readings(case, trace, seen) if reading.step > first]
    compared = [reading.check("the CPU's values after the inputs have grown") for reading in grown]
    return Examined(sum(compared), "results of grown inputs")


def _steps(case: ScriptCase, trace: ScriptTrace) -> list[tuple[AnyScriptStep, ScriptSeen]]:
    return list(zip(flat(case.steps), trace.steps, strict=True))


def _shapes(case: ScriptCase, step: int) -> str:
    """The shapes that were asked for last."""
    shapes: dict[int, tuple[int, ...]] = {}
    for number, each in enumerate(flat(case.steps)):
        if number < step and isinstance(each, Resize):
            shapes[each.input] = each.shape
    return ", ".join(f"input {position}: {list(shape)}" for position, shape in sorted(shapes.items()))


ROUNDS = 80
"""Over several shapes, in a long repetition: what a short one leaves more than that is the suite's own."""


def _rounds(
    made: MakeDelegate, interpreter: str, graph: Graph, lengths: Sequence[int]
) -> tuple[AnyScriptStep, ...]:
    """A delegate on an interpreter of its own, and repetitions of rounds over these leading dimensions."""
    use = (SetInputs(interpreter, seed=1), Invoke(interpreter))
    inner = tuple(step for length in lengths for step in (*resize_step(graph, length, interpreter), *use))
    ready = (Open(interpreter), Apply(interpreter, made.delegate, spied=False), Allocate(interpreter))
    return (made, *ready, *repetitions(inner, ROUNDS, ("malloc",)))


def alternating(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Shapes go to and fro, in repetitions of few and of many rounds; first the target's, then a probe's.

    Memory is counted after each repetition. Nothing of the suite's stands between the runtime and a delegate:
    what is made for every callback would move the counts by more than a small block for each round.
    """

    def steps(graph: Graph, choice: bytes) -> Sequence[AnyScriptStep]:
        lengths = tuple(dict.fromkeys((*(LENGTHS[byte % len(LENGTHS)] for byte in choice[1:3]), 6)))
        target = make_shape_target(facts, graph, choice[0])
        probe = MakeDelegate(PROBE, "probe", claim=target.claim)
        probes = compared(_rounds(probe, OTHER, graph, lengths), ("malloc",))
        return (*_rounds(target, ONE, graph, lengths), *probes)

    return shape_cases(claimed_choices(facts), (elastic,), steps, nodes=4)


@rule(
    "RSZ-05",
    Level.SHOULD,
    "Growing and shrinking the leading dimension repeatedly does not use more and more memory.",
    source="tflite/core/c/common.h, TfLiteRegistration.free and prepare",
    subject="delegate",
    cases=alternating,
    weight=0.08,
)
def forgets_former_shapes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 after repetitions of rounds over the same shapes, exact to one block for each round.

    Memory that is kept for each shape and used again is not growth: every round has the same shapes.
    """
    what = "rounds over several shapes"
    seen = support.applied_interpreter(trace)
    _, failed = support.step_failure(case, trace)
    if failed or not support.target_nodes(seen, support.plan_at(seen, len(flat(case.steps)))):
        return Examined(0, what)
    return Examined(leaks.nothing_left(case, trace, ("malloc",), "a round of resizes"), what)
