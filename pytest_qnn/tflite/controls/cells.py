"""Controls of cells of the input domain: graphs that strategies draw, whose faults other rules own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.drawn_cells import drawn_as, witnesses
from pytest_qnn.tflite.controls import controls, of_numbers
from pytest_qnn.tflite.controls.graphs import of_two_shapes, simplest
from pytest_qnn.tflite.controls.scripts import of_guarded_memory
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.floors import Floor
from pytest_qnn.tflite.graph.kinds import graph_of

_ANY: Final = next(one for one in GRID if one.op == "ADD" and one.rank > 1)
"""What is wrong in any graph is wrong in this one."""


_SOME: Final = Floor(((17,), (5, 7), (3, 5, 7), (1, 5, 5, 3)))
"""Of graphs whose results have some elements: of few all may be right by chance."""
_OTHER_SIZES: Final = (
    Floor(((3,), (2, 3), (2, 2, 3), (1, 2, 2, 3))),
    Floor(((4,), (2, 17), (1, 2, 17), (2, 1, 2, 17))),
)
"""Such as cells have them, and odd and even numbers of elements: length may be what shows a fault."""
_MOST_WHOLE = 3
"""Kinds of nodes of which all is looked at: some hundred controls each."""


def of_drawn(cells: Iterable[Cell], *, died: bool) -> Iterator[Control]:
    """Controls of graphs of one node such as strategies draw: of ADD, then those of cells that they draw so.

    All that may go wrong in the first of them, then what each computes, in more sizes.
    """
    kinds = (_ANY, *_kinds(cells))
    for kind in kinds[:_MOST_WHOLE]:
        for graph in (simplest(kind), graph_of(kind, _SOME)):
            yield from controls(DelegateCase(graph, fill="mixed"), died=died)
    if not died:
        yield from _of_sizes(kinds)


def of_more_numbers(cells: Sequence[Sequence[Cell]]) -> Iterator[Control]:
    """Controls of cells that compute wrong numbers and go wrong as no drawn one does.

    Args:
        cells: for each of them the drawn ones that are most like it. If one has none there are no controls.
    """
    if all(cells):
        yield from _of_sizes(_kinds(itertools.chain(*cells)))


def of_stray_writes(cells: Iterable[Cell]) -> Iterator[Control]:
    """Controls of cells that end the process as no drawn one does: what is written beside tensors may.

    One node of each of their operators and drawn types, in memory that is looked at.
    """
    drawn = [
        each for op in dict.fromkeys(cell.op for cell in cells) for each in witnesses(op) if each.op == op
    ]
    plainest = {(each.op, each.dtype): drawn_as(each) for each in reversed(drawn)}
    yield from of_guarded_memory([simplest(kind) for kind in plainest.values() if kind is not None])


def _kinds(cells: Iterable[Cell]) -> tuple[Combination, ...]:
    """As which kinds of nodes the cells are drawn: of those that differ in rank alone the first."""
    drawn = (kind for kind in map(drawn_as, cells) if kind is not None)
    found: dict[Combination, Combination] = {}
    for kind in drawn:
        found.setdefault(msgspec.structs.replace(kind, rank=0), kind)
    return tuple(found.values())


def _of_sizes(kinds: Sequence[Combination]) -> Iterator[Control]:
    yield from of_numbers([graph_of(kind, size) for kind in kinds for size in (_SOME, *_OTHER_SIZES)])
    broadcast = (kind for kind in kinds if kind.form == "broadcast")
    yield from of_numbers([graph for kind in broadcast for graph in of_two_shapes(kind, _SOME)])
