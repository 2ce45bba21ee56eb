"""The picture of a partitioning, from the table in text that a violation carries: nodes, owners, boundaries.

The text is that of `pytest_qnn.tflite.partition.picture`, all that a report keeps of the plan. What reads and
writes what comes from the case where it has a graph, since the table cuts long lists of tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

_COLUMNS = ("node", "operator", "reads", "writes", "claimed by", "expected", "seen")
_CELL = re.compile(r"\S+(?: \S+)*")
_NOTE = "<--"
_WRONG = "<-- wrong"
_CUT = "..."

LANE, ROW, BOX, TALL, TOP, EDGE = 168, 52, 140, 38, 34, 12
"""Pixels: widths of a lane and of a node, heights of a row, of a node and of the head, and the margin."""


class Row(NamedTuple):
    """A node, in the order of execution."""

    node: int
    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    claimed: str
    """Delegates that claimed it; ``-``: none."""
    expected: str
    """``CPU``, ``kernel 0``, or ``?``: not known."""
    seen: str
    wrong: bool
    """The node that the violation is about."""
    differs: bool
    """It ran elsewhere than expected."""


class Gap(NamedTuple):
    """Nodes that the table leaves out, since they are like their neighbours."""

    text: str


class Table(NamedTuple):
    """The table, and what stands below it."""

    rows: Sequence[Row | Gap]
    captions: Sequence[str]


class Lane(NamedTuple):
    """A column of the picture: the CPU or one kernel."""

    name: str
    middle: float


class Box(NamedTuple):
    """A node in its lane, or where it should have been (``kind`` is ``expected``)."""

    left: float
    top: float
    head: str
    """``0 ADD``"""
    tensors: str
    kind: str
    """``node``, ``wrong``, ``differs`` or ``expected``."""
    title: str


class Boundary(NamedTuple):
    """The frame around the nodes of one kernel."""

    left: float
    top: float
    height: float


class Picture(NamedTuple):
    """What is drawn, in pixels from the upper left corner."""

    width: float
    height: float
    lanes: Sequence[Lane]
    boundaries: Sequence[Boundary]
    edges: Sequence[str]
    """Paths of SVG from the node that writes a tensor to one that reads it."""
    boxes: Sequence[Box]
    gaps: Sequence[tuple[float, str]]
    captions: Sequence[str]
    text: str
    """The same in a sentence."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its boxes."""
        return frozenset(box.kind for box in self.boxes)


def picture(text: str, case: Any) -> Picture | None:
    """The picture that a text is the table of.

    Args:
        text: `violation.picture` of a report.
        case: the minimal case of the same finding, as JSON data.

    Returns:
        None where the text is no such table.
    """
    table = parse(text)
    return None if table is None else _drawn(table, _operands(case))


def parse(text: str) -> Table | None:
    """The table that `pytest_qnn.tflite.partition.picture.draw` wrote; None: the text is no such table."""
    lines = text.splitlines()
    starts = [cell.start() for cell in _CELL.finditer(lines[0])] if lines else []
    if len(starts) != len(_COLUMNS) or not lines[0].startswith(_COLUMNS[:2][0]):
        return None
    rows: list[Row | Gap] = []
    for number, line in enumerate(lines[1:], 1):
        if line.startswith(_CUT):
            rows.append(Gap(line.removeprefix(_CUT).strip()))
            continue
        row = _row(line, starts)
        if row is None:
            return Table(rows, lines[number:]) if rows else None
        rows.append(row)
    return Table(rows, ()) if rows else None


def _row(line: str, starts: Sequence[int]) -> Row | None:
    ends = (*starts[1:], len(line))
    cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    if not cells[0].isdecimal():
        return None
    seen, mark, _ = cells[6].partition(_NOTE)
    return Row(
        node=int(cells[0]),
        op=cells[1],
        reads=_tensors(cells[2]),
        writes=_tensors(cells[3]),
        claimed=cells[4],
        expected=cells[5],
        seen=seen.strip(),
        wrong=_WRONG in cells[6],
        differs=bool(mark),
    )


def _tensors(cell: str) -> tuple[str, ...]:
    """Names of tensors. Of a cell that was cut the last one may be half a name."""
    names = cell.removesuffix(_CUT).split()
    whole = names[:-1] if cell.endswith(_CUT) else names
    return tuple(name for name in whole if name.startswith("t"))


class _Node(msgspec.Struct):
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


class _Graph(msgspec.Struct):
    nodes: tuple[_Node, ...]


class _Case(msgspec.Struct):
    graph: _Graph


_Operands = dict[int, tuple[tuple[str, ...], tuple[str, ...]]]
"""By node: tensors that it reads, and that it writes."""


