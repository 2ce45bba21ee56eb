"""The pages of what is written as JSON: reports and case files, from their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest_qnn

_SCHEMAS = Path(pytest_qnn.__file__).parent / "report"
_HEAD = """\
# {title}

Written by `python -m tools.reference` from `pytest_qnn/report/{name}`, a JSON Schema which is installed with
the package; a test keeps it so.

{more}
"""
_NO_ANCHOR = re.compile(r"[^\w-]")
"""What a heading loses in its anchor."""
_REPORT = "`--qnn-report=PATH.json` writes such a file."
_CASES = (
    "A finding's folder has such a file, `case.json`, which `--qnn-replay` judges again. It is data:\n"
    "reading one runs no code. `do` says which step a step is."
)


def report() -> str:
    """The page of reports as Markdown."""
    schema = _read("schema.json")
    parts = [
        _HEAD.format(title="Reports as JSON", name="schema.json", more=_REPORT),
        *_object("report", schema),
    ]
    return "".join((*parts, *_definitions(schema)))


def cases() -> str:
    """The page of case files as Markdown."""
    head = _HEAD.format(title="Case files", name="case.schema.json", more=_CASES)
    return "".join((head, *_definitions(_read("case.schema.json"))))


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_SCHEMAS / name).read_text(encoding="utf-8"))
    return found


def _definitions(schema: dict[str, Any]) -> Iterator[str]:
    for name, one in schema["$defs"].items():
        yield from _object(name, one)


def _object(name: str, one: dict[str, Any]) -> Iterator[str]:
    """A heading, what it is, and its fields."""
    yield f"\n## {name}\n\n"
    said = _cell(one.get("description", ""))
    kind = "" if "properties" in one else f"{_type(one)}. "
    yield f"{kind}{said}\n" if kind or said else ""
    if "properties" not in one:
        return
    yield "\n| field | type | what |\n|---|---|---|\n"
    for field, each in one["properties"].items():
        yield f"| `{field}` | {_type(each)}{_left_out(field, one)} | {_cell(each.get('description', ''))} |\n"


def _left_out(field: str, one: dict[str, Any]) -> str:
    """What it means that a field is not there."""
    if field in one.get("required", ()):
        return ""
    default = one["properties"][field].get("default")
    return " (may be left out)" if default is None else f" (default: `{json.dumps(default)}`)"


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def _type(one: dict[str, Any] | bool) -> str:
    """In words: ``list of integer``, a link to a definition, or the values that are allowed."""
    if isinstance(one, bool):
        return "anything"
    if "$ref" in one:
        name = one["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{_NO_ANCHOR.sub('', name.lower())})"
    values = one.get("enum", [one["const"]] if "const" in one else [])
    ways = one.get("anyOf") or one.get("oneOf") or ()
    if values or ways:
        return " or ".join(dict.fromkeys((*(f"`{json.dumps(each)}`" for each in values), *map(_type, ways))))
    kinds = one.get("type", "anything")
    return " or ".join(_kind(kind, one) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, one: dict[str, Any]) -> str:
    if kind == "array":
        return f"list of {', '.join(map(_type, one.get('prefixItems') or [one.get('items', True)]))}"
    values = one.get("additionalProperties")
    return f"object of {_type(values)}" if kind == "object" and isinstance(values, dict) else kind
