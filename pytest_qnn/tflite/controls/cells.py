"""Controls of cells of the input domain: graphs that strategies draw, whose faults other rules own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.drawn_cells import drawn_as
from pytest_qnn.tflite.controls.graphs import simplest
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.graph.floors import Floor
from pytest_qnn.tflite.graph.kinds import graph_of

_ANY: Final = next(one for one in GRID if one.op == "ADD" and one.rank > 1)
"""What is wrong in any graph is wrong in this one."""


_SOME: Final = Floor(((17,), (5, 7), (3, 5, 7), (1, 5, 5, 3)))
"""Of graphs whose results have some elements: of few all may be right by chance."""


def drawn(cells: Iterable[Cell]) -> Iterator[DelegateCase]:
    """Graphs of one node such as strategies draw: one of ADD, then those of the cells that they draw so."""
    kinds = (drawn_as(cell) for cell in cells)
    for kind in dict.fromkeys((_ANY, *filter(None, kinds))):
        yield DelegateCase(simplest(kind), fill="mixed")
        yield DelegateCase(graph_of(kind, _SOME), fill="mixed")
