"""PROF: what is reported to a profiler."""

from __future__ import annotations

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Invoke,
    Profile,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import scripts
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import need_claims
from pytest_qnn.tflite.strategies.scripts import ScriptStrategy, applied_steps
from pytest_qnn.tflite.trace import InterpreterSeen, InvokeCounts, ScriptTrace

_INVOKE = "tflite/core/subgraph.cc, Subgraph::InvokeImpl"

_PER_OPERATOR = 4
"""kTfLiteDelegateFlagsPerOperatorProfiling."""


def profiled(facts: DelegateFacts) -> ScriptStrategy:
    """A profiler from the start; two invokes."""

    def make(case: DelegateCase) -> ScriptCase:
        use = (Allocate("i0"), SetInputs("i0", case.data_seed), Invoke("i0"), Invoke("i0"))
        return ScriptCase((case.graph,), (*applied_steps(facts, case, (Profile("i0"),)), *use))

    need_claims(facts)
    return changed(delegates.behind_a_probe(facts), make)


@rule(
    "PROF-01",
    Level.SHOULD,
    "A delegate that declares per-operator profiling reports its operators to the profiler; for a delegate "
    "that does not, the runtime reports each kernel, once per invoke.",
    source=f"tflite/core/c/common.h, kTfLiteDelegateFlagsPerOperatorProfiling; {_INVOKE}",
    subject="delegate",
    cases=profiled,
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
        counts = seen.counted(InvokeCounts)
        reported, own = counts.operator, counts.delegate
        if reported is None or own is None:
            return Examined(0, "invokes profiled")
        # A delegate may tell of its operators as the runtime does, by events of the same kind.
        expected = len(plan) - len(silent)
        if reported < expected or (not silent and reported > expected):
            raise Violation(f"{expected} events, one for each node", str(reported), f"invoke {number}")
        if silent and reported - expected + own < len(silent):
            raise Violation(
                f"at least {len(silent)} events of the delegate's own, for so many kernels",
                str(reported - expected + own),
                f"invoke {number}",
            )
    return Examined(len(invokes) if kernels else 0, "invokes profiled")


def _per_operator(found: InterpreterSeen, application: int) -> bool:
    flags = found.flags[application]
    return bool(flags and flags[-1] & _PER_OPERATOR)
