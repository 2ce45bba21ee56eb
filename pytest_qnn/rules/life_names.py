"""LIFE: order of callbacks, failures of init, and names of kernels."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as plain
from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace

_REGISTRATION = "tflite/core/c/common.h, TfLiteRegistration"


@rule(
    "LIFE-03",
    Level.MUST,
    "invoke never runs before a successful prepare.",
    source=f"{_REGISTRATION}.prepare; tflite/core/subgraph.cc, Subgraph::Invoke (kStateUninvokable)",
    subject="delegate",
    cases=plain.between_probes,
    self_check=True,
)
def prepares_before_invoke(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks the callbacks in order; the last prepare before an invoke counts."""
    support.need_work(trace)
    ready: dict[int, bool] = {}
    looked_at = 0
    for event in trace.events:
        if event.kind == "prepare":
            ready[event.kernel] = event.status == 0
        elif event.kind == "invoke":
            looked_at += 1
            if not ready.get(event.kernel):
                raise Violation(
                    "a successful prepare first",
                    "an invoke after none" if event.kernel not in ready else "an invoke after a failed one",
                    f"kernel {event.kernel}",
                    support.draw(case, trace),
                )
    return Examined(looked_at, "invokes of kernels")


@rule(
    "LIFE-08",
    Level.MUST,
    "A failed init is reported: by kTfLiteKernelInitFailed (which 2.14 does not know), or by a prepare that "
    "fails; a kernel without what it needs is never invoked.",
    source=f"{_REGISTRATION}.init; tflite/delegates/utils/simple_delegate.cc, GetDelegateKernelRegistration",
    subject="delegate",
    cases=cases.refused_in_init,
)
def reports_a_failed_init(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """GetNodeAndRegistration fails in an init. Who gives right results all the same needs no error.

    A delegate that calls it in no init shows no failure here, and nothing is examined.
    """
    spied.need_callbacks(trace)
    refused = [(a, c) for a, calls in spied.refused_applications(trace) for c in calls if c.during == "init"]
    if not refused:
        return Examined(0, "inits that could not read their node")
    reported = trace.allocate_error or not all(applied.ok for applied in trace.applied)
    if not reported:
        expected = "an error of ModifyGraphWithDelegate or allocate_tensors after an init without its node"
        spied.works(case, trace, expected)
        outputs_are_right(case, trace, f"{expected}, or else the CPU's values")
    return Examined(len(refused), "inits that could not read their node")


@rule(
    "LIFE-12",
    Level.MUST,
    "custom_name stays valid as long as a kernel lives: the runtime keeps the pointer.",
    source=f"{_REGISTRATION}.custom_name; tflite/core/subgraph.cc, AddNodeWithParameters copies the struct",
    subject="delegate",
    cases=cases.names,
)
def keeps_its_name(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Reads the name when it is passed, and again at the same place after the last invoke."""
    spied.need_callbacks(trace)
    mine = [name for name in trace.spied.names if trace.applied[name.application].is_target and name.text]
    for name in mine:
        if name.later != name.text:
            raise Violation(
                f"the name {name.text!r} at the address that was passed to Replace",
                repr(name.later),
                f"application {name.application}, after the last invoke",
                support.draw(case, trace),
            )
    return Examined(len(mine) if support.live_target_kernels(trace) else 0, "names of kernels")


@rule(
    "LIFE-13",
    Level.SHOULD,
    "A kernel has a name that is not empty, and the same one each time: profiles and error messages show it.",
    source=f"{_REGISTRATION}.custom_name; tflite/core/subgraph.cc, ReportOpError",
    subject="delegate",
    cases=cases.names,
)
def has_a_stable_name(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares the names with those of the same case on a second interpreter."""
    spied.need_callbacks(trace)
    seen = trace.spied.names
    again = trace.spied.names_again
    looked_at = 0
    for position, name in enumerate(seen):
        if not trace.applied[name.application].is_target:
            continue
        looked_at += len(again) == len(seen)
        where = f"application {name.application}"
        if not name.text:
            raise Violation("a name", "custom_name NULL or empty", where, support.draw(case, trace))
        if len(again) == len(seen) and again[position] != name.text:
            raise Violation(
                f"the name {name.text!r} again", f"{again[position]!r}", f"{where} on a second interpreter"
            )
    return Examined(looked_at, "names of kernels")
