"""JSON Schemas of what is typed: the same text in each version of Python."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec


def made_of(kind: Any, title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a type of msgspec's, as JSON data.

    Args:
        kind: a struct, or a union of them.
        title: of the schema.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    # The defaults in a made schema are tuples, and how its descriptions are indented depends on Python.
    made: dict[str, Any] = json.loads(
        json.dumps(head | msgspec.json.schema(kind)), object_hook=_with_clean_description
    )
    return made


def _with_clean_description(value: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value.get("description"), str):
        value["description"] = inspect.cleandoc(value["description"])
    return value
