"""DET: outputs are a function of the inputs, and all of them are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.rule import rule
from pytest_qnn.trace import DelegateTrace
from pytest_qnn.verdict import Examined, Level, Violation


@rule(
    "DET-01",
    Level.MUST,
    "Repeated invokes with the same inputs give bit-identical outputs in one interpreter.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=cases.repeated,
)
def repeats_itself(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares every later invoke with the first; inputs that a kernel changed are MEM-02's affair."""
    support.need_work(trace)
    kernels = support.live_target_kernels(trace)
    if not kernels or support.failure(trace) or trace.inputs_after != trace.inputs:
        return Examined(0, "outputs compared with the first invoke's")
    looked_at = 0
    for number, outputs in enumerate(trace.outputs[1:], 1):
        for tensor, first, again in zip(case.graph.outputs, trace.outputs[0], outputs, strict=True):
            looked_at += 1
            if first.data != again.data:
                element = _first_difference(first.numpy(), again.numpy())
                raise Violation(
                    f"{first.numpy().ravel()[element]!r} again, as from invoke 0",
                    f"{again.numpy().ravel()[element]!r}",
                    f"element {element} of graph output t{tensor}, invoke {number}",
                    support.draw(case, trace),
                )
    return Examined(looked_at, "outputs compared with the first invoke's")


def _first_difference(first: npt.NDArray[Any], again: npt.NDArray[Any]) -> int:
    bits = f"u{first.itemsize}"
    return int(np.flatnonzero(first.ravel().view(bits) != again.ravel().view(bits))[0])


@rule(
    "DET-04",
    Level.MUST,
    "Every element of an output is written by invoke: what stood there before does not survive.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=cases.poisoned,
)
def overwrites_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graph outputs that a kernel of the target writes, filled with another byte before each invoke.

    An element counts as not written only when it shows the fill of the first invoke after the first, and
    the different fill of the second after the second: no value of its own can do that.
    """
    support.need_work(trace)
    if support.failure(trace) or len(case.poison) < 2 or len(trace.outputs) < 2:
        return Examined(0, "output elements")
    written = {tensor for kernel in support.live_target_kernels(trace) for tensor in kernel.outputs}
    looked_at = 0
    for position, tensor in enumerate(case.graph.outputs):
        if tensor not in written:
            continue
        stale = _filled(trace, position, 0, case.poison[0]) & _filled(trace, position, 1, case.poison[1])
        if stale.any():
            first, second = case.poison[:2]
            raise Violation(
                "every element written",
                f"the fills {first:#x} and {second:#x} left in {stale.sum()} of {stale.size} elements",
                f"element {int(stale.argmax())} of graph output t{tensor}",
                support.draw(case, trace),
            )
        looked_at += stale.size
    return Examined(looked_at, "output elements")


def _filled(trace: DelegateTrace, position: int, invoke: int, byte: int) -> npt.NDArray[np.bool_]:
    array = trace.outputs[invoke][position].numpy()
    bytes_of = array.ravel().view(np.uint8).reshape(array.size, array.itemsize)
    return np.asarray((bytes_of == byte).all(axis=1))
