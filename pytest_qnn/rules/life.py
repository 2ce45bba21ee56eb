"""LIFE: the life of a kernel: init, prepare (many times), invoke, free."""

from __future__ import annotations

from collections import Counter

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases import spied_strategies as spied
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace, Kernel

_REGISTRATION = "tflite/core/c/common.h, TfLiteRegistration"


@rule(
    "LIFE-01",
    Level.MUST,
    "init is called once for each kernel, before any prepare of it, and user_data is what init returned.",
    source=f"{_REGISTRATION}.init",
    subject="delegate",
    cases=cases.between_probes,
    self_check=True,
)
def initialises_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks the callbacks in order."""
    begun: set[int] = set()
    for position, event in enumerate(trace.events):
        if event.kind == "init":
            if event.kernel in begun:
                raise Violation(
                    "one init", "a second one", f"kernel {event.kernel}", support.draw(case, trace)
                )
            begun.add(event.kernel)
        elif event.kind in ("prepare", "invoke") and event.kernel not in begun:
            raise Violation(
                "user_data that an init returned",
                f"{event.kind} without an init",
                f"kernel {event.kernel}, callback {position} of {len(trace.events)}",
                support.draw(case, trace),
            )
    return Examined(len(begun), "kernels")


@rule(
    "LIFE-02",
    Level.MUST,
    "prepare may be called many times for one init, and Prepare many times for one interpreter, as after a "
    "resize; both are idempotent.",
    source=f"{_REGISTRATION}.prepare; tflite/core/subgraph.cc, Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=spied.prepared_again,
)
def prepares_again(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's kernels that later delegates, or resizes, made the runtime prepare again.

    A resize has the runtime free the kernels of a static delegate, and call its Prepare once more.
    """
    support.need_observation(trace)
    times = {k.kernel: len(support.statuses(trace, "prepare", k)) for k in support.live_target_kernels(trace)}
    redone = Counter(event.application for event in trace.events if event.kind == "Prepare")
    again = [n for n in times if times[n] > 1 or redone[trace.kernels[n].application] > 1]
    if not again:
        support.need_work(trace)
        return Examined(0, "kernels prepared more than once")
    support.runs_end_to_end(case, trace)
    calls = f"{max(times.values())} calls of prepare and {max(redone.values())} of Prepare"
    outputs_are_right(case, trace, f"the CPU's values after {calls}")
    return Examined(len(again), "kernels prepared more than once")


@rule(
    "LIFE-04",
    Level.MUST,
    "When the interpreter is gone, each successful init has been met by exactly one free of its user_data.",
    source="tflite/core/subgraph.cc, Subgraph::CleanupNode; docs/runtimes.md RT-02",
    subject="delegate",
    cases=cases.before_probes,
)
def frees_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's kernels whose init succeeded."""
    looked_at = freed_once(case, trace)
    if not looked_at:
        support.need_work(trace)
    return Examined(looked_at, "kernels")


def freed_once(case: DelegateCase, trace: DelegateTrace) -> int:
    """The number of the target's kernels that were looked at.

    The runtimes themselves forget to free a kernel that a later delegate swallowed, and, when a Replace
    call fails midway, the kernels it has made (RT-02) and on LiteRT 2.3 also those of earlier delegates:
    for these, no free at all is accepted too.

    Raises:
        Violation: a kernel was freed twice or never, or what was freed is no kernel's user_data.
    """
    for event in trace.events:
        if event.kind == "free" and event.kernel < 0 and trace.applied[event.application].is_target:
            raise Violation(
                "free of user_data that init returned", "free of something else, or a second free"
            )
    kernels = [k for k in support.target_kernels(trace) if support.statuses(trace, "init", k) == (0,)]
    for kernel in kernels:
        times = len(support.statuses(trace, "free", kernel))
        if times != 1 and not (times == 0 and _forgotten(trace, kernel)):
            raise Violation(
                "one free for one init",
                f"{times} calls of free",
                f"kernel {kernel.kernel} of nodes {list(kernel.nodes)}",
                support.draw(case, trace),
            )
    return len(kernels)


def _forgotten(trace: DelegateTrace, kernel: Kernel) -> bool:
    later = trace.applied[kernel.application :]
    if any(replace.status for applied in later for replace in applied.replaces):
        return True
    numbers = {k.kernel: index for index, k in support.kernel_nodes(trace).items()}
    index = numbers.get(kernel.kernel)
    return any(index in other.nodes for other in trace.kernels if other.application > kernel.application)
