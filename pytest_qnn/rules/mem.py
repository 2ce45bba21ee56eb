"""MEM: the memory that a kernel may touch."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.trace import DelegateTrace


@rule(
    "MEM-01",
    Level.MUST,
    "invoke writes only its kernel's output tensors and memory of the delegate's own.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke",
    subject="delegate",
    cases=cases.watched,
)
def writes_outputs_only(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every tensor that is neither input nor output of the kernel, around each invoke of it."""
    return _untouched(case, trace, inputs=False)


@rule(
    "MEM-02",
    Level.MUST,
    "invoke does not modify its kernel's inputs.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke and inplace_operator",
    subject="delegate",
    cases=cases.watched,
)
def leaves_inputs_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every input tensor of the kernel, constants included, around each invoke of it."""
    return _untouched(case, trace, inputs=True)


def _untouched(case: DelegateCase, trace: DelegateTrace, *, inputs: bool) -> Examined:
    support.need_work(trace)
    what = "an input" if inputs else "not an output"
    for write in trace.writes:
        if write.is_input == inputs and trace.applied[write.application].is_target:
            kernel = next((k for k in trace.kernels if k.kernel == write.kernel), None)
            outputs = f", whose outputs are {list(kernel.outputs)}" if kernel else ""
            raise Violation(
                "no byte changed but those of the kernel's outputs",
                f"byte {write.offset} of t{write.tensor}, {what} of the kernel, changed by invoke",
                f"kernel {write.kernel}{outputs}",
                support.draw(case, trace),
            )
    if not case.watch:
        return Examined(0, "invokes watched")
    kernels = {k.kernel for k in support.target_kernels(trace) if k.inputs or not inputs}
    return Examined(sum(e.kind == "invoke" and e.kernel in kernels for e in trace.events), "invokes watched")
