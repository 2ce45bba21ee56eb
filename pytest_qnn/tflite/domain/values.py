"""Contents of operands, what they mean, and how far a result may be from what is exact.

Bounds: a float result of one operation is within `ULPS` units in the last place of its magnitude (IEEE 754
rounds the operation itself to half of one; the rest is for what kernels do otherwise, as a product by a
reciprocal). A function that libraries approximate is within `ROUGH` units of its magnitude plus 1. A sum of n
products is within n + 4 units of the sum of their magnitudes (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1). A quantised result is within one step of the real one, and half a step for the
rounding.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Final, Literal

import numpy as np

from pytest_qnn.core.contents import hashed
from pytest_qnn.tflite.domain.cell import QUANTISED, Activation, Cell
from pytest_qnn.tflite.domain.node import Operand, Result, Scaling, Values

Range = Literal["any", "positive", "small"]
"""``any``: from -2 to 2; ``positive``: from 1/8 to 2; ``small``: from -1 to 1. Integers: from -6 to 6, from 1
to 6, from -2 to 2."""
Shape = tuple[int, ...]

ULPS: Final = 4
ROUGH: Final = 16
EPSILON: Final = {"float32": 2.0**-23, "float16": 2.0**-10}
_LENGTHS: Final = (1, 2, 1, 2, 1, 2, 2, 3)
_ODD: Final = 17


def single(value: float) -> float:
    """``value`` rounded to float32, which is what a model file can hold."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def shape_of(cell: Cell) -> Shape:
    """Of the first operand."""
    lengths = _LENGTHS[len(_LENGTHS) - cell.rank :]
    if cell.size == "ones":
        return (1,) * cell.rank
    if cell.size == "zero":
        return (0, *lengths[1:])
    return (*lengths[:-1], _ODD) if cell.size == "odd" else lengths


def limits(dtype: str) -> tuple[int, int]:
    """Least and largest value of an integer type."""
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def scaling_of(cell: Cell, dtype: str, magnitude: float = 2.0) -> Scaling | None:
    """The quantisation of a tensor with values up to a magnitude; None: the type has none."""
    if dtype not in QUANTISED:
        return None
    steps = 30000 if dtype == "int16" else 100
    zero = 128 if dtype == "uint8" else 0
    if cell.quantisation == "shifted" and dtype != "int16":
        return Scaling((single(1.1 * magnitude / steps),), (zero - 7,))
    return Scaling((single(magnitude / steps),), (zero,))


def operand(
    cell: Cell, shape: Shape, seed: int = 1, within: Range = "any", *, dtype: str = "", constant: bool = False
) -> Operand:
    """A tensor of these values, of the cell's type unless another is given."""
    dtype = dtype or cell.dtype
    scaling = scaling_of(cell, dtype)
    values = _contents(shape, dtype, seed, within)
    return Operand(quantised(values, dtype, scaling) if scaling else values, constant, scaling)


@functools.lru_cache(4096)
def _contents(shape: Shape, dtype: str, seed: int, within: Range) -> Values:
    words = hashed(math.prod(shape), seed).reshape(shape) >> np.uint32(7)
    if dtype == "bool":
        return np.asarray(words & np.uint32(1), bool)
    steps = (words % np.uint32(33)).astype(np.int64)
    if dtype in ("int32", "int64"):
        integers = {"any": steps % 13 - 6, "positive": steps % 6 + 1, "small": steps % 5 - 2}[within]
        return np.asarray(integers, dtype)
    eighths = {"any": steps - 16, "positive": steps % 16 + 1, "small": steps % 17 - 8}[within]
    return np.asarray(eighths / 8, "float16" if dtype == "float16" else "float32")


def quantised(values: Values, dtype: str, scaling: Scaling) -> Values:
    """Real values as stored."""
    least, most = limits(dtype)
    steps = np.rint(values.astype(np.float64) / scaling.scales[0]) + scaling.zero_points[0]
    return np.asarray(np.clip(steps, least, most), dtype)


def real(operand: Operand) -> Values:
    """What the stored values mean: float64, or int64 where they are plain integers."""
    values = operand.values
    if operand.scaling is None:
        return values.astype(np.int64 if values.dtype.kind in "iub" else np.float64)
    scaling = operand.scaling
    if len(scaling.scales) == 1:
        return np.asarray((values.astype(np.float64) - scaling.zero_points[0]) * scaling.scales[0])
    shape = [1] * values.ndim
    shape[scaling.axis] = -1
    return np.asarray(values * np.reshape(scaling.scales, shape), np.float64)


def result(
    cell: Cell,
    values: Values,
    *,
    dtype: str = "",
    error: Any = None,
    scaling: Scaling | None = None,
    ulps: float = ULPS,
    rough: bool = False,
) -> Result:
    """What is expected of real values.

    Args:
        cell: whose type the result has, unless ``dtype`` is given.
        values: real ones.
        dtype: of the result.
        error: bound of a float result, and of what a quantised one is rounded from; None: by ``ulps``.
        scaling: of a quantised result; None: one that fits the values.
        ulps: units in the last place that a float result may be off.
        rough: the function is one that libraries approximate.
    """
    dtype = dtype or cell.dtype
    values = np.asarray(values)
    if dtype in QUANTISED:
        largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
        scaling = scaling or scaling_of(cell, dtype, largest)
        if scaling is None:
            raise TypeError(dtype)
        least, most = limits(dtype)
        steps = np.clip(values / scaling.scales[0] + scaling.zero_points[0], least, most)
        return Result(
            dtype, np.asarray(steps), 1.51 + (0 if error is None else error / scaling.scales[0]), scaling
        )
    if dtype in EPSILON:
        values = values.astype(np.float64)
        if error is None:
            error = (ROUGH * (np.abs(values) + 1) if rough else ulps * np.abs(values)) * EPSILON[dtype]
        return Result(dtype, values, error + 2.0**-126)
    return Result(dtype, values.astype(dtype))


def same(dtype: str, values: Values, scaling: Scaling | None = None) -> Result:
    """A result of stored values that are only moved: exact."""
    return Result(dtype, values, 0, scaling)


def activated(activation: Activation, values: Values) -> Values:
    """Real values behind a fused activation."""
    if activation == "TANH":
        return np.tanh(values.astype(np.float64))
    if activation == "SIGN_BIT":
        return (values < 0).astype(np.float64)
    least, most = {"RELU": (0, None), "RELU_N1_TO_1": (-1, 1), "RELU6": (0, 6)}.get(activation, (None, None))
    if least is None:
        return values
    clipped: Values = np.clip(values, least, most)
    return clipped
