"""What was covered of the input domain of delegates, in lines of text: sums, and the whole table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pytest_qnn.core.printable import counted
from pytest_qnn.core.verdict import CoverageRow, Verdict

WORDS = {
    "c": "covered",
    "l": "left to the CPU",
    "n": "not applied by the runtime",
    "r": "refused by the runtime",
    "w": "wrong",
    "f": "failed",
    "d": "ended the process",
    "u": "not judged",
    "?": "not tried any more",
}
"""By letter of `CoverageRow.ranks`; of the letters that are missing there is no model."""


def lines(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """One line for each verdict that says what was covered."""
    for verdict in verdicts:
        if verdict.coverage:
            yield sums(verdict.coverage)


def sums(rows: Iterable[CoverageRow]) -> str:
    """The whole table in a line: ``input domain: 108 operators, 16,000 cells: 500 covered, ...``."""
    rows = tuple(rows)
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.ranks)
        counts.update(row.special.values())
    operators = len({row.op for row in rows})
    told = ", ".join(f"{counts[letter]:,} {words}" for letter, words in WORDS.items() if counts[letter])
    cells = sum(counts[letter] for letter in WORDS)
    noun = "cell" if cells == 1 else "cells"
    return f"input domain: {counted(operators, 'operator')}, {cells:,} {noun}: {told}"


def table(rows: Iterable[CoverageRow]) -> Iterator[str]:
    """A line for each operator and type, a letter for each rank; then what is special, by letter."""
    yield "; ".join(f"{letter} {words}" for letter, words in WORDS.items()) + "; - no such model"
    yield f"{'operator':24} {'type':8} ranks 0 to 8"
    for row in rows:
        yield f"{row.op:24} {row.dtype:8} {row.ranks:9}  {_special(row)}".rstrip()
        for reason, count in row.reasons.items():
            yield f"    {counted(count, 'cell')}: {reason}"


def _special(row: CoverageRow) -> str:
    counts = Counter(row.special.values())
    rare = {letter for letter, count in counts.items() if letter in "wfdu?"}
    told = [f"{count} {letter}" for letter, count in counts.items() if letter not in rare]
    told += [f"{name} {letter}" for name, letter in row.special.items() if letter in rare]
    return f"and {', '.join(told)}" if told else ""
