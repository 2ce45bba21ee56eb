from __future__ import annotations

from functools import lru_cache

import pytest
from kept import keep

from pytest_qnn.engine import judge
from pytest_qnn.profile import Profile
from pytest_qnn.reference.personalities import PERSONALITIES
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

RULES = [name for name in catalogue() if name.startswith(("OFF-", "EXT-"))] + ["CAP-06", "REG-17"]
NEED_BUFFERS = {f"EXT-{number:02}" for number in (*range(7, 10), *range(11, 18), *range(21, 25), 26, 30)}
NEED_DEFERRING = NEED_BUFFERS | {f"EXT-{number:02}" for number in (1, 3, 4, 5, 6, 19, 20, 28)}
NEED_BINARIES = NEED_DEFERRING | {name for name in RULES if name.startswith("OFF-")} | {"EXT-25", "CAP-06"}
UNSUPPORTED = {
    "no-memory": NEED_DEFERRING | {"REG-17"},
    "no-deferred-init": NEED_DEFERRING,
    "dma-buf-only": NEED_DEFERRING,
    "no-binaries": NEED_BINARIES | {"EXT-29"},
    "no-custom": NEED_BUFFERS | {"EXT-29"},
    "no-spill-fill": {"EXT-15", "EXT-26", "EXT-29"},
    "io-in-one-piece": {"EXT-29", "OFF-02"},
}
"""Of any other personality: EXT-29, since initialisation can be deferred there."""
FEW = Profile("few", usual=8, dear=2)


@lru_cache(None)
def target(personality: str) -> MemoryTarget:
    return keep(open_memory_target(f"reference:{personality}", "emulated", "off", 10.0))


@pytest.mark.parametrize("personality", PERSONALITIES)
@pytest.mark.parametrize("rule_id", RULES)
def test_a_conforming_backend_passes_or_is_found_without_the_feature(rule_id: str, personality: str) -> None:
    verdict = judge(catalogue()[rule_id], target(personality), FEW, seed=7)
    lacks = rule_id in UNSUPPORTED.get(personality, {"EXT-29"})
    if rule_id == "EXT-32":
        lacks = not PERSONALITIES[personality].pieces
    wanted = Outcome.UNSUPPORTED if lacks else Outcome.PASS
    assert verdict.outcome is wanted, verdict.finding or verdict.reason
    assert bool(verdict.examined) is not lacks
    assert bool(verdict.reason) is lacks
