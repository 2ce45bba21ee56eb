"""Numeric bounds owned by the operators: what a graph must give, and how far a target may be off.

Sources: rules NUM-01 to NUM-04 and NUM-10. A caller says in what arithmetic the target computes
(`pytest_qnn.tflite.numerics.precision`), and cannot widen a bound. Values do not come from the reference
kernels: the two are written independently and checked against each other and both runtimes.

float32, with u = 2**-24 and eps = 2u:

* Element-wise operators are one IEEE operation. With equal operands results are bit-equal (NUM-01: `EXACT`).
  With operands that may differ, exact results are at most d apart (`numerics_spread.apart`) and each
  side rounds once: d + 2u (|y| + d). Operators that round nothing (copies, RELU, ABS, NEG): d.
* They must be within 4 units in the last place (NUM-10, `SINGLE`): d + 4 ulp (|y| + d).
* Sums of products (FULLY_CONNECTED, CONV_2D, and MEAN with weights 1/n) are judged against float64:
  4 eps (sum |a_i b_i| + |bias|) (NUM-02; any order of summation, fused or not, was measured within 1.14
  eps), and (1 + 4 eps) d for operands that may differ. Of terms of either sign partial sums stay small,
  however many there are. Of n terms mostly of one sign they grow, and each addition may round by u of them:
  that is up to (n - 1) u |sum|, in any order (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd
  edition, section 4.2), which is allowed from some hundreds of them on. The CPU kernels of both runtimes and
  XNNPACK were measured at 16 to 30 eps of means of 4,000 such terms.

Operators in float16 have the bounds that `pytest_qnn.tflite.numerics.precision` derives.

int8, in units of the output's scale (LSB):

* With equal operands |q' - q| <= 1 per operator, where q is the real result rounded once (NUM-03:
  implementations round a fixed-point multiplier, and then the result). RESHAPE, CONCATENATION and MAXIMUM
  move integers of one quantisation and are exact.
* One LSB is for what an element's fixed-point arithmetic may do, not for another way of rounding. A
  multiplier in [1/4, 1/2) is rounded at a half unit first, which adds 1/4 to the 1/2 of rounding: so a
  result further than 1/4 from a tie rounds to nearest (measured: none of 10,000 on both runtimes' CPU and
  XNNPACK, but one of MEAN). Where more than a quarter of at least 8 such elements are off, the target
  truncates. Judged where all operands are exact.
* With operands that may differ, real results are at most d units apart, which rounding makes whole:
  ceil(d) + 1. Nothing is off by more than the 255 units of the type.

Clamping, to the type's range or to a fused activation's, brings no two values further apart, and is itself
exact (NUM-04): `Expected.least` and `Expected.greatest`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.numerics import quantisation
from pytest_qnn.tflite.numerics.kernels import COPIES, constant_value
from pytest_qnn.tflite.numerics.precision import (
    EXACT,
    Arithmetic,
    half_operand,
    half_result,
    half_sum,
    single_bound,
)
from pytest_qnn.tflite.numerics.spread import Apart, Array, apart, products, result

UNIT = 2.0**-24
"""Half a unit in the last place of 1 in float32."""
_DOT = 8 * UNIT
_ONE_SIGN = 1 / 16
"""Part of the sum of magnitudes beyond which a sum is of terms mostly of one sign. A sum of 2048 terms of
random signs (NUM-08) has about 1/45."""
_MANY_TERMS = 256
"""Beyond, such a sum may be off by more than 4 eps."""
_SUMS: frozenset[Op] = frozenset(("FULLY_CONNECTED", "CONV_2D", "MEAN"))
_NOT_ROUNDED: frozenset[Op] = frozenset(("RESHAPE", "CONCATENATION", "MAXIMUM", "RELU", "ABS", "NEG"))
_SLACK = 1e-6
"""Part of an int8 unit: the float64 arithmetic of the bound itself."""


@dataclasses.dataclass(frozen=True)
class Expected:
    """What one graph output must be."""

    tensor: int
    """Its index in the graph."""
    value: Array
    """float64, of the output's shape; int8 as whole numbers (q, not scale * (q - zero_point))."""
    tolerance: Array
    """float64, of the same shape, in the value's unit; 0 where exactness is demanded, infinite where the
    target's arithmetic may overflow: such elements are not judged."""
    least: float
    """No element may be below: the dtype's range and the fused activation."""
    greatest: float
    derivation: str
    """How the tolerance comes about, in words."""
    real: Array | None = None
    """int8 with exact operands: the result before rounding, in units of the value (zero point included)."""


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """The first element that is off by more than it may be."""

    index: tuple[int, ...]
    """Its place; empty when the shape itself is wrong."""
    expected: float
    seen: float
    tolerance: float
    count: int
    """Elements that are off."""
    derivation: str

    def __str__(self) -> str:
        return (
            f"element {list(self.index)} is {self.seen!r}, expected {self.expected!r} +- {self.tolerance:.3g}"
            f" ({self.derivation}); {self.count} off in all"
        )


