"""Print the catalogue as a Markdown document: ``python -m pytest_qnn.rules > docs/rules.md``."""

from __future__ import annotations

import itertools
import sys

from pytest_qnn.mutants import table
from pytest_qnn.rules import Rule, catalogue

_HEAD = """\
# The rules

Written by `python -m pytest_qnn.rules > docs/rules.md`; a test keeps it so. The ids are stable. A rule
marked * judges the TensorFlow Lite runtime, and so the suite itself, not the delegate. The gate names the
property keys that a rule needs (HTP: backend id 6): on a target without one of them the rule is unsupported,
unless it is about that very lack, as CAP-05 to CAP-07, EXT-02, EXT-25, EXT-29, EXT-31, IF-05 and ION-06 are.
A test holds the column to that; whether a target lacks something is told by what it does, not by its keys.
The last column names the mutants that the rule must find.
"""
_SUBJECTS = {"delegate": "TensorFlow Lite delegates", "memory": "QNN memory"}


def document() -> str:
    """The whole document."""
    rules = sorted(catalogue().values(), key=lambda rule: (rule.subject, rule.area, rule.id))
    killers: dict[str, list[str]] = {}
    for mutant in table().values():
        for rule_id in mutant.kills:
            killers.setdefault(rule_id, []).append(f"`{mutant.name}`")
    parts = [_HEAD]
    for subject, of_subject in itertools.groupby(rules, key=lambda rule: rule.subject):
        parts.append(
            f"\n## {_SUBJECTS[subject]}\n\n"
            "| id | level | rule | source | gate | mutants |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(rule, killers.get(rule.id, [])) for rule in of_subject]
    return "".join(parts)


def _row(rule: Rule[object, object, object], killers: list[str]) -> str:
    star = " *" if rule.self_check else ""
    cells = [
        rule.id + star,
        rule.level.value,
        rule.sentence,
        rule.source,
        ", ".join(rule.gate),
        ", ".join(sorted(killers)),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(document())
