"""Operators that compute each element by itself: of one operand, of two, comparisons, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.domain.cell import ACTIVATIONS, DTYPES, Cell
from pytest_qnn.tflite.domain.node import Field, NoSuchCellError, OneNode, Operator, Scaling, Values
from pytest_qnn.tflite.domain.values import (
    Range,
    activated,
    operand,
    real,
    result,
    same,
    shape_of,
)

Function = Callable[..., Values]

_FLOOR: Final = {"int8": Scaling((1 / 256,), (-128,)), "uint8": Scaling((1 / 256,), (0,))}
LOGISTIC_SCALES: Final = {**_FLOOR, "int16": Scaling((1 / 32768,), (0,))}
TANH_SCALES: Final = {
    "int8": Scaling((1 / 128,), (0,)),
    "uint8": Scaling((1 / 128,), (128,)),
    "int16": Scaling((1 / 32768,), (0,)),
}
"""Scales that the quantisation specification fixes for the result."""


def _of_one(
    function: Function,
    *,
    within: Range = "any",
    tag: int = 0,
    fields: tuple[Field, ...] = (),
    rough: bool = False,
    scalings: Mapping[str, Scaling] | None = None,
    exact: bool = False,
) -> Callable[[Cell], OneNode]:
    """Models of an operator of one operand.

    Args:
        function: of real values.
        within: the operand's values.
        tag: of its options.
        fields: of its options.
        rough: libraries approximate the function.
        scalings: of the result, where the specification fixes them.
        exact: the result has the operand's quantisation.
    """

    def make(cell: Cell) -> OneNode:
        value = operand(cell, shape_of(cell), 1, within)
        scaling = value.scaling if exact else (scalings or {}).get(cell.dtype)
        computed = function(real(value))
        return OneNode((value,), (result(cell, computed, scaling=scaling, rough=rough),), tag, fields)

    return make


def second_shape(cell: Cell, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of two operands, of which one may be broadcast: the first along its last dimension."""
    if cell.form.endswith("scalar"):
        other: tuple[int, ...] = ()
    elif "broadcast" in cell.form:
        if not shape:
            raise NoSuchCellError("a scalar is not broadcast to another shape")
        along = "first" in cell.form or len(shape) == 1
        other = (*shape[:-1], 1) if along else (*(1 for _ in shape[:-1]), shape[-1])
    else:
        return shape, shape
    return (other, shape) if "first" in cell.form else (shape, other)


def _of_two(
    function: Function,
    *,
    tag: int = 0,
    within: Range = "any",
    second: Range = "any",
    fused: int = -1,
    rough: bool = False,
    compares: bool = False,
    alike: bool = False,
    raw: bool = False,
) -> Callable[[Cell], OneNode]:
    """Models of an operator of two operands.

    Args:
        function: of real values.
        tag: of its options.
        within: the first operand's values.
        second: the second operand's values.
        fused: number of the field of the fused activation.
        rough: libraries approximate the function.
        compares: the result is of type bool.
        alike: the result has the operands' quantisation.
        raw: it computes with what is stored, and has no quantisation.
    """

    def make(cell: Cell) -> OneNode:
        shapes = second_shape(cell, shape_of(cell))
        constant = cell.form.startswith("constant")
        first = operand(cell, shapes[0], 1, within, constant=cell.form == "constant first")
        other = operand(cell, shapes[1], 2, second, constant=constant and not first.constant)
        if raw:
            first, other = first._replace(scaling=None), other._replace(scaling=None)
        computed = activated(cell.activation, function(real(first), real(other)))
        fields: tuple[Field, ...] = ()
        if fused >= 0:
            fields = ((fused, "b", ACTIVATIONS.index(cell.activation)),)
        if raw and first.values.dtype.kind in "iub":
            given = same(cell.dtype, computed.astype(cell.dtype))
        elif compares:
            given = same("bool", computed.astype(bool))
        else:
            # A difference may be far smaller than what it is of.
            largest = np.abs(real(first)) + np.abs(real(other)) + np.abs(computed)
            bound = None if rough or cell.dtype != "float32" else largest * 4 * 2.0**-23
            scaling = first.scaling if alike else None
            given = result(cell, computed, scaling=scaling, rough=rough, error=bound)
        return OneNode((first, other), (given,), tag, fields)

    return make


