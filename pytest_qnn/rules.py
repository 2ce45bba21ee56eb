"""The catalogue of rules, and its document: ``python -m pytest_qnn.rules > docs/reference/rules.md``.

The list, ``rules.json`` beside this module, says what each rule demands. It is read where no rule is judged,
so that a run about one rule imports that rule's area and no other. It is made from the catalogue, and a test
keeps it so: ``python -m pytest_qnn.rules --list``.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_qnn.core.rule import Demand, Rule, entered
from pytest_qnn.core.verdict import Level

_HISTORIES = "pytest_qnn.tflite.strategies.with_history"
"""By name: only a run about delegates imports their half."""
LIST = Path(__file__).with_suffix(".json")
"""The list of rules."""

_HEAD = """\
# The rules

Written by `python -m pytest_qnn.rules > docs/reference/rules.md`; a test keeps it so. The ids are stable. A
rule marked * judges the TensorFlow Lite runtime, and so the suite itself, not the delegate. The gate names
what a rule needs, all of it: property keys of QNN (numbers) and conditions, listed below; `no` before one
means that it must not hold. Where a gate is closed the rule is unsupported, and elsewhere it passes on every
conforming target: a test holds the column to that. Whether a target has something is found out by what it
does, not by its keys. The last column names the mutants that the rule must find.

A call *refuses* an argument when it returns an error and has no other effect. Codes are the low 16 bits of a
`Qnn_ErrorHandle_t`, with their names in the header. In the rules about QNN memory, *external memory* is a
context's weights or spill-fill memory that the client provides, and a *live* object is one that was made and
not freed. Sources are named so:

| source | what it is |
|---|---|
| `QnnMem.h: NAME` | what this header of the QNN SDK (API 2.32) says at NAME |
| `tflite/...` | a file of TensorFlow Lite's sources |
| seed 000 | Qualcomm AI Engine Direct Delegate, tutorial *Running Inference Using Shared Memory* |
| seed 001 | Qualcomm AI Engine Direct, *QNN HTP Qmem Graph* |
| seed 002 | Qualcomm AI Engine Direct, *QNN HTP Shared Buffer Tutorial* |
| seed 004 | an article on the source code of TensorFlow Lite's delegates |
| device log | the error that the backend of a real device answered in such a case, as a published log of \
an open-source client shows |
| inference | no document says it; it follows from what is named |
| RT-nn | a defect of a runtime, see [runtimes.md](runtimes.md) |

| condition | what is true |
|---|---|
"""
HALVES = ("pytest_qnn.qnn.rules", "pytest_qnn.tflite.rules")
"""Packages with a package for each area, of the area's name in small letters."""
BRIDGE = "pytest_qnn.tflite.qnn_delegate.rules"
"""The area that needs both halves (TFL)."""
_MORE = {
    BRIDGE: (
        "pytest_qnn.tflite.qnn_delegate.whole_models",
        "pytest_qnn.tflite.qnn_delegate.own_interface",
    )
}
"""Further modules of an area that is no package."""
_KEYWORDS = {"iface": "IF"}
"""Packages that cannot have their area's name."""
_SUBJECTS = {"delegate": "TensorFlow Lite delegates", "memory": "QNN memory"}


@functools.cache
def catalogue() -> dict[str, Rule[Any, Any, Any]]:
    """Every rule by id, all areas loaded."""
    return {rule_id: rule for area in areas() for rule_id, rule in of_area(area).items()}


@functools.cache
def of_area(area: str) -> dict[str, Rule[Any, Any, Any]]:
    """The rules of one area (``REG``) by id, in the order of their numbers.

    No other area is loaded.

    Raises:
        LookupError: there is no such area.
    """
    _load(areas()[area])
    return {rule_id: _framed(rule) for rule_id, rule in sorted(entered().items()) if rule.area == area}


def named(rule_id: str) -> Rule[Any, Any, Any]:
    """The rule with this id. Raises LookupError when the catalogue has none."""
    try:
        return of_area(rule_id.partition("-")[0])[rule_id]
    except LookupError:
        raise LookupError(f"the catalogue has no rule {rule_id}") from None


