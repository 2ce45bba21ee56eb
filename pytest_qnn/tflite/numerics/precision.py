"""How accurately a target computes float32 graphs: in single precision, or some operators in float16.

float32, from IEEE 754-2019 and TfLiteContext.allow_fp32_relax_to_fp16 (tflite/core/c/common.h), which is
false by default: ADD, SUB, MUL and PRELU are one operation, so that rounding to nearest is within 1/2 unit in
the last place (ulp). `SINGLE` allows 4 ulp for kernels that compute them otherwise (fused, scaled, or rounded
towards zero); `EXACT` allows none. Operators that round nothing are exact in both, but that denormal numbers
may be taken for zero where anything is computed. No operator of generated graphs is transcendental: one that
is gets the error that its implementations document.

float16, with v = 2**-11 (IEEE 754-2019, binary16: 11 bits of significand):

* Every operand is rounded to nearest: v |x|. One that is in float16 already is allowed the same again.
* ADD, SUB, MUL and PRELU round their result, to nearest or towards zero: 2 v |y|, which is 1 ulp. Operators
  that round nothing add nothing.
* A sum of n products may be accumulated in float16, in any order: (n + 2) v (sum |a b| + |bias|), which is
  one rounding of each product, n additions with the bias and one for the scale of a mean
  (N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2: (n - 1) u sum |x|).
* A number below 2**-14 may be taken for zero, as binary16 has no normal one: 2**-14 for each rounding.
* What leaves 65504, the largest finite number, may be infinite, NaN, or clamped: it is not judged.

bfloat16 has 8 bits: of a copy it is off by up to 8 times what float16 may be.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Op

Array = npt.NDArray[Any]

HALF_UNIT = 2.0**-11
"""v: half a unit in the last place of 1 in float16."""
HALF_MOST = 65504.0
HALF_LEAST = 2.0**-14
SINGLE_LEAST = 2.0**-126
"""The smallest normal numbers, and the largest finite one."""
_SINGLE_NEARLY_MOST = float(np.finfo(np.float32).max) * (1 - 2.0**-20)
EVERY_OP: frozenset[Op] = frozenset(typing.get_args(Op))


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """What float32 operators may be off by."""

    ulps: float
    """Units in the last place of a result that was rounded."""
    half: frozenset[Op] = frozenset()
    """The operators that compute in float16."""

    def with_half(self, operators: Sequence[Op] | frozenset[Op]) -> Arithmetic:
        """The same, with these operators in float16."""
        return dataclasses.replace(self, half=frozenset(operators)) if operators else self


EXACT = Arithmetic(0.0)
"""Bit for bit what IEEE 754 says of one operation."""
SINGLE = Arithmetic(4.0)
"""The bound that every float32 operator must keep."""


def single_bound(value: Array, carried: Array | None, ulps: float) -> Array:
    """How far a rounded float32 result may be from ``value``, whose operands let it be ``carried`` off.

    Float64 of the value's shape; infinite where the result may overflow: kernels clamp that or do not.
    """
    off = np.zeros(value.shape) if carried is None else carried
    size = np.abs(value.astype(np.float64)) + off
    unit = np.spacing(np.maximum(size, SINGLE_LEAST).astype(np.float32)).astype(np.float64)
    bound = off + ulps * unit + SINGLE_LEAST
    return np.where(size < _SINGLE_NEARLY_MOST, bound, np.inf)


def half_operand(value: Array, off: Array | None) -> Array:
    """How far an operand in float16 may be from ``value``, if it was ``off`` before."""
    before = np.zeros(value.shape) if off is None else off
    size = np.abs(value.astype(np.float64))
    return in_range(size + before, before + HALF_UNIT * (size + before) + HALF_LEAST)


def half_result(value: Array, carried: Array, *, is_rounded: bool) -> Array:
    """How far an element-wise result in float16 may be off."""
    size = np.abs(value.astype(np.float64)) + carried
    return in_range(size, carried + 2 * HALF_UNIT * size + HALF_LEAST if is_rounded else carried)


def half_sum(sizes: Array, carried: Array, terms: int, *, is_mean: bool) -> Array:
    """How far a sum of so many products, of magnitudes ``sizes`` in all, may be off in float16.

    ``sizes`` of a mean are those of the mean; the sum before it is divided may overflow.
    """
    size = sizes + carried
    largest = size * terms if is_mean else size
    return in_range(largest, carried + (terms + 2) * (HALF_UNIT * size + HALF_LEAST))


def in_range(size: Array, bound: Array) -> Array:
    """The bound; infinite where a magnitude leaves float16, or is not known."""
    return np.where((size <= HALF_MOST) & ~np.isnan(bound), bound, np.inf)


def is_half(values: Array) -> bool:
    """Every finite number is one of float16, as results of a kernel that computes in it are."""
    with np.errstate(over="ignore", invalid="ignore"):
        same = values == values.astype(np.float16).astype(np.float32)
    return bool((same | ~np.isfinite(values)).all())


def to_half(values: Array) -> Array:
    """Float32 numbers rounded to float16, as float32; others as they are."""
    if values.dtype != np.float32:
        return values
    with np.errstate(over="ignore"):
        rounded: Array = values.astype(np.float16).astype(np.float32)
    return rounded
