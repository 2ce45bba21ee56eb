"""The kill table as Markdown: docs/measured/mutants.md."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pytest_qnn.mutants import MORE_SEEDS, MOST, SEEDS, Kill, chosen

_HEAD = """\
# Mutants

Written by `python -m pytest_qnn.mutants --jobs 2 --update docs/measured/mutants.md`. A mutant is a copy of
the reference with exactly one fault; the rules beside it must find it. The numbers are the examples
(cases that were run) to the first kill, as the median of {seeds};
delegates are measured on both runtimes. How many examples a rule gets follows from the same measurement
([the decision](../explanation/decisions/shared/effort.md)).
In **bold**: a median above {most}, and a rule that missed its mutant with some of the seeds.
"""
_ROW = re.compile(r"^\| `([\w-]+)` \| .* \| ([A-Z]+-\d+) \|.*\n", re.MULTILINE)
"""A row of the table: mutant and rule."""
SUBJECTS = {"delegate": "TensorFlow Lite delegates", "memory": "QNN memory"}
_COLUMNS = {"delegate": ("2.14", "2.3"), "memory": ("examples",)}


def document(kills: Sequence[Kill], seeds: int, known: str = "") -> str:
    """The table.

    Args:
        kills: what was measured.
        seeds: how many seeds each pair was measured with.
        known: an earlier table, whose rows stay for the pairs that were not measured.
    """
    rows = {match.group(1, 2): match[0] for match in _ROW.finditer(known)}
    own = sorted(kills, key=lambda kill: (kill.mutant.name, kill.rule))
    for pair, row in itertools.groupby(own, key=lambda kill: (kill.mutant.name, kill.rule)):
        rows[pair] = _row(list(row))
    further = f" seeds ({MORE_SEEDS} for what is not found at once)" if seeds == SEEDS else " seeds"
    parts = [_HEAD.format(seeds=f"{seeds}{further}", most=MOST)]
    for subject, of_subject in itertools.groupby(chosen((), ""), key=lambda pair: pair[0].subject):
        own_rows = [rows.get((mutant.name, rule), "") for mutant, rules in of_subject for rule in rules]
        columns = ("mutant", "fault", "rule", *_COLUMNS[subject])
        head = f"\n## {SUBJECTS[subject]}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
        parts += [head, *own_rows] if any(own_rows) else []
    return "".join(parts)


def _row(row: list[Kill]) -> str:
    mutant = row[0].mutant
    cells = [f"`{mutant.name}`", mutant.fault, row[0].rule, *(kill.cell() for kill in row)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
