"""ERR: what is possible after a delegate has failed (RT-01), and after delegates were removed."""

from __future__ import annotations

from pytest_qnn.cases import again_strategies as again
from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.script import Allocate, Invoke, Read, RemoveAll, ScriptCase, flat
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, ScriptTrace


@rule(
    "ERR-09",
    Level.MUST,
    "A failed delegate leaves its nodes to others: only one whose kernel writes a tensor that a kernel of "
    "the failed one would have written is refused (RT-01), and the graph runs in any case.",
    source="docs/runtimes.md RT-01; tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels: "
    "tensor->delegate == nullptr || tensor->delegate == delegate",
    subject="delegate",
    cases=cases.behind_a_failure,
    self_check=True,
)
def leaves_nodes_to_others(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every application after a failed probe. The row's own words are broken by both runtimes."""
    support.need_work(trace)
    if not trace.applied or trace.applied[0].ok:
        return Examined(0, "applications after a failed one")
    marked: set[int] = set()
    for position, applied in enumerate(trace.applied):
        written = {t for k in trace.kernels if k.application == position for t in k.outputs}
        if position and not applied.ok and not marked & written:
            raise Violation(
                f"a refusal only where a failed delegate's kernels would have written {_named(marked)}",
                f"a refusal of kernels that write {_named(written)}: {' '.join(applied.message.split())}",
                f"application {position} ({applied.name})",
                support.draw(case, trace),
            )
        if not applied.ok:
            marked |= written
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        raise Violation("the graph to run", error, picture=support.draw(case, trace))
    outputs_are_right(case, trace, "the CPU's values after a failed delegate")
    return Examined(len(trace.applied) - 1, "applications after a failed one")


def _named(tensors: set[int]) -> str:
    return ", ".join(f"t{tensor}" for tensor in sorted(tensors)) or "nothing"


@rule(
    "ERR-10",
    Level.MUST,
    "RemoveAllDelegates restores execution on the CPU at any time, before and after an invoke.",
    source="tflite delegate_test.cc, DelegateNodeInvokeFailure; tflite/core/subgraph.cc, RemoveAllDelegates",
    subject="delegate",
    cases=again.removed,
    self_check=True,
    weight=0.5,
)
def removal_restores_the_cpu(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares the plan with the original one, and outputs with the CPU's, bit for bit."""
    scripts.need_trace(trace)
    steps = flat(case.steps)
    removals = [n for n, step in enumerate(steps) if isinstance(step, RemoveAll)]
    looked_at = 0
    for seen in trace.interpreters:
        plans = dict(seen.plans)
        for number in removals:
            if trace.steps[number].skipped or not seen.kernels:
                continue
            looked_at += 1
            last = max((n for n in plans if n <= number), default=-1)
            plan = plans.get(last, seen.plan_before)
            if plan != seen.plan_before:
                raise Violation(
                    f"the original plan {[node.index for node in seen.plan_before]}",
                    f"{[node.index for node in plan]}",
                    f"step {number} ({seen.name})",
                )
    removed = invoked = False
    for number, step, one in scripts.numbered(case, trace):
        if one.skipped:
            continue
        removed = removed or isinstance(step, RemoveAll)
        if isinstance(step, RemoveAll | Allocate | Invoke):
            invoked = isinstance(step, Invoke)
        if isinstance(step, Read) and removed and invoked and one.outputs != one.cpu:
            raise Violation(
                "the CPU's own results, bit for bit", "others", f"step {number}, after the removal"
            )
    return Examined(looked_at, "removals of delegates")
