"""The gallery of conforming oddities, judged by the rules of a half (``python -m benchmarks.gallery``)."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from benchmarks.gallery.results import HALVES, QUIET, Judged, Key, Red, rules_of
from pytest_qnn.core.engine import InternalError, judge_with_owners
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Level, Outcome, Verdict
from pytest_qnn.effort import profile as profile_named
from pytest_qnn.isolation.observe.cpu_time import usage
from pytest_qnn.rules import catalogue

_INTERNAL = "internal error"
"""The suite itself failed."""


def judged(gallery: Any, key: Key, only: Collection[str] = ()) -> Judged:
    """Judge one target by all rules of its half, or only by some."""
    half, name, profile, seed, _ = key
    started, before = _cpu(), gallery.met(name)
    with contextlib.closing(gallery.targets()[name]()) as target:
        verdicts = list(_verdicts(target, HALVES[half], _profile(profile), seed, only))
    red = [each for outcome, each in verdicts if outcome not in QUIET]
    allowed = getattr(gallery, "MEANT", {}).get(name, ())
    meant = [each for each in red if each.rule in allowed and each.level != Level.MUST.value]
    return Judged(
        *key,
        day=datetime.date.today().isoformat(),
        seconds=round(_cpu() - started, 1),
        met=gallery.met(name) - before,
        outcomes=dict(Counter(outcome for outcome, _ in verdicts)),
        red=[each for each in red if each not in meant],
        meant=meant,
        unsupported=[each.rule for outcome, each in verdicts if outcome == Outcome.UNSUPPORTED.value],
        rules=sorted(only),
        digests=rules_of(half).name,
    )


def judged_by_name(key: Key, only: Collection[str] = ()) -> Judged:
    """Judge one target, as `judged` does, in a process that has imported no gallery yet."""
    return judged(importlib.import_module(f"tests.gallery.{key[0]}.targets"), key, only)


def _profile(name: str) -> Profile:
    """A profile, or a flat number of examples."""
    number, _, flat = name.partition(" ")
    return Profile(name, int(number), int(number), shrink_seconds=5.0) if flat else profile_named(name)


def _verdicts(
    target: Any, subject: str, profile: Profile, seed: int, only: Collection[str]
) -> Iterator[tuple[str, Red]]:
    """The outcome of each rule, and what there is to say if it is a red one."""
    rules = catalogue()
    for rule in rules.values():
        if rule.subject == subject and not rule.self_check and (not only or rule.id in only):
            try:
                verdict, handed_over = judge_with_owners(rule, target, profile, seed, rules.__getitem__)
            except InternalError as error:
                text = f"{error.__cause__!r} in {error.args}"
                yield _INTERNAL, Red(rule.id, rule.level.value, _INTERNAL, text)
                continue
            for each in (verdict, *handed_over):
                yield each.outcome.value, _red(each)


def _red(verdict: Verdict) -> Red:
    found = verdict.finding
    text = f"{found}" if found else verdict.reason
    return Red(verdict.rule, verdict.level.value, verdict.outcome.value, text[:2000], verdict.found_by)


def _cpu() -> float:
    """Seconds of processor time of this process and all that it started."""
    return usage([os.getpid()]).cpu
