from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_qnn.engine import judge
from pytest_qnn.profile import Profile
from pytest_qnn.rules import catalogue
from pytest_qnn.run.targets import MemoryTarget, open_memory_target
from pytest_qnn.verdict import Outcome

RULES = {name: rule for name, rule in catalogue().items() if rule.subject == "memory"}
FEW = Profile("few", usual=3, dear=1)
LACKING = ("no-memory", "no-ion", "no-custom", "no-binaries", "no-deferred-init", "dma-buf-only")
ABOUT_THE_LACK = {
    *("CAP-05", "CAP-06", "CAP-07", "EXT-02", "EXT-25", "EXT-29", "EXT-31", "IF-05", "ION-06"),
    *("CAP-02", "CAP-04"),
}
"""What a target does that lacks something. CAP-02 and CAP-04 have no gate that can be open."""
IN_CHILDREN = {"QLEAK-04"}


@pytest.fixture(scope="module", params=LACKING)
def target(request: pytest.FixtureRequest) -> Iterator[MemoryTarget]:
    opened = open_memory_target(f"reference:{request.param}", "emulated", "off", 10.0)
    yield opened
    opened.close()


def closed(gate: tuple[str, ...], target: MemoryTarget) -> bool:
    """A property key of the gate is not supported."""
    return any(not target.facts.supports(int(key)) for key in gate if key.isdecimal())


@pytest.mark.parametrize("name", sorted(RULES.keys() - ABOUT_THE_LACK - IN_CHILDREN))
def test_a_rule_is_unsupported_exactly_where_its_gate_is_closed(name: str, target: MemoryTarget) -> None:
    rule = RULES[name]
    verdict = judge(rule, target, FEW, seed=5)
    assert (verdict.outcome is Outcome.UNSUPPORTED) is closed(rule.gate, target), verdict


def test_every_gate_names_property_keys_or_the_htp() -> None:
    odd = {key for rule in RULES.values() for key in rule.gate if not key.isdecimal()}
    assert odd == {"HTP"}
