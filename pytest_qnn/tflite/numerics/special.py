"""NaN, infinities, zeros of either sign and denormal numbers: what each float32 operator may make of them.

Sources: IEEE 754-2019, and what the CPU kernels and XNNPACK of both runtimes do (measured; all of them
legal, none of them equal to the others throughout):

* Copies (RESHAPE, CONCATENATION) compute nothing: every bit stays, but a NaN may become another NaN.
* ADD, SUB and MUL are one IEEE operation. Kernels may clamp the result to the finite numbers, as the CPU's
  do for fused activation NONE, and may take denormal numbers for zero, operands and results alike.
* ABS, NEG, RELU, PRELU and MAXIMUM select, negate or scale; denormal numbers as above.
* MAXIMUM of a NaN and a number is either (maximum of IEEE 754-2019, maxNum of 754-2008), and so RELU of a
  NaN is NaN or 0. Everything else makes NaN of NaN.
* Signs of zeros are free, except in copies.

An operator in float16 rounds its operands first, copies included: infinities may be the largest number of
float16 and the other way round, its denormal numbers are those below 2**-14, and finite results are right
within 4 of its units in the last place (`pytest_qnn.tflite.numerics.precision`; their bounds are NUM-10's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.graph.graph import Node, Op
from pytest_qnn.tflite.numerics.precision import HALF_LEAST, HALF_MOST, HALF_UNIT, to_half

Array = npt.NDArray[Any]

MOVED: frozenset[Op] = frozenset(("RESHAPE", "CONCATENATION"))
JUDGED: tuple[Op, ...] = (
    "RESHAPE",
    "CONCATENATION",
    "ABS",
    "NEG",
    "RELU",
    "ADD",
    "SUB",
    "MUL",
    "MAXIMUM",
    "PRELU",
)
"""Sums are not among them: how they overflow depends on their order."""
_CLAMPED: frozenset[Op] = frozenset(("ADD", "SUB", "MUL"))
_LEAST = np.finfo(np.float32).tiny
_MOST = np.finfo(np.float32).max


def allowed(node: Node, operands: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    """The results that one node may give: an element is right if it is that of any of them.

    Args:
        node: an operator of `JUDGED` without fused activation.
        operands: float32 contents of its operands; of RESHAPE only the first one counts.
        shape: of the result.

    Returns:
        float32 arrays of ``shape``.

    Raises:
        KeyError: any other operator.
    """
    with np.errstate(all="ignore"):
        return _allowed(node, operands, shape)


def allowed_in_half(node: Node, operands: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    """As `allowed`, of an operator in float16: what `wrong_in_half` compares with."""
    found: list[Array] = []
    with np.errstate(all="ignore"):
        rounded = [to_half(operand) for operand in operands]
        clipped = [np.clip(operand, -HALF_MOST, HALF_MOST) for operand in rounded]
        flushed = [_flushed(operand, HALF_LEAST) for operand in rounded]
        for values in (rounded, clipped, flushed):
            for result in _allowed(node, values, shape):
                found += [result, to_half(result), np.clip(result, -HALF_MOST, HALF_MOST)]
                found.append(_flushed(result, HALF_LEAST))
    return found


def wrong_in_half(results: Sequence[Array], seen: Array) -> Array:
    """Which elements of ``seen`` are near none of the ``results``: bool, of its shape."""
    right = np.zeros(seen.shape, bool)
    with np.errstate(all="ignore"):
        for result in results:
            near = np.abs(seen.astype(np.float64) - result) <= 8 * HALF_UNIT * np.abs(result) + HALF_LEAST
            right |= (np.isfinite(result) & near) | (result == seen) | (np.isnan(result) & np.isnan(seen))
    return ~right


def _allowed(node: Node, operands: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    if node.op == "RESHAPE":
        return [operands[0].reshape(shape)]
    if node.op == "CONCATENATION":
        return [np.concatenate(list(operands), node.axis)]
    found: list[Array] = []
    for values in (list(operands), [_flushed(operand) for operand in operands]):
        for result in _RESULTS[node.op](*values):
            found += [result, _flushed(result)]
            if node.op in _CLAMPED:
                found.append(np.clip(result, -_MOST, _MOST))
    return [np.broadcast_to(result, shape) for result in found]


def wrong_elements(node: Node, results: Sequence[Array], seen: Array) -> Array:
    """Which elements of ``seen`` are none of the ``results`` that `allowed` gives: bool, of its shape."""
    right = np.zeros(seen.shape, bool)
    for result in results:
        both_nan = np.isnan(result) & np.isnan(seen)
        if node.op in MOVED:
            same = np.ascontiguousarray(result).view(np.uint32) == np.ascontiguousarray(seen).view(np.uint32)
        else:
            same = result == seen
        right |= both_nan | same
    return ~right


def is_special(values: Array) -> Array:
    """Which elements are NaN, infinite, zero, denormal or next to infinity: bool, of the same shape."""
    size = np.abs(values)
    return ~np.isfinite(values) | (size < _LEAST) | (size >= _MOST)


def comes_of_special(node: Node, operands: Sequence[Array], results: Sequence[Array]) -> Array:
    """Which elements of the result are special, or computed from an element that is: bool, of its shape.

    Args:
        node: as for `allowed`.
        operands: as for `allowed`.
        results: what that gives.
    """
    found = np.any([is_special(result) for result in results], axis=0)
    if node.op not in MOVED:
        for operand in operands:
            found |= np.broadcast_to(is_special(operand), found.shape)
    return np.asarray(found)


def _flushed(values: Array, least: float = float(_LEAST)) -> Array:
    """Denormal numbers taken for zero."""
    return np.where(np.abs(values) < least, np.float32(0), values)


def _maxima(one: Array, other: Array) -> list[Array]:
    unordered = np.isnan(one) | np.isnan(other)
    greater = np.where(one > other, one, other)
    return [np.where(unordered, choice, greater) for choice in (one, other)]


def _scaled(value: Array, slope: Array) -> list[Array]:
    # XNNPACK compares as if denormal numbers were zero, and then gives them as they are.
    return [np.where(below, value * slope, value) for below in (value < 0, _flushed(value) < 0)]


_RESULTS: dict[Op, Callable[..., list[Array]]] = {
    "ADD": lambda one, other: [one + other],
    "SUB": lambda one, other: [one - other],
    "MUL": lambda one, other: [one * other],
    "ABS": lambda value: [np.abs(value)],
    "NEG": lambda value: [-value],
    "RELU": lambda value: _maxima(value, np.zeros_like(value)),
    "MAXIMUM": _maxima,
    "PRELU": _scaled,
}
