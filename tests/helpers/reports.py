"""What tests read out of a report."""

from __future__ import annotations

from typing import Any


def judged_rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules with a verdict, those of all targets in the report's order."""
    rules = [rule for target in document["targets"] for rule in target["rules"]]
    return [rule for rule in rules if rule["state"] == "judged"]


def judged_by_id(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same by id."""
    return {rule["id"]: rule for rule in judged_rules(document)}
