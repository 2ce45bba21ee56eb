"""LEAK: what cycles, invokes and failures leave behind."""

from __future__ import annotations

import msgspec

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fault
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Open,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import leaks, scripts
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.scales import SOME_PARTITIONS
from pytest_qnn.tflite.strategies import delegates, lifetimes
from pytest_qnn.tflite.strategies.lifetimes import (
    KEYS,
    Key,
    Plain,
    Strategy,
    make_probe,
    make_target,
    measured_script,
    repetitions,
)
from pytest_qnn.tflite.trace import ScriptTrace

_CLEANUP = "tflite/core/subgraph.cc, Subgraph::~Subgraph and CleanupNode"
_WHAT = "cycles measured"
_RESOURCES: tuple[Key, ...] = ("fds", "threads", "mappings", "virtual")


@rule(
    "LEAK-01",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves the memory that malloc has in use unchanged.",
    source=f"{_CLEANUP}; external_delegate_interface.h, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=lifetimes.cycles("i0", keys=("malloc",)),
    weight=0.1,
)
def cycles_leave_no_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 after repetitions of cycles, exact to one block for each cycle."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    return Examined(leaks.nothing_left(case, trace, ("malloc",), "a delegate's whole life"), _WHAT)


@rule(
    "LEAK-02",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves the numbers of descriptors, threads and "
    "mappings unchanged.",
    source="external_delegate_interface.h, tflite_plugin_destroy_delegate; proc(5)",
    subject="delegate",
    cases=lifetimes.cycles("i0", scaled=(SOME_PARTITIONS,), keys=_RESOURCES),
    weight=0.05,
)
def cycles_leave_no_resources(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at /proc after repetitions of cycles; joined mappings show in the address space."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    return Examined(leaks.nothing_left(case, trace, _RESOURCES, "a delegate's whole life"), _WHAT)


INVOKES = 100


def invokes(facts: DelegateFacts) -> Strategy:
    """One interpreter is invoked again and again."""

    def make(case: DelegateCase) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for name, target in (("i0", make_target(facts, case)), ("i1", make_probe(case))):
            ready = (Open(name), Apply(name, target.delegate), Allocate(name))
            turns = repetitions((SetInputs(name, case.data_seed), Invoke(name)), INVOKES)
            steps += (target, *ready, *(turns if name == "i0" else lifetimes.compared(turns)))
        return ScriptCase((case.graph,), tuple(steps))

    # Of kilobytes, but cheap to invoke again and again.
    return changed(delegates.routing(facts, scaled=("lengths", "constants")), make)


@rule(
    "LEAK-03",
    Level.MUST,
    "Invokes, in any number, leave the memory and resources in use unchanged.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke; tflite/core/subgraph.cc, InvokeImpl",
    subject="delegate",
    cases=invokes,
    weight=0.1,
)
def invokes_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 and /proc after repetitions of invokes of one interpreter."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, "invokes measured")
    return Examined(leaks.nothing_left(case, trace, KEYS, "an invoke"), "invokes measured")


_BAD_OPTION = (("no-such-option", "1"),)
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")
_KINDS = 6
_FAILURES = _KINDS * len(_FAULTS)


def failures(facts: DelegateFacts) -> Strategy:
    """Something fails, again and again.

    A steerable delegate; create, because of an option; or a delegate that is applied after the
    target, before it has claimed anything.
    """

    def make(case: DelegateCase) -> ScriptCase:
        # From the high bits of the seed, whose byte is spread evenly over the examples of a search.
        number = case.data_seed * _FAILURES >> 16
        kind, fault_number = number % _KINDS, number // _KINDS

        def cycle(target: MakeDelegate) -> Plain:
            if kind == 0:
                option = _BAD_OPTION if target.who == "target" else ()
                refused = msgspec.structs.replace(target, delegate="d9", options=option)
                return (refused, DestroyDelegate("d9"))
            if facts.steerable:
                fault = _FAULTS[fault_number]
                failing = msgspec.structs.replace(target, claim=None, fault=fault)
                use: Plain = (Open("i0"), Apply("i0", target.delegate), Allocate("i0"), Close("i0"))
                return (failing, *use, DestroyDelegate(target.delegate))
            probe = MakeDelegate("p9", "probe", claim=(), fault="prepare")
            ends: Plain = (Close("i0"), DestroyDelegate("p9"), DestroyDelegate(target.delegate))
            return (target, probe, Open("i0"), Apply("i0", target.delegate), Apply("i0", "p9"), *ends)

        return measured_script(facts, case, cycle)

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "LEAK-04",
    Level.SHOULD,
    "Failures (a bad option, a failed Prepare, init or prepare, a later delegate's failure) leave nothing "
    "behind.",
    source=f"{_CLEANUP}; tflite/core/interpreter.h, ModifyGraphWithDelegate; "
    "docs/reference/runtimes.md RT-02",
    subject="delegate",
    cases=failures,
    weight=0.4,
)
def failures_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at repetitions of failures.

    What the runtime forgets to free then (RT-02), a probe in the delegate's place leaves behind too.
    """
    scripts.need_trace(trace)
    failed = any(
        isinstance(step, Apply | MakeDelegate) and not seen.ok and not seen.skipped
        for _, step, seen in scripts.numbered(case, trace)
    )
    if not failed:
        return Examined(0, "failures measured")
    return Examined(leaks.nothing_left(case, trace, KEYS, "a failure"), "failures measured")
