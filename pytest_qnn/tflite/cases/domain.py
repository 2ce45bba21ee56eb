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


def check_domain(case: DomainCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` unless each cell is one of the domain."""
    for cell in case.cells:
        need(cell.op in OPERATORS and cell in cells_of(cell.op), f"the domain has no cell {shown(str(cell))}")
