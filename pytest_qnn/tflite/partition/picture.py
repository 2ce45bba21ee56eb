"""The picture of a partitioning: who claimed each node, where it should have run, and where it ran."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.partition.oracle import Unschedulable, delegate, operators_of_plan
from pytest_qnn.tflite.trace import Applied, PlanNode

WIDTH = 96
"""Columns of a picture: reports indent it by four."""
_CPU = -1
_ROWS = 24
"""Nodes of a graph that is shown in full."""
_MOST_ROWS = 40
_COLUMNS = (5, 16, 14, 10, WIDTH, 18, 18)
"""Widest cell of each column."""
_CLAIMED = 4
"""The column that has what the others leave."""


class Entry(NamedTuple):
    """One entry of an execution plan."""

    node: int
    """Its index: an original node, or the kernel's own."""
    kernel: int
    """Number of the kernel in the order of init; -1: a node on the CPU."""
    nodes: tuple[int, ...]
    """Original nodes that it carries out, in order."""


Landing = tuple[Entry, ...]
"""Where every node runs: the plan's entries in order of execution."""


def expected_landing(
    plan_before: Sequence[PlanNode],
    applied: Sequence[Applied],
    graph_outputs: Sequence[int],
    *,
    joined: bool = False,
) -> Landing | None:
    """Where the runtimes' algorithm (`partition.oracle`) puts what was claimed; None: unknown.

    A failed application brings the original plan back, whatever came before it. ``joined``: as if each
    delegate had claimed all its nodes in one call.
    """
    nodes, plan = operators_of_plan(plan_before), tuple(node.index for node in plan_before)
    original = nodes, plan
    made: dict[int, tuple[int, tuple[int, ...]]] = {}
    count = 0
    for one in applied:
        for claim in _claims(one, joined=joined) if one.ok else ():
            try:
                state = delegate(nodes, plan, graph_outputs, claim)
            except (KeyError, Unschedulable):
                return None
            fresh = sorted(state.nodes.keys() - nodes.keys())
            for index, kernel in zip(fresh, state.kernels, strict=True):
                made[index] = count, kernel.nodes
                count += 1
            nodes, plan = dict(state.nodes), state.plan
        if not one.ok:
            (nodes, plan), made = original, {}
            count += sum(bool(replace.nodes) for replace in one.replaces)
    return tuple(
        Entry(index, made[index][0] if index in made else _CPU, _opened(index, made)) for index in plan
    )


def _claims(applied: Applied, *, joined: bool) -> list[tuple[int, ...]]:
    claims = [replace.nodes for replace in applied.replaces]
    return [tuple(dict.fromkeys(itertools.chain(*claims)))] if joined and claims else claims