def _bitwise(function: Function) -> Function:
    """Of integers; of what a runtime may refuse the whole part."""
    return lambda first, second: function(first.astype(np.int64), second.astype(np.int64))


def _prelu(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    value = operand(cell, shape)
    slopes = operand(cell, (*(1 for _ in shape[:-1]), *shape[-1:])[1:], 2, "small", constant=True)
    numbers = real(value)
    return OneNode((value, slopes), (result(cell, np.where(numbers < 0, numbers * real(slopes), numbers)),))


def _cast(cell: Cell) -> OneNode:
    to = cell.form.removeprefix("to ") or ("int32" if cell.dtype == "float32" else "float32")
    # What C makes of a negative number that becomes unsigned is its own affair.
    within: Range = "positive" if to == "uint8" and cell.dtype != "int8" else "any"
    value = operand(cell, shape_of(cell), 1, within)._replace(scaling=None)
    computed = value.values.astype(to)
    numbers = {name: number for number, name in enumerate(("float32", "float16", "int32", "uint8", "int64"))}
    numbers |= {"bool": 6, "int16": 7, "int8": 9}
    fields = ((0, "b", numbers[cell.dtype]), (1, "b", numbers[to]))
    return OneNode((value,), (same(to, computed),), 37, fields)


def _quantize(cell: Cell) -> OneNode:
    to = cell.form.removeprefix("to ") or "int8"
    value = operand(cell, shape_of(cell))
    return OneNode((value,), (result(cell, real(value), dtype=to),), 89)


def _dequantize(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    # A kernel may compute scale * stored - scale * zero point.
    shift = 0.0 if value.scaling is None else value.scaling.scales[0] * abs(value.scaling.zero_points[0])
    error = 4 * 2.0**-23 * (np.abs(real(value)) + 2 * shift)
    return OneNode((value,), (result(cell, real(value), dtype="float32", error=error),), 38)


def _zeros(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    zero = 0 if value.scaling is None else value.scaling.zero_points[0]
    return OneNode((value,), (same(cell.dtype, np.full_like(value.values, zero), value.scaling),), 66)


def _logical_not(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    return OneNode((value,), (same(cell.dtype, (~value.values.astype(bool)).astype(cell.dtype)),), 63)


def _select(tag: int) -> Callable[[Cell], OneNode]:
    def make(cell: Cell) -> OneNode:
        shapes = second_shape(cell, shape_of(cell))
        which = operand(cell, shapes[0] if "first" in cell.form else shape_of(cell), 3, dtype="bool")
        first = operand(cell, shape_of(cell), 1)
        other = operand(cell, shapes[1], 2)
        chosen = np.where(which.values, first.values, other.values)
        return OneNode((which, first, other), (same(cell.dtype, chosen, first.scaling),), tag)

    return make


def _erf(values: Values) -> Values:
    return np.array([math.erf(value) for value in values.ravel()], np.float64).reshape(values.shape)


def _gelu(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    numbers = real(value).astype(np.float64)
    if cell.form == "approximate":
        inner = np.sqrt(2 / np.pi) * (numbers + 0.044715 * numbers**3)
        computed = numbers / 2 * (1 + np.tanh(inner))
    else:
        computed = numbers / 2 * (1 + _erf(numbers / np.sqrt(2.0)))
    fields = ((0, "?", cell.form == "approximate"),)
    return OneNode((value,), (result(cell, computed, rough=True),), 116, fields)


def _leaky(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    numbers = real(value)
    computed = np.where(numbers < 0, numbers * 0.25, numbers)
    return OneNode((value,), (result(cell, computed),), 75, ((0, "f", 0.25),))


def _sigmoid(values: Values) -> Values:
    return 1 / (1 + np.exp(-values.astype(np.float64)))


def _clip(least: float, most: float | None) -> Function:
    return lambda values: np.clip(values, least, most)


def _floor_mod(first: Values, second: Values) -> Values:
    return np.mod(first, second)


def _quotient(first: Values, second: Values) -> Values:
    if first.dtype.kind == "i":
        return np.trunc(first / second).astype(np.int64)
    return first / second


def _one(name: str, code: int, function: Function, **how: Any) -> Operator:
    versions = {"int8": 2, "int16": 3 if name in ("TANH", "LOGISTIC") else 2}
    return Operator(name, code, _of_one(function, **how), versions=versions)


_BROADCAST: Final = ("constant", "constant first", "broadcast first", "broadcast second", "broadcast scalar")


def _two(name: str, code: int, function: Function, **how: Any) -> Operator:
    fuses = "fused" in how
    return Operator(name, code, _of_two(function, **how), fuses, _BROADCAST, versions={"int8": 2})


_TO: Final = tuple(f"to {dtype}" for dtype in DTYPES)

OPERATORS: Final = (
    _two("ADD", 0, np.add, tag=11, fused=0),
    _two("SUB", 41, np.subtract, tag=28, fused=0),
    _two("MUL", 18, np.multiply, tag=21, fused=0),
    _two("MAXIMUM", 55, np.maximum, tag=39, alike=True),
    _one("RELU", 19, _clip(0, None)),
    _one("ABS", 101, np.abs, tag=78),
    _one("NEG", 59, np.negative, tag=42),
    Operator("PRELU", 54, _prelu),
    _two("DIV", 42, _quotient, tag=29, fused=0, second="positive"),
    _two("MINIMUM", 57, np.minimum, tag=39, alike=True),
    _two("POW", 78, np.power, tag=56, within="positive", second="positive", rough=True),
    _two("SQUARED_DIFFERENCE", 99, lambda one, two: (one - two) ** 2, tag=76),
    _two("FLOOR_DIV", 90, np.floor_divide, tag=65, second="positive", raw=True),
    _two("FLOOR_MOD", 95, _floor_mod, tag=72, second="positive", raw=True),
    _two("ATAN2", 156, np.arctan2, tag=122, second="positive", rough=True),
    _two("LOGICAL_AND", 86, _bitwise(np.bitwise_and), tag=62),
    _two("LOGICAL_OR", 84, _bitwise(np.bitwise_or), tag=60),
    _two("BITWISE_XOR", 160, _bitwise(np.bitwise_xor), tag=125, raw=True),
    _two("EQUAL", 71, np.equal, tag=53, compares=True),
    _two("NOT_EQUAL", 72, np.not_equal, tag=54, compares=True),
    _two("LESS", 58, np.less, tag=41, compares=True),
    _two("LESS_EQUAL", 63, np.less_equal, tag=45, compares=True),
    _two("GREATER", 61, np.greater, tag=43, compares=True),
    _two("GREATER_EQUAL", 62, np.greater_equal, tag=44, compares=True),
    _one("RELU6", 21, _clip(0, 6)),
    _one("RELU_N1_TO_1", 20, _clip(-1, 1)),
    _one("RELU_0_TO_1", 152, _clip(0, 1)),
    _one("TANH", 28, np.tanh, rough=True, scalings=TANH_SCALES),
    _one("LOGISTIC", 14, _sigmoid, rough=True, scalings=LOGISTIC_SCALES),
    _one("ELU", 111, lambda values: np.where(values < 0, np.expm1(values), values), rough=True),
    _one("HARD_SWISH", 117, lambda values: values * np.clip(values + 3, 0, 6) / 6, tag=91, rough=True),
    Operator("GELU", 150, _gelu, forms=("approximate",), versions={"int8": 2}),
    Operator("LEAKY_RELU", 98, _leaky, versions={"int8": 2, "int16": 2}),
    _one("EXP", 47, np.exp, tag=33, rough=True),
    _one("LOG", 73, np.log, within="positive", rough=True),
    _one("SQRT", 75, np.sqrt, within="positive"),
    _one("RSQRT", 76, lambda values: 1 / np.sqrt(values), within="positive"),
    _one("SQUARE", 92, np.square, tag=66),
    _one("SIN", 66, np.sin, rough=True),
    _one("COS", 108, np.cos, tag=84, rough=True),
    _one("CEIL", 104, np.ceil),
    _one("FLOOR", 8, np.floor),
    _one("ROUND", 116, np.rint),
    _one("SIGN", 158, np.sign, tag=123),
    Operator("LOGICAL_NOT", 87, _logical_not),
    Operator("ZEROS_LIKE", 93, _zeros),
    Operator("CAST", 53, _cast, forms=_TO),
    Operator("QUANTIZE", 114, _quantize, forms=("to uint8", "to int16"), versions={"int8": 2}),
    Operator("DEQUANTIZE", 6, _dequantize, versions={"int8": 2, "int16": 3, "float16": 3}),
    Operator("SELECT", 64, _select(47), versions={"int8": 2}),
    Operator("SELECT_V2", 123, _select(98), forms=("broadcast second", "broadcast first")),
)
