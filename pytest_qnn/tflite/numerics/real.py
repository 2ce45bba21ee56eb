"""int8 graphs in real numbers: what the dequantised graph gives, and how far a quantised run may be off.

This is the third judge of a quantised graph, beside the CPU's int8 kernels and the chain of results
rounded once each (`pytest_qnn.tflite.numerics.bounds`): it knows of no rounding at all, so that a delegate
which keeps more precision inside a partition is judged as fairly as one that rounds at every node.

* Values are float64. Those of a tensor are clamped to what its int8 type and fused activation can hold,
  which a quantised graph means to compute (TensorFlow Lite 8-bit quantisation specification).
* A node whose operands are exact gives its real result within 3/2 LSB: half for rounding once, one for
  fixed-point arithmetic (NUM-03). RESHAPE, CONCATENATION and MAXIMUM add nothing.
* Operands that are off by t add `numerics_spread.apart`; clamping brings no two values further apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytest_qnn.tflite.graph.graph import Graph, Node
from pytest_qnn.tflite.numerics import quantisation
from pytest_qnn.tflite.numerics.kernels import COPIES, constant_value
from pytest_qnn.tflite.numerics.spread import Apart, Array, apart, result

ROUNDING = 1.5
"""LSB that one operator may be off by from the real result of exact operands."""
_SLACK = 1e-6


class Real(NamedTuple):
    """What one tensor of an int8 graph stands for."""

    value: Array
    """float64: real numbers."""
    off: Apart
    """float64 of the same shape: how far a quantised run may be off; None: not at all."""


class InUnits(NamedTuple):
    """The same in units of the tensor's scale, its zero point included."""

    value: Array
    off: Array


def real_outputs(graph: Graph, inputs: Sequence[Array]) -> dict[int, InUnits]:
    """Graph output -> its real value, for each that a node writes as int8.

    Args:
        graph: int8 throughout, but for axes, shapes and biases.
        inputs: int8 contents in the graph's order.

    Raises:
        KeyError: a tensor is read that nobody has written.
    """
    known: dict[int, Real] = {}
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            contents = constant_value(tensor.data, tensor.dtype, tensor.shape)
            known[index] = Real(
                quantisation.real_values(tensor, contents) if tensor.scales else contents, None
            )
    for index, array in zip(graph.inputs, inputs, strict=True):
        known[index] = Real(quantisation.real_values(graph.tensors[index], array), None)
    # Bounds of a long row of products outgrow float64: one that is infinite, or no number, is a bound that
    # nothing exceeds.
    with np.errstate(over="ignore", invalid="ignore"):
        for node in graph.nodes:
            known[node.outputs[0]] = _node(graph, node, [known[index] for index in node.inputs if index >= 0])
        written = {node.outputs[0] for node in graph.nodes}
        return {index: _in_units(graph, index, known[index]) for index in graph.outputs if index in written}


def _node(graph: Graph, node: Node, operands: Sequence[Real]) -> Real:
    output = graph.tensors[node.outputs[0]]
    values = [operand.value for operand in operands]
    off = apart(node, values, [operand.off for operand in operands], output.shape)
    value = result(node, values, output.shape)
    if node.op in COPIES:
        return Real(value, off)
    scale, zero = output.scales[0], output.zero_points[0]
    least, greatest = quantisation.limits(output, node.activation)
    clamped = np.clip(value, scale * (least - zero), scale * (greatest - zero))
    added = np.full(output.shape, ROUNDING * scale)
    return Real(clamped, added if off is None else off + added)


def _in_units(graph: Graph, index: int, real: Real) -> InUnits:
    tensor = graph.tensors[index]
    value = real.value / tensor.scales[0] + tensor.zero_points[0]
    if real.off is None:
        return InUnits(value, np.full(value.shape, _SLACK))
    return InUnits(value, real.off / tensor.scales[0] + _SLACK)
