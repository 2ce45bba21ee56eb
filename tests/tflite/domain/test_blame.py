"""DOM-01 keeps for itself what no graph shows that another rule's strategy draws, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_qnn.core.drawing import listed
from pytest_qnn.core.engine import Judged, judge_with_owners
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.mutants import RUNTIMES, table
from pytest_qnn.mutants import opened as opened_mutant
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.graph.combinations import GRID
from tests.tflite.domain.faulty import DELEGATES, opened

WHOLE = Profile("whole", in_process_examples=1, isolated_examples=1, repeats=1, whole_lists=True)
ONE_FAULT = {
    "aborts": ("RELU", "RUN-01"),
    "fails": ("MUL", "PART-04"),
    "ignores-activations": ("ADD", "NUM-06"),
    "wrong": ("SUB", "NUM-10"),
    "wrong-from-rank-3": ("MEAN", "PART-03"),
    "wrong-in-all": ("NEG", "NUM-10"),
    "wrong-with-constants": ("MUL", "PART-03"),
}
"""By delegate: an operator, and the rule that owns what is wrong in its cells."""
TWO_FAULTS = {
    "aborts-and-wrong-in-int8-at-rank-7": "RELU int8 rank 7",
    "fails-and-wrong-at-rank-6": "MUL float32 rank 6",
    "ignores-activations-and-wrong-at-rank-0": "ADD float32 rank 0",
    "wrong-and-aborts-at-rank-8": "SUB float32 rank 8",
    "wrong-and-fails-at-rank-7": "SUB float32 rank 7",
    "wrong-at-rank-2-and-at-rank-7": "ADD float32 rank 7",
    "wrong-in-float32-and-in-int8-at-rank-8": "ABS int8 rank 8",
}
"""By delegate: the cell in which its second fault begins, which no graph shows that a strategy draws."""

BESIDE = {
    "ignores-zero-points": "MEAN int8 rank 4 shifted",
    "knows-two-dimensions": "FULLY_CONNECTED float32 rank 3",
    "takes-raw-integers": "MEAN int8 rank 1",
    "works-in-pairs": "CONCATENATION float32 rank 2 first",
}
"""Mutants of other rules that break DOM-01's sentence as well, and where: no strategy draws a MEAN whose
result has another scale than its operand, a FULLY_CONNECTED that keeps dimensions, or a CONCATENATION along
the first one."""
NUMBERS = ("DET", "NUM", "PART-03", "PART-04", "RUN-01")
"""Rules about what a graph computes."""


def of_numbers() -> list[str]:
    """Mutants that these rules find."""
    delegates = (mutant for mutant in table().values() if mutant.subject == "delegate")
    return [mutant.name for mutant in delegates if any(kill.startswith(NUMBERS) for kill in mutant.kills)]


def judged(name: str, op: str) -> Judged:
    """DOM-01 with the cells of one operator only, each delegate on one of the runtimes."""
    rules = catalogue()
    of_one = dataclasses.replace(rules["DOM-01"], cases=lambda _: listed([DomainCase(cells_of(op))]))
    with contextlib.closing(opened(name, RUNTIMES[len(name) % 2])) as target:
        return judge_with_owners(of_one, target, WHOLE, 1, rules.__getitem__)


def some(names: Iterable[str], *fast: str) -> list[Any]:
    """These of them are for the fast run."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.full) for name in names]


def test_each_delegate_has_one_fault_or_two() -> None:
    assert DELEGATES.keys() == ONE_FAULT.keys() | TWO_FAULTS.keys()


@pytest.mark.parametrize("name", some(ONE_FAULT, "wrong-in-all"))
def test_what_a_drawn_graph_shows_is_its_rules(name: str) -> None:
    found = judged(name, ONE_FAULT[name][0])
    assert found.verdict.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE), found.verdict.finding
    assert ONE_FAULT[name][1] in [each.rule for each in found.handed_over]


@pytest.mark.parametrize("name", some(TWO_FAULTS, "wrong-in-float32-and-in-int8-at-rank-8"))
def test_a_second_fault_of_an_operator_is_found_behind_its_first(name: str) -> None:
    found = judged(name, TWO_FAULTS[name].split()[0])
    assert found.verdict.finding is not None
    assert found.verdict.finding.where == TWO_FAULTS[name]
    assert not found.verdict.further


@pytest.mark.parametrize("name", some(of_numbers(), "broadcasts-by-repeating"))
def test_a_fault_that_another_rule_finds_in_drawn_graphs_is_not_found_here(name: str) -> None:
    """In all cells of the operators and types that are drawn. Which of them are wrong depends on numbers."""
    rules = catalogue()
    drawn = {kind.op for kind in GRID}
    cells = [[cell for cell in cells_of(op) if cell.dtype in ("float32", "int8")] for op in OPERATORS]
    cases = [DomainCase(tuple(some)) for some in cells if some and some[0].op in drawn]
    of_drawn = dataclasses.replace(rules["DOM-01"], cases=lambda _: listed(cases))
    with contextlib.closing(opened_mutant(table()[name], RUNTIMES[0])) as target:
        found = judge_with_owners(of_drawn, target, WHOLE, 1, rules.__getitem__)
    assert (found.verdict.finding.where if found.verdict.finding else "") == BESIDE.get(name, "")
