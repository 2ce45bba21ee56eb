"""PREC: order and redo, being undone, and one delegate on several interpreters."""

from __future__ import annotations

from pytest_qnn.cases import again_strategies as again
from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.script import Read, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, ScriptTrace

_MODIFY = "tflite/core/subgraph.cc, Subgraph::ModifyGraphWithDelegateImpl"


@rule(
    "PREC-05",
    Level.MUST,
    "The delegates in force stand in the order of their application, and a redo after a resize keeps it.",
    source="tflite/core/subgraph.cc, Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=cases.redone,
    self_check=True,
)
def keeps_their_order(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Reads delegates_applied after the last application, after allocate and after each redo."""
    support.need_work(trace)
    if support.failure(trace):
        return Examined(0, "orders of several delegates")
    expected = tuple(range(len(trace.applied)))
    for number, order in enumerate(trace.spied.order):
        if order != expected:
            when = (
                ("the last application", "allocate_tensors")[number] if number < 2 else f"redo {number - 1}"
            )
            raise Violation(
                f"the delegates in the order {list(expected)}",
                f"{list(order)}",
                f"after {when}",
                support.draw(case, trace),
            )
    return Examined(len(trace.spied.order) if len(expected) > 1 else 0, "orders of several delegates")


@rule(
    "PREC-07",
    Level.MUST,
    "A delegate that was undone because another one failed can be applied to a fresh interpreter.",
    source="tflite/core/interpreter.h, note on Interpreter::ModifyGraphWithDelegate",
    subject="delegate",
    cases=again.undone,
)
def survives_being_undone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """The first interpreter is gone when the second one gets the delegate; it must claim as before."""
    scripts.need_trace(trace)
    first, second = scripts.view(case, trace, "i0"), scripts.view(case, trace, "i1")
    what = "kernels undone and made again"
    if first is None or second is None or not first[1].applied or not first[1].applied[0].ok:
        return Examined(0, what)
    kernels = [k for k in first[1].kernels if k.application == 0]
    if not kernels or first[1].applied[-1].ok or not second[1].applied:
        return Examined(0, what)
    seen = support.blame(second[1]) or support.failure(second[1])
    if seen:
        raise Violation("the delegate to work on a fresh interpreter", seen, "after it was undone")
    before, after = ([k.nodes for k in ks] for ks in (kernels, support.target_kernels(second[1])))
    if before != after:
        raise Violation(
            f"kernels of the nodes {_listed(before)}, as before it was undone",
            _listed(after),
            "on a fresh interpreter",
            support.draw(*second),
        )
    outputs_are_right(*second, "the CPU's values on a fresh interpreter, after it was undone on another")
    return Examined(len(kernels), what)


def _listed(kernels: list[tuple[int, ...]]) -> str:
    return ", ".join(str(list(nodes)) for nodes in kernels) or "none"


@rule(
    "PREC-08",
    Level.SHOULD,
    "One delegate applied to several interpreters, or twice to one, keeps the state of the kernels apart, or "
    "refuses the second application with an error.",
    source=f"{_MODIFY}; TfLiteRegistration.init: what init returns is the kernel's own",
    subject="delegate",
    cases=again.shared,
)
def keeps_interpreters_apart(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Two graphs, invoked by turns, each read right after an invoke of the other one too.

    The second application to one interpreter finds its own kernels in the plan, and nothing it would claim.
    """
    scripts.need_trace(trace)
    for name in ("i0", "i1"):
        seen = scripts.view(case, trace, name)
        if seen is None or not all(applied.ok for applied in seen[1].applied):
            reason = support.failure(seen[1]) if seen else "the interpreter was not opened"
            raise Unsupported(f"one delegate is not applied twice: {reason}", settled=False)
        failed = support.failure(seen[1])
        if failed:
            raise Violation("both interpreters to run", failed, f"interpreter {name}", support.draw(*seen))
    looked_at = 0
    for number, step, seen_step in scripts.numbered(case, trace):
        if not isinstance(step, Read) or seen_step.skipped:
            continue
        here = scripts.view(case, trace, step.interpreter, number + 1)
        if here is not None and support.target_kernels(here[1]):
            outputs_are_right(*here, f"the CPU's values in interpreter {step.interpreter}, step {number}")
            looked_at += 1
    return Examined(looked_at, "outputs read by turns from two interpreters")
