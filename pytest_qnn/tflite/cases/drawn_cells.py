"""Which cells strategies draw the like of, and whether such a cell shows what is wrong in another one.

Strategies draw float32 and int8 at ranks 1 to 4, in the forms of `GRID`. What is wrong there is owned by the
rules of these strategies. A cell of another type, rank, size or form goes wrong for the same reason if the
drawn cell that is most like it goes wrong in the same way; else it is a fault that no such rule can see.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pytest_qnn.tflite.domain.cell import Cell, DType
from pytest_qnn.tflite.domain.coverage import Seen, state_of
from pytest_qnn.tflite.domain.table import cells_of
from pytest_qnn.tflite.graph.combinations import GRID, Combination

_WRONG: Final = ("died", "failed", "wrong")
_TYPES: Final[Mapping[str, tuple[DType, DType]]] = {
    **dict.fromkeys(("float32", "float16"), ("float32", "int8")),
    **dict.fromkeys(("int8", "uint8", "int16", "int32", "int64", "bool"), ("int8", "float32")),
}
"""By type: the two types that are drawn, the one that is more like it first."""
_VALUES: Final = "values"
_CALL = re.compile(r"failed to (prepare|invoke)")
"""In what the runtime says of a kernel."""


class Went(NamedTuple):
    """How a cell that the delegate takes went."""

    state: str
    """``covered``, or one of those that are a finding."""
    why: str
    """In words."""

    @property
    def way(self) -> str:
        """How it is wrong, without numbers; empty: it is right."""
        if self.state == "failed":
            call = _CALL.search(self.why)
            return f"failed to {call[1]}" if call else "failed"
        if self.state == "wrong":
            return (
                "shape"
                if self.why.startswith(("type ", "shape ")) or " outputs, not " in self.why
                else _VALUES
            )
        return "" if self.state == "covered" else self.state


def went(seen: Iterable[tuple[Cell, Seen]], is_in_half: Callable[[str], bool]) -> dict[Cell, Went]:
    """How each cell went that the delegate takes and that can be judged.

    Args:
        seen: cells, and what became of each.
        is_in_half: an operator computes float32 in float16.
    """
    found = {cell: Went(*state_of(cell, each, in_half=is_in_half(cell.op))) for cell, each in seen}
    return {cell: each for cell, each in found.items() if each.state in ("covered", *_WRONG)}


def drawn_as(cell: Cell) -> Combination | None:
    """The kind of node that the cell's is; None: no strategy draws any like it."""
    return _drawn().get(cell)


def witnesses(op: str) -> tuple[Cell, ...]:
    """Drawn cells that are carried out to learn why cells of an operator go wrong.

    Its own, or, where strategies do not draw it, the plain ones of all operators that they draw.
    """
    own = tuple(cell for cell in _drawn() if cell.op == op)
    return own or tuple(cell for cell in _drawn() if cell == Cell(cell.op, cell.dtype, cell.rank))


def showing(cell: Cell, known: Mapping[Cell, Went]) -> tuple[Cell, ...]:
    """Drawn cells that go wrong as this one does; none: the fault is one that only such a cell shows.

    Of the cell's own operator one. Of an operator that is not drawn, one of each that is: all must go wrong
    alike.

    Args:
        cell: one that goes wrong.
        known: how cells went, this one and its `witnesses` among them.
    """
    by_operator: dict[str, list[Cell]] = {}
    for each in witnesses(cell.op):
        if each in known:
            by_operator.setdefault(each.op, []).append(each)
    found = [_alike(cell, some, known) for some in by_operator.values()]
    alike = tuple(each for each in found if each is not None)
    return alike if len(alike) == len(found) else ()


def _alike(cell: Cell, drawn: Sequence[Cell], known: Mapping[Cell, Went]) -> Cell | None:
    """One of an operator's drawn cells that goes wrong as this one does: one of the most alike.

    Or any, if most of its type do: a number may be right by chance.
    """
    nearest = _nearest(cell, drawn)
    of_type = [each for each in drawn if each.dtype == nearest[0].dtype]
    wrong = [each for each in of_type if known[each].way == known[cell].way]
    most = wrong if 2 * len(wrong) > len(of_type) else ()
    return next((each for each in (*nearest, *most) if each in wrong), None)


def most_alike(cell: Cell, known: Mapping[Cell, Went]) -> tuple[Cell, ...]:
    """Drawn cells of the same operator that may be right by chance, where this one computes wrong numbers.

    None where it goes wrong in another way, which does not depend on numbers.
    """
    own = tuple(each for each in _drawn() if each.op == cell.op)
    return tuple(dict.fromkeys(_nearest(cell, own))) if own and known[cell].way == _VALUES else ()


def unlike(cells: Iterable[Cell], known: Mapping[Cell, Went]) -> tuple[Cell, ...]:
    """Those of the cells that go wrong otherwise than any drawn cell; see `showing`."""
    wrong = (cell for cell in cells if cell in known and known[cell].way)
    return tuple(cell for cell in wrong if not showing(cell, known))


def _nearest(cell: Cell, drawn: Sequence[Cell]) -> tuple[Cell, Cell]:
    """The most alike, of its type if they can be: in what is special, then in rank; in rank first."""

    def special(each: Cell) -> int:
        apart = (
            _apart(cell.quantisation, each.quantisation),
            _apart(cell.activation.replace("NONE", ""), each.activation.replace("NONE", ""), akin=True),
            _apart(cell.form, each.form, akin=cell.form.split()[:1] == each.form.split()[:1]),
        )
        return sum(apart)

    types = _TYPES[cell.dtype]
    return (
        min(drawn, key=lambda each: (types.index(each.dtype), special(each), abs(cell.rank - each.rank))),
        min(drawn, key=lambda each: (types.index(each.dtype), abs(cell.rank - each.rank), special(each))),
    )


def _apart(wanted: str, drawn: str, *, akin: bool = False) -> int:
    """Of one thing that is special about a cell; ``akin``: what is drawn is another of the same kind."""
    if wanted == drawn:
        return 0
    if not drawn:
        return 2
    return 1 if akin and wanted else 3


@functools.cache
def _drawn() -> dict[Cell, Combination]:
    return dict(_each_drawn())


def _each_drawn() -> Iterator[tuple[Cell, Combination]]:
    for kind in GRID:
        channel = kind.quantisation == "channel"
        if channel and kind.zero_points:
            continue
        cell = Cell(
            kind.op,
            "int8" if kind.dtype == "int8" else "float32",
            kind.rank,
            activation=kind.activation,
            quantisation="channel" if channel else "shifted" if kind.zero_points else "",
            form="broadcast second" if kind.form == "broadcast" else kind.form,
        )
        if cell in cells_of(kind.op):
            yield cell, kind
