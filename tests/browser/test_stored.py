"""The reports that pages are made of in these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks.page import FINDINGS
from pytest_qnn.report import document

SCHEMA = json.loads((Path(document.__file__).with_name("schema.json")).read_text())


@pytest.mark.parametrize("name", ["plugin", "libqnnhtp", "many"])
def test_it_is_a_report(documents: dict[str, Any], name: str) -> None:
    """After a change of the report: python -m tests.browser.make_reports."""
    jsonschema.validate(documents[name], SCHEMA)
    text = json.dumps(documents[name])
    assert "/tmp/" not in text
    assert "site-packages" not in text


def test_the_large_one_has_many_findings(documents: dict[str, Any]) -> None:
    rules = [rule for target in documents["many"]["targets"] for rule in target["rules"]]
    assert sum(rule["verdict"] not in (None, "pass") for rule in rules) == FINDINGS
    pictures = sum(bool(rule["violation"] and rule["violation"]["picture"]) for rule in rules)
    assert pictures > FINDINGS / 5
