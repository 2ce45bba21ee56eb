"""Every rule on every conforming target: unsupported exactly where its gate is closed, and else a pass."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from conforming import DELEGATES, MEMORY, TARGETS, Conforming
from fast_pairs import DEAR, FURTHER, LEAST, base_of, fast_pairs, pairs, targets_of
from fast_run import LARGE

from pytest_qnn.core.conditions import CONDITIONS, closed, parted
from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.mutants import RUNTIMES
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.runner.worker import KEYS
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.facts import LIMITS, DelegateFacts

FAST = fast_pairs()
FEW, FEWEST = (Profile("few", in_process_examples=count, isolated_examples=5) for count in (6, 2))
"""Of each pair, and of rules with large tensors in the full run; more where so few show nothing, as behind
gates that most cases do not pass."""
NEVER_OPEN = {
    "ABI-11": "no conforming delegate here is opaque; test_plugin_interface.py judges one by a trace"
}
SEES_NOTHING = {
    **{
        ("XNN-03", f"many-partitions-{runtime}"): "it claims every second node, and so no graph as a whole"
        for runtime in RUNTIMES
    },
}
"""Where a gate is open, and what the rule looks at never comes about."""
_EXTERNAL = (*(7, 8, 9, 11, 12, 13, 14), *(16, 17, 21, 22, 23, 24, 30, 33, 34, 35, 36))
UNSUPPORTED_THERE = {
    ("CAP-02", "null-memory"): "memRegister is NULL in the table",
    ("ION-06", "null-memory"): "memRegister is NULL in the table",
    ("CAP-07", "null-features"): "graphPrepareExecutionEnvironment is NULL in the table",
    **{
        ("DOM-01", f"{name}-{runtime}"): "it leaves models of one small node alone"
        for name in ("large-tensors", "long-partitions")
        for runtime in RUNTIMES
    },
    **{
        ("PART-22", f"long-partitions-{runtime}"): "each of its kernels would have one node"
        for runtime in RUNTIMES
    },
    **{("NUM-11", f"long-partitions-{each}"): "it leaves graphs of two nodes alone" for each in RUNTIMES},
    **{(f"EXT-{number:02}", "no-external-needs"): "no context needs external memory" for number in _EXTERNAL},
}
"""Where a gate is open, and the target legally does not offer what the rule is about."""
_FOUND_IN_XNNPACK = {
    "DOM-01": {Outcome.FAIL},
    "HOS-01": {Outcome.FAIL, Outcome.PASS},
}
"""docs/findings.md, on 2.3: nodes of rank 7 and 8; a short bias, which not all first cases have. MEM-17's:
some kernels read behind their inputs."""
IN_CHILDREN_ONLY = {
    ("HOS-02", f"{chain}-ai_edge_litert") for chain in ("xnnpack", "xnnpack+reference", "reference+xnnpack")
}
"""What ends this process: `test_real.py` judges it in children."""
ACCUSED = {
    (rule_id, f"{chain}-ai_edge_litert"): outcomes
    for rule_id, outcomes in _FOUND_IN_XNNPACK.items()
    for chain in ("xnnpack", "xnnpack+reference")
} | {
    ("MEM-17", f"{chain}-{runtime}"): {Outcome.FAIL, Outcome.PASS}
    for chain in ("xnnpack", "xnnpack+reference")
    for runtime in RUNTIMES
}
"""Where a rule finds a true fault, and what comes of its first cases."""
SAYS_SO = {"PART-03"}
"""Inconclusive of a delegate that claims nothing; whatever else needs a claim is unsupported then."""


@functools.cache
def opened(name: str) -> Any:
    return TARGETS[name].open()


def in_both_runs() -> Iterator[Any]:
    """The pairs of the fast run; and every pair, with other cases."""
    for rule_id, name in by_target():
        if (rule_id, name) in IN_CHILDREN_ONLY:
            continue
        place = f"{name}-{rule_id}"
        if (rule_id, name) in FAST:
            yield pytest.param(rule_id, name, FEW, 7, id=place)
            place += "-again"
        effort = FEWEST if rule_id in LARGE else FEW
        yield pytest.param(rule_id, name, effort, 8, id=place, marks=pytest.mark.full)


def by_target() -> list[tuple[str, str]]:
    """All pairs, those of one target together: it is opened once."""
    order = list(TARGETS)
    return sorted(pairs(), key=lambda pair: (order.index(pair[1]), pair[0]))


def outcomes(rule_id: str, target: Conforming) -> set[Outcome]:
    """What the rule may say of the target."""
    if (rule_id, target.name) in SEES_NOTHING:
        return {Outcome.INCONCLUSIVE}
    if (rule_id, target.name) in ACCUSED:
        return ACCUSED[rule_id, target.name]
    if (rule_id, target.name) in UNSUPPORTED_THERE:
        return {Outcome.UNSUPPORTED}
    usual = Outcome.UNSUPPORTED if closed(catalogue()[rule_id].gate, target.holding) else Outcome.PASS
    if target.idle:
        return {usual, Outcome.INCONCLUSIVE if rule_id in SAYS_SO else Outcome.UNSUPPORTED}
    return {usual}


@pytest.mark.parametrize(("rule_id", "name", "effort", "seed"), list(in_both_runs()))
def test_a_rule_is_unsupported_exactly_where_its_gate_is_closed(
    rule_id: str, name: str, effort: Profile, seed: int
) -> None:
    wanted = outcomes(rule_id, TARGETS[name])
    verdict = judge(catalogue()[rule_id], opened(name), effort, seed)
    if verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED) and verdict.outcome not in wanted:
        # So few cases may show nothing of what there is.
        verdict = judge(catalogue()[rule_id], opened(name), PROFILES["quick"], seed)
    passed = verdict.outcome is Outcome.PASS
    assert verdict.outcome in wanted, verdict
    if verdict.outcome is not Outcome.FAIL:
        assert (verdict.examined > 0) is passed
        assert bool(verdict.reason) is not passed


@pytest.mark.parametrize("name", [target.name for target in MEMORY])
def test_property_keys_are_answered_as_it_is_said_of_the_personality(name: str) -> None:
    facts: MemoryFacts = opened(name).facts
    keys = {part for rule in catalogue().values() for part, _ in map(parted, rule.gate) if part.isdecimal()}
    assert {key for key in keys if facts.supports(int(key))} == TARGETS[name].holding & keys
    assert facts.backend_id == 6
    assert opened(name).isolated is ("own process" in TARGETS[name].holding)


@pytest.mark.parametrize("name", [target.name for target in DELEGATES])
def test_what_is_learned_of_a_delegate_is_what_is_said_of_it(name: str) -> None:
    facts: DelegateFacts = opened(name).facts
    learned = {option for option in LIMITS if facts.limits.get(option) == ""}
    learned |= {"custom memory"} if facts.custom_memory >= 0 else set()
    learned |= {"registration"} if facts.registers else set()
    assert learned == TARGETS[name].holding & {*LIMITS, "custom memory", "registration"}


def test_every_gate_names_property_keys_that_are_asked_for_and_known_conditions() -> None:
    named = {part for rule in catalogue().values() for part, _ in map(parted, rule.gate)}
    assert {part for part in named if not part.isdecimal()} == CONDITIONS.keys()
    assert {int(part) for part in named if part.isdecimal()} <= set(KEYS)


def test_every_rule_passes_on_some_conforming_target() -> None:
    never = {
        rule.id
        for rule in catalogue().values()
        if all(closed(rule.gate, target.holding) for target in targets_of(rule))
    }
    assert never == NEVER_OPEN.keys()


def test_the_fast_run_has_every_rule_on_further_targets_and_every_target_with_many_rules() -> None:
    for rule in catalogue().values():
        others = [target.name for target in targets_of(rule) if target.name not in base_of(rule)]
        passing = {name for name in others if not closed(rule.gate, TARGETS[name].holding)}
        met = sum((rule.id, name) in FAST for name in passing)
        assert rule.id.startswith(DEAR) or met >= min(FURTHER, len(passing)), rule.id
    assert min(Counter(name for _, name in FAST).values()) >= LEAST


def test_the_fast_run_meets_every_part_of_a_gate_closed_where_some_target_closes_it() -> None:
    for rule in catalogue().values():
        for part in rule.gate:
            shut = {target.name for target in targets_of(rule) if closed((part,), target.holding)}
            assert not shut or any((rule.id, name) in FAST for name in shut), (rule.id, part)
