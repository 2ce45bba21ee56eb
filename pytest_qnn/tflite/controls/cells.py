"""Controls of cells of the input domain: the same operators where other rules own what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.table import is_plain
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.graph.kinds import graph_of

_ANY = next(one for one in GRID if one.op == "ADD" and one.rank > 1)
"""For cells of which no strategy draws the like: what is wrong in any graph is wrong in this one."""


def drawn(case: DomainCase) -> Iterator[DelegateCase]:
    """Graphs of one node such as strategies draw, with the operators, types and ranks of the plain cells.

    Ranks 1 to 4 of float32 and int8, with no activation and no form; one of ADD before them.
    """
    wanted = {(cell.op, cell.dtype, cell.rank) for cell in case.cells if is_plain(cell)}
    yield DelegateCase(graph_of(_ANY), fill="mixed")
    for kind in GRID:
        plain = kind.activation == "NONE" and not kind.form and not kind.zero_points
        if plain and kind.quantisation != "channel" and (kind.op, kind.dtype, kind.rank) in wanted:
            yield DelegateCase(graph_of(kind), fill="mixed")
