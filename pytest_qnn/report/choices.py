"""What a QNN backend chose where the documents are silent, for the report: no verdict depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_qnn.facts import Choice


def learned(choices: Sequence[Choice]) -> dict[str, Any]:
    """``choices`` as JSON data, a list of {point, question, answer, code}; empty where nothing was asked."""
    if not choices:
        return {}
    return {
        "choices": [
            {"point": each.point, "question": each.question, "answer": each.answer, "code": each.code}
            for each in choices
        ]
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """One line of text for each choice: the page has room for the questions."""
    return [f"{each['question']}: {each['answer']}" for each in found.get("choices", ())]


def summary(found: Mapping[str, Any]) -> list[str]:
    """The same on a line for each answer, with the points by name: a terminal has not."""
    grouped: dict[str, list[str]] = {}
    for each in found.get("choices", ()):
        grouped.setdefault(each["answer"], []).append(each["point"])
    if not grouped:
        return []
    return ["documents are silent, the target chose:"] + [
        f"  {answer}: {', '.join(points)}" for answer, points in grouped.items()
    ]
