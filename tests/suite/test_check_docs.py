from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HEADINGS = """
# A title with `code`: and more

## Twice

## Twice

```
# No heading
```
"""


@pytest.fixture(scope="module")
def check() -> ModuleType:
    """The tool; tests have no path to its folder."""
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "tools" / "check_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[a](other.md)", ""),
        ("[a](other.md#a-title-with-code-and-more)", ""),
        ("[a](other.md#twice-1)", ""),
        ("[a](https://example.com/nowhere)", ""),
        ("`[a](nowhere.md)`", ""),
        ("[a](nowhere.md)", "nowhere.md: there is no such file"),
        ("[a](other.md#twice-2)", "other.md#twice-2: there is no such heading"),
        ("[a](other.md#no-heading)", "other.md#no-heading: there is no such heading"),
        ("[a](#twice)", "#twice: there is no such heading"),
        ("[a](oth-\ner.md)", "oth- er.md: the address of a link is one word"),
    ],
)
def test_a_link_leads_somewhere(check: ModuleType, tmp_path: Path, link: str, fault: str) -> None:
    (tmp_path / "other.md").write_text(HEADINGS)
    document = tmp_path / "document.md"
    document.write_text(f"See {link}.\n")
    assert list(check.broken_links(document)) == [fault] * bool(fault)


def test_commands_are_found_in_blocks_and_between_backquotes(check: ModuleType) -> None:
    text = """Run `pytest -q
tests` and `ls`:

    python -m one --two  # why
    other

```sh
A=1 python3 -m three \\
  --four && .venv/bin/pytest -n auto
```
"""
    found = [" ".join(command.split()) for command in check.commands(text)]
    assert sorted(found) == [
        ".venv/bin/pytest -n auto",
        "A=1 python3 -m three --four",
        "pytest -q tests",
        "python -m one --two # why",
    ]


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("python -m pytest_qnn.mutants --jobs 2 --update docs/measured/mutants.md  # --nothing", ""),
        ("A=1 python -m benchmarks [--only PART]", ""),
        ("python3 -m venv .venv", ""),
        ("pytest -m full --slice=3/10 --pyargs pytest_qnn.conformance --qnn-seed=1", ""),
        ('python -m pytest_qnn compare --json c.json --run "--qnn-seed=1" "" -- --slice=3/10', ""),
        ("python -m pytest_qnn compare --jason c.json a.json b.json", "there is no option --jason"),
        ("python -m pytest_qnn.kills --jobs 2", "there is no module pytest_qnn.kills"),
        ("python -m nowhere.at.all", "there is no module nowhere.at.all"),
        ("A=1 python -m pytest_qnn.mutants --job 2", "there is no option --job"),
        ("pytest --qnn-sed=1", "there is no option --qnn-sed"),
        ("pytest --pyargs pytest_qnn.conformity", "there is no module pytest_qnn.conformity"),
        ("pytest tests/nowhere/test_it.py::test", "there is no tests/nowhere/test_it.py::test"),
    ],
)
def test_a_command_names_what_there_is(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, command: str, fault: str
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # as for ``python -m`` in this folder
    monkeypatch.setattr(check, "pytest_options", lambda: frozenset({"--slice", "--pyargs", "--qnn-seed"}))
    assert list(check.faults(command)) == [f"{command}: {fault}"] * bool(fault)


def test_the_page_of_options_has_exactly_those_of_the_plugin(check: ModuleType) -> None:
    page = check.OPTIONS.read_text()
    assert list(check.wrong_options(page)) == []
    without = re.sub(r"^## --qnn-seed$", "## --qnn-sed", page, flags=re.MULTILINE)
    assert [fault.partition(":")[0] for fault in check.wrong_options(without)] == ["--qnn-sed", "--qnn-seed"]
