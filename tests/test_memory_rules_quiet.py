from __future__ import annotations

from collections.abc import Iterator

import pytest
from memory_rules import RULES

from pytest_qnn.engine import judge
from pytest_qnn.profile import PROFILES, Profile
from pytest_qnn.reference.personalities import PERSONALITIES
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

NEED_MEMORY = {rule for rule in RULES if rule.startswith(("REG-", "DRG-", "CTX-", "CAP-03", "CAP-04"))}
UNSUPPORTED: dict[str, set[str]] = {
    "no-memory": NEED_MEMORY - {"CTX-06"},
    "dma-buf": {"CAP-02", "CAP-04"},
}
"""Rules that a personality cannot show; with the memory API there, that is CAP-02."""

FEW = Profile("few", usual=8, dear=1)

SPECIFIED = [
    "IF-01",
    "IF-02",
    "IF-05",
    "CAP-01",
    "CAP-02",
    "CAP-03",
    "CAP-04",
    "RPC-02",
    "RPC-04",
    "RPC-06",
    "RPC-07",
    "RPC-08",
    "RPC-09",
    "RPC-10",
    "RPC-11",
    "REG-01",
    "REG-02",
    "REG-03",
    "REG-04",
    "REG-05",
    "REG-06",
    "REG-07",
    "REG-08",
    "REG-13",
    "REG-14",
    "REG-15",
    "REG-16",
    "REG-20",
    "REG-21",
    "REG-22",
    "REG-23",
    "REG-24",
    "DRG-01",
    "DRG-02",
    "DRG-03",
    "DRG-04",
    "DRG-05",
    "DRG-06",
    "DRG-09",
    "DRG-11",
    "CTX-01",
    "CTX-03",
    "CTX-04",
    "CTX-05",
    "CTX-06",
]


@pytest.fixture(scope="module", params=sorted(PERSONALITIES))
def personality(request: pytest.FixtureRequest) -> Iterator[MemoryTarget]:
    target = open_memory_target(f"reference:{request.param}", "emulated", "off", 10)
    yield target
    target.close()


def test_every_rule_of_these_areas_is_entered() -> None:
    assert sorted(RULES) == sorted(SPECIFIED)


@pytest.mark.parametrize("rule", SPECIFIED)
def test_rule_is_quiet_on_every_personality_of_the_reference(rule: str, personality: MemoryTarget) -> None:
    name = personality.spec.partition(":")[2]
    unsupported = rule in UNSUPPORTED.get(name, {"CAP-02"})
    profile = PROFILES["quick"] if name == "default" else FEW
    verdict = judge(RULES[rule], personality, profile, seed=7)
    assert verdict.outcome == (Outcome.UNSUPPORTED if unsupported else Outcome.PASS), verdict
    assert bool(verdict.reason) == unsupported
