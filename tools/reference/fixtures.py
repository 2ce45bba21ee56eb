"""The page of what tests can use, from docstrings: fixtures, strategies, and what `pytest_qnn` exports."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest_qnn
from pytest_qnn import plugin

_HEAD = """\
# Fixtures, strategies and names

Written by `python -m tools.reference` from docstrings; a test keeps it so.
[fixtures](../how-to/fixtures.md) shows how they are used.

## Fixtures

"""
_STRATEGY = "SearchStrategy["
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):$")
_ENTRY = re.compile(r"^ {4}([\w*]+): (.*)$")


def page() -> str:
    """The page as Markdown."""
    exported = {name: getattr(pytest_qnn, name) for name in pytest_qnn.__all__}
    strategies = {name: each for name, each in exported.items() if _STRATEGY in _signature(each)}
    others = {name: each for name, each in exported.items() if name not in strategies}
    fixtures = dict(_fixtures())
    return (
        _HEAD
        + "\n".join(_entry(name, name, each) for name, each in sorted(fixtures.items()))
        + "\n## Strategies\n\n"
        + "\n".join(_entry(name, f"{name}{_signature(each)}", each) for name, each in strategies.items())
        + "\n## Names of `pytest_qnn`\n\n"
        + "\n".join(_entry(name, f"{name}{_signature(each)}", each) for name, each in others.items())
    )


def _fixtures() -> Iterator[tuple[str, Any]]:
    """By name, the function below each fixture of the plugin."""
    for module in (plugin, *map(importlib.import_module, plugin.pytest_plugins)):
        yield from _fixtures_of(module)


def _fixtures_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, each in vars(module).items():
        if type(each).__name__ == "FixtureFunctionDefinition":
            yield name, inspect.unwrap(each)


def _signature(one: Any) -> str:
    return re.sub(r"pytest_qnn\.[\w.]+\.(\w+)", r"\1", str(inspect.signature(one)))


def _entry(name: str, written: str, one: Any) -> str:
    code = "" if written == name else f"```python\n{written}\n```\n\n"
    return f"### {name}\n\n{code}{_text(inspect.getdoc(one) or '')}\n"


def _text(docstring: str) -> str:
    """The docstring as Markdown: sections as lists."""
    lines, in_section = [], False
    for line in docstring.replace("``", "`").splitlines():
        if found := _SECTION.match(line):
            in_section = True
            lines += [f"{found[1]}:", ""]
        elif in_section and (entry := _ENTRY.match(line)):
            lines.append(f"* `{entry[1]}`: {entry[2]}")
        elif in_section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join(lines).rstrip()
