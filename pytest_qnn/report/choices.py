"""What a QNN backend chose where the documents are silent, for the report: no verdict depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def summary(found: Mapping[str, Any]) -> list[str]:
    """A line for each answer, with the points by name: for the terminal. The page has the questions."""
    grouped: dict[str, list[str]] = {}
    for each in found.get("choices", ()):
        grouped.setdefault(each["answer"], []).append(each["point"])
    if not grouped:
        return []
    return ["documents are silent, the target chose:"] + [
        f"  {answer}: {', '.join(points)}" for answer, points in grouped.items()
    ]
