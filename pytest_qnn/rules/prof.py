"""PROF and CANC: what a profiler is told, and what becomes of an invoke that is cancelled."""

from __future__ import annotations

from pytest_qnn.cases import gauge_strategies as cases
from pytest_qnn.cases.script import Cancel, Invoke, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import InterpreterSeen, ScriptTrace

_INVOKE = "tflite/core/subgraph.cc, Subgraph::InvokeImpl"

_PER_OPERATOR = 4
"""kTfLiteDelegateFlagsPerOperatorProfiling."""


@rule(
    "PROF-01",
    Level.SHOULD,
    "A delegate that declares per-operator profiling tells the profiler of its operators; of another one's "
    "kernels the runtime does, once for each invoke.",
    source=f"tflite/core/c/common.h, kTfLiteDelegateFlagsPerOperatorProfiling; {_INVOKE}",
    subject="delegate",
    cases=cases.profiled,
    weight=0.3,
)
def profiles_as_declared(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the events of each invoke, with a profiler that is there before the delegate is applied.

    Events by nodes of the CPU are one each, too.
    """
    scripts.need_work(case, trace)
    found = scripts.interpreter(trace)
    if found is None or not found.plans:
        return Examined(0, "invokes profiled")
    plan = found.plans[-1][1]
    silent = [node for node in plan if node.owner >= 0 and _per_operator(found, node.owner)]
    kernels = sum(node.owner >= 0 and found.applied[node.owner].is_target for node in plan)
    invokes = [
        seen for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Invoke) and seen.ok
    ]
    for number, seen in enumerate(invokes):
        told, own = seen.numbers.get("operator"), seen.numbers.get("delegate")
        if told is None or own is None:
            return Examined(0, "invokes profiled")
        # A delegate may tell of its operators as the runtime does, by events of the same kind.
        expected = len(plan) - len(silent)
        if told < expected or (not silent and told > expected):
            raise Violation(f"{expected} events, one for each node", str(told), f"invoke {number}")
        if silent and told - expected + own < len(silent):
            raise Violation(
                f"at least {len(silent)} events of the delegate's own, for so many kernels",
                str(told - expected + own),
                f"invoke {number}",
            )
    return Examined(len(invokes) if kernels else 0, "invokes profiled")


def _per_operator(found: InterpreterSeen, application: int) -> bool:
    flags = found.flags[application]
    return bool(flags and flags[-1] & _PER_OPERATOR)


@rule(
    "CANC-01",
    Level.SHOULD,
    "An invoke that is cancelled between two nodes runs no later kernel, and the next invoke works.",
    source=f"tflite/core/interpreter.h, SetCancellationFunction; {_INVOKE}",
    subject="delegate",
    cases=cases.cancelled,
    weight=0.5,
)
def works_after_a_cancellation(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the callbacks of the cancelled invoke, and at the results of the next one."""
    scripts.need_trace(trace)
    found, seen = scripts.interpreter(trace), scripts.view(case, trace)
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
    failed = support.blame(seen[1]) or ("" if invokes[-1][1].ok else invokes[-1][1].message)
    if failed:
        raise Violation("an invoke to work after a cancelled one", failed, picture=support.draw(*seen))
    outputs_are_right(*seen, "the CPU's values after an invoke that was cancelled")
    return Examined(int(bool(support.live_target_kernels(seen[1]))), "invokes cancelled")
