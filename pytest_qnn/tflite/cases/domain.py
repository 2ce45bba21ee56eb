"""DomainCase: cells of the input domain, as immutable data."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pytest_qnn.tflite.domain.cell import Cell

MOST_CELLS = 600
"""Of one case; an operator has fewer."""


class DomainCase(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Models of one node, to each of which the target's delegates are applied, one after the other.

    Where they claim the node, it is invoked once.
    """

    cells: Annotated[tuple[Cell, ...], Meta(min_length=1, max_length=MOST_CELLS)]
