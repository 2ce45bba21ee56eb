"""ERR: failures of a kernel, what it answers with, and what it leaves."""

from __future__ import annotations

import msgspec

from pytest_qnn.cases import failure_strategies as failures
from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.arrays import Array
from pytest_qnn.cases.data import inputs_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.script import AnyScriptStep, Invoke, Read, Resize, ScriptCase, SetInputs, flat
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.kernels import run_graph
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, ScriptSeen, ScriptTrace

_CANCELLED = 8
_SHAPE_NOT_KNOWN = 9
_STATUSES = "tflite/core/c/c_api_types.h, TfLiteStatus"


@rule(
    "ERR-04",
    Level.MUST,
    "A kernel answers what it cannot do with a status: it never exits, aborts, or lets an exception through.",
    source="the interface is C's (tflite/core/c/common.h, TfLiteRegistration): an exception or exit ends the "
    "application",
    subject="delegate",
    cases=cases.hostile,
)
def survives_hostile_inputs(case: DelegateCase | ScriptCase, trace: DelegateTrace | ScriptTrace) -> Examined:
    """NaN, infinities, ends of ranges, large tensors, failing functions: that the process lives is judged."""
    what = "calls of kernels with hostile inputs"
    if isinstance(case, ScriptCase) and isinstance(trace, ScriptTrace):
        return Examined(_calls_after_growth(case, trace), what)
    if not (isinstance(case, DelegateCase) and isinstance(trace, DelegateTrace)):
        raise TypeError("the trace is of another kind of case")
    spied.need_callbacks(trace)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    invokes = sum(event.kind == "invoke" and event.kernel in mine for event in trace.events)
    return Examined(invokes if case.fill in ("special", "extreme") else 0, what)


def _calls_after_growth(case: ScriptCase, trace: ScriptTrace) -> int:
    """How often kernels of the target were prepared or invoked between the first resize and the second."""
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    resizes = [n for n, step in enumerate(flat(case.steps)) if isinstance(step, Resize)]
    if found is None or not resizes:
        return 0
    first, last = resizes[0], resizes[1] if len(resizes) > 1 else len(trace.steps)
    mine = {kernel.kernel for kernel in found.kernels if found.applied[kernel.application].is_target}
    return sum(
        event.kind in ("prepare", "invoke") and event.kernel in mine and first < step < last
        for event, step in zip(found.events, found.event_steps, strict=True)
    )


