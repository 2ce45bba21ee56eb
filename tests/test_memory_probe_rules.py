from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import pytest
from kept import keep

from pytest_qnn.engine import judge
from pytest_qnn.mutants.memory_handles import MUTANTS as HANDLES
from pytest_qnn.mutants.memory_interface import MUTANTS as INTERFACE
from pytest_qnn.mutants.memory_logs import MUTANTS as LOGS
from pytest_qnn.mutants.memory_restart import MUTANTS as RESTART
from pytest_qnn.mutants.memory_tensors import MUTANTS as TENSORS
from pytest_qnn.mutants.mutant import Mutant
from pytest_qnn.profile import PROFILES, Profile
from pytest_qnn.reference.personalities import PERSONALITIES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

MUTANTS = [*INTERFACE, *HANDLES, *LOGS, *RESTART, *TENSORS]
KILLS = [(mutant, rule) for mutant in MUTANTS for rule in mutant.kills]
RULES = """
IF-03 IF-04 IF-06 IF-07 IF-08 IF-09 IF-10 CAP-05 CAP-07 CAP-08
EXE-06 EXE-07 EXE-08 EXE-09 EXE-10 EXE-11 EXE-12 EXE-13 EXE-14 EXE-15 EXE-16 EXE-17
PRE-03 PRE-05 PRE-06 PRE-07 PRE-08 PRE-09 QMG-09 QMG-11
SSR-01 QTHR-01 QTHR-03 QTHR-04 QTHR-05 QLEAK-01 QLEAK-02 QLEAK-03
""".split()  # noqa: SIM905 - a table of ids reads better than a list of strings
NEED_MEMORY = {rule for rule in RULES if rule.startswith(("QLEAK-01", "QLEAK-02", "QTHR-03", "SSR"))} | {
    f"EXE-{number:02}" for number in (6, 7, 8, 9)
}
UNSUPPORTED = {
    "no-memory": NEED_MEMORY,
    "no-binaries": {"PRE-09"},
    "environments": {"CAP-07"},
    "io-in-one-piece": {"QMG-09"},
}
"""Rules that a personality cannot show."""
FEW = Profile("few", usual=8, dear=1)


@contextmanager
def opened(spec: str) -> Iterator[MemoryTarget]:
    target = open_memory_target(spec, "emulated", "off", 10.0)
    try:
        yield target
    finally:
        target.close()


@lru_cache(None)
def personality(name: str) -> MemoryTarget:
    return keep(open_memory_target(f"reference:{name}", "emulated", "off", 10.0))


@pytest.mark.parametrize("name", PERSONALITIES)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_quiet_on_every_personality_of_the_reference(rule: str, name: str) -> None:
    profile = PROFILES["quick"] if name == "default" else FEW
    verdict = judge(catalogue()[rule], personality(name), profile, seed=7)
    lacks = rule in UNSUPPORTED.get(name, set())
    assert verdict.outcome is (Outcome.UNSUPPORTED if lacks else Outcome.PASS), verdict
    assert bool(verdict.examined) is not lacks


@pytest.mark.parametrize(("mutant", "rule"), KILLS, ids=[f"{m.name}-{r}" for m, r in KILLS])
def test_a_mutant_is_killed_by_its_rule(mutant: Mutant, rule: str) -> None:
    with opened(f"mutant:{mutant.name}") as target:
        verdict = judge(catalogue()[rule], target, PROFILES["default"], seed=1)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.finding is not None


def test_each_of_these_rules_has_a_mutant() -> None:
    assert {rule for _, rule in KILLS} == set(RULES)
