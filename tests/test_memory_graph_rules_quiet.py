from __future__ import annotations

from functools import lru_cache

import pytest
from kept import keep

from pytest_qnn.engine import judge
from pytest_qnn.profile import PROFILES
from pytest_qnn.reference.personalities import PERSONALITIES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

AREAS = ("ION", "SHB", "EXE", "QMG", "PRE")
PROBES = ("exe_tensors", "exe_async", "pre_tensors", "qmg_more")
CONTRACT = ("ion_fd", "shb_descriptors", "shb_relations", "rpc_more")
ELSEWHERE = tuple(f"pytest_qnn.rules.{module}" for module in (*PROBES, *CONTRACT))
"""Modules whose rules are held by test_memory_{probe_rules,async,contract}.py."""
RULES = [
    name
    for name, rule in catalogue().items()
    if name.split("-")[0] in AREAS and rule.check.__module__ not in ELSEWHERE
]
NEED_ION = {"ION-03", "ION-04", "ION-05"}
NEED_CUSTOM = {f"SHB-{number:02}" for number in (3, 4, 6, 7, 8, 9, 13)}
NEED_MEMORY = NEED_ION | NEED_CUSTOM | {"EXE-01", "EXE-02", "EXE-04", "EXE-19", "QMG-02", "QMG-04", "QMG-07"}
UNSUPPORTED = {"no-memory": NEED_MEMORY, "no-ion": NEED_ION, "no-custom": NEED_CUSTOM}
UNSUPPORTED["io-in-one-piece"] = {f"QMG-{number:02}" for number in (1, 2, 3, 4, 6)}
UNSUPPORTED["dma-buf-only"] = NEED_ION | NEED_CUSTOM


@lru_cache(None)
def target(personality: str) -> MemoryTarget:
    return keep(open_memory_target(f"reference:{personality}", "emulated", "off", 10.0))


@pytest.mark.parametrize("personality", PERSONALITIES)
@pytest.mark.parametrize("rule_id", RULES)
def test_a_conforming_backend_passes_or_is_found_without_the_feature(rule_id: str, personality: str) -> None:
    verdict = judge(catalogue()[rule_id], target(personality), PROFILES["quick"], seed=7)
    lacks = rule_id in UNSUPPORTED.get(personality, set())
    wanted = Outcome.UNSUPPORTED if lacks else Outcome.PASS
    assert verdict.outcome is wanted, verdict.finding or verdict.reason
    assert bool(verdict.examined) is not lacks
    assert bool(verdict.reason) is lacks


def test_there_are_rules_of_every_area() -> None:
    assert len(RULES) == 27
    assert {name.split("-")[0] for name in RULES} == set(AREAS)
