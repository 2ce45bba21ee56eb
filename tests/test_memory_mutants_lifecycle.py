from __future__ import annotations

import pytest
from memory_rules import RULES

from pytest_qnn.engine import judge
from pytest_qnn.mutants import memory_lifecycle, memory_register, memory_rpcmem
from pytest_qnn.mutants.mutant import Mutant
from pytest_qnn.profile import PROFILES
from pytest_qnn.run.targets import open_memory_target
from pytest_qnn.verdict import Outcome

MUTANTS: list[Mutant] = [*memory_lifecycle.MUTANTS, *memory_register.MUTANTS, *memory_rpcmem.MUTANTS]
KILLS = [(mutant, rule) for mutant in MUTANTS for rule in mutant.kills]


def test_every_rule_has_a_mutant() -> None:
    assert set(RULES) == {rule for _, rule in KILLS}


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(("mutant", "rule"), KILLS, ids=[f"{m.name}-{r}" for m, r in KILLS])
def test_mutant_is_killed_by_its_rule(mutant: Mutant, rule: str) -> None:
    target = open_memory_target(f"mutant:{mutant.name}", "emulated", "off", 10)
    verdict = judge(RULES[rule], target, PROFILES["default"], seed=3)
    target.close()
    expected = Outcome.CONTRADICTION if rule == "CAP-03" else Outcome.FAIL
    assert verdict.outcome == expected, verdict
