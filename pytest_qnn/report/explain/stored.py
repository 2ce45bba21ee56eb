"""The smallest violations, as data: a line of JSON for each rule, in a file for each half.

They are made by ``python -m tools.explain.cases``; a test runs each of them again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_qnn import case_file

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

FOLDER = Path(__file__).with_name("cases")
FILES = {"memory": "qnn.jsonl", "delegate": "tflite.jsonl"}
"""By the subject of a rule."""
_NOT_KEPT = ("provenance", "tool", "picture", "flaky")
"""Fields of a case file that say nothing here."""


class Example(NamedTuple):
    """A case that breaks a rule on a mutant and obeys it on a conforming target."""

    rule: str
    mutant: str
    passes_on: str
    """Specification of the conforming target."""
    runtime: str
    """Of a delegate: the runtime on which it was found."""
    file: AnyCaseFile
    options: Mapping[str, str] = {}
    """Of the conforming target: its options, where it needs some."""
    unsupported: bool = False
    """No conforming target has what the rule is about: on this one it has nothing to judge in the case."""


_DEFAULTS: dict[str, Any] = Example._field_defaults
"""Fields that most lines leave out."""


def examples() -> dict[str, Example]:
    """Every stored violation, by rule."""
    return {example.rule: example for subject in FILES for example in map(_decoded, _lines(subject))}


def example_of(rule_id: str, subject: str) -> Example | None:
    """The stored violation of one rule, for which nothing else is decoded; None: there is none."""
    begins = json.dumps({"rule": rule_id})[:-1]
    return next((_decoded(line) for line in _lines(subject) if line.startswith(begins)), None)


@functools.cache
def _lines(subject: str) -> list[str]:
    path = FOLDER / FILES[subject]
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _decoded(line: str) -> Example:
    row: dict[str, Any] = json.loads(line)
    file = case_file.decode(json.dumps(row["file"]).encode())
    more = {key: row[key] for key in _DEFAULTS if key in row}
    return Example(row["rule"], row["mutant"], row["passes_on"], row["runtime"], file, **more)


def write(made: Mapping[str, Example]) -> None:
    """Write the files anew, in the order of rules."""
    lines: dict[str, list[str]] = {subject: [] for subject in FILES}
    for _, example in sorted(made.items()):
        file = msgspec.json.decode(msgspec.json.encode(example.file))
        row = example._asdict() | {"file": {key: file[key] for key in file if key not in _NOT_KEPT}}
        row = {key: value for key, value in row.items() if value != _DEFAULTS.get(key, ...)}
        lines[example.file.subject].append(json.dumps(row))
    for subject, name in FILES.items():
        (FOLDER / name).write_text("".join(f"{line}\n" for line in lines[subject]), encoding="utf-8")
    _lines.cache_clear()
