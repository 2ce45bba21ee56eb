"""The plan: how many examples of a rule find its mutants, and so how many the profile ``default`` draws.

``effort.json`` is written by ``python -m pytest_qnn.mutants --update docs/measured/mutants.md``, and read
when the first rule is judged. How its numbers are made: docs/explanation/decisions/shared/effort.md.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import msgspec

from pytest_qnn.core.profile import PROFILES, Profile

PLAN = Path(__file__).with_name("effort.json")


class Pair(msgspec.Struct, frozen=True):
    """What was measured of a rule on one of its mutants, in the place where it needs the most examples."""

    counts: tuple[int | None, ...]
    """By seed: examples up to the first failure; None: there was none."""
    digest: str
    """Of the sources of the rule, its strategy and the mutant (`pytest_qnn.mutants.digests`)."""
    controls: str = ""
    """Of the controls of the half, with which it was measured or confirmed last."""


class Planned(msgspec.Struct, frozen=True):
    """The plan of one rule."""

    examples: int
    median: float
    """The slowest of its mutants' medians, in examples."""
    mutant: str
    """The mutant for whose sake there are so many examples."""
    pairs: dict[str, Pair]
    """By mutant."""


class _Number(msgspec.Struct, frozen=True):
    """All that a run reads of a rule's plan."""

    examples: int


@functools.cache
def profile(name: str) -> Profile:
    """One of ``--qnn-profile``'s values, with the plan where it goes by one.

    Raises:
        KeyError: there is no such profile.
    """
    flat = PROFILES[name]
    if name != "default":
        return flat
    plan = msgspec.json.decode(PLAN.read_bytes(), type=dict[str, _Number])
    return dataclasses.replace(flat, plan={rule_id: planned.examples for rule_id, planned in plan.items()})


def read(path: Path = PLAN) -> dict[str, Planned]:
    """The whole plan, by rule; empty where there is no such file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Planned]) if path.exists() else {}
