"""Write the skeleton of a rule and of its first mutant: ``python -m tools.new_rule REG-30``.

The rule goes to the end of its area's ``rules.py``, the mutant to the end of its ``mutants.py``; the test of
the suite is made from the list of rules, to which the rule is added. All of it fails until it is filled in:
the rule raises, and no rule finds the mutant. CONTRIBUTING.md says what to do next.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pytest_qnn"
AREAS = (PACKAGE / "qnn" / "rules", PACKAGE / "tflite" / "rules")
ELSEWHERE = {"IF": AREAS[0] / "iface", "TFL": PACKAGE / "tflite" / "qnn_delegate"}
"""Areas whose folder has not their name."""

MEMORY_RULE = '''

def _{name}(scene: Scene, tape: Tape) -> None:
    raise NotImplementedError("{id}: add the steps that can show a violation")


@rule(
    "{id}",
    Level.SHOULD,
    "TODO: subject, condition, outcome.",
    source="TODO: document and section, or header and symbol",
    subject="memory",
    cases=embedded(_{name}),
)
def {name}(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """TODO: what is compared with what."""
    raise NotImplementedError("{id}: judge the trace")
'''
MEMORY_MUTANT = '''

@faulty_backend("{slug}-todo", "TODO: the one fault, as a sentence.", "{id}")
class _{mutant}(ReferenceBackend):
    """TODO: override the method that gets the fault."""
'''
DELEGATE_RULE = '''

def _{name}_cases(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    raise NotImplementedError("{id}: generate cases that can show a violation")


@rule(
    "{id}",
    Level.SHOULD,
    "TODO: subject, condition, outcome.",
    source="TODO: document and section, or header and symbol",
    subject="delegate",
    cases=_{name}_cases,
)
def {name}(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """TODO: what is compared with what."""
    raise NotImplementedError("{id}: judge the trace")
'''
DELEGATE_MUTANT = '''

@faulty_delegate("{slug}-todo", "TODO: the one fault, as a sentence.", "{id}")
class _{mutant}(ReferenceDelegate):
    """TODO: override the method that gets the fault."""
'''
VERDICTS = "pytest_qnn.core.verdict:Examined,Level"
IMPORTS = {
    "qnn": (
        "pytest_qnn.core.rule:rule",
        VERDICTS,
        "pytest_qnn.qnn.cases.case:MemoryCase",
        "pytest_qnn.qnn.strategies.scene:Scene,Tape",
        "pytest_qnn.qnn.strategies.sequences:embedded",
        "pytest_qnn.qnn.trace:MemoryTrace",
    ),
    "qnn mutants": (
        "pytest_qnn.qnn.mutants:faulty_backend",
        "pytest_qnn.qnn.reference.backend:ReferenceBackend",
    ),
    "tflite": (
        "hypothesis.strategies:SearchStrategy",
        "pytest_qnn.core.rule:rule",
        VERDICTS,
        "pytest_qnn.tflite.cases.delegate:DelegateCase",
        "pytest_qnn.tflite.facts:DelegateFacts",
        "pytest_qnn.tflite.trace:DelegateTrace",
    ),
    "tflite mutants": (
        "pytest_qnn.tflite.mutants:faulty_delegate",
        "pytest_qnn.tflite.reference.delegate:ReferenceDelegate",
    ),
}
"""What the skeletons need, as ``module:name,name``."""


def area_of(rule_id: str) -> Path:
    """The folder of the rule's area.

    Raises:
        ValueError: with one sentence, where there is none, or the id is no id.
    """
    if not re.fullmatch(r"[A-Z]{2,5}-\d\d", rule_id):
        raise ValueError(f"{rule_id!r} is no rule's id; one looks like REG-30")
    area = rule_id.partition("-")[0]
    if area in ELSEWHERE:
        return ELSEWHERE[area]
    found = [half / area.lower() for half in AREAS if (half / area.lower()).is_dir()]
    if not found:
        raise ValueError(
            f"there is no area {area}: make a folder {area.lower()} with __init__.py, rules.py and mutants.py"
            " in pytest_qnn/qnn/rules or pytest_qnn/tflite/rules, and name its package in pyproject.toml"
        )
    return found[0]


def extend(path: Path, skeleton: str, imports: tuple[str, ...]) -> None:
    """Append a skeleton to a module, with the imports that it needs and the module lacks."""
    text = path.read_text()
    body = ast.parse(text).body
    taken = {
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    } | {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    lines = text.splitlines(keepends=True)
    last = max(node.end_lineno or 0 for node in body if isinstance(node, ast.Import | ast.ImportFrom))
    for module, names in (each.split(":") for each in imports):
        lacking = [name for name in names.split(",") if name not in taken]
        if lacking:
            lines.insert(last, f"from {module} import {', '.join(lacking)}\n")
    path.write_text("".join(lines) + skeleton)


def write(rule_id: str) -> list[Path]:
    """Write both skeletons; the files that were changed.

    Raises:
        ValueError: with one sentence, where the rule cannot be added.
    """
    folder = area_of(rule_id)
    if any(f'"{rule_id}"' in path.read_text() for path in folder.glob("*.py")):
        raise ValueError(f"{rule_id} is taken already; ids are never used again")
    half = "qnn" if AREAS[0] in folder.parents else "tflite"
    rule, mutant = (MEMORY_RULE, MEMORY_MUTANT) if half == "qnn" else (DELEGATE_RULE, DELEGATE_MUTANT)
    slug = rule_id.lower()
    words = {
        "id": rule_id,
        "slug": slug,
        "name": slug.replace("-", "_"),
        "mutant": f"Todo{rule_id.replace('-', '')}",
    }
    files = [folder / "rules.py", folder / "mutants.py"]
    extend(files[0], rule.format_map(words), IMPORTS[half])
    extend(files[1], mutant.format_map(words), IMPORTS[f"{half} mutants"])
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the skeletons and say what is next; 1 where the rule cannot be added."""
    parser = argparse.ArgumentParser(prog="python -m tools.new_rule", description=__doc__.splitlines()[0])
    parser.add_argument("rule", metavar="ID", help="for example REG-30")
    rule_id = parser.parse_args(arguments).rule
    try:
        files = write(rule_id)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", "--select", "I", *files], check=False)
    subprocess.run([*ruff, "format", "--quiet", *files], check=False)
    # The suite's tests are made from the list of rules.
    subprocess.run([sys.executable, "-m", "pytest_qnn.rules", "--list"], cwd=PACKAGE.parent, check=False)
    shown = [str(path.relative_to(PACKAGE.parent)) for path in files]
    test = f"test_{rule_id.lower().replace('-', '_')}"
    sys.stdout.write(
        f"{' and '.join(shown)}: fill in what says TODO or raises.\n"
        f"Try the rule:   pytest --pyargs pytest_qnn.conformance -k {test}\n"
        f"Try the mutant: python -m pytest_qnn.mutants --only /{rule_id} --update docs/measured/mutants.md\n"
        "Then:           step 5 of walk 1 in CONTRIBUTING.md\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
