"""CANC: what becomes of an invoke that is cancelled."""

from __future__ import annotations

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Violation
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import Allocate, Cancel, Invoke, Poison, Read, ScriptCase, SetInputs
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import need_claims
from pytest_qnn.tflite.strategies.scripts import ScriptStrategy, applied_steps
from pytest_qnn.tflite.trace import ScriptTrace


def cancelled(facts: DelegateFacts) -> ScriptStrategy:
    """The first invoke is cancelled before one of the first four nodes of the plan; the second is not."""

    def make(case: DelegateCase) -> ScriptCase:
        first = (
            Allocate("i0"),
            SetInputs("i0", case.data_seed),
            Cancel("i0", case.data_seed % 4),
            Invoke("i0"),
        )
        second = (Cancel("i0"), SetInputs("i0", case.data_seed + 1), Poison("i0"), Invoke("i0"), Read("i0"))
        return ScriptCase((case.graph,), (*applied_steps(facts, case, ()), *first, *second))

    need_claims(facts)
    return changed(delegates.behind_a_probe(facts), make)


@rule(
    "CANC-01",
    Level.SHOULD,
    "An invoke that is cancelled between two nodes runs no later kernel, and the next invoke works.",
    source="tflite/core/interpreter.h, SetCancellationFunction; "
    "tflite/core/subgraph.cc, Subgraph::InvokeImpl",
    subject="delegate",
    cases=cancelled,
    weight=0.5,
)
def works_after_a_cancellation(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the callbacks of the cancelled invoke, and at the results of the next one."""
    scripts.need_trace(trace)
    found, seen = scripts.interpreter(trace), scripts.view(case, trace)
    judging.need_no_conflict(found.applied if found else ())
    steps = scripts.numbered(case, trace)
    asked = [step.at for _, step, given in steps if isinstance(step, Cancel) and given.ok and step.at >= 0]
    lifted = [n for n, step, given in steps if isinstance(step, Cancel) and given.ok and step.at < 0]
    invokes = [(n, given) for n, step, given in steps if isinstance(step, Invoke) and not given.skipped]
    if not any(invokes[0][0] < n < invokes[-1][0] for n in lifted if invokes):
        return Examined(0, "invokes cancelled")
    if found is None or seen is None or not asked or len(invokes) < 2 or not found.plans:
        return Examined(0, "invokes cancelled")
    number, first = invokes[0]
    plan = found.plans[-1][1]
    events = zip(found.events, found.event_steps, strict=True)
    ran = [event for event, at in events if event.kind == "invoke" and at == number]
    if first.ok or asked[0] >= len(plan) or any(event.status for event in ran):
        return Examined(0, "invokes cancelled")
    before = sum(node.owner >= 0 for node in plan[: asked[0]])
    if len(ran) != before:
        raise Violation(f"{before} kernels invoked before the cancellation", f"{len(ran)}")
    failed = judging.blame(seen[1]) or ("" if invokes[-1][1].ok else invokes[-1][1].message)
    if failed:
        raise FailedCall("an invoke to work after a cancelled one", failed, picture=judging.draw(*seen))
    outputs_are_right(*seen, "the CPU's values after an invoke that was cancelled")
    return Examined(int(bool(judging.live_target_kernels(seen[1]))), "invokes cancelled")
