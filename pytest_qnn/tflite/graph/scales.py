"""Classes of size, rank and number that graphs are made in, each met in every search.

A delegate that fails at one of them works with the few small tensors that graphs have otherwise. One byte
chooses the class, a sixteenth of its values each; the strategies read it from the front of their strings,
where it is spread evenly over the examples of a search (`pytest_qnn.core.drawing.strings`). 0 is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from pytest_qnn.tflite.graph.combinations import Combination
from pytest_qnn.tflite.graph.graph import Op

Shape = tuple[int, ...]
Partner = Literal["", "itself", "constant", "other shape"]

MANY_TIMES: Final = 3
MOST_OF_MANY: Final = 60
"""Nodes."""
MOST_PARTED: Final = 40
FEW_NODES: Final = 4
"""A rule whose graphs have fewer nodes at most is not about many of them."""
HIGHEST: Final = 5
"""Dimensions of a tensor."""
_FIXED: Final = ("broadcast", "plane", "plane keep")
"""Forms of nodes that both runtimes compute of fewer dimensions."""


class Scale(NamedTuple):
    """What is different in a graph of one class."""

    name: str = ""
    floats: tuple[Shape, ...] = ()
    """Shapes of inputs of a float32 graph; empty: the usual small ones."""
    bytes: tuple[Shape, ...] = ()
    """The same of an int8 graph."""
    most: int = 0
    """Nodes at most, where the rule needs no more; 0: as many as the rule has."""
    many: bool = False
    """The records stand for nodes `MANY_TIMES` over, and none is left out."""
    parted: bool = False
    """As ``many``, in a chain of which the claims take turns: each becomes as many kernels as it can."""
    units: int = 0
    """Of a layer; 0: the usual few."""
    partner: Partner = ""
    """The second operand of a node, where it may be so. ``other shape``: an activation, with which the first
    one is broadcast, or both are."""
    without: frozenset[Op] = frozenset()
    """Operators that cost too much, that end the process (int8 PRELU of five dimensions, tflite-runtime
    2.14, measured) or that end a chain: RELU stands in their place."""

    def rank_of(self, want: Combination) -> int:
        """The rank at which a node of a wanted kind is made."""
        highest = len(self.floats[0]) == HIGHEST if self.floats else False
        return HIGHEST if highest and want.op != "CONV_2D" and want.form not in _FIXED else want.rank

    def shapes(self, *, quantised: bool) -> tuple[Shape, ...]:
        """Of inputs; empty: the usual ones."""
        return self.bytes if quantised else self.floats


NONE: Final = Scale()
_LENGTHS: Final = (
    *((63,), (7, 9), (17,), (3, 3, 7), (1, 3, 3, 7), (31,), (5, 13), (33,), (2, 3, 11), (1, 5, 3, 13)),
    *((1, 31), (127,), (3, 43), (1, 5, 3, 7), (19,), (37,)),
)
"""Most are one more or one less than a power of two: what is left behind whole blocks is least, or most."""
_RANK_5: Final = ((1, 2, 1, 3, 2), (2, 1, 2, 1, 2), (1, 1, 1, 1, 2), (2, 2, 1, 2, 3))
_KILOBYTES: Final = ((1031,), (11, 101), (3, 19, 21), (1, 9, 11, 13), (4099,), (131, 127), (1, 65, 67, 4))
_WIDE: Final = ((2, 259), (259,), (1, 3, 3, 19), (1, 1, 261), (1, 5, 3, 17), (3, 263))
_WITH_ONES: Final = ((3, 1), (1, 7), (2, 1, 5), (1, 4, 1, 3), (2, 5, 1), (1, 3, 1), (2, 1, 3, 2), (2, 4, 1))
CLASSES: Final = (
    Scale("operands of two shapes", _WITH_ONES, _WITH_ONES, partner="other shape"),
    Scale("lengths", _LENGTHS, _LENGTHS),
    Scale("rank 5", _RANK_5, _RANK_5, without=frozenset(("PRELU",))),
    Scale("many nodes", many=True),
    Scale("many partitions", many=True, parted=True, without=frozenset(("CONCATENATION", "CONV_2D"))),
    Scale("wide layers", _WIDE, _WIDE, most=3, units=35),
    Scale(
        "64 KiB",
        ((16411,), (131, 127), (3, 79, 71), (1, 67, 63, 4)),
        ((65557,), (263, 251), (5, 127, 107), (1, 127, 131, 4)),
        most=2,
        partner="itself",
    ),
    Scale(
        "1 MiB",
        ((262147,), (521, 509), (5, 263, 211), (1, 263, 251, 4)),
        ((1048583,), (1031, 1019), (5, 521, 409), (1, 521, 509, 4)),
        most=1,
        partner="itself",
        without=frozenset(("FULLY_CONNECTED", "CONV_2D", "PRELU")),
    ),
    Scale("constants", _KILOBYTES, _KILOBYTES, most=3, partner="constant"),
    Scale("one operand twice", partner="itself"),
)
TWO_SHAPES: Final = CLASSES[0].name
_STRATA: Final = 16
SOME_PARTITIONS: Final = "some partitions"
MUCH_WORK: Final = "much work"
_BUSY: Final = ((16411,), (131, 127), (3, 79, 71), (1, 67, 63, 4))
_BY_NAME_ONLY: Final = (
    Scale(SOME_PARTITIONS, many=True, parted=True, most=18, without=frozenset(("CONCATENATION", "CONV_2D"))),
    Scale(
        MUCH_WORK,
        _BUSY,
        _BUSY,
        partner="itself",
        without=frozenset(("FULLY_CONNECTED", "CONV_2D", "CONCATENATION", "MEAN", "PRELU")),
    ),
)
"""For rules that repeat a graph more often than they could repeat one of many partitions; and for those that
want an invoke to take its time: as many nodes as the rule has, of 64 KiB each."""


def all_and(*names: str) -> tuple[str, ...]:
    """The names of all classes, and these once more for each time that they are given."""
    return (*(scale.name for scale in CLASSES), *names)


def scale_of(byte: int, max_nodes: int = MOST_OF_MANY, only: Sequence[str] | None = None) -> Scale:
    """The class that a byte chooses, of those that apply to graphs of at most so many nodes.

    ``only``: of those with these names, as often as each is there; None: of all.
    """
    every = (*CLASSES, *_BY_NAME_ONLY)
    classes = (
        CLASSES if only is None else tuple(scale for scale in every for name in only if name == scale.name)
    )
    place = byte * _STRATA // 256 - (_STRATA - len(classes))
    scale = classes[place] if place >= 0 else NONE
    return NONE if scale.many and max_nodes < FEW_NODES else scale
