"""NUM: the numbers. Tolerances belong to the operators: see `pytest_qnn.oracle.numerics`."""

from __future__ import annotations

import msgspec
import numpy as np

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases import numeric_strategies as numeric
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Graph, Node
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Divergence, Examined, Level, Violation
from pytest_qnn.oracle.numerics import expected_outputs
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import judged_outputs, outputs_are_right
from pytest_qnn.rules.num_support import need_claim, origin, within_bounds
from pytest_qnn.trace import DelegateTrace

_MEASURED = "held by the CPU kernels and XNNPACK of both runtimes (tests/test_numerics.py)"
_QUANTISATION = "TensorFlow Lite 8-bit quantisation specification"


@rule(
    "NUM-01",
    Level.SHOULD,
    "float32 element-wise operators (ADD, SUB, MUL, MAXIMUM, RELU, ABS, NEG, PRELU, RESHAPE, CONCATENATION) "
    "give the CPU's values exactly.",
    source=f"IEEE 754, one correctly rounded operation per element; {_MEASURED}",
    subject="delegate",
    cases=cases.elementwise,
    gate=("float32",),
)
def computes_elements_exactly(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Zeros of either sign are equal: kernels of the runtime's own differ there."""
    return Examined(within_bounds(case, trace), "elements")


@rule(
    "NUM-02",
    Level.MUST,
    "float32 sums of products are within 4 eps (sum |a b| + |bias|) of the exact result.",
    source=f"standard error bound of a sum in any order (oracle/numerics.py); {_MEASURED}",
    subject="delegate",
    cases=cases.sums,
    gate=("float32 sums",),
)
def adds_up_in_float32(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """MEAN, FULLY_CONNECTED and CONV_2D against float64."""
    return Examined(within_bounds(case, trace), "elements")


@rule(
    "NUM-03",
    Level.MUST,
    "int8 results are within one unit per operator of the real-valued result, and what the operators of a "
    "graph make of that; RESHAPE, CONCATENATION and MAXIMUM are exact.",
    source=f"{_QUANTISATION}; {_MEASURED}",
    subject="delegate",
    cases=numeric.quantised_graphs,
    gate=("int8",),
)
def rounds_to_the_nearest_unit(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Graphs of up to five nodes, each judged three ways: see `within_bounds`."""
    return Examined(within_bounds(case, trace), "elements")


@rule(
    "NUM-04",
    Level.MUST,
    "int8 results that leave the range of int8, or of the fused activation, are clamped to it.",
    source=f"{_QUANTISATION}: restricted range of the output",
    subject="delegate",
    cases=numeric.saturating_graphs,
    gate=("int8",),
)
def saturates(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements whose expected value is an end of the range."""
    need_claim(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        low, high = expected.least, expected.greatest
        at_end = (expected.value == low) | (expected.value == high)
        outside = (seen < low) | (seen > high)
        wrong = outside | (at_end & (np.abs(seen.astype(np.float64) - expected.value) > expected.tolerance))
        if wrong.any():
            at = int(wrong.argmax())
            node, is_first, begun = origin(case.graph, expected.tensor)
            raise Divergence(
                f"{int(expected.value.ravel()[at])}, in the range {low:g} to {high:g}",
                f"{int(seen.ravel()[at])}",
                f"element {at} of {where}; {begun}",
                support.draw(case, trace, node),
                node=node,
                is_first=is_first,
            )
        looked_at += int(at_end.sum())
    return Examined(looked_at, "clamped elements")


@rule(
    "NUM-05",
    Level.MUST,
    "The scale of each channel of weights, and zero points that are not 0, are honoured.",
    source=f"tflite/core/c/common.h, TfLiteAffineQuantization; {_QUANTISATION}: per-axis weights",
    subject="delegate",
    cases=numeric.per_channel,
    gate=("int8",),
)
def honours_channels_and_zero_points(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Counts the results of nodes with weights of several scales, or with a zero point."""
    return Examined(within_bounds(case, trace, _has_parameters), "elements of channels or with zero points")


def _has_parameters(graph: Graph, node: Node) -> bool:
    tensors = [graph.tensors[index] for index in (*node.inputs, *node.outputs) if index >= 0]
    return any(len(set(tensor.scales)) > 1 or any(tensor.zero_points) for tensor in tensors)


@rule(
    "NUM-06",
    Level.MUST,
    "A fused activation is applied: RELU and RELU6, in float32 and int8, alone and inside a partition.",
    source="tflite/core/c/builtin_op_data.h, TfLiteFusedActivation",
    subject="delegate",
    cases=numeric.activated,
    gate=("fused activations",),
)
def applies_fused_activations(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements that the activation of the node that writes them changes.

    Precision is left to NUM-01 to NUM-03: a result is wrong when it lies outside the activation's range,
    or is off by far more than the operator may be.
    """
    need_claim(case, trace)
    bare = _without_last_activations(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        outside = (seen < expected.least) | (seen > expected.greatest)
        if outside.any():
            at = int(outside.argmax())
            raise Violation(
                f"nothing outside {expected.least:g} to {expected.greatest:g}, the range of the activation",
                f"{seen.ravel()[at].item()!r}",
                f"element {at} of {where}",
                support.draw(case, trace),
            )
        looked_at += int((bare[expected.tensor] != expected.value).sum())
    if looked_at:
        outputs_are_right(case, trace, "the CPU's values, with the fused activations applied")
    return Examined(looked_at, "elements that an activation changes")


def _without_last_activations(
    case: DelegateCase, trace: DelegateTrace
) -> dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Output -> its values if only the node that writes it had no activation."""
    graph = case.graph
    inputs = [array.numpy() for array in trace.inputs]
    found = {}
    for position, tensor in enumerate(graph.outputs):
        nodes = tuple(
            msgspec.structs.replace(node, activation="NONE") if tensor in node.outputs else node
            for node in graph.nodes
        )
        bare = msgspec.structs.replace(graph, nodes=nodes)
        found[tensor] = expected_outputs(bare, inputs)[position].value
    return found


@rule(
    "NUM-08",
    Level.MUST,
    "float32 graphs are not computed in half precision unless an option asks for it: sums of 2048 terms stay "
    "within NUM-02's bound.",
    source="tflite/core/c/common.h, TfLiteContext.allow_fp32_relax_to_fp16 (false by default)",
    subject="delegate",
    cases=numeric.long_sums,
    gate=("float32 sums",),
    weight=0.3,
)
def computes_long_sums_in_single_precision(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Terms of either sign keep the partial sums small, so that no order of adding comes near the bound.

    Rounding the operands to half precision alone is ten times beyond it (tests/test_numeric_rules.py).
    """
    return Examined(within_bounds(case, trace), "sums")


@rule(
    "NUM-09",
    Level.SHOULD,
    "Results do not depend on how the graph is cut: for any claimed subset they are within the bounds of "
    "their operators.",
    source="standard error bounds of the operators, propagated through the graph (oracle/numerics.py)",
    subject="delegate",
    cases=numeric.cut_anywhere,
)
def computes_alike_however_cut(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Partitions of one node and of many; a probe takes nodes first where the target cannot be told."""
    return Examined(within_bounds(case, trace), "elements")
