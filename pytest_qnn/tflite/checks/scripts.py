"""What rules on scripts share: an interpreter seen as a delegate case, and whose fault a touch is."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Read,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks import judging
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.trace import (
    DelegateTrace,
    InterpreterSeen,
    Kernel,
    MeasureCounts,
    PlanNode,
    ScriptSeen,
    ScriptTrace,
    Touch,
    TouchReason,
)

NO_ALIGNMENT = (
    "the process dies with buffers that are not aligned to 64 bytes, which a client who passes "
    "SkipAlignCheck must expect: MEM-06 judges it"
)


def numbered(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, AnyScriptStep, ScriptSeen]]:
    """Every step with its number and what it gave."""
    return [
        (number, step, seen)
        for number, (step, seen) in enumerate(zip(flat(case.steps), trace.steps, strict=True))
    ]


def measured(case: ScriptCase, trace: ScriptTrace) -> list[MeasureCounts]:
    """What each Measure found that was carried out."""
    return [
        seen.counted(MeasureCounts)
        for _, step, seen in numbered(case, trace)
        if isinstance(step, Measure) and seen.counts is not None
    ]


def need_trace(trace: ScriptTrace) -> None:
    """Raises Unsupported where the runtime cannot be observed, or does not let tensors be placed.

    Also where misaligned buffers ended the process; another case may have aligned ones.
    """
    if trace.misaligned:
        raise Unsupported(NO_ALIGNMENT, final=False)
    if not trace.observed:
        raise Unsupported("the private layout of the runtime is not the expected one: no plan")
    for seen in trace.steps:
        if "has no symbol" in seen.skipped:
            raise Unsupported(seen.skipped)


def interpreter(trace: ScriptTrace, name: str = "i0") -> InterpreterSeen | None:
    """The first interpreter of this name."""
    return next((seen for seen in trace.interpreters if seen.name == name), None)


def _before_last_read(
    steps: list[tuple[AnyScriptStep, ScriptSeen]],
) -> list[tuple[AnyScriptStep, ScriptSeen]]:
    """The steps up to the invoke that the last Read shows; all of them where nothing was read.

    Inputs set later are not its own.
    """
    reads = [at for at, (step, _) in enumerate(steps) if isinstance(step, Read) and not step.tensors]
    before = steps[: reads[-1]] if reads else steps
    invokes = [at for at, (step, _) in enumerate(before) if isinstance(step, Invoke)]
    return before[: invokes[-1]] if reads and invokes else before


def view(
    case: ScriptCase, trace: ScriptTrace, name: str = "i0", upto: int | None = None
) -> tuple[DelegateCase, DelegateTrace] | None:
    """One interpreter as a delegate case with its trace, so that what judges those can judge it.

    Outputs are those of the last Read of the graph's outputs, the inputs and the CPU's outputs those that
    belong to it. None where the interpreter was not opened. For scripts without Repeat and Parallel.

    Args:
        case: the script.
        trace: of it.
        name: of the interpreter.
        upto: only steps before this number; None: all.
    """
    found = interpreter(trace, name)
    if found is None:
        return None
    steps = [
        (step, seen)
        for number, step, seen in numbered(case, trace)
        if named(step, "interpreter") == name and not seen.skipped and number < (upto or len(trace.steps))
    ]
    graph = _shaped(case.graphs[found.graph], [step for step, seen in steps if seen.ok])
    given = _before_last_read(steps)
    inputs = [seen.outputs for step, seen in given if isinstance(step, SetInputs) and seen.ok]
    reads = [seen for step, seen in steps if isinstance(step, Read) and not step.tensors and seen.ok]
    invokes = [seen.message for step, seen in steps if isinstance(step, Invoke)]
    allocates = [seen.message for step, seen in steps if isinstance(step, Allocate)]
    whole = DelegateTrace(
        plan_before=found.plan_before,
        applied=found.applied,
        kernels=found.kernels,
        events=found.events,
        plan=_plan_at(found, upto),
        allocate_error=allocates[-1] if allocates else "",
        invoke_errors=tuple(invokes),
        inputs=inputs[-1] if inputs else (),
        outputs=tuple(seen.outputs for seen in reads[-1:] if seen.cpu),
        cpu=reads[-1].cpu if reads else (),
        writes=found.writes,
        observed=trace.observed,
        facts=trace.facts,
    )
    return DelegateCase(graph, _applications(case, found)), whole


def _plan_at(found: InterpreterSeen, upto: int | None) -> tuple[PlanNode, ...]:
    """The plan when the kernels were last invoked: the last one that has any."""
    plans = [found.plan_before, *(plan for step, plan in found.plans if upto is None or step < upto)]
    return next((plan for plan in reversed(plans) if any(n.owner >= 0 for n in plan)), plans[-1])


def _applications(case: ScriptCase, found: InterpreterSeen) -> tuple[Application, ...]:
    made = {step.delegate: step for step in flat(case.steps) if isinstance(step, MakeDelegate)}
    chosen = (made.get(name, MakeDelegate(name)) for name in found.delegates)
    return tuple(Application(step.who, step.claim, step.fault, step.flags) for step in chosen)


def _shaped(graph: Graph, steps: list[AnyScriptStep]) -> Graph:
    tensors = list(graph.tensors)
    for step in steps:
        if isinstance(step, Resize) and step.input < len(graph.inputs):
            tensor = graph.inputs[step.input]
            tensors[tensor] = msgspec.structs.replace(tensors[tensor], shape=step.shape)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def names(case: ScriptCase) -> list[str]:
    """Names of the interpreters, in the order of opening."""
    return list(dict.fromkeys(step.interpreter for step in flat(case.steps) if isinstance(step, Open)))


def need_work(case: ScriptCase, trace: ScriptTrace) -> None:
    """Raises Unsupported when nothing can be seen, or the target failed before it could be judged."""
    need_trace(trace)
    for name in names(case):
        seen = view(case, trace, name)
        if seen is not None:
            judging.need_work(seen[1])


def by_target(trace: ScriptTrace, why: TouchReason) -> Iterator[tuple[Touch, Kernel | None]]:
    """Touches of one kind that happened while a callback of the target was at work, with its kernel."""
    for touch in trace.touches:
        found = interpreter(trace, touch.interpreter)
        if touch.why != why or found is None or not 0 <= touch.application < len(found.applied):
            continue
        if found.applied[touch.application].is_target:
            yield touch, found.kernels[touch.kernel] if touch.kernel >= 0 else None


def accuse(
    case: ScriptCase,
    trace: ScriptTrace,
    touch: Touch,
    kernel: Kernel | None,
    expected: str,
    violation: type[Violation] = Violation,
) -> None:
    """Raises the violation for a touch."""
    tensor = f"t{touch.tensor}" if touch.tensor >= 0 else "the model"
    verb = {"read": "read", "write": "written"}.get(touch.access, "touched")
    where = (
        f"kernel {kernel.kernel} of nodes {list(kernel.nodes)}" if kernel else "Prepare, init or destruction"
    )
    seen = view(case, trace, touch.interpreter)
    what = "which has no memory" if touch.why == "unallocated" else f"whose data has {touch.size} bytes"
    raise violation(
        expected,
        f"byte {touch.offset} of {tensor} {verb}, {what}",
        f"{where}, interpreter {touch.interpreter}, step {touch.step}",
        judging.draw(*seen) if seen else "",
    )


def target_invokes(trace: ScriptTrace, name: str = "i0") -> int:
    """How often kernels of the target were invoked in an interpreter."""
    found = interpreter(trace, name)
    if found is None:
        return 0
    return sum(e.kind == "invoke" and found.applied[e.application].is_target for e in found.events)
