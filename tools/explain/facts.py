"""Write what the catalogue and the tests know of each rule: ``python -m tools.explain.facts``.

That is its mutants with their sentences, and the personalities on which it is unsupported, since its gate is
closed there: what holds of each stands in ``tests/helpers/conforming.py``, and
``tests/suite/test_rules_quiet.py`` holds the verdicts to it. It goes to
``pytest_qnn/report/explain/known/rules.json``.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_qnn.core.conditions import closed
from pytest_qnn.core.rule import Rule
from pytest_qnn.mutants import table
from pytest_qnn.report.explain import known
from pytest_qnn.rules import catalogue

HELPERS = Path(__file__).parents[2] / "tests" / "helpers"


def conforming() -> Any:
    """The module that says what holds of each conforming target."""
    if str(HELPERS) not in sys.path:
        sys.path.append(str(HELPERS))
    return importlib.import_module("conforming")


def unsupported_on(rule: Rule[Any, Any, Any]) -> list[str]:
    """Personalities of the reference on which the rule is unsupported; of delegates, on both runtimes."""
    targets = conforming().MEMORY if rule.subject == "memory" else conforming().DELEGATES
    names = [target.name for target in targets if closed(rule.gate, target.holding)]
    return names if rule.subject == "memory" else _on_both_runtimes(names)


def _on_both_runtimes(names: Iterable[str]) -> list[str]:
    """``long-partitions`` for ``long-partitions-tflite_runtime`` and ``long-partitions-ai_edge_litert``."""
    split = [name.rpartition("-")[::2] for name in names]
    alone = [variant for variant, _ in split]
    found = [variant if alone.count(variant) > 1 else f"{variant} ({runtime})" for variant, runtime in split]
    return list(dict.fromkeys(found))


def facts() -> dict[str, Any]:
    """By rule: what is written."""
    mutants = sorted(table().values(), key=lambda mutant: mutant.name)
    return {
        rule_id: {
            "mutants": {each.name: each.fault for each in mutants if rule_id in each.kills},
            "unsupported_on": unsupported_on(rule),
        }
        for rule_id, rule in sorted(catalogue().items())
    }


def text() -> str:
    """The content of the file: JSON, a line for each rule."""
    lines = [f"{json.dumps(rule_id)}: {json.dumps(each)}" for rule_id, each in facts().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file."""
    known.RULES.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
