from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from pytest_qnn.cases.memory import BOGUS, Binding, ContextCreate, Execute, MemoryCase, Prepare
from pytest_qnn.engine import judge
from pytest_qnn.mutants import table
from pytest_qnn.mutants.memory_graphs import MUTANTS as GRAPHS
from pytest_qnn.mutants.memory_matrix import MUTANTS as MATRIX
from pytest_qnn.mutants.mutant import Mutant
from pytest_qnn.profile import PROFILES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

AREAS = ("ION", "SHB", "EXE", "QMG", "PRE")
MUTANTS = [*GRAPHS, *MATRIX]


@contextmanager
def opened(spec: str) -> Iterator[MemoryTarget]:
    target = open_memory_target(spec, "emulated", "off", 10.0)
    try:
        yield target
    finally:
        target.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_rule_a_mutant_names_finds_it(mutant: Mutant) -> None:
    with opened(f"mutant:{mutant.name}") as target:
        for rule_id in mutant.kills:
            verdict = judge(catalogue()[rule_id], target, PROFILES["default"], seed=1)
            assert verdict.outcome is Outcome.FAIL, f"{rule_id}: {verdict.outcome} {verdict.reason}"
            assert verdict.finding is not None


def test_an_unknown_handle_shrinks_to_context_prepare_execute() -> None:
    with opened("mutant:unknown-handle-zeros") as target:
        verdict = judge(catalogue()["EXE-05"], target, PROFILES["default"], seed=3)
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case, type=MemoryCase)
    prepare = Prepare("g0", "c0")
    execute = Execute("g0", (Binding("handle", BOGUS), Binding(), Binding()))
    assert case.steps == (ContextCreate("c0"), prepare, execute)


@pytest.mark.parametrize("rule_id", [name for name in catalogue() if name.split("-")[0] in AREAS])
def test_every_rule_has_a_mutant(rule_id: str) -> None:
    assert any(rule_id in mutant.kills for mutant in table().values())
