"""What became of the cells, as a table for the report: a row for each operator and type."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from pytest_qnn.core.verdict import CoverageRow
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.judging import wrong
from pytest_qnn.tflite.domain.node import NoSuchCellError, Result
from pytest_qnn.tflite.domain.table import is_plain, node_of

LETTERS: Final = {
    "covered": "c",
    "left": "l",
    "undone": "n",
    "refused": "r",
    "none": "-",
    "wrong": "w",
    "failed": "f",
    "died": "d",
    "unjudged": "u",
    "unknown": "?",
}
"""By what became of a cell: the letter for it in `CoverageRow.ranks`."""


class Seen(Protocol):
    """`pytest_qnn.tflite.trace.CellSeen`."""

    @property
    def outcome(self) -> str:
        """What became of the cell."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The delegate's."""

    @property
    def cpu(self) -> tuple[Any, ...]:
        """The CPU's."""


def state_of(cell: Cell, seen: Seen, *, in_half: bool = False) -> tuple[str, str]:
    """One of `LETTERS`, and why, in words; ``in_half``: float32 is computed in float16.

    A result that is not what is expected is wrong where the CPU computes what is expected. Else there is no
    second witness, and it is not judged.
    """
    if seen.outcome != "computed":
        return seen.outcome, seen.reason
    try:
        results = [loosened(result) if in_half else result for result in _results(cell)]
    except NoSuchCellError as error:
        return "none", str(error)
    try:
        first = next(filter(None, map(_compared, results, seen.outputs)), "")
        if len(seen.outputs) != len(results):
            first = f"{len(seen.outputs)} outputs, not {len(results)}"
        if not first:
            return "covered", ""
        if seen.cpu and not any(map(_compared, results, seen.cpu)):
            return "wrong", first
    except ValueError as error:  # an array whose bytes and shape do not fit
        return "unjudged", str(error)
    why = seen.reason or "the CPU's result is another one, too"
    return "unjudged", f"{first}; {why}"


@functools.lru_cache(4096)
def _results(cell: Cell) -> tuple[Result, ...]:
    """What is expected: it is asked for by the rule, and again for the table."""
    return node_of(cell).results


def loosened(result: Result) -> Result:
    """What is expected of float32 that is computed in float16: 13 bits fewer, and coarser near zero."""
    return result._replace(error=result.error * 2.0**13 + 2.0**-14) if result.dtype == "float32" else result


def _compared(result: Any, array: Any) -> str:
    return wrong(result, np.asarray(array.numpy()))


def rows(seen: Mapping[Cell, Seen], half: Collection[str] = ()) -> tuple[CoverageRow, ...]:
    """The table of what was seen; ``half``: operators that compute float32 in float16."""
    grouped: dict[tuple[str, str], list[tuple[Cell, str, str]]] = {}
    for cell, each in seen.items():
        grouped.setdefault((cell.op, cell.dtype), []).append(
            (cell, *state_of(cell, each, in_half=cell.op in half))
        )
    return tuple(_row(op, dtype, found) for (op, dtype), found in grouped.items())


def _row(op: str, dtype: str, found: Iterable[tuple[Cell, str, str]]) -> CoverageRow:
    cells = list(found)
    plain = {cell.rank: LETTERS[state] for cell, state, _ in cells if is_plain(cell)}
    prefix = f"{op} {dtype} "
    special = {
        str(cell).removeprefix(prefix): LETTERS[state] for cell, state, _ in cells if not is_plain(cell)
    }
    ranks = "".join(plain.get(rank, ".") for rank in range(max(plain, default=-1) + 1))
    reasons = Counter(f"{state}: {reason}" for _, state, reason in cells if reason)
    return CoverageRow(op, dtype, ranks, special, dict(reasons))