class Known(NamedTuple):
    """A tensor as the oracle knows it."""

    value: Array
    """float32 where exact; float64 for sums of products; int8 as whole numbers of any dtype."""
    tolerance: Apart
    real: Array | None = None
    """As in `Expected`."""


def expected_outputs(graph: Graph, inputs: Sequence[Array], arithmetic: Arithmetic = EXACT) -> list[Expected]:
    """What ``graph`` must give for ``inputs`` (in the graph's order), per graph output in order.

    ``arithmetic``: in which its float32 operators are computed; int8 is the same in all.

    Raises:
        KeyError: a tensor is read that nobody has written.
    """
    known: dict[int, Known] = {
        index: Known(value, None) for index, value in zip(graph.inputs, inputs, strict=True)
    }
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            known[index] = Known(constant_value(tensor.data, tensor.dtype, tensor.shape), None)
    makers: dict[int, Node] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [known[index] for index in node.inputs if index >= 0]
            output = node.outputs[0]
            if graph.tensors[output].dtype == "int8":
                known[output] = _int8(node, graph.tensors, operands)
            else:
                known[output] = _float32(node, graph.tensors, operands, arithmetic)
            makers[output] = node
    return [_expected(graph, known, index, makers.get(index), arithmetic) for index in graph.outputs]


def mismatch(expected: Expected, seen: Array, *, rounding: bool = True) -> Mismatch | None:
    """The first element of ``seen`` outside its bound, or None. NaN is a mismatch; signed zeros are equal.

    ``rounding``: int8 elements within their bounds mismatch too where many are not rounded to the nearest.
    """
    if seen.shape != expected.value.shape:
        wrong = f"shape {seen.shape} instead of {expected.value.shape}"
        return Mismatch((), np.nan, np.nan, 0.0, seen.size, wrong)
    with np.errstate(invalid="ignore"):  # seen may be anything, signalling NaN included
        values = seen.astype(np.float64)
        near = np.abs(values - expected.value) <= expected.tolerance
    within = (near | (values == expected.value)) & (values >= expected.least) & (values <= expected.greatest)
    within |= np.isinf(expected.tolerance)
    why = expected.derivation
    if within.all():
        truncated = _truncated(expected, values) if rounding else None
        if truncated is None:
            return None
        within, why = ~truncated, "to nearest beyond 1/4 LSB from a tie: here more than a quarter are off"
    index = tuple(int(place) for place in np.unravel_index(int(np.argmin(within)), seen.shape))
    return Mismatch(
        index=index,
        expected=float(expected.value[index]),
        seen=float(values[index]),
        tolerance=float(expected.tolerance[index]),
        count=int(within.size - within.sum()),
        derivation=why,
    )


def _truncated(expected: Expected, values: Array) -> Array | None:
    """Which elements are off although their rounding is in no doubt; None unless they are many."""
    real = expected.real
    if real is None:
        return None
    beyond_tie = np.abs(real - np.floor(real) - 0.5) > 0.25
    plain = beyond_tie & (real > expected.least) & (real < expected.greatest)
    off: Array = plain & (values != expected.value)
    return off if plain.sum() >= 8 and 4 * off.sum() > plain.sum() else None


def _float32(
    node: Node, tensors: Sequence[Tensor], operands: Sequence[Known], arithmetic: Arithmetic
) -> Known:
    shape = tensors[node.outputs[0]].shape
    is_half = node.op in arithmetic.half
    if is_half:
        operands = [_halved(known) for known in operands]
    if node.op in _SUMS:
        known = _sums(node, operands, shape, is_half=is_half)
    else:
        known = _elementwise(node, operands, shape, arithmetic)
    if node.activation == "NONE":
        return known
    least, greatest = _float_limits(node)
    return Known(np.clip(known.value, least, greatest), known.tolerance)


def _elementwise(
    node: Node, operands: Sequence[Known], shape: tuple[int, ...], arithmetic: Arithmetic
) -> Known:
    values, ts, _ = zip(*map(_single, operands), strict=True)
    value, bound = result(node, values, shape), apart(node, values, ts, shape)
    is_rounded = node.op not in _NOT_ROUNDED
    if node.op in arithmetic.half and bound is not None:
        bound = half_result(value, bound, is_rounded=is_rounded)
    elif arithmetic.ulps and is_rounded:
        bound = single_bound(value, bound, arithmetic.ulps)
    elif bound is not None and is_rounded:
        # An element whose operands are exact is exact, whatever its neighbours are.
        bound = np.where(bound > 0, bound + 2 * UNIT * (np.abs(value) + bound), 0.0)
    return Known(value, bound)


