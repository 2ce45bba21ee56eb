"""DOM: the input domain, cell by cell.

What is wrong in a graph that a strategy draws is PART-03's (numbers), PART-04's (calls that fail) or NUM's
(precision): where a plain graph of the same operator shows it too, it is handed to them (`controls.cells`).
This rule owns what a model of one node shows that no strategy draws: other operators and types, rank 0 and
ranks from 5 to 8, dimensions of 0, all activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import listed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Crashed, Examined, Hung, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.coverage import state_of
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.trace import DomainTrace

_BAD = ("died", "failed", "wrong")
_MOST_NAMED = 24


def all_cells(facts: DelegateFacts) -> SearchStrategy[DomainCase]:
    """A case for each operator, with all of its cells: nothing is drawn."""
    del facts
    return listed([DomainCase(cells_of(name)) for name in OPERATORS])


@rule(
    "DOM-01",
    Level.MUST,
    "A node that the delegate claims is prepared and invoked, and gives what its operator computes: in every "
    "type, at every rank from 0 to 8, with dimensions of 0 and 1, with each fused activation, with operands "
    "that are constant or broadcast.",
    source="tflite/delegates/utils/simple_delegate.h, IsNodeSupportedByDelegate; tflite/schema/schema.fbs",
    subject="delegate",
    cases=all_cells,
)
def runs_what_it_claims(case: DomainCase, trace: DomainTrace) -> Examined:
    """Models of one node, each looked at once. The cells of one operator that are wrong are one finding."""
    claimed = 0
    bad: list[tuple[Cell, str, str]] = []
    for cell, seen in zip(case.cells, trace.cells, strict=True):
        state, why = state_of(cell, seen, in_half=_is_in_half(cell, trace.facts))
        claimed += state in ("covered", *_BAD)
        bad += [(cell, state, why)] if state in _BAD else []
    if not bad:
        if not claimed:
            names = dict.fromkeys(cell.op for cell in case.cells)
            raise Unsupported(f"the delegate claims no node ({', '.join(names)} last)", final=False)
        return Examined(claimed, "cells of the input domain")
    raise _violation(case, trace, bad)


def _is_in_half(cell: Cell, facts: DelegateFacts | None) -> bool:
    """What is float32 in the model is computed in float16, as declared or as a plain case has shown."""
    if facts is None:
        return False
    return facts.precision == "float16" or cell.op in facts.half


def _violation(case: DomainCase, trace: DomainTrace, bad: Sequence[tuple[Cell, str, str]]) -> Violation:
    """Of the first cell that ended the process, else of the first; the others are named."""
    cell, state, why = next((each for each in bad if each[1] == "died"), bad[0])
    others = f"; {len(bad)} cells of {cell.op}: {_named(each for each, _, _ in bad)}" if len(bad) > 1 else ""
    expected = "what is claimed to be prepared and invoked, and to give what the operator computes"
    if state != "died":
        what = "the call fails: " if state == "failed" else ""
        return WrongOutput(expected, f"{what}{why}{others}", str(cell))
    deaths = [death for number, death in trace.deaths if case.cells[number] == cell]
    kind = Hung if deaths and deaths[0].kind == "hang" else Crashed
    violation = kind(expected, f"{why}{others}", str(cell))
    if deaths:
        violation.evidence = deaths[0].evidence
    return violation


def _named(cells: Iterable[Cell]) -> str:
    """Cells of one operator in as few words as tell them: ``float32 rank 7, rank 8; int8 rank 7``."""
    by_type: dict[str, list[str]] = {}
    for number, cell in enumerate(cells):
        words = by_type.setdefault(cell.dtype, [])
        if number < _MOST_NAMED:
            words.append(str(cell).removeprefix(f"{cell.op} {cell.dtype} "))
    return "; ".join(f"{dtype} {', '.join(words) or '(more)'}" for dtype, words in by_type.items())