@rule(
    "ERR-05",
    Level.SHOULD,
    "After a failed invoke, whoever failed in it, the next one gives right results or fails too: no success "
    "with old data.",
    source="tflite/core/subgraph.cc, Subgraph::Invoke: a failed invoke leaves the graph invokable",
    subject="delegate",
    cases=cases.failing_invoke,
)
def recovers_or_fails_again(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Each invoke has inputs of its own, and outputs that were overwritten beforehand."""
    first = _first_failed_invoke(trace)
    if not support.live_target_kernels(trace):
        return Examined(0, "invokes after a failed one")
    looked_at = 0
    for number in range(first + 1, len(trace.outputs)):
        if trace.invoke_errors[number]:
            looked_at += 1
            continue
        inputs = _inputs(case, number)
        values = run_graph(case.graph, [array.numpy() for array in inputs])
        right = tuple(Array.of(values[tensor]) for tensor in case.graph.outputs)
        seen = trace.outputs[number : number + 1]
        outputs_are_right(
            case,
            msgspec.structs.replace(trace, inputs=inputs, cpu=right, outputs=seen),
            f"the values of this invoke's inputs, or an error (invoke {number}, after invoke {first} failed)",
        )
        looked_at += 1
    return Examined(looked_at, "invokes after a failed one")


def _first_failed_invoke(trace: DelegateTrace) -> int:
    """Number of the first invoke that failed.

    Raises:
        Unsupported: there was none.
    """
    spied.need_callbacks(trace)
    applied = next((a for a in trace.applied if not a.ok), None)
    if applied or trace.allocate_error:
        raise Unsupported(support.failure(trace), settled=False)
    number = next((number for number, error in enumerate(trace.invoke_errors) if error), None)
    if number is None:
        raise Unsupported("no invoke failed: the probe that would have done so has no kernel", settled=False)
    return number


def _inputs(case: DelegateCase, number: int) -> tuple[Array, ...]:
    """The graph's inputs during an invoke."""
    seeds = case.reseed[: number + 1]
    changed = msgspec.structs.replace(case, data_seed=seeds[-1]) if seeds else case
    return tuple(map(Array.of, inputs_of(changed)))


@rule(
    "ERR-06",
    Level.SHOULD,
    "A failed invoke leaves inputs, constants and all tensors but outputs as they were, and other "
    "interpreters unharmed.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke: only outputs are unspecified after an error",
    subject="delegate",
    cases=failures.beside_another,
)
def spares_others_when_it_fails(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks for writes of the target's kernels, at inputs after the failure, and at another interpreter."""
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    steps = scripts.numbered(case, trace)
    failed = [n for n, step, seen in steps if _fails(step, seen)]
    if found is None or not failed:
        raise Unsupported("no invoke failed: the probe that would have done so has no kernel", settled=False)
    for write in found.writes:
        if found.applied[write.application].is_target:
            raise Violation(
                f"tensor t{write.tensor} as it was",
                f"byte {write.offset} of it changed",
                f"an invoke of kernel {write.kernel}, of which one failed",
            )
    _inputs_stand(case, trace, failed[0])
    kernels = sum(found.applied[kernel.application].is_target for kernel in found.kernels)
    return Examined(_others_work(case, trace, failed[0]) if kernels else 0, "failed invokes")


def _fails(step: AnyScriptStep, seen: ScriptSeen) -> bool:
    return isinstance(step, Invoke) and step.interpreter == "i0" and not (seen.ok or seen.skipped)


def _inputs_stand(case: ScriptCase, trace: ScriptTrace, failed: int) -> None:
    """Raises Violation where an input is not as it was set before step ``failed``."""
    graph = case.graphs[0]
    before: tuple[Array, ...] = ()
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, SetInputs) and step.interpreter == "i0":
            before = seen.outputs if seen.ok else ()
        elif isinstance(step, Read) and number > failed and step.tensors == graph.inputs and seen.outputs:
            for tensor, was, reads in zip(graph.inputs, before, seen.outputs, strict=False):
                if was != reads and tensor not in graph.outputs:
                    raise Violation(
                        "the graph's inputs as they were set",
                        f"other contents in t{tensor}",
                        f"step {number}, after the failed invoke of step {failed}",
                    )


def _others_work(case: ScriptCase, trace: ScriptTrace, failed: int) -> int:
    """How many results of the other interpreter were judged.

    Raises:
        Violation: one is wrong, or an invoke of it failed.
    """
    beside = scripts.view(case, trace, "i1")
    if beside is None or not beside[1].applied or not all(applied.ok for applied in beside[1].applied):
        return 1
    judged = 0
    for number, step, seen in scripts.numbered(case, trace):
        if getattr(step, "interpreter", "") != "i1" or number < failed:
            continue
        if isinstance(step, Invoke) and not (seen.ok or seen.skipped):
            raise Violation("the other interpreter to work", " ".join(seen.message.split()), f"step {number}")
        if isinstance(step, Read) and seen.cpu:
            here = scripts.view(case, trace, "i1", number + 1)
            if here is not None:
                outputs_are_right(*here, f"the CPU's values in the other interpreter, step {number}")
                judged += 1
    return judged


@rule(
    "ERR-08",
    Level.SHOULD,
    "A kernel's status is one of TfLiteStatus: 8 (kTfLiteCancelled) only for a cancellation, and 9 "
    "(kTfLiteOutputShapeNotKnown) never on 2.14, which does not know it.",
    source=_STATUSES,
    subject="delegate",
    cases=cases.failing_callbacks,
)
def answers_with_a_status(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the status of each prepare and invoke of the target's kernels. Nothing is cancelled here."""
    spied.need_callbacks(trace)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    old = trace.facts is not None and trace.facts.runtime == "tflite_runtime"
    looked_at = 0
    for event in trace.events:
        if event.kind not in ("prepare", "invoke") or event.kernel not in mine:
            continue
        looked_at += 1
        wrong = ""
        if event.status == _CANCELLED:
            wrong = "8 (kTfLiteCancelled), although nothing was cancelled"
        elif event.status == _SHAPE_NOT_KNOWN and (old or event.kind == "invoke"):
            wrong = "9 (kTfLiteOutputShapeNotKnown)"
        elif not 0 <= event.status <= _SHAPE_NOT_KNOWN:
            wrong = f"{event.status}, which is no TfLiteStatus"
        if wrong:
            raise Violation(
                "0, or the status of an error",
                wrong,
                f"{event.kind} of kernel {event.kernel}",
                support.draw(case, trace),
            )
    return Examined(looked_at, "statuses of kernel prepare and invoke")
