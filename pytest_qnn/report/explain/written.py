"""What was written by hand about some rules: why a rule matters, how implementations go wrong, how to fix it.

One TOML file for each area, ``pages/qnn/reg.toml``, with a table for each rule. docs/rules/README.md says
which rules have one; all others are shown with what is known as data.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

FOLDER = Path(__file__).with_name("pages")
HALVES = {"memory": "qnn", "delegate": "tflite"}
"""Folder of an area's file, by the subject of its rules."""


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written about one rule; each text is one paragraph."""

    source: str
    """What the document says, in our own words, and where; or that none says it, and what it follows from."""
    why: str
    wrong: str
    """How implementations go wrong."""
    fix: str
    bugs: tuple[str, ...] = ()
    """Public reports, each its address and what it is about."""
    libraries: str = ""
    """What public libraries do, where it is more than their verdicts (`pytest_qnn.report.explain.known`)."""


def of(rule_id: str, subject: str) -> Written | None:
    """What is written about the rule; None: nothing."""
    return area(rule_id.partition("-")[0].lower(), HALVES[subject]).get(rule_id)


@functools.cache
def area(name: str, half: str) -> Mapping[str, Written]:
    """What is written about the rules of one area, by rule.

    Args:
        name: of the area, in small letters.
        half: ``qnn`` or ``tflite``.
    """
    path = FOLDER / half / f"{name}.toml"
    if not path.exists():
        return {}
    tables: Mapping[str, Any] = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    return msgspec.convert(tables, type=dict[str, Written])


def everything() -> dict[str, Written]:
    """All that is written, by rule."""
    found: dict[str, Written] = {}
    for half in HALVES.values():
        for path in sorted((FOLDER / half).glob("*.toml")):
            found |= area(path.stem, half)
    return found
