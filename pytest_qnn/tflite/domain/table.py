"""The table of operators, the cells of each, and the model of a cell."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from pytest_qnn.tflite.domain import elementwise, layers, movement, reduction
from pytest_qnn.tflite.domain.cell import ACTIVATIONS, DTYPES, MOST_RANK, Cell, Size
from pytest_qnn.tflite.domain.model import emit
from pytest_qnn.tflite.domain.node import NoSuchCellError, OneNode, Operator

_PLAIN_FIRST: Final = ("ADD", "CONCATENATION", "MEAN", "FULLY_CONNECTED", "CONV_2D", "RELU", "RESHAPE")
_FAMILIES: Final = (*elementwise.OPERATORS, *reduction.OPERATORS, *movement.OPERATORS, *layers.OPERATORS)
OPERATORS: Final[dict[str, Operator]] = {
    **{name: operator for name in _PLAIN_FIRST for operator in _FAMILIES if operator.name == name},
    **{operator.name: operator for operator in _FAMILIES},
}
"""By name, the most frequent first."""

_IMAGES: Final = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
)
_SIZES: Final[tuple[Size, ...]] = ("ones", "zero", "odd")


class Made(NamedTuple):
    """A cell's model and what it consists of."""

    node: OneNode
    model: bytes


class Beside(NamedTuple):
    """The model of several cells, and what it consists of: a node of each, which share nothing."""

    nodes: tuple[OneNode, ...]
    model: bytes


@functools.cache
def cells_of(name: str) -> tuple[Cell, ...]:
    """All cells of an operator: every type at every rank, and what else is special at some ranks."""
    return tuple(dict.fromkeys(_cells(OPERATORS[name])))


def is_plain(cell: Cell) -> bool:
    """It has an operator, a type and a rank, and nothing special."""
    return cell == Cell(cell.op, cell.dtype, cell.rank)


def _cells(operator: Operator) -> Iterator[Cell]:
    name = operator.name
    for dtype in DTYPES:
        yield from (Cell(name, dtype, rank) for rank in range(MOST_RANK + 1))
        image = name in _IMAGES
        for rank in (4,) if image else (1, 4):
            yield from (Cell(name, dtype, rank, size) for size in _SIZES)
        for rank in (4,) if image or dtype not in ("float32", "int8") else (2, 4):
            yield from (Cell(name, dtype, rank, form=form) for form in operator.forms)
        if operator.fuses:
            yield from (Cell(name, dtype, 4, activation=each) for each in ACTIVATIONS[1:])
        if dtype in ("int8", "uint8"):
            yield Cell(name, dtype, 4, quantisation="shifted")
        if operator.channels and dtype in ("int8", "int16"):
            yield Cell(name, dtype, 4, quantisation="channel")
        for form in operator.hybrid if dtype == "float32" else ():
            yield from (Cell(name, dtype, rank, form=form) for rank in ((4,) if image else (2, 4)))


@functools.cache
def cells() -> tuple[Cell, ...]:
    """The whole domain, operator by operator."""
    return tuple(cell for name in OPERATORS for cell in cells_of(name))


def made(cell: Cell) -> Made:
    """The model of a cell.

    Raises:
        NoSuchCellError: there is none.
    """
    node, operator = node_of(cell), OPERATORS[cell.op]
    return Made(node, emit([(operator, node, operator.version(cell))]))


def beside(cells: Sequence[Cell]) -> Beside:
    """One model of cells each of which has one.

    Raises:
        NoSuchCellError: a cell has none.
    """
    nodes = tuple(map(node_of, cells))
    operators = [OPERATORS[cell.op] for cell in cells]
    versions = [operator.version(cell) for operator, cell in zip(operators, cells, strict=True)]
    return Beside(nodes, emit(list(zip(operators, nodes, versions, strict=True))))


def node_of(cell: Cell) -> OneNode:
    """What the model of a cell consists of, and what it computes.

    Raises:
        NoSuchCellError: there is none.
    """
    try:
        with np.errstate(all="ignore"):
            return OPERATORS[cell.op].make(cell)
    except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise NoSuchCellError(f"{type(error).__name__}: {error}") from None
