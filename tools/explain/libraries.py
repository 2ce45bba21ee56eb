"""Write what public libraries do: ``python -m tools.explain.libraries REPORT.json ...``.

Each argument is a report in JSON of one run of the suite (``--qnn-report``) on one library. What all of them
say is written to ``pytest_qnn/report/explain/known/libraries.json``; a library that no report is about is
dropped from it. With ``--add`` first, what the reports say of rules is added to what is there, and all else
stays.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from pytest_qnn.core.printable import one_line
from pytest_qnn.report import loaded
from pytest_qnn.report.explain import known

_PATH = re.compile(r"(?:/[\w.@+-]+){3,}")
"""A path of some machine, which no text here keeps."""


def name_of(target: loaded.Target) -> str:
    """``libQnnHtp.so, backend API 5.51.0``, or ``XNNPACK of tflite_runtime 2.14.0``."""
    found = target.provenance
    if target.subject == "delegate":
        return f"{target.spec.upper()} of {found['runtime']} {found['runtime_version']}"
    return f"{PurePath(target.spec).name}, backend API {found.get('backend_api', 'unknown')}"


def seen(rule: loaded.Rule) -> str:
    """What was seen, on one line and without paths."""
    text = rule.violation.seen if rule.violation is not None else rule.reason
    return one_line(_PATH.sub(lambda match: PurePath(match[0]).name, text))


def read(paths: Sequence[Path]) -> dict[str, Any]:
    """What is written: the libraries, and by rule what each of them does."""
    libraries: dict[str, Any] = {}
    rules: dict[str, dict[str, list[str]]] = {}
    for path in paths:
        report = loaded.read(path)
        for target in report.targets:
            name = name_of(target)
            libraries[name] = {
                "date": report.started[:10],
                "profile": report.profile,
                "seed": report.seed,
                "sha256": target.provenance.get("library_sha256", "")[:12],
            }
            for rule in target.rules:
                if rule.verdict is not None:
                    rules.setdefault(rule.id, {})[name] = [rule.verdict, seen(rule)]
    return {"libraries": libraries, "rules": dict(sorted(rules.items()))}


def _added(before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """What was known, with what further reports say of rules."""
    rules = {
        rule_id: before["rules"].get(rule_id, {}) | more["rules"].get(rule_id, {})
        for rule_id in before["rules"].keys() | more["rules"].keys()
    }
    return {"libraries": more["libraries"] | before["libraries"], "rules": dict(sorted(rules.items()))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    content = read([Path(word) for word in words if word != "--add"])
    if words[:1] == ["--add"]:
        content = _added(json.loads(known.LIBRARIES.read_text(encoding="utf-8")), content)
    rules = (f"{json.dumps(rule_id)}: {json.dumps(each)}" for rule_id, each in content["rules"].items())
    libraries = json.dumps(content["libraries"])
    text = f'{{"libraries": {libraries},\n"rules": {{\n' + ",\n".join(rules) + "\n}}\n"
    known.LIBRARIES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
