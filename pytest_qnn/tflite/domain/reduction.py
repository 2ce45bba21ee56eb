"""Operators that reduce dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.node import OneNode, Operand, Operator, Values
from pytest_qnn.tflite.domain.values import EPSILON, limits, operand, real, result, same, shape_of

_OPEN: Final = "axes as input"


def integers(*numbers: int, constant: bool = True) -> Operand:
    """An int32 vector: axes, shapes, sizes."""
    return Operand(np.array(numbers, np.int32), constant)


def _axes(cell: Cell) -> tuple[int, ...]:
    if cell.rank == 0:
        return ()
    if "all" in cell.form:
        return tuple(range(cell.rank))
    if "plane" in cell.form and cell.rank >= 3:
        return (cell.rank - 3, cell.rank - 2)
    return (0,) if "first" in cell.form else (cell.rank - 1,)


def _given(cell: Cell, axes: tuple[int, ...]) -> Operand:
    """The axes, as a constant; as an input the shape of the result is known while the graph runs only."""
    return integers(*axes, constant=cell.form != _OPEN)


def _reduce(function: Callable[..., Values], kind: str) -> Callable[[Cell], OneNode]:
    def make(cell: Cell) -> OneNode:
        value = operand(cell, shape_of(cell), 1, "positive" if kind == "product" else "any")
        keep, axes = "keep" in cell.form, _axes(cell)
        numbers = real(value)
        computed = _of_nothing(function, numbers, axes, keep=keep, cell=cell)
        options: tuple[int, tuple[tuple[int, str, Any], ...]] = (27, ((0, "?", keep),))
        if kind == "moved":
            given = same(cell.dtype, computed, value.scaling)
        else:
            count = max(1, numbers.size // max(1, computed.size))
            magnitudes = (
                np.sum(np.abs(numbers), axis=axes, keepdims=keep) if kind == "sum" else np.abs(computed)
            )
            if kind == "mean":
                magnitudes = np.mean(np.abs(numbers), axis=axes, keepdims=keep) if numbers.size else computed
            error = (count + 4) * magnitudes * EPSILON.get(cell.dtype, 0.0)
            given = result(cell, computed, error=error)
            if kind == "mean" and cell.dtype in ("int32", "int64"):
                given = given._replace(error=1)  # truncated or rounded: no document says which
        return OneNode((value, _given(cell, axes)), (given,), *options)

    return make


def _of_nothing(
    function: Callable[..., Values], numbers: Values, axes: tuple[int, ...], *, keep: bool, cell: Cell
) -> Values:
    with np.errstate(all="ignore"):
        if numbers.size or function in (np.sum, np.prod, np.any, np.all):
            return np.asarray(function(numbers, axis=axes, keepdims=keep))
        shape = np.sum(numbers, axis=axes, keepdims=keep).shape
        return np.full(shape, np.nan if cell.dtype.startswith("float") else 0)


def _extreme(function: Callable[..., Values]) -> Callable[[Cell], OneNode]:
    def make(cell: Cell) -> OneNode:
        value = operand(cell, shape_of(cell))
        keep, axes = "keep" in cell.form, _axes(cell)
        stored = value.values
        if stored.size:
            computed = np.asarray(function(stored, axis=axes, keepdims=keep))
        else:
            shape = np.sum(stored, axis=axes, keepdims=keep).shape
            if cell.dtype.startswith("float"):
                bound: Any = -np.inf if function is np.max else np.inf
            else:
                bound = limits(cell.dtype)[function is not np.max] if cell.dtype != "bool" else False
            computed = np.full(shape, bound).astype(cell.dtype)
        return OneNode(
            (value, _given(cell, axes)), (same(cell.dtype, computed, value.scaling),), 27, ((0, "?", keep),)
        )

    return make


def _place(function: Callable[..., Values], tag: int) -> Callable[[Cell], OneNode]:
    def make(cell: Cell) -> OneNode:
        value = operand(cell, shape_of(cell))
        axis = 0 if "first" in cell.form else max(0, cell.rank - 1)
        to = "int64" if "int64" in cell.form else "int32"
        if cell.rank and value.values.shape[axis]:
            computed = function(value.values, axis=axis)
        else:
            computed = np.zeros(np.delete(shape_of(cell), axis) if cell.rank else ())
        fields = ((0, "b", 4 if to == "int64" else 2),)
        return OneNode((value, integers(axis)), (same(to, np.asarray(computed, to)),), tag, fields)

    return make


def _cumsum(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    axis = 0 if "first" in cell.form else max(0, cell.rank - 1)
    numbers = real(value)
    exclusive, backwards = "exclusive" in cell.form, "reverse" in cell.form
    if cell.rank:
        turned = np.flip(numbers, axis) if backwards else numbers
        computed = np.cumsum(turned, axis=axis)
        computed = computed - turned if exclusive else computed
        computed = np.flip(computed, axis) if backwards else computed
        error = (shape_of(cell)[axis] + 4) * np.sum(np.abs(numbers), axis=axis, keepdims=True)
    else:
        computed, error = numbers, np.abs(numbers)
    given = result(cell, computed, error=error * EPSILON.get(cell.dtype, 0.0))
    axes = Operand(np.array(axis, np.int32), True)
    return OneNode((value, axes), (given,), 102, ((0, "?", exclusive), (1, "?", backwards)))


_FORMS: Final = ("keep", "first", "first keep", "all", "all keep", "plane", "plane keep", _OPEN)

OPERATORS: Final = (
    Operator("MEAN", 40, _reduce(np.mean, "mean"), forms=_FORMS, versions={"int8": 2}),
    Operator("SUM", 74, _reduce(np.sum, "sum"), forms=_FORMS, versions={"int8": 2}),
    Operator("REDUCE_PROD", 81, _reduce(np.prod, "product"), forms=_FORMS, versions={"int8": 2}),
    Operator("REDUCE_MAX", 82, _extreme(np.max), forms=_FORMS, versions={"int8": 2}),
    Operator("REDUCE_MIN", 89, _extreme(np.min), forms=_FORMS, versions={"int8": 2}),
    Operator("REDUCE_ANY", 91, _reduce(np.any, "moved"), forms=_FORMS),
    Operator("REDUCE_ALL", 140, _reduce(np.all, "moved"), forms=_FORMS),
    Operator("ARG_MAX", 56, _place(np.argmax, 40), forms=("first", "int64"), versions={"int8": 2}),
    Operator("ARG_MIN", 79, _place(np.argmin, 57), forms=("first", "int64"), versions={"int8": 2}),
    Operator("CUMSUM", 128, _cumsum, forms=("first", "exclusive", "reverse", "exclusive reverse")),
)
