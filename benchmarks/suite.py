"""The whole suite, judged by half on the reference, in one process."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from benchmarks.timing import QUICK, Effort, Figure, Row, cpu_seconds, cpu_seconds_with_living, figure
from pytest_qnn import effort as plans
from pytest_qnn.core.engine import judge
from pytest_qnn.core.rule import Subject
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target

HALVES: tuple[Subject, ...] = ("memory", "delegate")
PROFILES = ("quick", "default")
SEED = 1
_EXPENSIVE = 10
"""Rules with a row of their own, by CPU time."""
_TIMEOUT = 10.0


def rows(effort: Effort) -> Iterator[Row]:
    """Seconds of all rules, how many examples they judged, and the rules that cost most.

    One repetition, where the effort is small; three otherwise. Each has the same seed, and so the same cases.
    """
    repetitions = 1 if effort is QUICK else 3
    for profile in PROFILES:
        for half in HALVES:
            yield from _rows(half, profile, repetitions)


def _rows(half: Subject, profile: str, repetitions: int) -> Iterator[Row]:
    judged = [_judged(half, profile) for _ in range(repetitions)]
    whole = figure([run[0][0] for run in judged], [run[0][1] for run in judged])
    by_rule = {
        rule: (
            figure([run[1][rule][0] for run in judged], [run[1][rule][1] for run in judged]),
            judged[0][1][rule][2],
        )
        for rule in judged[0][1]
    }
    examples = sum(count for _, count in by_rule.values())
    subject = f"{half}, {profile}"
    yield Row(subject, f"{len(by_rule)} rules", "s", whole)
    yield Row(subject, "examples", "examples", value=examples)
    yield Row(subject, "examples", "a second", whole.times(1 / examples).inverse())
    yield from _expensive(subject, by_rule)


def _expensive(subject: str, by_rule: dict[str, tuple[Figure, int]]) -> Iterator[Row]:
    costs = {rule: found.cpu.median for rule, (found, _) in by_rule.items()}
    for rule, _ in sorted(costs.items(), key=operator.itemgetter(1), reverse=True)[:_EXPENSIVE]:
        found, examples = by_rule[rule]
        yield Row(subject, f"{rule}, {examples} examples", "s", found)


def _judged(half: Subject, profile: str) -> tuple[tuple[float, float], dict[str, tuple[float, float, int]]]:
    """CPU and wall seconds of all rules of a half; and of each, with its examples.

    Raises:
        RuntimeError: the reference fails a rule.
    """
    plan = plans.profile(profile)
    by_rule = {}
    began = cpu_seconds(), time.perf_counter()
    with closing(_target(half)) as target:
        for rule in catalogue().values():
            if rule.subject != half:
                continue
            cpu, wall = cpu_seconds_with_living(), time.perf_counter()
            verdict = judge(rule, target, plan, SEED)
            seconds = cpu_seconds_with_living() - cpu, time.perf_counter() - wall
            by_rule[rule.id] = (*seconds, verdict.examples)
            if verdict.outcome.value not in {"pass", "unsupported", "inconclusive"}:
                raise RuntimeError(f"{rule.id} on the reference: {verdict.outcome.value}")
    return (cpu_seconds() - began[0], time.perf_counter() - began[1]), by_rule


def _target(half: Subject) -> Any:
    if half == "memory":
        return open_memory_target("reference", "emulated", "auto", _TIMEOUT)
    return open_delegate_target([("reference", {})], "auto", "auto", _TIMEOUT)
