from __future__ import annotations

import pytest

from pytest_qnn.engine import first_failure, judge
from pytest_qnn.mutants import memory_binaries, memory_deferred, memory_external, memory_failed, table
from pytest_qnn.mutants.mutant import Mutant
from pytest_qnn.profile import PROFILES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import open_memory_target
from pytest_qnn.verdict import Outcome

MODULES = (memory_binaries, memory_external, memory_deferred, memory_failed)
MUTANTS: list[Mutant] = [mutant for module in MODULES for mutant in module.MUTANTS]
DEAR = {"OFF-02", "OFF-03"}
"""Their cases go through several processes, or map megabytes: they are not reduced here."""
KILLS = [(mutant, rule) for mutant in MUTANTS for rule in mutant.kills]


@pytest.mark.parametrize(("mutant", "rule"), KILLS, ids=[f"{m.name}-{r}" for m, r in KILLS])
def test_mutant_is_killed_by_its_rule(mutant: Mutant, rule: str) -> None:
    target = open_memory_target(f"mutant:{mutant.name}", "emulated", "off", 10)
    if rule in DEAR:
        found = first_failure(catalogue()[rule], target, PROFILES["default"], seed=3)
        target.close()
        assert found is not None
        return
    verdict = judge(catalogue()[rule], target, PROFILES["default"], seed=3)
    target.close()
    assert verdict.outcome is (Outcome.CONTRADICTION if rule == "CAP-06" else Outcome.FAIL), verdict


@pytest.mark.parametrize("rule_id", [name for name in catalogue() if name.startswith(("OFF-", "EXT-"))])
def test_every_rule_has_a_mutant(rule_id: str) -> None:
    assert any(rule_id in mutant.kills for mutant in table().values())
