"""Operators that move elements and compute nothing: shapes, joining, cutting, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from pytest_qnn.tflite.domain.cell import ACTIVATIONS, Cell
from pytest_qnn.tflite.domain.node import Field, NoSuchCellError, OneNode, Operand, Operator, Values
from pytest_qnn.tflite.domain.reduction import integers
from pytest_qnn.tflite.domain.values import activated, operand, real, result, same, shape_of


def _moved(
    cell: Cell, value: Operand, moved: Values, *rest: Operand, tag: int = 0, fields: tuple[Field, ...] = ()
) -> OneNode:
    return OneNode((value, *rest), (same(cell.dtype, moved, value.scaling),), tag, fields)


def _reshape(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    shape = {"": (value.values.size,), "to rank 8": (1,) * 7 + (value.values.size,)}.get(
        cell.form, shape_of(cell)
    )
    if cell.form == "minus one":
        if not value.values.size:
            raise NoSuchCellError("a length cannot be found out where there is no element")
        return _moved(cell, value, value.values.reshape(-1), integers(-1), tag=17, fields=((0, "iv", (-1,)),))
    return _moved(
        cell, value, value.values.reshape(shape), integers(*shape), tag=17, fields=((0, "iv", shape),)
    )


def _transpose(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    order = tuple(range(cell.rank))[::-1]
    if cell.form == "last two" and cell.rank > 1:
        order = (*range(cell.rank - 2), cell.rank - 1, cell.rank - 2)
    return _moved(cell, value, value.values.transpose(order), integers(*order), tag=26)


def _squeeze(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    axes = tuple(at for at, length in enumerate(shape_of(cell)) if length == 1)
    axes = axes[:1] if cell.form == "first" else axes
    return _moved(cell, value, value.values.squeeze(axes), tag=30, fields=((0, "iv", axes),))


def _expand(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    axis = 0 if cell.form == "first" else -1
    place = Operand(np.array(axis, np.int32), True)
    return _moved(cell, value, np.expand_dims(value.values, axis), place, tag=52)


def _concatenation(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    if not shape:
        one = operand(cell, ())
        return OneNode(
            (one, one._replace()),
            (same(cell.dtype, np.stack([one.values] * 2), one.scaling),),
            10,
            ((0, "i", 0), (1, "b", 0)),
        )
    axis = 0 if cell.form == "first" else cell.rank - 1
    count = 4 if cell.form == "four" else 2
    values = tuple(
        operand(cell, shape, number + 1, constant=cell.form == "constant" and number == 1)
        for number in range(count)
    )
    joined = np.concatenate([each.values for each in values], axis)
    given = same(cell.dtype, joined, values[0].scaling)
    if cell.activation != "NONE":
        computed = activated(cell.activation, np.concatenate([real(each) for each in values], axis))
        given = result(cell, computed, scaling=values[0].scaling)
    return OneNode(values, (given,), 10, ((0, "i", axis), (1, "b", ACTIVATIONS.index(cell.activation))))


def _pack(cell: Cell) -> OneNode:
    values = tuple(operand(cell, shape_of(cell), number) for number in (1, 2, 3))
    axis = cell.rank if cell.form == "last" else 0
    stacked = np.stack([each.values for each in values], axis)
    return OneNode(values, (same(cell.dtype, stacked, values[0].scaling),), 59, ((0, "i", 3), (1, "i", axis)))


def _unpack(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    if not cell.rank:
        return OneNode((value,), (same(cell.dtype, value.values),), 64, ((0, "i", 1), (1, "i", 0)))
    axis = 0 if cell.form == "first" else cell.rank - 1
    parts = np.moveaxis(value.values, axis, 0)
    if not len(parts):
        raise NoSuchCellError("a node has a result at least")
    results = tuple(same(cell.dtype, part, value.scaling) for part in parts)
    return OneNode((value,), results, 64, ((0, "i", len(parts)), (1, "i", axis)))


def _split(cell: Cell) -> OneNode:
    axis = 0 if cell.form == "first" else max(0, cell.rank - 1)
    shape = shape_of(cell)
    shape = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]) if shape else ()
    value = operand(cell, shape)
    parts = np.split(value.values, 2, axis) if shape else [value.values] * 2
    results = tuple(same(cell.dtype, part, value.scaling) for part in parts)
    place = Operand(np.array(axis, np.int32), True)
    return OneNode((place, value), results, 35, ((0, "i", 2),))


def _split_v(cell: Cell) -> OneNode:
    axis = 0 if cell.form == "first" else max(0, cell.rank - 1)
    shape = shape_of(cell)
    value = operand(cell, shape)
    if shape:
        sizes = (shape[axis] - shape[axis] // 2, shape[axis] // 2)
        parts = np.split(value.values, [sizes[0]], axis)
    else:
        sizes, parts = (1, 1), [value.values] * 2
    results = tuple(same(cell.dtype, part, value.scaling) for part in parts)
    place = Operand(np.array(axis, np.int32), True)
    return OneNode((value, integers(*sizes), place), results, 79, ((0, "i", 2),))


def _slice(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    begins = tuple(length // 2 for length in shape_of(cell))
    sizes = tuple(length - length // 2 for length in shape_of(cell))
    if cell.form == "minus one":
        sizes = (-1,) * cell.rank
    cut = value.values[tuple(slice(begin, None) for begin in begins)]
    return _moved(cell, value, cut, integers(*begins), integers(*sizes), tag=48)


def _strided(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    shape = shape_of(cell)
    step = {"two": 2, "backwards": -1}.get(cell.form, 1)
    begins = tuple(length - 1 if step < 0 else 0 for length in shape)
    ends = tuple(-length - 1 if step < 0 else length for length in shape)
    cut = value.values[tuple(slice(None, None, step) for _ in shape)]
    if cell.form == "shrink" and shape and shape[0]:
        fields: tuple[Field, ...] = ((4, "i", 1),)
        ends = (1, *ends[1:])
        cut = cut[0]
    else:
        fields = ((4, "i", 0),)
    more = (integers(*begins), integers(*ends), integers(*(step,) * cell.rank))
    return _moved(cell, value, cut, *more, tag=32, fields=((0, "i", 0), (1, "i", 0), *fields))


def _pads(cell: Cell) -> Values:
    if cell.form == "last":
        return np.array([(0, 0)] * max(0, cell.rank - 1) + [(1, 2)] * min(1, cell.rank), np.int32).reshape(
            -1, 2
        )
    return np.array([(at % 2, 1) for at in range(cell.rank)], np.int32).reshape(-1, 2)


def _pad(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    zero = value.scaling.zero_points[0] if value.scaling else 0
    padded = np.pad(value.values, _pads(cell), constant_values=zero) if cell.rank else value.values
    return _moved(cell, value, padded, Operand(_pads(cell), True), tag=22)


def _pad_v2(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    fill = operand(cell, (), 5)
    padded = (
        np.pad(value.values, _pads(cell), constant_values=fill.values.item()) if cell.rank else value.values
    )
    more = (Operand(_pads(cell), True), fill._replace(constant=True))
    return _moved(cell, value, padded, *more, tag=43)


def _mirror(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    reflects = cell.form != "symmetric"
    room = [max(0, length - 1) if reflects else length for length in shape_of(cell)]
    pads = np.array([(min(1, most), min(1, most)) for most in room], np.int32).reshape(-1, 2)
    mode = "reflect" if reflects else "symmetric"
    padded = np.pad(value.values, pads, mode=mode) if cell.rank else value.values  # type: ignore[call-overload]
    return _moved(cell, value, padded, Operand(pads, True), tag=77, fields=((0, "b", not reflects),))


def _tile(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    times = tuple(1 + at % 2 for at in range(cell.rank))
    return _moved(cell, value, np.tile(value.values, times), integers(*times), tag=51)


def _broadcast_to(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    shape = tuple(3 if length == 1 else length for length in shape_of(cell))
    shape = (2, *shape) if cell.form == "higher" else shape
    return _moved(cell, value, np.broadcast_to(value.values, shape), integers(*shape), tag=104)


def _reverse(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    axis = 0 if cell.form == "first" else max(0, cell.rank - 1)
    turned = np.flip(value.values, axis) if cell.rank else value.values
    return _moved(cell, value, turned, integers(axis), tag=81)


def _image(cell: Cell, before: str) -> tuple[int, ...]:
    """A shape that `_regrouped` can divide; of another rank than 4 what the cell says."""
    if cell.rank != 4:
        return shape_of(cell)
    batch, depth = (0 if cell.size == "zero" else 1), {"ones": 1, "odd": 17}.get(cell.size, 3)
    if "yxc" in before:
        return (batch, 2, 3, 4 * depth)
    return (4 * batch if "yxn" in before else batch, 2, 4, depth)


def _regrouped(values: Values, before: str, after: str) -> Values:
    """Elements of blocks of 2 by 2, moved from the plane into another dimension or back.

    Args:
        values: as many dimensions as ``before`` has words.
        before: a word for each dimension, a letter for each index that it consists of, the slowest first:
            y and x, which are 0 or 1, are row and column within a block.
        after: the same of the result.
    """
    lengths = dict.fromkeys("yx", 2)
    for word, length in zip(before.split(), values.shape, strict=True):
        lengths[word.strip("yx")] = length // 2 ** (len(word) - 1)
    letters = before.replace(" ", "")
    apart = values.reshape([lengths[letter] for letter in letters])
    ordered = apart.transpose([letters.index(letter) for letter in after.replace(" ", "")])
    return ordered.reshape([math.prod(map(lengths.__getitem__, word)) for word in after.split()])


def _blocks(before: str, after: str, tag: int) -> Callable[[Cell], OneNode]:
    """Models of an operator that moves blocks of 2 by 2; see `_regrouped`."""

    def make(cell: Cell) -> OneNode:
        value = operand(cell, _image(cell, before))
        moved = _regrouped(value.values, before, after) if cell.rank == 4 else value.values
        if "yxn" not in before + after:
            return _moved(cell, value, moved, tag=tag, fields=((0, "i", 2),))
        zeros = Operand(np.zeros((2, 2), np.int32), True)
        return _moved(cell, value, moved, integers(2, 2), zeros, tag=tag)

    return make


def _gather(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    axis = cell.rank - 1 if cell.form == "last" and cell.rank else 0
    length = shape_of(cell)[axis] if cell.rank else 1
    places = np.array([(3 * at) % max(1, length) for at in range(3 if length else 0)], np.int32)
    moved = np.take(value.values, places, axis) if cell.rank else value.values
    indices = Operand(places, cell.form == "constant")
    return _moved(cell, value, moved, indices, tag=23, fields=((0, "i", axis),))


def _gather_nd(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    value = operand(cell, shape)
    rows = 2 if value.values.size else 0
    places = np.array(
        [[(row + at) % max(1, length) for at, length in enumerate(shape)] for row in range(rows)], np.int32
    ).reshape(rows, cell.rank)
    moved = value.values[tuple(places.T)] if cell.rank else value.values
    return _moved(cell, value, moved, Operand(places), tag=83)


def _shape(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    given = same("int32", np.array(shape_of(cell), np.int32))
    return OneNode((value,), (given,), 55, ((0, "b", 2),))


def _rank(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    return OneNode((value,), (same("int32", np.array(cell.rank, np.int32)),), 86)


def _fill(cell: Cell) -> OneNode:
    fill = operand(cell, (), 3)
    shape = shape_of(cell)
    filled = np.full(shape, fill.values)
    return OneNode((integers(*shape), fill), (same(cell.dtype, filled, fill.scaling),), 68)


def _top(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    value = operand(cell, shape)
    count = min(2, shape[-1]) if shape else 1
    order = (
        np.argsort(-value.values.astype(np.float64), axis=-1, kind="stable")[..., :count]
        if shape
        else value.values
    )
    moved = np.take_along_axis(value.values, order, -1) if shape else value.values
    number = Operand(np.array(count, np.int32), True)
    results = (same(cell.dtype, moved, value.scaling), same("int32", order.astype(np.int32)))
    return OneNode((value, number), results, 34)


def _one_hot(cell: Cell) -> OneNode:
    shape = shape_of(cell)
    places = Operand((np.arange(int(np.prod(shape))).reshape(shape) % 3).astype(np.int32))
    on, off = (operand(cell, (), seed, constant=True) for seed in (5, 6))
    hot = np.where(places.values[..., None] == np.arange(3), on.values, off.values)
    depth = Operand(np.array(3, np.int32), True)
    return OneNode((places, depth, on, off), (same(cell.dtype, hot, on.scaling),), 61, ((0, "i", -1),))


def _where(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    value = value._replace(scaling=None)
    found = np.argwhere(value.values).astype(np.int64)
    return OneNode((value,), (same("int64", found),), 85)


def _scatter(cell: Cell) -> OneNode:
    shape = (2, *shape_of(cell)[1:]) if cell.rank else ()
    updates = operand(cell, shape)
    places = np.array([[3], [1]], np.int32)
    scattered = np.zeros((5, *shape[1:]), updates.values.dtype)
    if shape:
        scattered[places[:, 0]] = updates.values
    size = integers(*scattered.shape)
    return OneNode((Operand(places), updates, size), (same(cell.dtype, scattered, updates.scaling),), 97)


def _update(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))
    part = operand(cell, tuple(min(1, length) for length in shape_of(cell)), 2)
    moved = value.values.copy()
    moved[tuple(slice(0, min(1, length)) for length in shape_of(cell))] = part.values
    return _moved(cell, value, moved, part, integers(*(0,) * cell.rank), tag=117)


def _lookup(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell), constant=True)
    rows = shape_of(cell)[0] if cell.rank else 1
    places = Operand(np.array([at % max(1, rows) for at in ((1, 0, 1) if rows else ())], np.int32))
    moved = value.values[places.values] if cell.rank else value.values
    return OneNode((places, value), (same(cell.dtype, moved, value.scaling),))


def _diagonal(cell: Cell) -> OneNode:
    value = operand(cell, shape_of(cell))._replace(scaling=None)
    length = shape_of(cell)[-1] if cell.rank else 1
    moved = np.where(np.eye(length, dtype=bool), value.values[..., None], 0).astype(cell.dtype)
    return _moved(cell, value, moved, tag=88)


def _move(
    name: str, code: int, make: Callable[[Cell], OneNode], *forms: str, fuses: bool = False, version: int = 2
) -> Operator:
    return Operator(name, code, make, fuses, forms, versions={"int8": version} if version > 1 else {})


OPERATORS: Final = (
    _move("CONCATENATION", 2, _concatenation, "first", "four", "constant", fuses=True),
    _move("RESHAPE", 22, _reshape, "to rank 8", "same", "minus one", version=1),
    _move("TRANSPOSE", 39, _transpose, "last two"),
    _move("SQUEEZE", 43, _squeeze, "first", version=1),
    _move("EXPAND_DIMS", 70, _expand, "first", version=1),
    _move("PACK", 83, _pack, "last"),
    _move("UNPACK", 88, _unpack, "first"),
    _move("SPLIT", 49, _split, "first"),
    _move("SPLIT_V", 102, _split_v, "first"),
    _move("SLICE", 65, _slice, "minus one"),
    _move("STRIDED_SLICE", 45, _strided, "two", "backwards", "shrink"),
    _move("PAD", 34, _pad, "last"),
    _move("PADV2", 60, _pad_v2, "last"),
    _move("MIRROR_PAD", 100, _mirror, "symmetric"),
    _move("TILE", 69, _tile),
    _move("BROADCAST_TO", 130, _broadcast_to, "higher"),
    _move("REVERSE_V2", 105, _reverse, "first", version=1),
    _move("SPACE_TO_DEPTH", 26, _blocks("n hy wx c", "n h w yxc", 19)),
    _move("DEPTH_TO_SPACE", 5, _blocks("n h w yxc", "n hy wx c", 94)),
    _move("SPACE_TO_BATCH_ND", 38, _blocks("n hy wx c", "yxn h w c", 25)),
    _move("BATCH_TO_SPACE_ND", 37, _blocks("yxn h w c", "n hy wx c", 24)),
    _move("GATHER", 36, _gather, "constant", "last"),
    _move("GATHER_ND", 107, _gather_nd),
    _move("SHAPE", 77, _shape, version=1),
    _move("RANK", 110, _rank, version=1),
    _move("FILL", 94, _fill),
    _move("TOPK_V2", 48, _top),
    _move("ONE_HOT", 85, _one_hot, version=1),
    _move("WHERE", 109, _where, version=1),
    _move("SCATTER_ND", 122, _scatter, version=1),
    _move("DYNAMIC_UPDATE_SLICE", 151, _update, version=1),
    _move("EMBEDDING_LOOKUP", 7, _lookup, version=1),
    _move("MATRIX_DIAG", 113, _diagonal, version=1),
)
