"""NUM: the numbers. Tolerances belong to the operators: see `pytest_qnn.oracle.numerics`."""

from __future__ import annotations

import numpy as np

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.oracle.numerics import mismatch
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import judged_outputs
from pytest_qnn.rules.rule import rule
from pytest_qnn.trace import DelegateTrace
from pytest_qnn.verdict import Examined, Level, Unsupported, Violation

_MEASURED = "held by the CPU kernels and XNNPACK of both runtimes (tests/test_numerics.py)"


@rule(
    "NUM-01",
    Level.SHOULD,
    "float32 element-wise operators (ADD, SUB, MUL, MAXIMUM, RELU, ABS, NEG, PRELU, RESHAPE, CONCATENATION) "
    "give the CPU's values exactly.",
    source=f"IEEE 754, one correctly rounded operation per element; {_MEASURED}",
    subject="delegate",
    cases=cases.elementwise,
)
def computes_elements_exactly(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Zeros of either sign are equal: kernels of the runtime's own differ there."""
    return _within_bounds(case, trace)


@rule(
    "NUM-02",
    Level.MUST,
    "float32 sums of products are within 4 eps (sum |a b| + |bias|) of the exact result.",
    source=f"standard error bound of a sum in any order (oracle/numerics.py); {_MEASURED}",
    subject="delegate",
    cases=cases.sums,
)
def adds_up_in_float32(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """MEAN, FULLY_CONNECTED and CONV_2D against float64."""
    return _within_bounds(case, trace)


@rule(
    "NUM-03",
    Level.MUST,
    "int8 results are within one unit of the real-valued result rounded once; RESHAPE, CONCATENATION and "
    "MAXIMUM are exact.",
    source=f"TensorFlow Lite 8-bit quantisation specification; {_MEASURED}",
    subject="delegate",
    cases=cases.quantised,
)
def rounds_to_the_nearest_unit(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """One int8 operator at a time."""
    return _within_bounds(case, trace)


@rule(
    "NUM-04",
    Level.MUST,
    "int8 results that leave the range of int8, or of the fused activation, are clamped to it.",
    source="TensorFlow Lite 8-bit quantisation specification: restricted range of the output",
    subject="delegate",
    cases=cases.saturating,
)
def saturates(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements whose expected value is an end of the range."""
    _need_claim(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        low, high = expected.least, expected.greatest
        at_end = (expected.value == low) | (expected.value == high)
        outside = (seen < low) | (seen > high)
        wrong = outside | (at_end & (np.abs(seen.astype(np.float64) - expected.value) > expected.tolerance))
        if wrong.any():
            at = int(wrong.argmax())
            raise Violation(
                f"{int(expected.value.ravel()[at])}, in the range {low:g} to {high:g}",
                f"{int(seen.ravel()[at])}",
                f"element {at} of {where}",
                support.draw(case, trace),
            )
        looked_at += int(at_end.sum())
    return Examined(looked_at, "clamped elements")


def _need_claim(case: DelegateCase, trace: DelegateTrace) -> None:
    """A delegate that takes no operators of a kind has no numbers to judge; another case may show some."""
    support.need_work(trace)
    if not support.live_target_kernels(trace):
        dtype = case.graph.tensors[case.graph.outputs[0]].dtype
        raise Unsupported(f"the delegate left every {dtype} node of these cases to the CPU", settled=False)


def _within_bounds(case: DelegateCase, trace: DelegateTrace) -> Examined:
    _need_claim(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        wrong = mismatch(expected, seen)
        if wrong:
            bound = f" +- {wrong.tolerance:.3g}" if wrong.tolerance else " exactly"
            raise Violation(
                f"{wrong.expected!r}{bound} ({wrong.derivation})",
                f"{wrong.seen!r}, {wrong.count} of {seen.size} elements off",
                f"element {list(wrong.index)} of {where}",
                support.draw(case, trace),
            )
        looked_at += seen.size
    return Examined(looked_at, "elements")