def _framed(rule: Rule[Any, Any, Any]) -> Rule[Any, Any, Any]:
    """The rule; one about delegates with histories before its cases."""
    if rule.subject == "memory":  # whose strategies have histories of their own
        return rule
    return importlib.import_module(_HISTORIES).behind_histories(rule)  # type: ignore[no-any-return]


@functools.cache
def areas() -> dict[str, str]:
    """Where the rules of each area are, by the area's name: a package, or a module (TFL)."""
    packages = {
        _KEYWORDS.get(package.name, package.name.upper()): f"{half}.{package.name}"
        for half in HALVES
        for package in pkgutil.iter_modules([str(Path(__file__).parents[1].joinpath(*half.split(".")))])
        if package.ispkg
    }
    return packages | {"TFL": BRIDGE}


@functools.cache
def listed() -> dict[str, Demand]:
    """What every rule demands, by id, sorted: from the list, so that no rule is imported.

    Raises:
        OSError: the list is not there, or cannot be read.
    """
    rows = json.loads(LIST.read_text(encoding="utf-8"))
    return {
        row["id"]: Demand(**row | {"level": Level(row["level"]), "gate": tuple(row["gate"])}) for row in rows
    }


def list_of_rules() -> str:
    """The content of the list, from the rules themselves."""
    fields = ("id", "level", "sentence", "source", "subject", "gate", "self_check")
    rows = [{field: getattr(rule, field) for field in fields} for _, rule in sorted(catalogue().items())]
    return json.dumps(rows, indent=1) + "\n"


def _load(area: str) -> None:
    """Every module of an area but its mutants: each enters its rules."""
    for module in pkgutil.iter_modules(getattr(importlib.import_module(area), "__path__", ()), f"{area}."):
        if not module.name.endswith(".mutants"):
            importlib.import_module(module.name)
    for name in _MORE.get(area, ()):
        importlib.import_module(name)


def document() -> str:
    """The whole document."""
    from pytest_qnn.core.conditions import CONDITIONS
    from pytest_qnn.qnn.abi.codes import Property
    from pytest_qnn.qnn.mutants import table as qnn_mutants
    from pytest_qnn.tflite.mutants import table as delegate_mutants

    rules = sorted(catalogue().values(), key=lambda rule: (rule.subject, rule.area, rule.id))
    killers: dict[str, list[str]] = {}
    for mutant in (qnn_mutants() | delegate_mutants()).values():
        for rule_id in mutant.kills:
            killers.setdefault(rule_id, []).append(f"`{mutant.name}`")
    keys = sorted({int(part) for rule in rules for part in rule.gate if part.isdecimal()})
    parts = [
        _HEAD,
        *(f"| {key} | property key QNN_PROPERTY_{Property(key).name} is supported |\n" for key in keys),
    ]
    parts += [f"| {name} | {meaning} |\n" for name, meaning in CONDITIONS.items()]
    for subject, of_subject in itertools.groupby(rules, key=lambda rule: rule.subject):
        parts.append(
            f"\n## {_SUBJECTS[subject]}\n\n"
            "| id | level | rule | source | gate | mutants |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(rule, killers.get(rule.id, [])) for rule in of_subject]
    parts.append(_UNCONTROLLED)
    parts += [f"| {rule.id} | {rule.uncontrolled} |\n" for rule in rules if rule.uncontrolled]
    return "".join(parts)


_UNCONTROLLED = """
## Rules without a control

A wrong output or a dead process that a plain run shows too is the finding of the rule that owns it
([blame](../explanation/decisions/shared/blame.md)). For these rules no plain run can be told apart from what
they are about, so any wrong output in their cases is their own finding.

| rule | why |
|---|---|
"""


def _row(rule: Rule[object, object, object], killers: list[str]) -> str:
    star = " *" if rule.self_check else ""
    half = "qnn" if rule.subject == "memory" else "tflite"
    cells = [
        f"[{rule.id}](../rules/{half}/{rule.area.lower()}.md#{rule.id.lower()})" + star,
        rule.level.value,
        rule.sentence,
        rule.source,
        ", ".join(rule.gate),
        ", ".join(sorted(killers)),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main(arguments: Sequence[str]) -> None:
    """Print the document, or with ``--list`` write the list."""
    if "--list" in arguments:
        LIST.write_text(list_of_rules(), encoding="utf-8")
    else:
        sys.stdout.write(document())


if __name__ == "__main__":
    main(sys.argv[1:])
