"""What is known of each rule as data: mutants, personalities, and what public libraries do.

``known/rules.json`` is written by ``python -m tools.explain.facts``, and a test keeps it so;
``known/libraries.json`` by ``python -m tools.explain.libraries`` from reports of runs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).with_name("known")
RULES = _FOLDER / "rules.json"
LIBRARIES = _FOLDER / "libraries.json"


class Known(NamedTuple):
    """What is known of one rule."""

    mutants: Mapping[str, str]
    """By name: the one fault, as a sentence."""
    unsupported_on: tuple[str, ...]
    """Personalities of the reference whose gate is closed."""
    libraries: Mapping[str, tuple[str, str]]
    """By library: the verdict, and what was seen or why it is unsupported."""


class Library(NamedTuple):
    """A public library as it was judged."""

    date: str
    """Of the run, as 2026-11-24."""
    profile: str
    seed: int
    sha256: str
    """The first twelve digits; empty: the library came with its runtime."""


def of(rule_id: str) -> Known:
    """What is known of the rule."""
    found = _read(RULES).get(rule_id, {})
    verdicts = _read(LIBRARIES).get("rules", {}).get(rule_id, {})
    return Known(
        found.get("mutants", {}),
        tuple(found.get("unsupported_on", ())),
        {name: (verdict, seen) for name, (verdict, seen) in verdicts.items()},
    )


def libraries() -> dict[str, Library]:
    """Every library that was judged, by its name."""
    return {name: Library(**each) for name, each in _read(LIBRARIES).get("libraries", {}).items()}


@functools.cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
