"""What some rules say of a library, as in a run in which they are selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from pytest_qnn.core import engine
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.effort import profile
from pytest_qnn.isolation.target import OpenTarget
from pytest_qnn.rules import catalogue


def blamed(target: OpenTarget, rules: Sequence[str], seed: int = 1) -> dict[str, engine.Blamed]:
    """What each of the rules says of the target, which is closed then."""
    controlled: dict[bytes, Sequence[engine.Cause]] = {}
    with closing(target):
        return {
            rule_id: engine.blame(
                catalogue()[rule_id], target, profile("default"), seed, catalogue().__getitem__, controlled
            )
            for rule_id in rules
        }


def failing(found: Mapping[str, engine.Blamed]) -> set[str]:
    """Those of the rules that fail, and the owners that they name."""
    named = {owner for _, owners in found.values() for owner in owners}
    passed = Outcome.PASS, Outcome.UNSUPPORTED
    return named | {
        rule_id
        for rule_id, (verdict, _) in found.items()
        if verdict.outcome not in passed and not verdict.is_blocked
    }
