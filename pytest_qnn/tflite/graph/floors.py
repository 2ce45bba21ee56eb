"""How large and how long graphs are for a delegate that leaves small ones to the CPU.

A delegate may claim by the size of tensors, by the number of nodes that one kernel gets, or nodes only where
others read their results. One that claims nothing small is asked again with larger and longer graphs, whose
nodes stand beside each other or in a chain, and rules get graphs of that size and length throughout.
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from pytest_qnn.tflite.graph.scales import NONE, Scale

LONGER: Final = 8
"""Nodes of each model where single ones were all refused."""


class Floor(NamedTuple):
    """The smallest graphs of which a delegate claimed something."""

    shapes: tuple[tuple[int, ...], ...] = ()
    """Of inputs; empty: the usual small ones."""
    nodes: int = 1
    chain: bool = False
    """Each node reads the result of the one before, where it can be."""

    @property
    def elements(self) -> int:
        """Of the smallest input; 0 for the usual ones."""
        return min(map(prod, self.shapes), default=0)


_THOUSAND: Final = ((1031,), (11, 101), (3, 19, 21), (1, 9, 11, 13))
_MANY_THOUSAND: Final = ((16411,), (131, 127), (3, 79, 71), (1, 67, 63, 4))
USUAL: Final = Floor()
FLOORS: Final = tuple(
    Floor(shapes, nodes, chain)
    for shapes in ((), _THOUSAND, _MANY_THOUSAND)
    for nodes, chain in ((1, False), (LONGER, False), (LONGER, True))
)
"""In the order in which they are asked about, the first of which something is claimed counts."""


def raised(scale: Scale, floor: Floor) -> Scale:
    """The class of size with no smaller tensors than the floor's; as it is where it has none."""
    enough = scale.floats and min(map(prod, scale.floats)) >= floor.elements
    if not floor.elements or enough:
        return scale
    return scale._replace(floats=floor.shapes, bytes=floor.shapes)


def plain(floor: Floor) -> Scale:
    """The class of graphs that are as large as the floor and in nothing else unusual."""
    return raised(NONE, floor)
