"""Which pairs of rule and conforming target the fast run judges. All the others are marked ``full``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from conforming import CHAINS, DELEGATES, MEMORY, TARGETS, Conforming
from fast_run import turn

from pytest_qnn.core.conditions import closed
from pytest_qnn.core.rule import Rule
from pytest_qnn.mutants import RUNTIMES
from pytest_qnn.rules import catalogue

Pair = tuple[str, str]
"""Id of a rule, name of a target."""
AnyRule = Rule[object, object, object]

DEAR = ("LEAK-", "OWN-", "THR-", "LIFE-05", "RSZ-05", "QLEAK-", "DOM-")
"""Rules that take seconds, and look at what variants have in common: the fast run has them in one place."""
OF_THEIR_OWN = ("device-buffers", "dynamic")
"""Variants that hold something of their own, which dear rules are about."""
FURTHER = 1
"""Targets, besides those that every rule is judged on, that a rule passes on in the fast run."""
LEAST = 5
"""Rules that each target meets in the fast run, if so many can be judged on it."""


def runtimes(name: str) -> Sequence[str]:
    """Both runtimes; which of them comes first is a matter of the name."""
    return RUNTIMES[:: 1 if turn(name) % 2 else -1]


def pairs() -> list[Pair]:
    """Every rule with every conforming target of its half."""
    return [(rule_id, target.name) for rule_id, rule in catalogue().items() for target in targets_of(rule)]


def targets_of(rule: AnyRule) -> list[Conforming]:
    """The targets that the rule is judged on."""
    targets = MEMORY if rule.subject == "memory" else DELEGATES
    return [target for target in targets if not rule.id.startswith(DEAR) or _has_its_own(target)]


def _has_its_own(target: Conforming) -> bool:
    """Dear rules see there what they do not see elsewhere."""
    names = OF_THEIR_OWN + tuple("+".join(chain) for chain in CHAINS)
    return target.subject == "memory" or target.name.startswith(tuple(f"{name}-" for name in names))


def fast_pairs() -> set[Pair]:
    """The pairs of the fast run."""
    found = {(rule.id, name) for rule in catalogue().values() for name in _names(rule)}
    for target in TARGETS.values():
        met = {rule_id for rule_id, name in found if name == target.name}
        found |= {(rule_id, target.name) for rule_id in _more(target, met)}
    return found


def _names(rule: AnyRule) -> set[str]:
    """Where every rule is judged, where this one passes too, and where each part of its gate is closed."""
    base = base_of(rule)
    others = [target for target in _shuffled(rule) if target.name not in base]
    is_open = [target.name for target in others if not closed(rule.gate, target.holding)]
    further = is_open[: 0 if rule.id.startswith(DEAR) else FURTHER]
    shut = [_first_closed(condition, others) for condition in rule.gate]
    return {*base, *further, *filter(None, shut)}


def base_of(rule: AnyRule) -> tuple[str, ...]:
    """The reference; for delegate rules on one runtime, and XNNPACK on the other one."""
    if rule.subject == "memory":
        return ("default",)
    first, second = runtimes(rule.id)
    return (f"reference-{first}", f"xnnpack-{second}")[: 1 if rule.id.startswith(DEAR) else 2]


def _shuffled(rule: AnyRule) -> list[Conforming]:
    return sorted(targets_of(rule), key=lambda target: turn(rule.id, target.name))


def _first_closed(condition: str, targets: Iterable[Conforming]) -> str:
    """The first target on which this part of a gate is closed; empty where there is none."""
    return next((target.name for target in targets if closed((condition,), target.holding)), "")


def _more(target: Conforming, met: Collection[str]) -> list[str]:
    """Rules that the target is to meet besides those that it meets already."""
    rules = [
        rule
        for rule in catalogue().values()
        if rule.subject == target.subject and rule.id not in met and not rule.id.startswith(DEAR)
    ]
    by_turn = sorted(rules, key=lambda rule: turn(target.name, rule.id))
    fitting = (rule.id for rule in by_turn if not closed(rule.gate, target.holding))
    return list(islice(fitting, max(0, LEAST - len(met))))