def _opened(index: int, made: Mapping[int, tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
    """The original nodes of a plan entry, kernels that it swallowed opened up."""
    if index not in made:
        return (index,)
    return tuple(inner for node in made[index][1] for inner in _opened(node, made))


def draw(
    graph: Graph,
    applied: Sequence[Applied],
    seen: Landing,
    expected: Landing | None,
    mark: int | None = None,
) -> str:
    """The graph in order of execution, a line for each node, at most `WIDTH` columns wide.

    Args:
        graph: the case's.
        applied: its applications, for who claimed what.
        seen: where its nodes ran.
        expected: where they should have; None: not known.
        mark: a node to point at.
    """
    lines: list[tuple[str, ...]] = [
        ("node", "operator", "reads", "writes", "claimed by", "expected", "seen", "")
    ]
    where_seen = _homes(seen)
    where_expected = _homes(expected or ())
    order = [node for entry in seen for node in entry.nodes if 0 <= node < len(graph.nodes)]
    order = list(dict.fromkeys((*order, *range(len(graph.nodes)))))
    rows: list[tuple[str, ...]] = []
    for index in order:
        node = graph.nodes[index]
        claims = [_short(one.name) for one in applied if any(index in r.nodes for r in one.replaces)]
        at, wanted = where_seen.get(index, "nowhere" if seen else "?"), where_expected.get(index, "?")
        differs = "?" not in (at, wanted) and at != wanted
        note = "<-- wrong" if index == mark else "<--" if differs else ""
        cells = str(index), node.op, _tensors(node.inputs), _tensors(node.outputs)
        rows.append((*cells, ", ".join(dict.fromkeys(claims)) or "-", wanted, at, note))
    lines += _elided(rows)
    return "\n".join((*_table(lines), *_captions(graph, seen, expected)))


def counts(landing: Landing) -> tuple[int, int, int]:
    """Partitions, switches between the CPU and delegates, and nodes left to the CPU."""
    kinds = [entry.kernel >= 0 for entry in landing]
    switches = sum(one != other for one, other in itertools.pairwise(kinds))
    return sum(kinds), switches, len(kinds) - sum(kinds)


def _homes(landing: Landing) -> dict[int, str]:
    homes: dict[int, str] = {}
    for entry in landing:
        home = f"kernel {entry.kernel}" if entry.kernel >= 0 else "CPU"
        for node in entry.nodes:
            homes[node] = f"{homes[node]}, {home}" if node in homes else home
    return homes


def _elided(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Of a long graph: the ends of each run of nodes alike, and every node with a note."""
    if len(rows) <= _ROWS:
        return rows
    kept = {
        place
        for place, row in enumerate(rows)
        if row[-1] or place in (0, len(rows) - 1) or not row[4:] == rows[place - 1][4:] == rows[place + 1][4:]
    }
    if len(kept) > _MOST_ROWS:
        noted = [place for place in sorted(kept) if rows[place][-1]]
        first = noted[0] if noted else 0
        near = sorted(kept, key=lambda place: (abs(place - first), place))[: _MOST_ROWS - 2]
        kept = {0, len(rows) - 1, *near}
    shown: list[tuple[str, ...]] = []
    for place, row in enumerate(rows):
        if place in kept:
            shown.append(row)
        elif place - 1 in kept:
            following = next(other for other in range(place, len(rows)) if other in kept)
            shown.append((f"... {following - place} more node{'s' * (following - place > 1)}",))
    return shown


def _table(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    full = [line for line in lines if len(line) > 1]
    widths = [min(most, max(len(line[column]) for line in full)) for column, most in enumerate(_COLUMNS)]
    note = max(len(line[-1]) for line in full)
    others = sum(widths) - widths[_CLAIMED] + 2 * len(widths) + note
    widths[_CLAIMED] = min(widths[_CLAIMED], WIDTH - others)
    for line in lines:
        cells = [_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=False)]
        yield line[0] if len(line) == 1 else "  ".join((*cells, line[-1])).rstrip()


def _captions(graph: Graph, seen: Landing, expected: Landing | None) -> Iterator[str]:
    ends = f"graph inputs {_tensors(graph.inputs)}, outputs {_tensors(graph.outputs)}"
    yield _cut(ends, WIDTH)
    if not seen:
        return
    yield _cut(f"plan: {_plan(seen)}", WIDTH)
    yield _summary(seen)
    if expected is not None and expected != seen:
        yield _cut(f"expected plan: {_plan(expected)}", WIDTH)
        if counts(expected) != counts(seen):
            yield f"expected: {_summary(expected)}"
    left = [entry.node for entry in seen if entry.kernel < 0]
    if left and len(left) < len(seen):
        yield _cut(f"left to the CPU: {' '.join(map(str, left))}", WIDTH)


def _summary(landing: Landing) -> str:
    partitions, switches, left = counts(landing)
    return (
        f"{partitions} partition{'s' * (partitions != 1)}, {switches} switch{'es' * (switches != 1)} between "
        f"CPU and delegates, {left} node{'s' * (left != 1)} on the CPU"
    )


def _plan(landing: Landing) -> str:
    return " ".join(
        f"{entry.node}=kernel{entry.kernel}" if entry.kernel >= 0 else str(entry.node) for entry in landing
    )


def _short(name: str) -> str:
    """A plugin's file name instead of its path."""
    return PurePath(name).name or name


def _tensors(indices: Collection[int]) -> str:
    return " ".join(f"t{index}" if index >= 0 else "none" for index in indices) or "-"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
