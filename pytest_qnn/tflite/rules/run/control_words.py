"""RUN-02: the floating-point unit of the thread that calls a delegate."""

from __future__ import annotations

from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.rules.run.rules import plain
from pytest_qnn.tflite.trace import DelegateTrace


@rule(
    "RUN-02",
    Level.MUST,
    "Neither loading a delegate's library nor a call of it changes the control bits of MXCSR, or the x87 "
    "control word, of the calling thread (flush-to-zero, denormals-are-zero, rounding, precision, masks of "
    "exceptions).",
    source="System V ABI, AMD64 supplement, 3.2.1: the control bits of MXCSR and the x87 control word are "
    "callee-saved",
    subject="delegate",
    cases=plain,
)
def leaves_control_words(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares them after each phase of a plain run: each application, the allocation, invokes, the end.

    What was changed is put back, so that each phase is judged for itself. A delegate that wants
    flush-to-zero for its kernels sets it where they begin and puts it back where they end. The start-up code
    that ``-ffast-math`` links into a shared library (GCC before 13) changes them when it is loaded.
    """
    del case
    if trace.control_words is None:
        raise Unsupported("control words are watched on Linux for x86-64 only")
    for change in trace.control_words:
        raise Violation(f"{change.before.text}, as before", change.after.text, change.where)
    return Examined(len(trace.applied) + 1 + len(trace.invoke_errors), "phases of runs")
