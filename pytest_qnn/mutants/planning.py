"""The plan of examples (`pytest_qnn.effort`), made from the kills that were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.mutant import Mutant
from pytest_qnn.effort import Pair, Planned
from pytest_qnn.mutants import LIMIT, Kill, chosen
from pytest_qnn.mutants.digests import controls_digest, pair_digest

LEAST = 20
"""Examples of every rule."""
_MEDIANS = 10
_MISSES = 0.001
"""Of a search, at the most, that may miss a mutant: what is left after ten medians."""

Counts = Sequence[int | None]
"""By seed: examples up to the first failure; None: none in `LIMIT`."""


def needed(counts: Counts) -> int:
    """Examples with which the rule finds the mutant but for one search in a thousand, and at least `LEAST`.

    The larger of ten medians, and of that quantile of a geometric distribution, in which each case finds the
    mutant with the same probability: the number of cases that missed it, over all, gives its mean (maximum
    likelihood), which is taken one standard error too large, since the seeds are few.
    """
    found = len(counts) - counts.count(None)
    if not found:
        return LIMIT
    cases = sum(LIMIT if count is None else count for count in counts)
    if cases == found:
        return LEAST
    mean = cases / found * (1 + 1 / math.sqrt(found))
    quantile = math.log(_MISSES) / math.log1p(-1 / mean)
    return max(LEAST, math.ceil(_MEDIANS * median(counts)), math.ceil(quantile))


def median(counts: Counts) -> float:
    """The median in examples, where a seed that missed counts as `LIMIT`."""
    return float(statistics.median(LIMIT if count is None else count for count in counts))


def planned(pairs: Mapping[str, Pair]) -> Planned:
    """The plan of a rule with these pairs, of which there is at least one."""
    slowest = max(sorted(pairs), key=lambda name: (needed(pairs[name].counts), median(pairs[name].counts)))
    return Planned(
        examples=needed(pairs[slowest].counts),
        median=max(median(pair.counts) for pair in pairs.values()),
        mutant=slowest,
        pairs=dict(sorted(pairs.items())),
    )


def without(plan: Planned, mutant: str) -> int:
    """Examples that the rule would get had nobody thought of the mutant."""
    others = [needed(pair.counts) for name, pair in plan.pairs.items() if name != mutant]
    return max(others, default=LEAST)


def updated(plan: Mapping[str, Planned], kills: Sequence[Kill]) -> dict[str, Planned]:
    """The plan with what was measured; pairs that there are no more are left out."""
    made: dict[str, dict[str, Pair]] = {}
    for kill in kills:
        pairs = made.setdefault(kill.rule, {})
        other = pairs.get(kill.mutant.name)
        if other is None or needed(other.counts) < needed(kill.examples):
            digest, controls = pair_digest(kill.rule, kill.mutant), _controls_of(kill.mutant)
            pairs[kill.mutant.name] = Pair(kill.examples, digest, controls)
    wanted = {(rule, mutant.name) for mutant, rules in chosen((), "") for rule in rules}
    for rule_id, rule_plan in plan.items():
        known = {name: pair for name, pair in rule_plan.pairs.items() if (rule_id, name) in wanted}
        made[rule_id] = known | made.get(rule_id, {})
    return {rule_id: planned(pairs) for rule_id, pairs in sorted(made.items()) if pairs}


def stale(plan: Mapping[str, Planned]) -> list[str]:
    """The pairs, as words of ``--only``, that were not measured since one of their sources changed."""
    return [
        f"{mutant.name}/{rule_id}"
        for mutant, rules in chosen((), "")
        for rule_id in rules
        if rule_id not in plan
        or mutant.name not in plan[rule_id].pairs
        or plan[rule_id].pairs[mutant.name].digest != pair_digest(rule_id, mutant)
    ]


def unconfirmed(plan: Mapping[str, Planned]) -> list[str]:
    """Those of the others that were not measured since a control of their half changed."""
    others = set(stale(plan))
    return [
        word
        for mutant, rules in chosen((), "")
        for rule_id in rules
        if (word := f"{mutant.name}/{rule_id}") not in others
        and plan[rule_id].pairs[mutant.name].controls != _controls_of(mutant)
    ]


def confirmed(plan: Mapping[str, Planned], kills: Sequence[Kill]) -> dict[str, Planned]:
    """The plan with the pairs that one seed gives the same number for, under the controls as they are.

    A control can make a rule pass over what it found before: then it needs more examples, or finds nothing.
    Where the first seed takes as many as before, the other seeds' numbers stay.

    Args:
        plan: that there is.
        kills: with the first seed alone, in all places of each mutant.
    """
    again: dict[tuple[str, str], list[int | None]] = {}
    for kill in kills:
        again.setdefault((kill.rule, kill.mutant.name), []).append(kill.examples[0])
    mutants = {kill.mutant.name: kill.mutant for kill in kills}
    made = {rule_id: dict(each.pairs) for rule_id, each in plan.items()}
    for (rule_id, name), firsts in again.items():
        pair = made[rule_id][name]
        if pair.counts[0] in firsts and None not in firsts:
            controls = _controls_of(mutants[name])
            made[rule_id][name] = msgspec.structs.replace(pair, controls=controls)
    return {rule_id: planned(pairs) for rule_id, pairs in made.items()}


def _controls_of(mutant: Mutant) -> str:
    return controls_digest("tflite" if mutant.subject == "delegate" else "qnn")


def gone(plan: Mapping[str, Planned]) -> list[str]:
    """The pairs of the plan that there are no more, as words of ``--only``."""
    wanted = {(rule, mutant.name) for mutant, rules in chosen((), "") for rule in rules}
    return [
        f"{name}/{rule}" for rule, each in plan.items() for name in each.pairs if (rule, name) not in wanted
    ]


def text(plan: Mapping[str, Any]) -> str:
    """The file: JSON, a line for each rule."""
    lines = [
        f"{msgspec.json.encode(rule_id).decode()}:{msgspec.json.encode(each).decode()}"
        for rule_id, each in plan.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"
