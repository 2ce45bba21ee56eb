"""Figures of pages, held against what the repository says: a page that is stale fails in the fast run.

That the examples pass and lack what `conforming` says is tested by runs
(tests/plugin/test_example_repo.py, and the tutorials as they stand, in test_tutorials.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import tomlkit
from conforming import BACKEND_LACKS, DELEGATE_LACKS, DELEGATE_RULES, MEMORY_RULES
from pages import ROOT

from pytest_qnn.core.verdict import case_file
from pytest_qnn.session import findings

TUTORIALS = ROOT / "docs" / "tutorials"
DELEGATE = (TUTORIALS / "delegate.md").read_text()
BACKEND = (TUTORIALS / "qnn-backend.md").read_text()
OWN_TESTS = (ROOT / "examples" / "delegate_repo" / "tests" / "test_properties.py").read_text()
ALL = len(DELEGATE_RULES | MEMORY_RULES)
ROW = re.compile(r"^(total|[A-Z]+)((?: +(?:\d+|\.)){7,8})$", re.MULTILINE)


def rows(text: str) -> Iterator[tuple[str, int, int, int]]:
    """The area of each row of a page's tables, how many rules pass, are unsupported, and are all others."""
    for area, cells in ROW.findall(text):
        counts = cells.split()
        passed, fail, crash, hang, unsupported, *others = (0 if each == "." else int(each) for each in counts)
        yield area, passed, unsupported, sum((fail, crash, hang, *others))


def of_area(rules: set[str], area: str) -> int:
    return sum(area == "total" or rule.startswith(f"{area}-") for rule in rules)


@pytest.mark.parametrize(
    ("text", "rules", "lacks"),
    [(DELEGATE, DELEGATE_RULES, DELEGATE_LACKS), (BACKEND, MEMORY_RULES, BACKEND_LACKS)],
    ids=["delegate", "qnn-backend"],
)
def test_the_tables_of_a_conforming_example_have_its_rules(
    text: str, rules: set[str], lacks: set[str]
) -> None:
    seen = {(area, passed, lacking) for area, passed, lacking, bad in rows(text) if not bad}
    assert len(seen) > 2
    for area, passed, lacking in seen:
        assert (passed, lacking) == (of_area(rules - lacks, area), of_area(lacks, area)), area


@pytest.mark.parametrize(("text", "area"), [(DELEGATE, "NUM"), (BACKEND, "REG")], ids=["NUM", "REG"])
def test_a_table_with_findings_has_as_many_rules_as_its_area(text: str, area: str) -> None:
    found = [passed + lacking + bad for _, passed, lacking, bad in rows(text) if bad]
    assert found == [of_area(DELEGATE_RULES | MEMORY_RULES, area)] * 2


def test_the_readme_counts_the_rules_of_each_half() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"It has {ALL} rules." in text
    assert f"only the {len(DELEGATE_RULES)} rules about delegates" in text
    assert f"only the {len(MEMORY_RULES)} rules about QNN memory" in text
    assert f" of the {len(MEMORY_RULES)} rules about it are unsupported" in text
    hosts = (ROOT / "docs" / "how-to" / "hosts.md").read_text()
    assert f"of the {len(MEMORY_RULES)} rules about QNN memory" in hosts


def test_the_other_figures_of_the_tutorials() -> None:
    own = len(re.findall("^def test_", OWN_TESTS, re.MULTILINE))
    passed = len(DELEGATE_RULES - DELEGATE_LACKS)
    assert f" {passed + own} passed, {len(DELEGATE_LACKS)} skipped in" in DELEGATE
    assert f" {passed} rules pass, and so do the {own} tests of the example repository." in DELEGATE
    passed, rules = len(MEMORY_RULES - BACKEND_LACKS), of_area(MEMORY_RULES, "REG")
    assert f" {passed} passed, {len(BACKEND_LACKS)} skipped in" in BACKEND
    assert f" {rules - 2} passed, 1 skipped, {ALL - rules} deselected, 1 xfailed" in BACKEND
    assert f": {len(MEMORY_RULES) - rules} not judged, {rules} pass\n" in BACKEND
    assert f"; {len(MEMORY_RULES) - rules} rules were not judged\n" in BACKEND
    readme = (ROOT / "examples" / "qnn_backend" / "README.md").read_text()
    assert f" {passed} rules are judged; the other {len(BACKEND_LACKS)} are" in readme


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (DELEGATE, "delegate_repo/src/arithmetic_delegate.c"),
        (BACKEND, "qnn_backend/src/example_backend.c"),
    ],
    ids=["delegate", "qnn-backend"],
)
def test_a_tutorial_says_how_long_its_example_is(text: str, source: str) -> None:
    lines = (ROOT / "examples" / source).read_text().count("\n")
    assert re.search(rf"\b{lines} lines of C\b", text)


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_installs_what_its_reports_need(page: object) -> None:
    text = (TUTORIALS / str(page)).read_text()
    extras = tomlkit.parse((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(need.startswith("jinja2") for need in extras["report"])
    (installed,) = re.findall(r"^\.venv/bin/pip install -q '?\.(?:\[(\w+)\]')?$", text, re.MULTILINE)
    assert installed == "report" or ".html" not in text


def test_the_table_of_a_findings_files_has_each_of_them() -> None:
    text = (ROOT / "docs" / "how-to" / "replay.md").read_text()
    table = text[text.index("## What it leaves") : text.index("## Judge it again")]
    first = " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    named = set(re.findall(r"`([^`]+)`", first))
    graphs = {"model0.tflite"}
    assert named == {"README.txt", *findings.CONTENTS, case_file(2), case_file(10), *graphs}
