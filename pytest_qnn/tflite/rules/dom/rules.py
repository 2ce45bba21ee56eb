"""DOM: the input domain, cell by cell.

What is wrong in a graph that a strategy draws is PART-03's (numbers), PART-04's (calls that fail) or NUM's
(precision): where the drawn cell that is most like a wrong one goes wrong as it does, and a plain graph shows
that too, it is handed to them (`controls.cells`). This rule owns what a model of one node shows that no
strategy draws: other operators and types, rank 0 and ranks from 5 to 8, dimensions of 0, all activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import listed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Crashed, Examined, Hung, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.drawn_cells import Went, unlike, went
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.trace import DomainTrace

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
    listed_whole=True,
)
def runs_what_it_claims(case: DomainCase, trace: DomainTrace) -> Examined:
    """Models of one node, each looked at once. The cells of one operator that are wrong are one finding."""
    cells = list(zip(case.cells, trace.cells, strict=True))
    known = went((*cells, *trace.witnesses), _is_in_half(trace.facts))
    wrong = [cell for cell in case.cells if cell in known and known[cell].way]
    if wrong:
        # What no drawn cell shows comes first: `Target.controls` has no control of it.
        own = unlike(wrong, known)
        raise _violation(
            case, trace, {cell: known[cell] for cell in own or wrong}, len(wrong) - len(own or wrong)
        )
    claimed = sum(cell in known for cell in case.cells)
    if not claimed:
        names = dict.fromkeys(cell.op for cell in case.cells)
        raise Unsupported(f"the delegate claims no node ({', '.join(names)} last)", final=False)
    return Examined(claimed, "cells of the input domain")


def _is_in_half(facts: DelegateFacts | None) -> Callable[[str], bool]:
    return (lambda _: False) if facts is None else facts.is_in_half


def _violation(case: DomainCase, trace: DomainTrace, bad: Mapping[Cell, Went], others: int) -> Violation:
    """Of the first cell that ended the process, else of the first; the others are named.

    Args:
        case: the cells.
        trace: what became of them.
        bad: what the violation is about.
        others: cells that go wrong as graphs do which other rules judge.
    """
    cell = next((each for each, how in bad.items() if how.state == "died"), next(iter(bad)))
    state, why = bad[cell]
    told = f"; {len(bad)} cells of {cell.op}: {_named(bad)}" if len(bad) > 1 else ""
    told += f"; {others} more go wrong as graphs do that other rules judge" if others else ""
    expected = "what is claimed to be prepared and invoked, and to give what the operator computes"
    if state != "died":
        what = "the call fails: " if state == "failed" else ""
        return WrongOutput(expected, f"{what}{why}{told}", str(cell))
    deaths = [death for number, death in trace.deaths if case.cells[number] == cell]
    kind = Hung if deaths and deaths[0].kind == "hang" else Crashed
    violation = kind(expected, f"{why}{told}", str(cell))
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