def _halved(known: Known) -> Known:
    """A float operand with its rounding to float16 in the tolerance; axes and shapes as they are."""
    if known.value.dtype.kind != "f":
        return known
    return Known(known.value, half_operand(known.value, known.tolerance))


def _single(known: Known) -> Known:
    """The value as float32, with that rounding in the tolerance."""
    if known.tolerance is None or known.value.dtype == np.float32:
        return known
    return Known(known.value.astype(np.float32), known.tolerance + UNIT * np.abs(known.value))


def _sums(node: Node, operands: Sequence[Known], shape: tuple[int, ...], *, is_half: bool) -> Known:
    ts = [known.tolerance for known in operands]
    if node.op == "MEAN":
        axes = operands[1].value
        values = [operands[0].value.astype(np.float64), axes]
        sizes = result(node, [np.abs(values[0]), axes], shape)
        terms = values[0].size // max(sizes.size, 1)
    else:
        values = [known.value.astype(np.float64) for known in operands]
        sizes = products(node, *map(np.abs, values)).reshape(shape)
        terms = values[1].size // values[1].shape[0]
    value, carried = result(node, values, shape), apart(node, values, ts, shape)
    if is_half and carried is not None:
        return Known(value, half_sum(sizes, carried, terms, is_mean=node.op == "MEAN"))
    bound = _DOT * sizes
    if terms > _MANY_TERMS:
        grown = (terms - 1) * UNIT * np.abs(value)
        bound = np.where(np.abs(value) > _ONE_SIGN * sizes, np.maximum(bound, grown), bound)
    return Known(value, bound if carried is None else bound + (1 + _DOT) * carried)


def _int8(node: Node, tensors: Sequence[Tensor], operands: Sequence[Known]) -> Known:
    output = tensors[node.outputs[0]]
    values = [known.value for known in operands]
    ts = [known.tolerance for known in operands]
    if node.op in COPIES:
        return Known(result(node, values, output.shape), apart(node, values, ts, output.shape))
    for position, known in enumerate(operands):
        tensor = tensors[node.inputs[position]]
        if tensor.scales:
            values[position] = quantisation.real_values(tensor, known.value)
        if known.tolerance is not None:
            ts[position] = known.tolerance * tensor.scales[0]
    real = result(node, values, output.shape)
    bound = apart(node, values, ts, output.shape)
    value = quantisation.nearest(output, real, node.activation)
    if bound is None:
        return Known(value, np.ones(output.shape), real / output.scales[0] + output.zero_points[0])
    return Known(value, np.minimum(np.ceil(bound / output.scales[0] - _SLACK) + 1, 255.0))


def _float_limits(node: Node) -> tuple[float, float]:
    least = -np.inf if node.activation == "NONE" else 0.0
    return least, 6.0 if node.activation == "RELU6" else np.inf


def _expected(
    graph: Graph, known: dict[int, Known], index: int, maker: Node | None, arithmetic: Arithmetic
) -> Expected:
    value, tolerance, real = known[index]
    limits: tuple[float, float] = (-np.inf, np.inf)
    derivation = "a graph input, exact"
    if maker is not None:
        output = graph.tensors[index]
        is_int8 = output.dtype == "int8"
        limits = quantisation.limits(output, maker.activation) if is_int8 else _float_limits(maker)
        derivation = f"{maker.op}: {_derivation(maker.op, arithmetic, is_int8=is_int8)}"
        if any(known[operand].tolerance is not None for operand in maker.inputs if operand >= 0):
            derivation += ", and what its operands may be off by"
    bound = np.zeros(value.shape) if tolerance is None else tolerance
    return Expected(index, value.astype(np.float64), bound, *limits, derivation, real)


def _derivation(op: Op, arithmetic: Arithmetic, *, is_int8: bool) -> str:
    if is_int8:
        return "a copy of integers (NUM-03)" if op in COPIES else "1 LSB of the result rounded once (NUM-03)"
    if op in arithmetic.half:
        return "computed in float16 (tflite/numerics/precision.py)"
    if op in _SUMS:
        terms = "mean |x|" if op == "MEAN" else "(sum |a b| + |bias|)"
        return f"4 eps {terms} against float64 (NUM-02)"
    if not arithmetic.ulps:
        return "bit-equal to one IEEE float32 operation (NUM-01)"
    if op in _NOT_ROUNDED:
        return "exact, as nothing is rounded (NUM-10)"
    return f"{arithmetic.ulps:g} units in the last place of one IEEE float32 operation (NUM-10)"
