"""LEAK: what cycles, invokes and failures leave behind."""

from __future__ import annotations

from pytest_qnn.cases import lifetime_strategies as cases
from pytest_qnn.cases.script import Apply, MakeDelegate, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.rules import leak_support as leaks
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.trace import ScriptTrace

_CLEANUP = "tflite/core/subgraph.cc, Subgraph::~Subgraph and CleanupNode"
_WHAT = "cycles measured"


@rule(
    "LEAK-01",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves malloc's memory in use as it was.",
    source=f"{_CLEANUP}; external_delegate_interface.h, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=cases.cycles("i0"),
    weight=0.1,
)
def cycles_leave_no_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 after spells of cycles, exact to one block for each cycle."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    judged = leaks.nothing_left(case, trace, ("malloc",), cases.CYCLES, "a delegate's whole life")
    return Examined(cases.CYCLES * cases.SPELLS * judged, _WHAT)


@rule(
    "LEAK-02",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves descriptors, threads, mappings as before.",
    source="external_delegate_interface.h, tflite_plugin_destroy_delegate; proc(5)",
    subject="delegate",
    cases=cases.cycles("i0"),
    weight=0.05,
)
def cycles_leave_no_resources(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at /proc after spells of cycles; mappings that the kernel joins show in the address space."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    keys = ("fds", "threads", "mappings", "virtual")
    judged = leaks.nothing_left(case, trace, keys, cases.CYCLES, "a delegate's whole life")
    return Examined(cases.CYCLES * cases.SPELLS * judged, _WHAT)


@rule(
    "LEAK-03",
    Level.MUST,
    "Invokes, however many, leave memory and resources in use as they were.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke; tflite/core/subgraph.cc, InvokeImpl",
    subject="delegate",
    cases=cases.invokes,
    weight=0.1,
)
def invokes_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 and /proc after spells of invokes of one interpreter."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, "invokes measured")
    judged = leaks.nothing_left(case, trace, tuple(leaks.LEAST), cases.INVOKES, "an invoke")
    return Examined(cases.INVOKES * cases.SPELLS * judged, "invokes measured")


@rule(
    "LEAK-04",
    Level.SHOULD,
    "What fails leaves nothing behind: a bad option, a failed Prepare, init or prepare, a later delegate.",
    source=f"{_CLEANUP}; tflite/core/interpreter.h, ModifyGraphWithDelegate; docs/runtimes.md RT-02",
    subject="delegate",
    cases=cases.failures,
    weight=0.4,
)
def failures_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at spells of failures.

    What the runtime forgets to free then (RT-02), a probe in the delegate's place leaves behind too.
    """
    scripts.need_trace(trace)
    failed = any(
        isinstance(step, Apply | MakeDelegate) and not seen.ok and not seen.skipped
        for _, step, seen in scripts.numbered(case, trace)
    )
    if not failed:
        return Examined(0, "failures measured")
    judged = leaks.nothing_left(case, trace, tuple(leaks.LEAST), cases.CYCLES, "a failure")
    return Examined(cases.CYCLES * cases.SPELLS * judged, "failures measured")
