"""DomainCase: cells of the input domain, as immutable data."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pytest_qnn.core.bounds import need, shown
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of

MOST_CELLS = 600
"""Of one case; an operator has fewer."""


class DomainCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Models of one node, to each of which the target's delegates are applied, one after the other.

    Where they claim the node, it is invoked once.
    """

    cells: Annotated[tuple[Cell, ...], Meta(min_length=1, max_length=MOST_CELLS)]


class CellsBeside(msgspec.Struct, frozen=True, gc=False):
    """Nodes of one model, to which delegates are applied once, and once more to what they claim of it.

    No rule has such cases: one is carried out in place of a `DomainCase` where making a delegate takes long.
    """

    cells: Annotated[tuple[Cell, ...], Meta(min_length=1, max_length=MOST_CELLS)]
    half: tuple[str, ...] = ()
    """Operators that compute float32 in float16."""


def check_domain(case: DomainCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` unless each cell is one of the domain."""
    for cell in case.cells:
        need(cell.op in OPERATORS and cell in cells_of(cell.op), f"the domain has no cell {shown(str(cell))}")