def _operands(case: Any) -> _Operands:
    """What the nodes of a case read and write; empty where the case is not of one graph."""
    try:
        nodes = msgspec.convert(case, _Case).graph.nodes
    except msgspec.ValidationError:
        return {}
    return {index: (_names(node.inputs), _names(node.outputs)) for index, node in enumerate(nodes)}


def _names(indices: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"t{index}" for index in indices if index >= 0)


def _drawn(table: Table, operands: _Operands) -> Picture:
    rows = [row for row in table.rows if isinstance(row, Row)]
    names = _lane_names(rows)
    lanes = {name: Lane(name, EDGE + LANE * (number + 0.5)) for number, name in enumerate(names)}
    tops = [TOP + ROW * number for number in range(len(table.rows))]
    placed = [(row, top) for row, top in zip(table.rows, tops, strict=True) if isinstance(row, Row)]
    gaps = [
        (top + ROW / 2, row.text) for row, top in zip(table.rows, tops, strict=True) if isinstance(row, Gap)
    ]
    return Picture(
        width=2 * EDGE + LANE * len(lanes),
        height=TOP + ROW * len(table.rows) + EDGE,
        lanes=list(lanes.values()),
        boundaries=list(_boundaries(placed, lanes)),
        edges=list(_edges(placed, lanes, operands)),
        boxes=list(_boxes(placed, lanes)),
        gaps=gaps,
        captions=table.captions,
        text=_sentence(rows),
    )


def _lane_names(rows: Sequence[Row]) -> list[str]:
    """The CPU, then the kernels in the order of execution, then those that were only expected."""
    found = dict.fromkeys(row.seen for row in rows)
    found |= dict.fromkeys(row.expected for row in rows if row.differs)
    return sorted(found, key=lambda name: name != "CPU")


def _boundaries(placed: Sequence[tuple[Row, float]], lanes: dict[str, Lane]) -> Iterator[Boundary]:
    for name, lane in lanes.items():
        tops = [top for row, top in placed if row.seen == name]
        if tops and name.startswith("kernel"):
            yield Boundary(lane.middle - LANE / 2 + 4, min(tops), max(tops) - min(tops) + ROW)


def _boxes(placed: Sequence[tuple[Row, float]], lanes: dict[str, Lane]) -> Iterator[Box]:
    for row, top in placed:
        head = f"{row.node} {row.op}"
        tensors = f"{' '.join(row.reads) or '-'} → {' '.join(row.writes) or '-'}"
        upper = top + (ROW - TALL) / 2
        kind = "wrong" if row.wrong else "differs" if row.differs else "node"
        title = f"node {row.node}, {row.op}: claimed by {row.claimed}, ran in {row.seen}"
        if row.differs and row.expected in lanes and row.expected != row.seen:
            yield Box(lanes[row.expected].middle - BOX / 2, upper, head, "expected here", "expected", title)
        yield Box(lanes[row.seen].middle - BOX / 2, upper, head, tensors, kind, title)


def _edges(placed: Sequence[tuple[Row, float]], lanes: dict[str, Lane], operands: _Operands) -> Iterator[str]:
    """A path for each tensor that one node writes and another one reads."""
    known = [(row, top, *operands.get(row.node, (row.reads, row.writes))) for row, top in placed]
    writers = {name: (row, top) for row, top, _, writes in known for name in writes}
    for row, top, reads, _ in known:
        for name in dict.fromkeys(reads):
            if name in writers and writers[name][0] is not row:
                writer, above = writers[name]
                yield _path(lanes[writer.seen].middle, above, lanes[row.seen].middle, top)


def _path(start: float, above: float, end: float, below: float) -> str:
    """From the lower edge of a node to the upper edge of another; beside what stands between them."""
    first, last = above + (ROW + TALL) / 2, below + (ROW - TALL) / 2
    if start == end and below - above > ROW:
        side = start + BOX / 2
        bulge = f"{side + 20:g} {first:g} {side + 20:g} {last:g}"
        return f"M{side:g} {above + ROW / 2:g}C{bulge} {side:g} {below + ROW / 2:g}"
    bend = (last - first) / 2
    return f"M{start:g} {first:g}C{start:g} {first + bend:g} {end:g} {last - bend:g} {end:g} {last:g}"


def _sentence(rows: Sequence[Row]) -> str:
    """The picture in words, for who does not see it."""
    parts = [f"node {row.node} {row.op} in {row.seen}" for row in rows]
    wrong = [f"node {row.node} is the one that is wrong" for row in rows if row.wrong]
    other = [
        f"node {row.node} was expected in {row.expected}" for row in rows if row.differs and not row.wrong
    ]
    return "; ".join((*parts, *wrong, *other))
